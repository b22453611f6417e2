"""The control page on real Kafka: Faust reads reports and keeps them in its table; page and status show them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from deploy.config.settings import Settings
from deploy.local.cluster import KafkaCluster
from deploy.local.embedded import EmbeddedBroker
from deploy.local.process import free_port
from deploy.system import control as started
from deploy.system.control import control
from deploy.system.roles import shared
from load.harness.proxy import Proxy
from schemas import topics
from schemas.codec import Codec
from schemas.records import Report
from streams.control import app as created
from streams.control import faust_kafka
from streams.control.app import ControlOptions, create
from streams.control.page import visibility
from streams.control.state import ControlState
from streams.operators.contract import Emit
from streams.runtime.clock import SystemClock
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.producer import KafkaTransport
from streams.topology import CONTROL_MINUTES, CONTROL_TABLE, build
from tests import pages
from tests.conformance.refusals import Api, Code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping
    from pathlib import Path

    from deploy.local.services import Broker
    from streams.control.carry.sensing import Sensing

CODEC = Codec()
WAIT_S = 60.0


class Page:
    """A running control app, and a way to report to it."""

    def __init__(self, address: str, transport: KafkaTransport) -> None:
        self.address = address
        self._transport = transport

    async def report(self, value: bytes) -> None:
        """Put a value on `reports`."""
        await self._transport.send(topics.REPORTS, 0, [Emit(topics.REPORTS, 0, b"x", value)])

    async def status(self) -> Any:
        """Return what the API says."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.address}/api/status") as response:
            return await response.json()

    async def get(self, path: str) -> tuple[int, str]:
        """Return code and body of any path."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.address}{path}") as response:
            return response.status, await response.text()

    async def until_known(self, instance: str) -> Any:
        """Report until the instance is known; returns its entry."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            now_us = time.time_ns() // 1000
            await self.report(
                CODEC.encode(Report(instance, "joiner", now_us, {"joined_total{application=a}": 1.0}, {}))
            )
            found = [entry for entry in (await self.status())["processes"] if entry["instance"] == instance]
            if found:
                return found[0]
            await asyncio.sleep(0.2)
        pytest.fail(f"{instance} was not shown within {WAIT_S} s")


@pytest.fixture
async def page(kafka: Broker, prefix: str, tmp_path: Path) -> AsyncIterator[Page]:
    """Run the app on topics of its own."""
    kafka.create_topics(
        {f"{prefix}.{topics.REPORTS}": 1, f"{prefix}.{CONTROL_TABLE}": 1, f"{prefix}.{CONTROL_MINUTES}": 1}
    )
    app, state = create(ControlOptions(kafka.bootstrap, prefix, "control@test", tmp_path), CODEC, asyncio.Event())
    transport = KafkaTransport(KafkaConnection(kafka.bootstrap, prefix), SystemClock())
    await transport.start()
    await app.start()
    try:
        async with pages.served(pages.page(state)) as server:
            yield Page(server.address, transport)
    finally:
        await app.stop()
        await transport.stop()


async def test_reports_become_figures_and_garbage_does_no_harm(page: Page) -> None:
    """A report is shown with its process; bytes that are no report are passed over; only our two views are served."""
    await page.report(b"garbage")
    entry = await page.until_known("joiner@1")
    assert (entry["role"], entry["silent"]) == ("joiner", False)
    assert "a" in (await page.status())["applications"]

    code, body = await page.get("/")
    assert code == 200
    assert "//" not in body  # nothing is fetched from elsewhere
    assert "/api/status" in (await page.get("/static/page.js"))[1]
    assert (await page.get("/health"))[0] == 200
    for path in ("/tables/", "/router/", "/graph/", "/stats/", "/metrics"):
        assert (await page.get(path))[0] == 404, path


class Kept:
    """Stands for `Sensing`: is given the table in which it keeps what is usual."""

    def keep_in(self, table: MutableMapping[str, str]) -> None:
        """Keep in that."""
        self.table = table


async def test_what_is_usual_outlives_the_process_that_found_it(kafka: Broker, prefix: str, tmp_path: Path) -> None:
    """It is written by a timer, when no report is being read: Faust takes that only of tables with a partitioner."""
    kafka.create_topics(
        {f"{prefix}.{topics.REPORTS}": 1, f"{prefix}.{CONTROL_TABLE}": 1, f"{prefix}.{CONTROL_MINUTES}": 1}
    )

    async def life(number: int, kept: Kept) -> None:
        folder = tmp_path / str(number)
        asked = ControlOptions(kafka.bootstrap, prefix, "control@1", folder, sensing=cast("Sensing", kept))
        app, _ = create(asked, CODEC, asyncio.Event())
        await app.start()
        try:
            end_s = time.monotonic() + WAIT_S
            while number and "drift sums" not in kept.table and time.monotonic() < end_s:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.1)
            kept.table["drift sums"] = kept.table.get("drift sums", "") + "usual"
        finally:
            await app.stop()

    for number in range(2):
        await life(number, kept := Kept())
    assert kept.table["drift sums"] == "usualusual"


async def test_a_name_that_is_not_this_hosts_is_refused(page: Page) -> None:
    """And every answer says that nobody may frame it."""
    async with aiohttp.ClientSession() as session:
        async with session.get(page.address, headers={"Host": "evil.example"}) as refused:
            assert refused.status == 421
        async with session.get(page.address) as shown:
            assert shown.headers["X-Frame-Options"] == "DENY"


