"""Produce requests: what goes together, what goes at once, and who is told what."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
from aiokafka import errors
from aiokafka.protocol.produce import ProduceRequest_v7

from streams.runtime.kafka.fast.outlet import Requests
from streams.runtime.kafka.fast.requests import Calls
from tests.virtual import run

if TYPE_CHECKING:
    from streams.runtime.kafka.fast.protocol import Api

Sent = dict[str, list[tuple[int, bytes]]]


class FakeCalls:
    """Brokers that answer when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Sent]] = []
        self.refreshed = 0
        self.is_connected = True
        self.connects = True
        self._answers: list[asyncio.Future[Any]] = []

    def connected(self, node: int) -> bool:
        """Say so."""
        return self.is_connected

    async def connect(self, node: int) -> bool:
        """Connect after a turn, or fail."""
        await asyncio.sleep(0.01)
        self.is_connected = self.connects
        return self.connects

    def post(self, node: int, api: Api, body: bytes) -> asyncio.Future[Any]:
        """Note a request."""
        self.sent.append((node, dict(ProduceRequest_v7.decode(BytesIO(body)).topics)))
        self._answers.append(asyncio.get_running_loop().create_future())
        return self._answers[-1]

    def refresh(self) -> None:
        """Count."""
        self.refreshed += 1

    def answer(self, number: int, codes: dict[tuple[str, int], int] | None = None) -> None:
        """Answer a request; every batch of it is fine unless `codes` says otherwise."""
        sent = self.sent[number][1]
        fine = {(topic, partition): 0 for topic, batches in sent.items() for partition, _ in batches}
        self._answers[number].set_result(fine | (codes or {}))

    def fail(self, number: int, fault: Exception) -> None:
        """Break a request's connection."""
        self._answers[number].set_exception(fault)


def requests(calls: FakeCalls, in_flight: int = 2, request_bytes: int = 100) -> Requests:
    """Make requests on fake connections."""
    return Requests(cast("Calls", calls), calls.refresh, in_flight, 1_000, request_bytes)


def test_what_is_sent_in_one_turn_goes_in_one_request() -> None:
    """Eight lanes that have something to say at once cost one request to each broker."""

    async def scene() -> None:
        calls = FakeCalls()
        sending = requests(calls)
        jobs = [asyncio.create_task(sending.send(node, "t", p, b"x")) for node, p in ((1, 0), (1, 1), (2, 2))]
        await asyncio.sleep(0.01)
        assert calls.sent == [(1, {"t": [(0, b"x"), (1, b"x")]}), (2, {"t": [(2, b"x")]})]
        calls.answer(0)
        calls.answer(1)
        await asyncio.gather(*jobs)

    run(scene())


def test_a_bounded_number_of_requests_is_unanswered() -> None:
    """The next one waits for an answer, and takes what has come meanwhile."""

    async def scene() -> None:
        calls = FakeCalls()
        sending = requests(calls, in_flight=2)
        jobs = []
        for partition in range(4):
            jobs.append(asyncio.create_task(sending.send(1, "t", partition, b"x")))
            await asyncio.sleep(0.01)
        assert len(calls.sent) == 2
        calls.answer(1)
        await asyncio.sleep(0.01)
        assert calls.sent[2] == (1, {"t": [(2, b"x"), (3, b"x")]})
        calls.answer(0)
        calls.answer(2)
        await asyncio.gather(*jobs)

    run(scene())


def test_a_request_is_bounded_in_bytes_but_takes_one_batch_at_least() -> None:
    """The broker refuses requests over its limit; a batch alone is the topic's business."""

    async def scene() -> None:
        calls = FakeCalls()
        sending = requests(calls, in_flight=9, request_bytes=10)
        jobs = [asyncio.create_task(sending.send(1, "t", p, b"x" * size)) for p, size in enumerate((6, 6, 20, 4))]
        await asyncio.sleep(0.01)
        assert [[p for p, _ in batches["t"]] for _, batches in calls.sent] == [[0, 3], [1], [2]]
        for number in range(3):
            calls.answer(number)
        await asyncio.gather(*jobs)

    run(scene())


