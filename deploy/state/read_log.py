"""Where a command reads what was logged: the topics of a running deployment, or a recorded trace."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from deploy.config.settings import Control, JoinerSection
from deploy.connect.clients import answering
from deploy.state import catalog
from deploy.state.messages import records
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Model
from streams.operators.join.kernel import JoinerSettings
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Self

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.operators.contract import Record

R = TypeVar("R", Application, Model)


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A log to its present end.

    Attributes:
        settings: of the deployment; of a trace, those that it was recorded under tell how long feedback is remembered.
        codec: of its records.
        trace: that is read; None = the running deployment.
    """

    settings: Settings
    codec: Codec
    trace: Trace | None = None

    @classmethod
    def of(cls, settings: Settings, codec: Codec, folder: Path | None) -> Self:
        """Return the trace in a folder as a log; without one, the running deployment's.

        Raises:
            TraceError: there is no trace, or it is damaged.
        """
        if folder is None:
            return cls(settings, codec)
        trace = Trace.open(folder)
        told = trace.manifest.settings
        joiner, control = JoinerSection.model_validate(told.get("joiner", {})), told.get("control", {})
        known = {"joiner": joiner, "control": Control.model_validate(control)}
        return cls(settings.model_copy(update=known), codec, trace)

    @property
    def end_us(self) -> int:
        """Until when it tells all: now, as a deployment may be quiet, or the last record of the trace."""
        return time.time_ns() // 1000 if self.trace is None else self.trace.manifest.until_us or 0

    @property
    def window(self) -> JoinerSettings:
        """How long feedback is waited for."""
        joiner = self.settings.joiner
        return JoinerSettings(window_us=int(joiner.window_s * 1e6), early_us=int(joiner.early_s * 1e6))

    def records(self, topic: str, since_us: int = 0, most: int = 0) -> Iterator[Record]:
        """Yield a topic's records since a time, those of a partition in its order.

        Args:
            topic: its name.
            since_us: the time.
            most: of a running deployment: about so many of the newest; 0 = all.

        Raises:
            UsageError: there is no such topic.
            TraceError: likewise, of a trace.
            Unreachable: no broker answers.
        """
        if self.trace is not None:
            yield from (each for each in self.trace.records(topic) if each.timestamp_us >= since_us)
            return
        with answering(self.settings):
            yield from records(self.settings, topic, since_us, most)

    def latest(self, kind: type[R]) -> Mapping[str, R]:
        """Return applications, or the models that serve, by name, as they last were.

        Raises:
            TraceError: the trace has none.
            Unreachable: no broker answers.
        """
        if self.trace is None:
            return catalog.read(self.settings, self.codec, kind)
        found: dict[str, R] = {}
        for record in self.trace.records(catalog.TOPICS[kind]):
            name = (record.key or b"").decode("utf-8", "replace")
            found.pop(name, None)
            if record.value is not None and topics.MODEL_VERSION not in name:
                try:
                    found[name] = self.codec.decode(kind, record.value)
                except DecodeError:
                    continue
        return found