async def test_a_page_that_reads_no_more_begins_anew(
    kafka: Broker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust may stand still after a rebalance, while Kafka takes all that it writes."""
    kafka.create_topics(
        {f"{prefix}.{topics.REPORTS}": 1, f"{prefix}.{CONTROL_TABLE}": 1, f"{prefix}.{CONTROL_MINUTES}": 1}
    )
    port = free_port()
    settings = Settings.model_validate(
        {"prefix": prefix, "kafka": {"bootstrap": kafka.bootstrap}, "control": {"port": port}}
    )
    lives: list[ControlState] = []
    take = ControlState.take

    def taken(state: ControlState, report: Report, now_us: int) -> None:
        lives.extend([] if state in lives else [state])
        if state is not lives[0]:
            take(state, report, now_us)

    monkeypatch.setattr(ControlState, "take", taken)
    monkeypatch.setattr(visibility, "STUCK_REPORTS", 3)
    stop = asyncio.Event()
    running = asyncio.create_task(control(shared(settings, CODEC, "1"), stop))
    try:
        async with asyncio.timeout(WAIT_S), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            while not lives or lives[-1] is lives[0] or not lives[-1].live:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.1)
            async with session.get("/api/status") as reply:
                assert [each["instance"] for each in (await reply.json())["processes"]] == ["control@1"]
    finally:
        stop.set()
        assert await running


async def test_a_page_whose_connections_fall_silent_sees_again(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a network has dropped without a word is given up: what is read, and what is written."""
    monkeypatch.setattr(created, "SESSION_S", 3.0)
    monkeypatch.setattr(created, "TAKEN_S", 3.0)
    monkeypatch.setattr(faust_kafka, "ANSWER_S", 5.0)
    stop, broker, port = asyncio.Event(), free_port(), free_port()
    with Proxy([broker]) as proxy, KafkaCluster(1, bench=False, through={broker: proxy.doors[broker]}) as cluster:
        cluster.nodes[0].create_topics(
            {f"{prefix}.{name}": topic.partitions for name, topic in build((), 1).topics.items()}
        )
        bootstrap = f"127.0.0.1:{proxy.doors[broker]}"
        settings = Settings.model_validate(
            {"prefix": prefix, "kafka": {"bootstrap": bootstrap}, "control": {"port": port}}
        )
        running = asyncio.create_task(control(shared(settings, CODEC, "1"), stop))
        try:
            async with asyncio.timeout(2 * WAIT_S), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                await shown(session, 0)
                proxy.half_open()
                await shown(session, time.time_ns() // 1000)
        finally:
            stop.set()
            assert await running


async def test_a_page_reads_what_is_of_the_present(
    kafka: Broker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its group may have committed nothing for hours: it does not read them all before it shows who runs now."""
    reports = f"{prefix}.{topics.REPORTS}"
    kafka.create_topics({reports: 1, f"{prefix}.{CONTROL_TABLE}": 1, f"{prefix}.{CONTROL_MINUTES}": 1})
    now_us, taken, take = time.time_ns() // 1000, list[str](), ControlState.take
    long_ago_us = now_us - 3_600_000_000

    def noted(state: ControlState, report: Report, at_us: int) -> None:
        taken.append(report.instance)
        take(state, report, at_us)

    monkeypatch.setattr(ControlState, "take", noted)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        for instance, time_us in (("first", long_ago_us), ("long ago", long_ago_us), ("lately", now_us)):
            value = CODEC.encode(Report(instance, "joiner", time_us, {}, {}))
            await producer.send_and_wait(reports, value, b"x", 0, time_us // 1000)
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap, group_id=f"{prefix}.control", enable_auto_commit=False
    ) as consumer:
        consumer.assign([TopicPartition(reports, 0)])
        await consumer.commit({TopicPartition(reports, 0): 1})
    app, _ = create(ControlOptions(kafka.bootstrap, prefix, "control@1", tmp_path), CODEC, asyncio.Event())
    await app.start()
    try:
        async with asyncio.timeout(WAIT_S):
            while "lately" not in taken:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.1)
        assert taken[0] == "lately"
    finally:
        await app.stop()


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (Api.LIST_OFFSETS, Code.REPLICA_NOT_AVAILABLE),
        (Api.COORDINATOR, Code.UNKNOWN_SERVER_ERROR),
        (Api.JOIN, Code.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_page_that_a_broker_refuses_once_begins_anew(
    api: Api, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust ends for codes that may pass, or waits for ever; the page would be gone without a word."""
    monkeypatch.setattr(started, "ANEW_AFTER_S", 0.1)
    stop, port = asyncio.Event(), free_port()
    with EmbeddedBroker() as broker:
        broker.create_topics({f"p.{name}": topic.partitions for name, topic in build((), 1).topics.items()})
        broker.cluster.push_request_errors(api, [code])
        settings = Settings.model_validate(
            {"prefix": "p", "kafka": {"bootstrap": broker.bootstrap}, "control": {"port": port}}
        )
        running = asyncio.create_task(control(shared(settings, CODEC, "1"), stop))
        try:
            async with asyncio.timeout(WAIT_S), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                while not await seen(session):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.1)
        finally:
            stop.set()
            assert await running


async def shown(session: aiohttp.ClientSession, since_us: int) -> None:
    """Wait until the page shows what it has reported itself since then."""
    while True:
        with suppress(aiohttp.ClientConnectionError):
            async with session.get("/api/status") as reply:
                if any(each["time_us"] > since_us for each in (await reply.json())["processes"]):
                    return
        await asyncio.sleep(0.1)


async def seen(session: aiohttp.ClientSession) -> list[str]:
    """Return the processes that the page shows; none where it does not answer."""
    try:
        async with session.get("/api/status") as reply:
            return [each["instance"] for each in (await reply.json())["processes"]]
    except aiohttp.ClientConnectionError:
        return []
