"""Hosts follow a plan on a real Apache Kafka: who reads what changes with the plan, and nothing is left unread."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config import configuration
from deploy.config.settings import Settings
from deploy.errors import UsageError
from deploy.state import catalog
from load.harness.topics import delete
from schemas import topics
from schemas.codec import Codec
from schemas.records import Place, Plan
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.consumer import KafkaConsumer
from streams.runtime.kafka.planned import planned
from tests.kafka import CLOCK, QUICK, producing, put, until

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from deploy.local.services import Broker
    from streams.runtime.ports import TopicPartition

CODEC = Codec()
MODELS = ("a", "b", "c")
TOPICS = tuple(map(topics.model_queries, MODELS))


@dataclass
class Host:
    """A member, what it reads, and for how long it last read nothing (us)."""

    consumer: KafkaConsumer
    reads: set[str] = field(default_factory=set)
    revoked_us: int = 0
    stood_us: int = 0

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Note it."""
        self.reads.clear()
        self.revoked_us = CLOCK.now_us()

    async def on_assigned(self, committed: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, int | None]:
        """Note it."""
        self.reads = {topics.asked_model(topic) for topic, _ in committed}
        self.stood_us = CLOCK.now_us() - self.revoked_us
        return {}


def _plan(**hosts: tuple[str, ...]) -> Plan:
    places = [Place(host, model, (0,), 1.0, 1, 1) for host, models in hosts.items() for model in models]
    return Plan("small", 1, 1, 1, tuple(hosts), tuple(places), "a test")


async def test_members_read_what_the_plan_names_for_them(kafka: Broker, prefix: str) -> None:
    """Without a plan models are spread; with one all are where it says; without its host, with the other one."""
    connection = KafkaConnection(kafka.bootstrap, prefix)
    await asyncio.to_thread(kafka.create_topics, {connection.real(topic): 1 for topic in TOPICS})
    plan: list[Plan] = []
    hosts = []
    for name in ("one", "two"):
        assignor = planned(name, f"{prefix}.", lambda: plan[-1] if plan else None)
        hosts.append(Host(KafkaConsumer(connection, TOPICS, "host.small", CLOCK, QUICK, assignor)))
    polling = []
    for host in hosts:
        await host.consumer.start(host)
        polling.append(asyncio.create_task(_poll(host)))
    one, two = hosts
    try:
        await until(lambda: len(one.reads) + len(two.reads) == len(MODELS) and bool(one.reads and two.reads))
        plan.append(_plan(one=("a",), two=("b", "c")))
        for host in hosts:
            host.consumer.rejoin()
        await until(lambda: (one.reads, two.reads) == ({"a"}, {"b", "c"}))
        plan.append(_plan(one=("a", "b", "c")))
        for host in hosts:
            host.consumer.rejoin()
        await until(lambda: (one.reads, two.reads) == ({"a", "b", "c"}, set()))
        print("stood still (ms):", [host.stood_us / 1e3 for host in hosts])  # noqa: T201 - shown with -s
        polling.pop(0).cancel()
        await one.consumer.stop(3)
        await until(lambda: two.reads == {*MODELS})
        async with producing(connection) as transport:
            await put(transport, [b"query"], topic=TOPICS[0])
    finally:
        for task in polling:
            task.cancel()
        await two.consumer.stop(3)
        await asyncio.to_thread(delete, kafka.bootstrap, prefix)


async def test_the_last_plan_is_shown_with_its_reasons(kafka: Broker, prefix: str, tmp_path: Path) -> None:
    """As a table and as JSON; a pool without a plan is refused."""
    settings = Settings.model_validate({"prefix": prefix, "kafka": {"bootstrap": kafka.bootstrap}})
    config = ("--config", str(configuration.write(settings, tmp_path / "skysail.yaml")))
    await asyncio.to_thread(kafka.create_topics, {f"{prefix}.{topics.PLAN}": 1})
    plan = _plan(one=("a",), two=("b",))._replace(reasons=("b moves from one to two: one would be 104% busy",))
    written = [(topics.PLAN, "small", CODEC.encode(each)) for each in (_plan(one=("a", "b")), plan)]
    await asyncio.to_thread(catalog.write, settings, written)
    try:
        shown = await asyncio.to_thread(CliRunner().invoke, skysail, ["plan", "show", *config])
        assert "planned because: a test" in shown.output
        assert "b moves from one to two" in shown.output
        plain = await asyncio.to_thread(CliRunner().invoke, skysail, ["plan", "show", "--json", *config])
        (told,) = json.loads(plain.output)
        assert [place["host"] for place in told["places"]] == ["one", "two"]
        with pytest.raises(UsageError, match="no plan of pool large"):
            await asyncio.to_thread(
                lambda: CliRunner().invoke(skysail, ["plan", "show", "large", *config], catch_exceptions=False)
            )
    finally:
        await asyncio.to_thread(delete, kafka.bootstrap, prefix)


async def _poll(host: Host) -> None:
    while True:
        await host.consumer.poll(100)
