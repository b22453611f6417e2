"""The gateway as a role of a deployment: it follows what there is, keeps connected, serves, and reports each second."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.records import STOPPED
from streams.operators.contract import Emit
from streams.runtime.corrupt import readable
from streams.runtime.errors import StreamError
from streams.runtime.metrics import Composer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from schemas.records import Report
    from streams.gateway.application import GatewayParts
    from streams.gateway.rpc.server import RpcServer
    from streams.gateway.server import GatewayServer
    from streams.runtime.metrics import MetricsHook
    from streams.runtime.ports import Broadcast, Transport

_log = logging.getLogger(__name__)

REPORT_S: Final = 1.0
_POLL_MS: Final = 500
_BACKOFF_S: Final = 1.0
_STOP_S: Final = 3.0


class GatewayRole:
    """Serves until it is stopped.

    Args:
        instance: unique in the deployment.
        parts: of the application that the server serves.
        server: that listens already.
        follow: makes a reader of `applications` and `models`.
        transport: of the reports.
        encode: turns a report into a value.
        hooks: are given every report.
        tells_process: whether reports tell what the process costs.
        rpc: the door of gRPC, if there is one.
    """

    def __init__(
        self,
        instance: str,
        parts: GatewayParts,
        server: GatewayServer,
        follow: Callable[[], Broadcast],
        transport: Transport,
        encode: Callable[[Report], bytes],
        hooks: tuple[MetricsHook, ...] = (),
        *,
        tells_process: bool = True,
        rpc: RpcServer | None = None,
    ) -> None:
        self._instance = instance
        self._parts = parts
        self._server = server
        self._follow = follow
        self._transport = transport
        self._encode = encode
        self._hooks = hooks
        self._composer = Composer(instance, "gateway", tells_process=tells_process)
        self._was_ready = False
        self._rpc = rpc
        parts.figures.report = self._composed

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; requests under way are answered."""
        helpers = [
            asyncio.create_task(self._follow_for_ever(), name="gateway.catalog"),
            asyncio.create_task(self._parts.asking.keep_connected(), name="gateway.client"),
            asyncio.create_task(self._report_regularly(), name="gateway.reports"),
        ]
        serving = [asyncio.create_task(self._server.run(stop), name="gateway.server")]
        if self._rpc is not None:
            serving.append(asyncio.create_task(self._rpc.run(stop), name="gateway.rpc"))
        try:
            await asyncio.wait([*serving, *helpers], return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                await asyncio.wait(serving)  # each answers what is under way
            for task in (*helpers, *serving):
                if task.done():
                    task.result()
        finally:
            for task in (*serving, *helpers):
                task.cancel()
            await asyncio.wait([*serving, *helpers])
            self._server.close()
        await self._report({STOPPED: 1.0})

    async def _follow_for_ever(self) -> None:
        """Keep the catalog as its topics are; a broker that is away is waited for."""
        while True:
            reader = self._follow()
            try:
                await reader.start()
                while True:
                    self._parts.catalog.take(readable(await reader.poll(_POLL_MS)))
                    self._parts.catalog.is_read |= reader.caught_up
            except StreamError as fault:
                _log.warning("cannot follow applications: %s", fault)
            finally:
                await reader.stop(_STOP_S)
            await asyncio.sleep(_BACKOFF_S)

    @property
    def _is_ready(self) -> bool:
        return not self._parts.hindrance

    def _composed(self, more: Mapping[str, float] | None = None) -> Report:
        """Make a report of now."""
        parts = self._parts
        gauges: dict[str, float] = {
            "partitions": 1.0 if self._is_ready else 0.0,
            **({f"waits_for{{what={parts.hindrance}}}": 1.0} if parts.hindrance else {}),
            "gateway_connections": float(self._server.connections),
            "gateway_rows_waiting": float(parts.asking.rows),
            "gateway_memory_bytes": float(parts.memory.bytes),
        }
        return self._composer.compose(parts.now_us(), parts.figures.rendered(), gauges, more or {})

    async def _report_regularly(self) -> None:
        while True:
            await self._report({})
            await asyncio.sleep(REPORT_S)

    async def _report(self, more: Mapping[str, float]) -> None:
        """Give a report to the hooks and to the reports topic; one that Kafka does not take is forgotten."""
        if self._is_ready and not self._was_ready:
            _log.info("the gateway is ready: %s", self._server.address)
        self._was_ready = self._is_ready
        report = self._composed(more)
        for hook in self._hooks:
            hook(report)
        try:
            await self._transport.send(
                topics.REPORTS, 0, [Emit(topics.REPORTS, 0, self._instance.encode(), self._encode(report))]
            )
        except StreamError as fault:
            _log.warning("a report was not taken: %s", fault)
