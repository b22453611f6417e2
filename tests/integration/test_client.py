"""The client and the load harness against a real broker, with a small system of the test's own behind it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest

from load.harness import arrivals
from load.harness.openloop import OpenLoop
from load.harness.recorder import Recorder
from load.harness.wire import Wire
from load.harness.workload import Rows
from schemas import topics
from schemas.codec import Codec
from schemas.records import Feedback, Prediction, Query, Status
from streams.client import Client, UnansweredError
from streams.runtime.clock import SystemClock
from streams.runtime.errors import MisconfiguredError
from streams.topology import partition_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deploy.local.services import Broker

PARTITIONS = 4
CODEC = Codec()
CIRCLE = (topics.QUERIES, topics.PREDICTIONS, topics.FEEDBACK)


@pytest.fixture
def circle(kafka: Broker, prefix: str) -> str:
    """Create the client's topics; returns the broker's address."""
    kafka.create_topics({f"{prefix}.{name}": PARTITIONS for name in CIRCLE})
    return kafka.bootstrap


@pytest.fixture
async def echo(circle: str, prefix: str) -> AsyncIterator[None]:
    """Answer every query with 3, in its own partition, as the selection role would."""
    ready = asyncio.Event()
    task = asyncio.create_task(asyncio.to_thread(_echo, circle, prefix, ready, asyncio.get_running_loop(), stop := []))
    await ready.wait()
    yield
    stop.append(True)
    await task


def _echo(bootstrap: str, prefix: str, ready: asyncio.Event, loop: asyncio.AbstractEventLoop, stop: list[bool]) -> None:
    wire = Wire(bootstrap, prefix)
    wire.follow((topics.QUERIES,))
    loop.call_soon_threadsafe(ready.set)
    while not stop:
        for arrival in wire.poll(0.05):
            query = CODEC.decode(Query, arrival.value)
            wire.produce(topics.PREDICTIONS, arrival.key or b"", CODEC.encode(_answer(query)))
    wire.flush()
    wire.close()


def _answer(query: Query) -> Prediction:
    context, sent_us = query.context, query.sent_us
    status = Status.COMPLETE
    times = sent_us, 0, 0, 0
    return Prediction(
        query.query_id, query.application, context, None, status, None, 3, 1.0, (), *times, query.reply_token
    )


@pytest.mark.usefixtures("echo")
async def test_the_first_prediction_is_not_missed(circle: str, prefix: str) -> None:
    """The client stands at the end of `predictions` before it sends anything."""
    async with Client(circle, prefix) as client:
        prediction = await client.predict("digits", np.zeros(4, np.float32), context="ann")
        many = await asyncio.gather(*(client.predict("digits", "x") for _ in range(50)))
    assert (prediction.answer, prediction.context) == (3, "ann")
    assert len({p.query_id for p in many}) == 50


@pytest.mark.usefixtures("echo")
async def test_feedback_lands_beside_its_query(circle: str, prefix: str) -> None:
    """Same key, same partition number: the joiner finds both."""
    wire = Wire(circle, prefix)
    async with Client(circle, prefix) as client:
        for context in ("ann", None):
            await client.feedback(
                await client.predict("digits", "x", context=context, query_id=f"q-{context}"), label=3
            )
    wire.follow((topics.FEEDBACK,), from_start=True)
    found = [*wire.written()]
    wire.close()
    assert {arrival.key: CODEC.decode(Feedback, arrival.value).query_id for arrival in found} == {
        b"ann": "q-ann",
        b"q-None": "q-None",
    }


async def test_both_clients_put_a_key_into_the_same_partition(circle: str, prefix: str) -> None:
    """Ours and librdkafka's `murmur2_random` agree, so the harness may use either."""
    keys = [f"key-{i}" for i in range(40)]
    wire = Wire(circle, prefix)
    for key in keys:
        wire.produce(topics.QUERIES, key.encode(), CODEC.encode(Query(key, "digits", "x")))
    assert wire.flush() == 0
    async with Client(circle, prefix) as client:
        await client.send([Query(key, "digits", "x") for key in keys])
    wire.follow((topics.QUERIES,), from_start=True)
    found = [*wire.written()]
    wire.close()
    assert len(found) == 80
    places: dict[bytes | None, set[int]] = {}
    for arrival in found:
        places.setdefault(arrival.key, set()).add(arrival.partition)
    assert places == {key.encode(): {partition_of(key.encode(), PARTITIONS)} for key in keys}


async def test_silence_is_named(circle: str, prefix: str) -> None:
    """Nobody answers: the error says where to look."""
    async with Client(circle, prefix) as client:
        with pytest.raises(UnansweredError, match="skysail doctor"):
            await client.predict("digits", "x", timeout_s=0.5)


async def test_missing_topics_are_named(kafka: Broker, prefix: str) -> None:
    """A client of a deployment that does not exist fails at the start, with the command that helps."""
    with pytest.raises(MisconfiguredError, match="skysail topics create"):
        async with Client(kafka.bootstrap, prefix):
            pass


@pytest.mark.usefixtures("echo")
async def test_the_open_loop_loses_nothing(circle: str, prefix: str) -> None:
    """200 queries at 400 a second: each answered once, each answer fed back."""
    wire = Wire(circle, prefix)
    wire.follow((topics.PREDICTIONS,))
    clock = SystemClock()
    recorder = Recorder(clock.now_us(), slo_us=1_000_000)
    loop = OpenLoop(wire, CODEC, Rows("digits", ["a"], [3]), recorder, clock.now_us)
    offsets_us = [next_us for next_us, _ in zip(arrivals.poisson(400, seed=1), range(200), strict=False)]
    await asyncio.to_thread(loop.run, offsets_us, 10.0)
    wire.close()
    figures = recorder.figures()
    counted = (figures["queries_sent"], figures["lost"], figures["duplicates"], figures["error"], loop.feedback_sent)
    assert counted == (200, 0, 0, 0.0, 200)


@pytest.mark.parametrize("followed", [(), (topics.PREDICTIONS,)], ids=("sender", "sink"))
def test_waiting_for_less_than_a_millisecond_is_waiting(circle: str, prefix: str, followed: tuple[str, ...]) -> None:
    """By itself librdkafka returns at once, and a busy sender takes the CPU of the system that it measures."""
    wire, clock = Wire(circle, prefix), SystemClock()
    wire.follow(followed)
    started_us = clock.now_us()
    assert not any(wire.poll(5e-4) for _ in range(100))
    assert clock.now_us() - started_us >= 50_000
    wire.close()


def test_what_was_written_is_read_to_its_end_however_much_it_is(circle: str, prefix: str) -> None:
    """Nor does what comes meanwhile belong to it; librdkafka rests for a second after 100,000 records."""
    count = 130_000
    wire = Wire(circle, prefix, linger_ms=50)
    for number in range(count):
        wire.produce(topics.QUERIES, b"%d" % number, b"value")
    assert wire.flush() == 0
    wire.follow(CIRCLE, from_start=True)
    found = wire.written()
    first = next(found)
    wire.produce(topics.FEEDBACK, b"later", b"value")
    assert wire.flush() == 0
    keys = {first.key, *(arrival.key for arrival in found if arrival.topic == topics.QUERIES)}
    wire.close()
    assert len(keys) == count
