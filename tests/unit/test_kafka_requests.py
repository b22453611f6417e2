"""Produce requests: what goes together, what goes at once, and who is told what."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiokafka import errors

from streams.runtime.kafka_requests import Requests
from tests.virtual import run

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.protocol.produce import ProduceRequest

Sent = dict[str, list[tuple[int, bytes]]]


class FakeClient:
    """A client whose brokers answer when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Sent]] = []
        self.refreshed = 0
        self._answers: list[asyncio.Future[Any]] = []

    async def send(self, node: int, request: ProduceRequest) -> Any:
        """Note a request and wait for its answer."""
        self.sent.append((node, dict(request._topics)))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return await answer

    def force_metadata_update(self) -> None:
        """Count."""
        self.refreshed += 1

    def answer(self, number: int, codes: dict[tuple[str, int], int] | None = None) -> None:
        """Answer a request; every batch of it is fine unless `codes` says otherwise."""
        sent, codes = self.sent[number][1], codes or {}
        topics = [
            (topic, [(p, codes.get((topic, p), 0), 0, -1, 0) for p, _ in batches]) for topic, batches in sent.items()
        ]
        self._answers[number].set_result(SimpleNamespace(topics=topics))

    def fail(self, number: int, fault: Exception) -> None:
        """Break a request's connection."""
        self._answers[number].set_exception(fault)


def requests(client: FakeClient, in_flight: int = 2, request_bytes: int = 100) -> Requests:
    """Make requests on a fake client."""
    return Requests(cast("AIOKafkaClient", client), in_flight, 1_000, request_bytes)


def test_what_is_sent_in_one_turn_goes_in_one_request() -> None:
    """Eight lanes that have something to say at once cost one request to each broker."""

    async def scene() -> None:
        client = FakeClient()
        sending = requests(client)
        jobs = [asyncio.create_task(sending.send(node, "t", p, b"x")) for node, p in ((1, 0), (1, 1), (2, 2))]
        await asyncio.sleep(0.01)
        assert client.sent == [(1, {"t": [(0, b"x"), (1, b"x")]}), (2, {"t": [(2, b"x")]})]
        client.answer(0)
        client.answer(1)
        await asyncio.gather(*jobs)

    run(scene())


def test_a_bounded_number_of_requests_is_unanswered() -> None:
    """The next one waits for an answer, and takes what has come meanwhile."""

    async def scene() -> None:
        client = FakeClient()
        sending = requests(client, in_flight=2)
        jobs = []
        for partition in range(4):
            jobs.append(asyncio.create_task(sending.send(1, "t", partition, b"x")))
            await asyncio.sleep(0.01)
        assert len(client.sent) == 2
        client.answer(1)
        await asyncio.sleep(0.01)
        assert client.sent[2] == (1, {"t": [(2, b"x"), (3, b"x")]})
        client.answer(0)
        client.answer(2)
        await asyncio.gather(*jobs)

    run(scene())


def test_a_request_is_bounded_in_bytes_but_takes_one_batch_at_least() -> None:
    """The broker refuses requests over its limit; a batch alone is the topic's business."""

    async def scene() -> None:
        client = FakeClient()
        sending = requests(client, in_flight=9, request_bytes=10)
        jobs = [asyncio.create_task(sending.send(1, "t", p, b"x" * size)) for p, size in enumerate((6, 6, 20, 4))]
        await asyncio.sleep(0.01)
        assert [[p for p, _ in batches["t"]] for _, batches in client.sent] == [[0, 3], [1], [2]]
        for number in range(3):
            client.answer(number)
        await asyncio.gather(*jobs)

    run(scene())


def test_two_batches_of_a_partition_never_share_a_request() -> None:
    """A broker would keep the last and acknowledge both; two roles of a process may write to one partition at once."""

    async def scene() -> None:
        client = FakeClient()
        sending = requests(client)
        jobs = [asyncio.create_task(sending.send(1, "t", 0, value)) for value in (b"a", b"b", b"c")]
        await asyncio.sleep(0.01)
        assert [batches for _, batches in client.sent] == [{"t": [(0, b"a")]}, {"t": [(0, b"b")]}]
        client.answer(0)
        client.answer(1, {("t", 0): errors.NotLeaderForPartitionError.errno})
        await jobs[0]
        with pytest.raises(errors.NotLeaderForPartitionError):
            await jobs[1]
        client.answer(2)
        await jobs[2]

    run(scene())


def test_whatever_ends_a_request_its_batches_are_told() -> None:
    """A lane whose result never comes would hang for good."""

    async def scene() -> None:
        client = FakeClient()
        sending = requests(client)
        job = asyncio.create_task(sending.send(1, "t", 0, b"x"))
        await asyncio.sleep(0.01)
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        client.fail(0, KeyError("a connection that is gone"))
        with pytest.raises(errors.KafkaConnectionError, match="without an answer"):
            await job

    run(scene())


def test_each_batch_has_its_own_result() -> None:
    """One partition's refusal is not its neighbour's; old metadata are renewed."""

    async def scene() -> None:
        client = FakeClient()
        sending = requests(client)
        jobs = [asyncio.create_task(sending.send(1, topic, 0, b"x")) for topic in ("a", "b")]
        await asyncio.sleep(0.01)
        client.answer(0, {("b", 0): errors.NotLeaderForPartitionError.errno})
        await jobs[0]
        with pytest.raises(errors.NotLeaderForPartitionError):
            await jobs[1]
        assert client.refreshed == 1

    run(scene())


def test_a_broken_connection_fails_every_batch_of_its_request() -> None:
    """Their senders try again."""

    async def scene() -> None:
        client = FakeClient()
        sending = requests(client)
        jobs = [asyncio.create_task(sending.send(1, "t", p, b"x")) for p in range(2)]
        await asyncio.sleep(0.01)
        client.fail(0, errors.KafkaConnectionError("gone"))
        for job in jobs:
            with pytest.raises(errors.KafkaConnectionError):
                await job

    run(scene())


def test_abandoned_batches_are_told() -> None:
    """Nobody waits for a producer that was stopped, whether its batches were sent or not."""

    async def scene() -> None:
        client = FakeClient()
        sending = requests(client, in_flight=1)
        jobs = []
        for partition in range(2):
            jobs.append(asyncio.create_task(sending.send(1, "t", partition, b"x")))
            await asyncio.sleep(0.01)
        sending.abandon()
        for job in jobs:
            with pytest.raises(errors.KafkaConnectionError):
                await job

    run(scene())
