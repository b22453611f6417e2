"""Named members of a consumer group on a real Apache Kafka: who takes over from whom, and how soon."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.consumer import ConsumerSettings, KafkaConsumer
from tests.kafka import CLOCK

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from deploy.local.services import Broker
    from streams.runtime.ports import TopicPartition

PARTITIONS = 4
# A member that says nothing any more is missed after 45 s; a test that waited for that would fail.
SILENT = ConsumerSettings(session_timeout_ms=45_000, heartbeat_ms=40_000, rebalance_timeout_ms=45_000)
AT_ONCE_S = 30.0
# Hears of others soon, and stays in its group when it stops.
STAYING = ConsumerSettings(heartbeat_ms=200, leave=False)


class Member:
    """A consumer of topic `in` that knows what it owns."""

    def __init__(self, kafka: KafkaConnection, name: str | None, settings: ConsumerSettings = SILENT) -> None:
        self._consumer = KafkaConsumer(kafka, ["in"], "group", CLOCK, replace(settings, member=name))
        self._assigned = asyncio.Event()
        self.owned: set[int] = set()
        self.rebalances = 0

    async def on_assigned(self, offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """Note what is ours."""
        self.owned = {number for _, number in offsets}
        self._assigned.set()
        return {}

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing is ours any more."""
        self.owned = set()
        self.rebalances += 1
        self._assigned.clear()

    async def join(self) -> None:
        """Join; returns when partitions are ours."""
        await self._consumer.start(self)
        await self.assigned()

    async def assigned(self) -> None:
        """Wait until partitions are ours."""
        async with asyncio.timeout(AT_ONCE_S):
            await self._assigned.wait()

    async def owns_all(self) -> bool:
        """Join; whether all partitions are ours at once."""
        await self.join()
        return self.owned == set(range(PARTITIONS))

    async def leave(self) -> None:
        """Stop in an orderly way."""
        await self._consumer.stop(3)


@pytest.fixture
async def place(kafka: Broker, prefix: str) -> KafkaConnection:
    """Create the topic."""
    await asyncio.to_thread(kafka.create_topics, {f"{prefix}.in": PARTITIONS})
    return KafkaConnection(kafka.bootstrap, prefix)


async def test_who_comes_back_under_its_name_has_its_partitions_at_once(place: KafkaConnection) -> None:
    """The member before it is as good as killed: it does not hear of anything for 40 s."""
    silent, back = Member(place, "name"), Member(place, "name")
    assert await silent.owns_all()
    assert await back.owns_all()
    await back.leave()
    await silent.leave()


async def test_a_named_member_that_stops_leaves_its_group(place: KafkaConnection) -> None:
    """Its partitions do not wait for the end of its session, whoever comes next."""
    first, second = Member(place, "name"), Member(place, "other")
    assert await first.owns_all()
    await first.leave()
    assert await second.owns_all()
    await second.leave()


@pytest.mark.parametrize("restarts_first", [True, False], ids=["the leader", "another one"])
async def test_a_restart_that_stays_in_its_group_disturbs_nobody(
    place: KafkaConnection, *, restarts_first: bool
) -> None:
    """The other member keeps its half and is not asked to hand it over; the restarted one has its own half back."""
    other, before, after = (Member(place, name, STAYING) for name in ("other", "name", "name"))
    first, second = (before, other) if restarts_first else (other, before)
    await first.join()
    await second.join()
    await first.assigned()
    halves, rebalances = (other.owned, before.owned), other.rebalances
    assert len(halves[0]) == len(halves[1]) == PARTITIONS // 2
    await before.leave()
    await after.join()
    assert ((other.owned, after.owned), other.rebalances) == (halves, rebalances)
    for member in (other, after):
        await member.leave()
