"""Predictions as a consumer group reads them, on a real broker, and the example that writes them to SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition

from load.harness.wire import Wire
from schemas import topics
from schemas.codec import Codec
from schemas.records import Prediction, Status
from streams.consumers.consume import consume

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.local.services import Broker
    from streams.consumers.consume import PredictionStream

PARTITIONS = 4
IDLE_S = 2.0
ROOT = Path(__file__).parents[2]


def answer(query_id: str, application: str = "digits", token: str = "", given: int = 3) -> Prediction:
    """Return a prediction as selection writes it."""
    times = (1, 2, 3, 4)
    return Prediction(query_id, application, None, None, Status.COMPLETE, None, given, 1.0, (), *times, token)


@pytest.fixture
def written(kafka: Broker, prefix: str) -> Wire:
    """A producer of predictions."""
    kafka.create_topics({f"{prefix}.{topics.PREDICTIONS}": PARTITIONS})
    return Wire(kafka.bootstrap, prefix)


def write(wire: Wire, predictions: Iterable[Prediction]) -> None:
    """Produce predictions; returns when the broker has them."""
    for prediction in predictions:
        wire.produce(topics.PREDICTIONS, prediction.query_id.encode(), Codec().encode(prediction))
    assert wire.flush() == 0


async def committed(bootstrap: str, group: str, topic: str) -> int:
    """Return the sum of what a group has committed, as Kafka says."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        found = await client.list_consumer_group_offsets(group)
    finally:
        await client.close()
    return sum(max(0, found[place].offset) for place in found if isinstance(place, TopicPartition))


async def ids(stream: PredictionStream, at_most: int = 7) -> list[str]:
    """Return the ids that a stream gives until it is idle."""
    async with stream as predictions:
        return [one.query_id async for batch in predictions.batches(at_most) for one in batch]


async def test_a_group_gets_each_prediction_once_and_commits_what_is_handled(
    kafka: Broker, prefix: str, written: Wire
) -> None:
    """Copies and other applications' predictions are left out; another member goes on where the first one stopped."""
    write(written, [answer(f"q-{number}") for number in range(50)])
    write(written, [answer("q-3"), answer("q-4", token="other"), answer("q-5", application="fraud")])
    there = {"group": "ledger", "bootstrap": kafka.bootstrap, "prefix": prefix, "idle_s": IDLE_S}
    first = await ids(consume("digits", **there))
    assert sorted(first) == sorted([*(f"q-{number}" for number in range(50)), "q-4"])
    group = f"{prefix}.consumers.ledger"
    assert await committed(kafka.bootstrap, group, topics.PREDICTIONS) == 53
    write(written, [answer("later")])
    written.close()
    assert await ids(consume("digits", **there)) == ["later"]


async def test_what_an_error_interrupts_is_read_again(kafka: Broker, prefix: str, written: Wire) -> None:
    """The batch that was in hand, and all after it; what was handled before is not."""
    write(written, [answer(f"q-{number}") for number in range(20)])
    written.close()
    there = {"group": "ledger", "bootstrap": kafka.bootstrap, "prefix": prefix, "idle_s": IDLE_S}
    handled, at_hand = [], []
    with suppress(ZeroDivisionError):
        async with consume("digits", **there) as predictions:
            async for batch in predictions.batches(8):
                at_hand = [one.query_id for one in batch]
                if handled:
                    raise ZeroDivisionError
                handled += at_hand
    again = await ids(consume("digits", **there))
    assert len(handled) == 8
    assert set(at_hand) <= set(again)
    assert sorted(handled + again) == sorted(f"q-{number}" for number in range(20))


async def test_two_members_share_the_partitions(kafka: Broker, prefix: str, written: Wire) -> None:
    """A member that joins takes over without a loss; nothing is given twice where handling is quick."""
    there = {"group": "ledger", "bootstrap": kafka.bootstrap, "prefix": prefix}
    found: dict[str, list[str]] = {"one": [], "two": []}

    async def read(name: str) -> None:
        async with consume("digits", **there) as predictions:
            async for prediction in predictions:
                found[name].append(prediction.query_id)

    async def until(count: int) -> None:
        async with asyncio.timeout(60):
            while len(found["one"]) + len(found["two"]) < count:  # noqa: ASYNC110 - two lists, of two readers
                await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(read("one"))]
        write(written, [answer(f"a-{number}") for number in range(40)])
        await until(40)
        readers.append(tasks.create_task(read("two")))
        count = 40
        async with asyncio.timeout(60):
            while not found["two"]:
                write(written, [answer(f"b-{count + number}") for number in range(8)])
                count += 8
                await asyncio.sleep(0.2)
        await until(count)
        for reader in readers:
            reader.cancel()
    written.close()
    everything = [*found["one"], *found["two"]]
    assert len(everything) == len({*everything}) == count


def test_a_group_may_begin_with_what_is_new_and_without_async(kafka: Broker, prefix: str, written: Wire) -> None:
    """`newest` is where the log ends when the group begins; that holds for its later members, too."""
    write(written, [answer("old")])
    there = {"group": "alarm", "bootstrap": kafka.bootstrap, "prefix": prefix, "idle_s": IDLE_S}
    with consume("digits", begin="newest", **there) as predictions:
        assert [*predictions] == []
    write(written, [answer("new")])
    written.close()
    with consume("digits", begin="newest", **there) as predictions:
        assert [one.query_id for one in predictions] == ["new"]


async def test_the_example_writes_each_answer_once_to_sqlite(
    kafka: Broker, prefix: str, written: Wire, tmp_path: Path
) -> None:
    """However often it is started, and in whatever group: the first answer stays."""
    write(written, [answer(f"q-{number}", given=number) for number in range(30)])
    write(written, [answer("q-7", token="other", given=99)])
    written.close()
    file = tmp_path / "answers.db"
    for group in ("sqlite", "sqlite", "other"):
        named = ("--group", group, "--bootstrap", kafka.bootstrap, "--prefix", prefix, "--idle", str(IDLE_S))
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(ROOT / "examples" / "to_sqlite.py"), "digits", str(file), *named, cwd=ROOT
        )
        async with asyncio.timeout(120):
            assert await process.wait() == 0
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT query_id, answer, status FROM answers").fetchall()
    assert sorted(rows) == sorted((f"q-{number}", str(number), "complete") for number in range(30))
