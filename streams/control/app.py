"""The Faust app of the slow loops: folds `reports` into a table, and judges candidates and plans hosts by timers.

Faust is good at this, and may lose a tick here: no decision depends on `<prefix>.control`. Its web server is off. The
page is served by the server of the gateway (`streams.control.web`), which is bounded, and shows no tables.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import faust

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Report
from streams.control.carry.guards import measured
from streams.control.carry.planning import asked
from streams.control.faust_kafka import FaustTransport
from streams.control.live import LiveFigures
from streams.control.minutes import Minutes
from streams.control.page import rivals
from streams.control.page.outages import fails
from streams.control.page.visibility import DeploymentSettings, Visibility
from streams.control.state import ControlState
from streams.runtime.metrics import Composer

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Mapping
    from pathlib import Path

    from faust.types import RecordMetadata, TopicT
    from faust.types.auth import CredentialsT

    from schemas.codec import Codec
    from streams.control.carry.planning import Planning
    from streams.control.carry.promoting import Promoting
    from streams.control.carry.sensing import Sensing
    from streams.runtime.metrics import MetricsHook

_log = logging.getLogger(__name__)

# One process, one partition, a report a second from each process: nothing here needs to be large.
STREAM_BUFFER = 64
REPORT_EVERY_S = 1.0
# How often a connection to an absent Kafka or Redis is tried.
LISTEN_EVERY_S = 2.0
# How often candidates are judged.
PROMOTE_EVERY_S = 2.0
# How often inputs and outputs are compared with those before: their evidence is bounded for so many looks.
SENSE_EVERY_S = 60.0
# How often it is looked whether hosts are to be planned anew.
PLAN_EVERY_S = 2.0
# As for the other roles; Faust's default of a minute would mean a minute without figures after a crash.
SESSION_S, HEARTBEAT_S = 10.0, 2.0
# What is written is given up after this: by Faust's 20 minutes a page would show old figures for as long, where a
# network has dropped a connection without a word.
TAKEN_S = 10.0
# Faust waits for room in a batch, and ends where that takes as long as above: one must hold what an outage gathers.
BATCH_BYTES = 1 << 20
# Folding a few reports again after a crash changes nothing, and each commit costs Faust a table for its DEBUG log.
COMMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """What the control app needs to know."""

    bootstrap: str  # host:port[,host:port...]
    prefix: str
    instance: str
    data: Path  # Faust insists on a folder, though the table itself is in memory
    credentials: CredentialsT | None = None
    member: str | None = None  # as `ConsumerSettings.member`
    redis: str = ""  # host:port, or a socket's path: to be shown
    hooks: tuple[MetricsHook, ...] = ()
    promoting: Promoting | None = None  # carries candidates on; None = nobody does
    planning: Planning | None = None  # plans hosts; None = there are no pools
    sensing: Sensing | None = None  # watches over drift; None = nobody does
    tells_process: bool = True  # its reports tell CPU and memory of the process


class OnePartition(faust.Table[str, Any]):
    """A table of one partition; timers may write it, too, while no record is being read that tells the partition."""

    def partition_for_key(self, key: object) -> int:
        """Return the partition."""
        return 0


class ControlApp(NamedTuple):
    """The app, and what it reads, for whoever shows it."""

    app: faust.App
    state: ControlState


def create(options: ControlOptions, codec: Codec, stuck: asyncio.Event) -> ControlApp:
    """Build the app; `await app.start()` runs it on the current loop, `await app.stop()` ends it.

    Args:
        options: of this process.
        codec: of reports and plans.
        stuck: is set once the app reads no more, though Kafka takes what it writes: only another app helps.
    """
    app = _bare(options)
    app.transport = FaustTransport(app.conf.broker_consumer, app)
    reports = app.topic(
        f"{options.prefix}.reports", key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
    )
    place = DeploymentSettings(options.prefix, options.instance, options.bootstrap, options.redis)
    live = LiveFigures(app.Table("live", key_type=str, partitions=1, help="figures of each process"))
    kept = app.Table("minutes", key_type=str, value_type=str, partitions=1, help="a day, for charts; what is usual")
    minutes = Minutes(kept)
    if options.sensing is not None:
        options.sensing.keep_in(kept)
    sight = Visibility(place, _now_us())
    state = ControlState(live, sight, options.promoting, options.planning, minutes, sensing=options.sensing)
    _read(app, reports, state, live, codec)
    _report(app, reports, codec, options, state, stuck)
    _listen(app, state)
    _promote(app, state)
    _plan(app, codec, options, state)
    _sense(app, state)
    return ControlApp(app, state)


def _bare(options: ControlOptions) -> faust.App:
    return faust.App(
        f"{options.prefix}.control",
        broker=[f"kafka://{address}" for address in options.bootstrap.split(",")],
        broker_credentials=options.credentials,
        broker_session_timeout=SESSION_S,
        broker_rebalance_timeout=SESSION_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        producer_request_timeout=TAKEN_S,
        producer_max_batch_size=BATCH_BYTES,
        broker_commit_interval=COMMIT_S,
        consumer_auto_offset_reset="latest",
        consumer_group_instance_id=options.member,
        datadir=options.data,
        store="memory://",
        Table=OnePartition,
        topic_disable_leader=True,
        topic_allow_declare=False,  # the topology has made them
        topic_partitions=1,
        table_standby_replicas=0,
        stream_buffer_maxsize=STREAM_BUFFER,
        web_enabled=False,
    )


def _read(app: faust.App, reports: TopicT, state: ControlState, live: LiveFigures, codec: Codec) -> None:
    async def follow(values: AsyncIterable[bytes]) -> None:
        """Fold each report into the table; skip records that are no reports."""
        async for value in values:
            live.load()  # tables have been read now
            try:
                report = codec.decode(Report, value)
            except DecodeError:
                continue
            state.take(report, _now_us())

    app.agent(reports, name="follow", concurrency=1)(follow)


def _listen(app: faust.App, state: ControlState) -> None:
    async def listen() -> None:
        """Find out whether anybody listens where Kafka and Redis are, once one of them is in doubt."""
        now_us = _now_us()
        if state.is_blind(now_us) or fails(state.history, now_us):
            await state.sight.listen((state.sight.place.kafka, state.sight.place.redis))

    app.timer(LISTEN_EVERY_S, name="listen")(listen)


def _promote(app: faust.App, state: ControlState) -> None:
    promoting = state.promoting
    if promoting is None:
        return

    def guards() -> dict[str, Mapping[str, float]]:
        now_us = _now_us()
        return {
            key: measured(each.plan, state.history, now_us, has_taken_over=bool(each.stage and each.stage.is_promoted))
            for key, each in promoting.courses.items()
        }

    async def promote() -> None:
        """Carry the candidates on, unless the page sees nothing: by what would they be judged?"""
        now_us = _now_us()
        if not state.is_settled(now_us):
            return
        try:
            await promoting.tick(now_us, guards, lambda: state.is_settled(_now_us()))
        except Exception:  # noqa: BLE001 - Faust would end the app, and the page with it
            _log.exception("candidates could not be carried on; they are tried again")
            await promoting.stop()

    app.timer(PROMOTE_EVERY_S, name="promote")(promote)


def _plan(app: faust.App, codec: Codec, options: ControlOptions, state: ControlState) -> None:
    planning = state.planning
    if planning is None:
        return
    topic = app.topic(
        f"{options.prefix}.{topics.PLAN}",
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
    )

    async def plan() -> None:
        """Plan the hosts of each pool, if it is time."""
        now_us = _now_us()
        try:
            for found in await planning.tick(asked(state.live.values(), state.history, now_us), now_us):
                await (await topic.send(key=found.pool.encode(), value=codec.encode(found), partition=0))
        except Exception:  # noqa: BLE001 - Faust would end the app, and the page with it
            _log.exception("hosts could not be planned; that is tried again")
            await planning.stop()

    app.timer(PLAN_EVERY_S, name="plan")(plan)


def _sense(app: faust.App, state: ControlState) -> None:
    sensing = state.sensing
    if sensing is None:
        return

    async def sense() -> None:
        """Compare a sample of inputs and outputs with those before, once the page sees."""
        now_us = _now_us()
        if not state.is_settled(now_us):
            return
        try:
            await sensing.tick(now_us)
        except Exception:  # noqa: BLE001 - Faust would end the app, and the page with it
            _log.exception("inputs and outputs could not be compared; that is tried again")

    app.timer(SENSE_EVERY_S, name="sense")(sense)


def _report(
    app: faust.App, reports: TopicT, codec: Codec, options: ControlOptions, state: ControlState, stuck: asyncio.Event
) -> None:
    composer = Composer(options.instance, "control", tells_process=options.tells_process)

    async def report() -> None:
        """Say once a second that this process is alive too; what is said has to come back."""
        now_us = _now_us()
        known = state.promoting, None if state.sensing is None else state.sensing.watch
        parts = [each.statistics() for each in known if each is not None]
        found = composer.compose(now_us, *parts, rivals.figures(state.promoting, state.history, now_us))
        for hook in options.hooks:
            hook(found)
        state.sight.sent(found.time_us)
        try:
            async with asyncio.timeout(REPORT_EVERY_S):  # Faust's producer waits for a broker that is away, for minutes
                sent = await reports.send(key=options.instance.encode(), value=codec.encode(found), partition=0)
        except TimeoutError:
            _log.debug("a report was not taken within %g s; the next one follows", REPORT_EVERY_S)
        else:
            asyncio.ensure_future(sent).add_done_callback(partial(_taken, state.sight, found.time_us))
        if state.sight.is_stuck and not app.unassigned:  # else another page reads, and this one stands by
            stuck.set()

    app.timer(REPORT_EVERY_S, name="report")(report)


def _taken(sight: Visibility, time_us: int, sent: asyncio.Future[RecordMetadata]) -> None:
    if not sent.cancelled() and sent.exception() is None:
        sight.taken(time_us)


def _now_us() -> int:
    return time.time_ns() // 1000
