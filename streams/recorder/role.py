"""The recorder as a role of a deployment: for ever, with a report each second."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.records import STOPPED
from streams.operators.contract import Emit
from streams.runtime.errors import StreamError
from streams.runtime.metrics import Composer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


class RecordRole:
    """Records until it is stopped.

    Args:
        recorder: a patient one, without an end.
        reporting: where reports go.
        close: called when it has stopped.
    """

    def __init__(self, recorder: Recorder, reporting: Reporting, close: Callable[[], None]) -> None:
        self._recorder = recorder
        self._reporting = reporting
        self._close = close
        self._composer = Composer(reporting.instance, "record", tells_process=reporting.tells_process)

    async def run(self, stop: asyncio.Event) -> None:
        """Record until `stop` is set; all that was read is on disk then.

        Raises:
            StreamError: the trace is of other logs, or nothing can be read for long.
        """
        reports = asyncio.create_task(self._report_regularly())
        try:
            await self._recorder.run(stop)
        finally:
            reports.cancel()
            self._close()
        await self._report({STOPPED: 1.0})

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            await self._report({})

    async def _report(self, more: Mapping[str, float]) -> None:
        """Give a report to the hooks and to the reports topic; one that Kafka does not take is forgotten."""
        given = self._reporting
        report = self._composer.compose(given.now_us(), self._recorder.statistics(), more)
        for hook in given.hooks:
            hook(report)
        try:
            await given.transport.send(
                topics.REPORTS, 0, [Emit(topics.REPORTS, 0, given.instance.encode(), given.encode(report))]
            )
        except StreamError as fault:
            _log.warning("a report was not taken: %s", fault)
