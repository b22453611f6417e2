"""The producer learns where a topic's partitions are: once, however many of them wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from streams.runtime.kafka import producer as kafka_producer
from tests.virtual import run

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient

ANSWER_S = 0.002


class Client:
    """Knows a topic `rounds` answers after it was first asked for; answers as aiokafka does, the asked share one."""

    def __init__(self, rounds: int = 1) -> None:
        """Know nothing."""
        self.cluster = self
        self.unauthorized_topics: frozenset[str] = frozenset()
        self.answers = 0
        self._rounds = rounds
        self._asked: set[str] = set()
        self._answer: asyncio.Task[None] | None = None

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions, if they are known."""
        return {0, 1, 2, 3} if topic in self._asked and self.answers >= self._rounds else None

    async def add_topic(self, topic: str) -> None:
        """Wait for an answer, unless somebody else has asked for the topic."""
        if topic not in self._asked:
            self._asked.add(topic)
            await self.force_metadata_update()

    async def force_metadata_update(self) -> None:
        """Wait for the answer that is on its way, or ask."""
        if self._answer is None or self._answer.done():
            self._answer = asyncio.create_task(self._answered())
        await asyncio.shield(self._answer)

    async def _answered(self) -> None:
        await asyncio.sleep(ANSWER_S)
        self.answers += 1


async def found_after_s(client: Client, waiters: int) -> float:
    """Return how long it takes until all know the topic."""
    known = (kafka_producer._make_known(cast("AIOKafkaClient", client), "queries") for _ in range(waiters))
    await asyncio.gather(*known)
    return asyncio.get_running_loop().time()


def test_four_partitions_wait_for_one_answer() -> None:
    """Whoever asks second waits for the first one's answer: a client's first queries may be due within 100 ms."""
    client = Client()
    assert run(found_after_s(client, 4)) == pytest.approx(ANSWER_S)
    assert client.answers == 1


def test_a_topic_that_is_not_there_yet_is_looked_for_ten_times_a_second() -> None:
    """After the first two answers a look each tenth of a second."""
    client = Client(rounds=4)
    assert run(found_after_s(client, 1)) == pytest.approx(0.2 + 4 * ANSWER_S)
