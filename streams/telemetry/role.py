"""The role `telemetry`: it follows the log from its present end, and reports each second."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from schemas import topics
from schemas.records import STOPPED
from streams.operators.contract import Emit
from streams.runtime.corrupt import CorruptBatch, readable
from streams.runtime.errors import StreamError
from streams.runtime.metrics import Composer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.records import Report
    from streams.operators.contract import Batch, Record
    from streams.runtime.metrics import MetricsHook
    from streams.runtime.ports import Broadcast, Transport
    from streams.telemetry.export import LegQueue
    from streams.telemetry.kernel import LegReader

_log = logging.getLogger(__name__)

REPORT_S: Final = 1.0
PAUSE_S: Final = 0.5  # between polls: nobody waits, and a fetch costs the same whatever it brings
_POLL_MS: Final = 500
_STOP_S: Final = 3.0
_BACKOFF_S: Final = 1.0
READ: Final = (topics.PREDICTIONS, topics.MODEL_PREDICTIONS, topics.OBSERVATIONS)


class BatchTail(Protocol):
    """Reads topics from their present end, with record batches whole where that can be."""

    async def start(self) -> Mapping[str, int]:
        """Connect and note where topics end; returns their numbers of partitions."""
        ...

    async def poll_batches(self, timeout_ms: int) -> Sequence[Record | Batch]:
        """Return what has come."""
        ...

    async def stop(self) -> None:
        """Disconnect."""
        ...


class TelemetryParts(NamedTuple):
    """What the role is made of.

    Attributes:
        reader: makes legs.
        queue: hands them on.
        tail: makes a reader of topics.
        models: makes a reader of topic `models`.
        transport: of the reports.
        encode: turns a report into a value.
        now_us: the clock.
        close: lets go of whoever takes legs.
    """

    reader: LegReader
    queue: LegQueue
    tail: Callable[[Sequence[str]], BatchTail]
    models: Callable[[], Broadcast]
    transport: Transport
    encode: Callable[[Report], bytes]
    now_us: Callable[[], int]
    close: Callable[[], None]


class TelemetryRole:
    """Shows the legs of sampled queries until it is stopped; what was written while it was away it does not show.

    Args:
        instance: unique in the deployment.
        parts: as made for it.
        hooks: are given every report.
        tells_process: whether its reports tell what the process costs.
    """

    def __init__(
        self,
        instance: str,
        parts: TelemetryParts,
        hooks: tuple[MetricsHook, ...] = (),
        *,
        tells_process: bool = True,
    ) -> None:
        self._instance = instance
        self._parts = parts
        self._hooks = hooks
        self._composer = Composer(instance, "telemetry", tells_process=tells_process)
        self._models: set[str] = set()
        self._are_read = asyncio.Event()  # the models that there are
        self._partitions = 0  # that are read

    async def run(self, stop: asyncio.Event) -> None:
        """Read until `stop` is set; what is known then is handed on."""
        jobs = (self._follow_models(), self._read_for_ever(), self._report_regularly(), self._parts.queue.run())
        tasks: list[asyncio.Task[object]] = [asyncio.create_task(job) for job in jobs]
        stopping: asyncio.Task[object] = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            await self._parts.queue.flush(_STOP_S)
        finally:
            for task in (stopping, *tasks):
                task.cancel()
            await asyncio.wait([stopping, *tasks])
            self._parts.close()
        await self._report({STOPPED: 1.0})

    async def _follow_models(self) -> None:
        """Know which models there are: each has a topic of its own."""
        while True:
            reader = self._parts.models()
            try:
                await reader.start()
                while True:
                    for record in readable(await reader.poll(_POLL_MS)):
                        self._note(record)
                    if reader.caught_up:
                        self._are_read.set()
            except StreamError as fault:
                _log.warning("cannot follow models: %s", fault)
            finally:
                await reader.stop(_STOP_S)
            await asyncio.sleep(_BACKOFF_S)

    def _note(self, record: Record) -> None:
        """Take that a model serves, or is removed: its topic may go with it."""
        name = (record.key or b"").decode(errors="replace")
        if topics.MODEL_VERSION in name or not name:
            return
        if record.value:
            self._models.add(name)
        else:
            self._models.discard(name)

    async def _read_for_ever(self) -> None:
        """Read, and begin anew with other topics when there is another model, or after a fault."""
        await self._are_read.wait()
        while True:
            models = frozenset(self._models)
            tail = self._parts.tail([*READ, *map(topics.model_queries, sorted(models))])
            pause_s = 0.0
            try:
                self._partitions = sum((await tail.start()).values())
                while models == self._models:
                    await self._go_on(tail)
            except StreamError as fault:
                _log.warning("cannot read the log: %s", fault)
                pause_s = _BACKOFF_S
            finally:
                self._partitions = 0
                await tail.stop()
            await asyncio.sleep(pause_s)

    async def _go_on(self, tail: BatchTail) -> None:
        reader, now_us = self._parts.reader, self._parts.now_us
        fetched = await tail.poll_batches(_POLL_MS)
        reader.take([one for one in fetched if not isinstance(one, CorruptBatch)], now_us())
        self._parts.queue.put(reader.due(now_us()))
        await asyncio.sleep(PAUSE_S)

    async def _report_regularly(self) -> None:
        while True:
            await self._report({})
            await asyncio.sleep(REPORT_S)

    async def _report(self, more: Mapping[str, float]) -> None:
        """Give a report to the hooks and to the reports topic; one that Kafka does not take is forgotten."""
        parts = self._parts
        waits = {"partitions": float(self._partitions)}
        waits |= {} if self._partitions else {"waits_for{what=kafka}": 1.0}
        figures = (parts.reader.statistics(), parts.queue.statistics(), waits)
        report = self._composer.compose(parts.now_us(), *figures, more)
        for hook in self._hooks:
            hook(report)
        try:
            await parts.transport.send(
                topics.REPORTS, 0, [Emit(topics.REPORTS, 0, self._instance.encode(), parts.encode(report))]
            )
        except StreamError as fault:
            _log.warning("a report was not taken: %s", fault)
