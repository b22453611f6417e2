"""The role `record`, built from settings."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from deploy.config.configuration import masked
from deploy.errors import UsageError
from streams.recorder.recorder import FETCHING, Recorder
from streams.recorder.role import RecordRole, Reporting
from streams.recorder.span import Span
from streams.runtime.kafka.log_reader import KafkaLogs
from streams.topology import RECORDED
from streams.trace.manifest import Manifest
from streams.trace.writer import MIB, Limits, TraceWriter

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from deploy.roles import Shared


def about(settings: Settings) -> Manifest:
    """Return the manifest of a new trace of this deployment."""
    return Manifest(settings.prefix, metadata.version("skysail"), masked(settings))


def record(common: Shared) -> RecordRole:
    """Build the role that records topics into a folder.

    Raises:
        UsageError: the settings name no folder.
        TraceError: the folder holds something else, or another process records into it.
    """
    given = common.settings.record
    if given.folder is None:
        raise UsageError("role record needs a folder: set record.folder, or leave the role out of `roles`")
    limits = Limits(given.rotate_mib * MIB, None if given.keep_gib is None else int(given.keep_gib * 1024 * MIB))
    writer = TraceWriter(given.folder, about(common.settings), common.codec, limits)
    logs = KafkaLogs(common.kafka, given.topics or RECORDED, FETCHING)
    now_us, name = common.clock.now_us, common.name("record")
    recorder = Recorder(logs, writer, Span(follows=True), now_us, is_patient=True)
    reporting = Reporting(name, common.transport, common.codec.encode, now_us, common.hooks)
    return RecordRole(recorder, reporting, writer.close)