def test_two_batches_of_a_partition_never_share_a_request() -> None:
    """A broker would keep the last and acknowledge both; two roles of a process may write to one partition at once."""

    async def scene() -> None:
        calls = FakeCalls()
        sending = requests(calls)
        jobs = [asyncio.create_task(sending.send(1, "t", 0, value)) for value in (b"a", b"b", b"c")]
        await asyncio.sleep(0.01)
        assert [batches for _, batches in calls.sent] == [{"t": [(0, b"a")]}, {"t": [(0, b"b")]}]
        calls.answer(0)
        calls.answer(1, {("t", 0): errors.NotLeaderForPartitionError.errno})
        await jobs[0]
        with pytest.raises(errors.NotLeaderForPartitionError):
            await jobs[1]
        calls.answer(2)
        await jobs[2]

    run(scene())


def test_whatever_ends_a_request_its_batches_are_told() -> None:
    """A lane whose result never comes would hang for good."""

    async def scene() -> None:
        calls = FakeCalls()
        sending = requests(calls)
        job = asyncio.create_task(sending.send(1, "t", 0, b"x"))
        await asyncio.sleep(0.01)
        calls.fail(0, KeyError("a connection that is gone"))
        with pytest.raises(errors.KafkaConnectionError, match="without an answer"):
            await job

    run(scene())


def test_each_batch_has_its_own_result() -> None:
    """One partition's refusal is not its neighbour's; old metadata are renewed."""

    async def scene() -> None:
        calls = FakeCalls()
        sending = requests(calls)
        jobs = [asyncio.create_task(sending.send(1, topic, 0, b"x")) for topic in ("a", "b")]
        await asyncio.sleep(0.01)
        calls.answer(0, {("b", 0): errors.NotLeaderForPartitionError.errno})
        await jobs[0]
        with pytest.raises(errors.NotLeaderForPartitionError):
            await jobs[1]
        assert calls.refreshed == 1

    run(scene())


def test_a_broken_connection_fails_every_batch_of_its_request() -> None:
    """Their senders try again."""

    async def scene() -> None:
        calls = FakeCalls()
        sending = requests(calls)
        jobs = [asyncio.create_task(sending.send(1, "t", p, b"x")) for p in range(2)]
        await asyncio.sleep(0.01)
        calls.fail(0, errors.KafkaConnectionError("gone"))
        for job in jobs:
            with pytest.raises(errors.KafkaConnectionError):
                await job

    run(scene())


def test_abandoned_batches_are_told() -> None:
    """Nobody waits for a producer that was stopped, whether its batches were sent or not."""

    async def scene() -> None:
        calls = FakeCalls()
        sending = requests(calls, in_flight=1)
        jobs = []
        for partition in range(2):
            jobs.append(asyncio.create_task(sending.send(1, "t", partition, b"x")))
            await asyncio.sleep(0.01)
        sending.abandon()
        for job in jobs:
            with pytest.raises(errors.KafkaConnectionError):
                await job

    run(scene())


def test_batches_wait_for_a_connection() -> None:
    """What is sent meanwhile goes in the first request."""

    async def scene() -> None:
        calls = FakeCalls()
        calls.is_connected = False
        sending = requests(calls)
        jobs = [asyncio.create_task(sending.send(1, "t", p, b"x")) for p in range(2)]
        await asyncio.sleep(0.02)
        assert calls.sent == [(1, {"t": [(0, b"x"), (1, b"x")]})]
        calls.answer(0)
        await asyncio.gather(*jobs)

    run(scene())


def test_whatever_a_connection_fails_with_every_batch_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """An expired Kerberos ticket is no error of Kafka's; the lanes try again, and the next ticket may work."""

    class Client:
        """Cannot log in."""

        _conns: ClassVar[dict[object, object]] = {}

        async def ready(self, node: int) -> bool:
            """Fail as a log-in does."""
            raise RuntimeError("the ticket has expired")

    async def scene() -> None:
        sending = Requests(Calls(Client(), 1.0), list, 2, 1_000, 100)
        jobs = [asyncio.create_task(sending.send(1, "t", p, b"x")) for p in range(2)]
        for job in jobs:
            with pytest.raises(errors.NodeNotReadyError):
                await job

    run(scene())
    assert "the ticket has expired" in caplog.text


def test_without_a_connection_every_batch_is_told() -> None:
    """Their lanes try again; the next connection may work."""

    async def scene() -> None:
        calls = FakeCalls()
        calls.is_connected = calls.connects = False
        sending = requests(calls)
        jobs = [asyncio.create_task(sending.send(1, "t", p, b"x")) for p in range(2)]
        for job in jobs:
            with pytest.raises(errors.NodeNotReadyError):
                await job
        calls.connects = True
        again = asyncio.create_task(sending.send(1, "t", 0, b"x"))
        await asyncio.sleep(0.02)
        calls.answer(0)
        await again

    run(scene())
