"""The Faust app: folds `reports` into a table and serves the page and `/api/status`.

Faust is good at this and may lose a tick here (`<prefix>.control` is nobody's source of truth). Its own web views are
off: they would show table data and topology to whoever can reach the port.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faust

from schemas.errors import DecodeError
from schemas.records import Report
from streams.control.figures import Figures, fold, heard_lately, status
from streams.control.history import History
from streams.control.overview import overview
from streams.control.unhurried import Transport
from streams.runtime.metrics import Composer

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from faust.types.auth import CredentialsT

    from schemas.codec import Codec
    from streams.runtime.metrics import MetricsHook

PAGE = Path(__file__).with_name("page.html")
# One process, one partition, a report a second from each process: nothing here needs to be large.
STREAM_BUFFER = 64
REPORT_EVERY_S = 1.0
# As for the other roles; Faust's own minute would be a minute without figures after a crash.
SESSION_S, HEARTBEAT_S = 10.0, 2.0
# To fold a few reports again after a crash changes nothing; for each commit Faust draws a table, for a log at DEBUG.
COMMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the control app needs to know."""

    bootstrap: str  # host:port[,host:port...]
    prefix: str
    instance: str
    host: str
    port: int
    data: Path  # Faust insists on a folder, though the table itself is in memory
    credentials: CredentialsT | None = None
    member: str | None = None  # as `ConsumerSettings.member`
    hooks: tuple[MetricsHook, ...] = ()


def create(options: Options, codec: Codec) -> faust.App:
    """Build the app; `await app.start()` runs it on the current loop, `await app.stop()` ends it."""
    app = _bare(options)
    app.transport = Transport(app.conf.broker_consumer, app)
    reports = app.topic(
        f"{options.prefix}.reports", key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
    )
    live = app.Table("live", key_type=str, partitions=1, help="figures of each process")
    history = History()
    _read(app, reports, live, history, codec)
    _show(app, live, history)
    _report(app, reports, codec, options)
    return app


def _bare(options: Options) -> faust.App:
    return faust.App(
        f"{options.prefix}.control",
        broker=[f"kafka://{address}" for address in options.bootstrap.split(",")],
        broker_credentials=options.credentials,
        broker_session_timeout=SESSION_S,
        broker_rebalance_timeout=SESSION_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        broker_commit_interval=COMMIT_S,
        consumer_auto_offset_reset="latest",
        consumer_group_instance_id=options.member,
        datadir=options.data,
        store="memory://",
        topic_disable_leader=True,
        topic_allow_declare=False,  # the topology has made them
        topic_partitions=1,
        table_standby_replicas=0,
        stream_buffer_maxsize=STREAM_BUFFER,
        web_bind=options.host,
        web_host=options.host,
        web_port=options.port,
        web_router_enabled=False,
        web_tables_enabled=False,
        web_graph_enabled=False,
        web_stats_enabled=False,
        web_metrics_enabled=False,
    )


def _read(app: faust.App, reports: Any, live: Any, history: History, codec: Codec) -> None:
    async def follow(values: AsyncIterable[bytes]) -> None:
        """Fold each report into the table; a record that is no report is left to whoever consumes with a group."""
        async for value in values:
            try:
                report = codec.decode(Report, value)
            except DecodeError:
                continue
            before = live.get(report.instance)
            live[report.instance] = after = fold(before, report)
            history.add(before, after, _now_us())

    app.agent(reports, name="follow", concurrency=1)(follow)


def _show(app: faust.App, live: Any, history: History) -> None:
    async def page(self: Any, request: Any) -> Any:  # noqa: ARG001 - Faust passes the request
        """Serve the live page."""
        return self.html(PAGE.read_text(encoding="utf-8"))

    async def api(self: Any, request: Any) -> Any:  # noqa: ARG001 - Faust passes the request
        """Serve the figures as JSON."""
        entries: list[Figures] = list(live.values())
        now_us = _now_us()
        found = overview(heard_lately(entries, now_us), history, now_us)
        return self.json({**status(entries, now_us), "overview": found})

    app.page("/", name="page")(page)
    app.page("/api/status", name="status")(api)


def _report(app: faust.App, reports: Any, codec: Codec, options: Options) -> None:
    composer = Composer(options.instance, "control")

    async def report() -> None:
        """Say once a second that this process is alive too."""
        found = composer.compose(_now_us())
        for hook in options.hooks:
            hook(found)
        await reports.send(key=options.instance.encode(), value=codec.encode(found))

    app.timer(REPORT_EVERY_S, name="report")(report)


def _now_us() -> int:
    return time.time_ns() // 1000
