"""The recorder as a role of a deployment: for ever, with a report each second."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.records import STOPPED
from streams.operators.contract import Emit
from streams.recorder.folders import after, last_of
from streams.recorder.recorder import OtherLogError
from streams.runtime.errors import StreamError
from streams.runtime.metrics import Composer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from schemas.records import Report
    from streams.recorder.recorder import Recorder
    from streams.runtime.metrics import MetricsHook
    from streams.runtime.ports import Transport

_log = logging.getLogger(__name__)

REPORT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Reporting:
    """Where reports go.

    Attributes:
        instance: unique in the deployment.
        transport: to topic `reports`.
        encode: turns a report into a value.
        now_us: the clock.
        hooks: are given every report.
        tells_process: whether reports tell what the process costs.
    """

    instance: str
    transport: Transport
    encode: Callable[[Report], bytes]
    now_us: Callable[[], int]
    hooks: tuple[MetricsHook, ...] = ()
    tells_process: bool = True


@dataclass(frozen=True, slots=True)
class FolderRecording:
    """What is recorded into one folder.

    Attributes:
        recorder: a patient one, without an end.
        close: called when it has stopped.
    """

    recorder: Recorder
    close: Callable[[], None]


class RecordRole:
    """Records until it is stopped; where a topic has another log than before, into another folder.

    Args:
        folder: the first one.
        begin: opens a folder.
        reporting: where reports go.
    """

    def __init__(self, folder: Path, begin: Callable[[Path], FolderRecording], reporting: Reporting) -> None:
        self._folder = folder
        self._begin = begin
        self._recording = begin(last_of(folder))
        self._reporting = reporting
        self._anew = 0
        self._composer = Composer(reporting.instance, "record", tells_process=reporting.tells_process)

    async def run(self, stop: asyncio.Event) -> None:
        """Record until `stop` is set; all that was read is on disk then.

        Raises:
            StreamError: nothing can be read for long.
            TraceError: a folder that should be new holds something else.
        """
        reports = asyncio.create_task(self._report_regularly())
        try:
            while not await self._is_over(stop):
                self._recording = self._begin(after(self._folder))
        finally:
            reports.cancel()
        await self._report({STOPPED: 1.0})

    async def _is_over(self, stop: asyncio.Event) -> bool:
        """Record into one folder; tell whether that was all, or a topic has another log now."""
        try:
            await self._recording.recorder.run(stop)
        except OtherLogError as fault:
            self._anew += 1
            _log.error("%s; all that Kafka has is recorded into %s", fault.what, after(self._folder))
            return False
        finally:
            self._recording.close()
        return True

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            await self._report({})

    async def _report(self, more: Mapping[str, float]) -> None:
        """Give a report to the hooks and to the reports topic; one that Kafka does not take is forgotten."""
        given = self._reporting
        report = self._composer.compose(given.now_us(), self._statistics(), more)
        for hook in given.hooks:
            hook(report)
        try:
            await given.transport.send(
                topics.REPORTS, 0, [Emit(topics.REPORTS, 0, given.instance.encode(), given.encode(report))]
            )
        except StreamError as fault:
            _log.warning("a report was not taken: %s", fault)

    def _statistics(self) -> Mapping[str, float]:
        anew = {"traces_begun_anew_total": float(self._anew)} if self._anew else {}
        return {**self._recording.recorder.statistics(), **anew}
