"""Tests of the Kafka adapters and the loop on a real Apache Kafka."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import CorruptRecordException

from deploy.local.admin import admin_client
from load.harness.topics import delete
from streams.operators.contract import DeadLetter, Emit, Record
from streams.runtime.errors import (
    BrokerUnavailableError,
    RecordRefusedError,
    RecordTooLargeError,
    UnknownPartitionError,
)
from streams.runtime.kafka.admin import create
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.consumer import KafkaConsumer
from streams.runtime.kafka.log_reader import KafkaBroadcast, KafkaPositions, KafkaRecent
from streams.runtime.kafka.producer import KafkaTransport
from streams.runtime.process.run import kafka_loop, run_process
from streams.runtime.role.definition import Role
from tests.fakes import ScriptedKernel, echo
from tests.kafka import CLOCK, QUICK, looping, producing, put, take, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

    from deploy.local.services import Broker
    from streams.operators.contract import Effects
    from streams.runtime.ports import TopicPartition

PARTITIONS = 4
ROLE = Role("echo", "echo-1", ("in",))


@asynccontextmanager
async def topics(kafka: Broker, prefix: str) -> AsyncIterator[KafkaConnection]:
    """Create a fresh deployment: in, out (4 partitions), in.dlq, out.dlq, reports, applications (1)."""
    plural, single = ("in", "out"), ("in.dlq", "out.dlq", "reports", "applications")
    counts = dict.fromkeys(plural, PARTITIONS) | dict.fromkeys(single, 1)
    connection = KafkaConnection(kafka.bootstrap, prefix)
    await asyncio.to_thread(kafka.create_topics, {connection.real(name): count for name, count in counts.items()})
    try:
        yield connection
    finally:
        await asyncio.to_thread(delete, kafka.bootstrap, prefix)


async def committed(connection: KafkaConnection, group: str = "echo") -> dict[int, int | None]:
    """Return what a group has committed of topic `in`, asked for as its next member."""
    seen: dict[TopicPartition, int | None] = {}

    class Note:
        async def on_assigned(self, offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int | None]:
            seen.update(offsets)
            return {}

        async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            pass

    consumer = KafkaConsumer(connection, ["in"], group, CLOCK, QUICK)
    await consumer.start(Note())
    await until(lambda: len(seen) == PARTITIONS)
    await consumer.stop(3)
    return {number: offset for (_, number), offset in sorted(seen.items())}


async def test_every_record_makes_the_round_trip_and_is_committed(kafka: Broker, prefix: str) -> None:
    """Values, keys, order within partitions and commits, in several batches a partition."""
    values = {p: [b"%d-%d-" % (p, n) + b"x" * 500 for n in range(3_000)] for p in range(PARTITIONS)}
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        for partition, wanted in values.items():
            await put(transport, wanted, partition)
        kernel = ScriptedKernel()
        async with looping(connection, kernel, ROLE):
            await until(lambda: len(kernel.seen()) == 12_000)
        out = await take(connection, "out")
        for partition, wanted in values.items():
            assert [r.value for r in out if r.partition == partition] == wanted
        assert {r.key for r in out} == {b"k"}
        assert await committed(connection) == dict.fromkeys(range(PARTITIONS), 3_000)


async def test_a_kernel_that_fails_on_its_timer_reads_again_what_it_held(kafka: Broker, prefix: str) -> None:
    """Every record gets its outcome and is committed, also those that arrive meanwhile; the role goes on."""
    failures: list[int] = []

    def decide(record: Record) -> Effects:
        if failures:
            return [echo(record)]
        kernel.wakes = [CLOCK.now_us() + 200_000]
        return []

    def fail(now_us: int) -> Effects:
        failures.append(now_us)
        raise ZeroDivisionError("timer")

    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        kernel = ScriptedKernel(decide=decide, timer=fail)
        async with looping(connection, kernel, ROLE):
            for partition in range(PARTITIONS):
                await put(transport, [b"%d" % n for n in range(10)], partition)
            await until(lambda: len(failures) == 1)
            await put(transport, [b"later"])
            await until(lambda: kernel.seen().count(b"9") >= 2 * PARTITIONS and b"later" in kernel.seen())
        assert Counter(r.value for r in await take(connection, "out")) == {
            **{b"%d" % n: PARTITIONS for n in range(10)},
            b"later": 1,
        }
        assert await committed(connection) == {0: 11} | dict.fromkeys(range(1, PARTITIONS), 10)


async def test_a_new_owner_continues_at_the_first_record_without_outcome(kafka: Broker, prefix: str) -> None:
    """The commit stands before it although everything behind it is done."""
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        await put(transport, [b"%d" % n for n in range(100)])
        first = ScriptedKernel(decide=lambda record: [] if record.offset == 40 else [echo(record)])
        async with looping(connection, first, ROLE):
            await until(lambda: len(first.seen()) == 100)
        assert (await committed(connection))[0] == 40
        second = ScriptedKernel()
        async with looping(connection, second, ROLE):
            await until(lambda: len(second.seen()) == 60)
        assert second.seen()[0] == b"40"
        assert second.starts[0][0] == 40
        assert {r.value for r in await take(connection, "out")} == {b"%d" % n for n in range(100)}


async def test_a_new_owner_is_told_what_was_written_of_the_records_that_it_reads_again(
    kafka: Broker, prefix: str
) -> None:
    """Of all partitions; where nothing is to be read again, nothing was written of it."""
    role = replace(ROLE, wrote=frozenset(("out", number) for number in range(PARTITIONS)))
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        for partition in range(2):
            await put(transport, [b"%d-%d" % (partition, n) for n in range(3)], partition)
        first = ScriptedKernel(decide=lambda record: [echo(record)] if record.offset else [])
        async with looping(connection, first, role):
            await until(lambda: len(first.seen()) == 6)
        assert set((await committed(connection)).values()) == {None}
        second = ScriptedKernel(has_written=True)
        async with looping(connection, second, role):
            await until(lambda: len(second.seen()) == 6)
        assert sorted(record.value for record in second.recalled) == [b"0-1", b"0-2", b"1-1", b"1-2"]  # type: ignore[type-var]
        third = ScriptedKernel(has_written=True)
        async with looping(connection, third, role) as (loop, _):
            await loop.ready.wait()
            await put(transport, [b"new"])
            await until(lambda: len(third.seen()) == 1)
        assert third.recalled == []


async def test_an_exception_in_the_middle_of_a_poll_loses_nothing(kafka: Broker, prefix: str) -> None:
    """The client has drained records and moved its positions when it raises; they are read again."""
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        kernel = ScriptedKernel()
        async with looping(connection, kernel, ROLE) as (loop, _):
            await until(loop.ready.is_set)
            source = loop._ports.consumer._source  # type: ignore[attr-defined]
            drain, raised = source.poll, Counter[str]()

            async def drain_and_raise(*asked: Any) -> Any:
                found = await drain(*asked)
                if found and raised["times"] < 5:
                    raised["times"] += 1
                    raised["records"] += sum(map(len, found.values()))
                    raise CorruptRecordException
                return found

            source.poll = drain_and_raise
            for count in (10, 490):  # the poll that waits now returns unharmed
                for partition in range(PARTITIONS):
                    await put(transport, [b"%d-%d-%d" % (partition, count, n) for n in range(count)], partition)
                await until(lambda count=count: len(kernel.seen()) >= (40 if count == 10 else 2_000))
        assert raised["records"] > 0
        assert len(kernel.seen()) == len(set(kernel.seen())) == 2_000
        for partition in range(PARTITIONS):
            own = [r.offset for call in kernel.calls for r in call if r.partition == partition]
            assert own == list(range(500))
        assert await committed(connection) == dict.fromkeys(range(PARTITIONS), 500)


async def test_a_second_member_takes_half_and_gives_it_back(kafka: Broker, prefix: str) -> None:
    """Every record gets an outcome through a join and a leave, each partition has one owner at a time."""
    async with topics(kafka, prefix) as connection, producing(connection) as transport, AsyncExitStack() as stack:
        sent: list[bytes] = []

        async def flow() -> None:
            for n in range(10_000):
                sent.append(b"%d" % n)
                await put(transport, sent[-1:], n % PARTITIONS)

        sending = asyncio.create_task(flow())
        first, second = ScriptedKernel(), ScriptedKernel()
        await stack.enter_async_context(looping(connection, first, ROLE))
        await until(lambda: len(first.seen()) > 50)
        async with looping(connection, second, ROLE):
            await until(lambda: len(second.seen()) > 50)
            await until(lambda: len(first.starts[-1]) == len(second.starts[-1]) == PARTITIONS // 2)
            assert not first.starts[-1].keys() & second.starts[-1].keys()
        await until(lambda: len(first.starts[-1]) == PARTITIONS)
        sending.cancel()
        await until(lambda: {*first.seen(), *second.seen()} >= set(sent[:-1]))
        await stack.aclose()
        out = Counter(r.value for r in await take(connection, "out"))
        assert out.keys() >= set(sent[:-1])
        # A hand-over waits for acknowledgements and commits them, so hardly anything is done twice.
        assert sum(out.values()) - len(out) < 0.05 * len(sent)


async def test_a_member_that_starts_elsewhere_sees_nothing_from_in_between(kafka: Broker, prefix: str) -> None:
    """Records fetched before the start position was decided are not handed out."""
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        await put(transport, [b"%d" % n for n in range(100)])

        class Slow:
            async def on_assigned(self, offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
                await asyncio.sleep(1)  # the client fetches from the oldest record meanwhile
                return {("in", 0): 70}

            async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
                pass

        consumer = KafkaConsumer(connection, ["in"], "elsewhere", CLOCK, QUICK)
        await consumer.start(Slow())
        records: list[Record] = []
        while len(records) < 30:
            records += await consumer.poll(200)
        consumer.seek(("in", 0), 95)
        while len(records) < 35:
            records += await consumer.poll(200)
        await consumer.stop(3)
        assert [record.offset for record in records] == [*range(70, 100), *range(95, 100)]


async def test_only_some_topics_are_polled_under_backpressure(kafka: Broker, prefix: str) -> None:
    """The others stay where they are, and nothing of them is lost."""
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        await put(transport, [b"query"] * 10)
        await put(transport, [b"reply"] * 10, topic="out")
        assigned = asyncio.Event()

        class Both:
            async def on_assigned(self, offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
                assigned.set()
                return {}

            async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
                pass

        consumer = KafkaConsumer(connection, ["in", "out"], "both", CLOCK, QUICK)
        await consumer.start(Both())
        await assigned.wait()
        replies: list[Record] = []
        while len(replies) < 10:
            replies += await consumer.poll(200, frozenset({"out"}))
        assert await consumer.poll(50, frozenset()) == []
        rest: list[Record] = []
        while len(rest) < 10:
            rest += await consumer.poll(200)
        await consumer.stop(3)
        assert {r.value for r in replies} == {b"reply"}
        assert {r.value for r in rest} == {b"query"}


async def test_dead_letters_keep_bytes_key_and_headers(kafka: Broker, prefix: str) -> None:
    """Any bytes, a null key, headers of the sender: all arrive in the dead-letter topic."""
    garbage = bytes(range(256))
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        await transport.send("in", 2, [Emit("in", 2, None, garbage, (), (("traceparent", b"00-ab"),))])
        kernel = ScriptedKernel(decide=lambda record: [DeadLetter(record, "undecodable", "unknown schema")])
        async with looping(connection, kernel, ROLE):
            await until(lambda: bool(kernel.seen()))
        (letter,) = await take(connection, "in.dlq")
        headers = dict(letter.headers)
        assert (letter.key, letter.value) == (None, garbage)
        assert headers["traceparent"] == b"00-ab"
        assert headers["skysail.error.cause"] == b"undecodable"
        assert (headers["skysail.error.topic"], headers["skysail.error.partition"]) == (b"in", b"2")
        assert (await committed(connection))[2] == 1


async def test_a_broadcast_reads_everything_and_says_when(kafka: Broker, prefix: str) -> None:
    """Also an empty topic is caught up with; later records follow."""
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        reader = KafkaBroadcast(connection, ["applications", "reports"])
        await put(transport, [b"a", b"b"], topic="applications")
        await reader.start()
        records: list[Record] = []
        while not reader.caught_up:
            records += await reader.poll(200)
        assert [record.value for record in records] == [b"a", b"b"]
        await put(transport, [b"c"], topic="applications")
        while len(records) < 3:
            records += await reader.poll(200)
        assert records[-1][:3] == ("applications", 0, 2)
        await reader.stop(3)


async def test_a_window_before_an_offset_is_found_by_time(kafka: Broker, prefix: str) -> None:
    """The record just before the offset tells the time; the window is counted back from it."""
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        for n in range(5):
            await put(transport, [b"%d" % n])
            await asyncio.sleep(0.01)  # no two of a millisecond
        times_us = [record.timestamp_us for record in await take(connection, "in")]
        positions = KafkaPositions(connection)
        window_us = times_us[3] - (times_us[1] + times_us[2]) // 2  # from between the second and the third on
        found = await positions.before({("in", 0): 4, ("in", 1): 0}, window_us)
        assert found == {("in", 0): 2, ("in", 1): 0}
        assert await positions.before({("in", 0): 5}, 0) == {("in", 0): 4}
        assert await positions.before({("in", 0): 5}, 10**12) == {("in", 0): 0}


async def test_the_last_records_of_a_topic_are_found_in_order_of_time(kafka: Broker, prefix: str) -> None:
    """From each partition that has any as many as from the others; a short or empty topic gives what there is."""
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        recent = KafkaRecent(connection)
        assert await recent.last("in", 4) == []
        for n in range(6):
            await put(transport, [b"%d" % n], partition=n % 2)
            await asyncio.sleep(0.01)
        found = await recent.last("in", 4)
        assert [(record.topic, record.value) for record in found] == [("in", b"%d" % n) for n in range(2, 6)]
        assert [record.value for record in await recent.last("in", 100)] == [b"%d" % n for n in range(6)]


async def test_the_last_records_of_a_topic_that_is_not_there_are_not_waited_for(kafka: Broker, prefix: str) -> None:
    """Nor those behind a broker that does not answer."""
    for connection in (KafkaConnection(kafka.bootstrap, prefix), KafkaConnection("127.0.0.1:1", prefix)):
        with pytest.raises(BrokerUnavailableError, match="nowhere"):
            await KafkaRecent(connection, timeout_s=1.0).last("nowhere", 4)


async def test_the_end_of_a_log_is_that_of_the_topic_as_it_is_now(kafka: Broker, prefix: str) -> None:
    """A topic that was deleted and created again ends before what was stored for the former one."""
    for records in (3, 1):
        async with topics(kafka, prefix) as connection, producing(connection) as transport:
            await put(transport, [b"x"] * records)
            assert await KafkaPositions(connection).ends([("in", 0), ("in", 1)]) == {("in", 0): records, ("in", 1): 0}


async def test_the_ends_of_many_topics_are_looked_up_in_one_go(kafka: Broker, prefix: str) -> None:
    """As a host with a topic a model has to; one after the other they would not be there in time."""
    names = [f"models.m{number}.queries" for number in range(100)]
    connection = KafkaConnection(kafka.bootstrap, prefix)
    await asyncio.to_thread(kafka.create_topics, {connection.real(name): 1 for name in names})
    places = [(name, 0) for name in names]
    assert await KafkaPositions(connection).ends(places) == dict.fromkeys(places, 0)
    await asyncio.to_thread(delete, kafka.bootstrap, prefix)


async def test_a_missing_topic_or_partition_is_told_apart_quickly(kafka: Broker, prefix: str) -> None:
    """A lane must not wait for aiokafka's request timeout to learn it."""
    async with topics(kafka, prefix) as connection, producing(connection, topic_timeout_s=0.5) as transport:
        with pytest.raises(UnknownPartitionError, match="create it"):
            await transport.send("nowhere", 0, [Emit("nowhere", 0, None, b"x")])
        with pytest.raises(UnknownPartitionError, match="not 9"):
            await transport.send("in", 9, [Emit("in", 9, None, b"x")])
        await put(transport, [b"x"])


async def test_only_the_record_over_the_limit_is_refused(kafka: Broker, prefix: str) -> None:
    """The topic's own limit is lower than the producer's: its neighbours are delivered all the same."""
    connection = KafkaConnection(kafka.bootstrap, prefix)
    narrow = {connection.real("narrow"): {"max.message.bytes": "10000"}}
    await asyncio.to_thread(create, admin_client(kafka.bootstrap), dict.fromkeys(narrow, 1), configs=narrow)
    async with producing(connection) as transport:
        emits = [Emit("narrow", 0, None, b"x" * size) for size in (4_000, 4_000, 20_000, 4_000)]
        assert await transport.send("narrow", 0, emits) == 2
        with pytest.raises(RecordTooLargeError):
            await transport.send("narrow", 0, emits[2:])
        assert await transport.send("narrow", 0, emits[3:]) == 1
    await asyncio.to_thread(delete, kafka.bootstrap, prefix)


async def test_only_the_record_that_the_topic_never_takes_is_refused(kafka: Broker, prefix: str) -> None:
    """A compacted topic wants keys; the records that have one are delivered, and the client is kept."""
    connection = KafkaConnection(kafka.bootstrap, prefix)
    compacted = {connection.real("compacted"): {"cleanup.policy": "compact"}}
    await asyncio.to_thread(create, admin_client(kafka.bootstrap), dict.fromkeys(compacted, 1), configs=compacted)
    async with producing(connection) as transport:
        emits = [Emit("compacted", 0, key, b"x") for key in (b"1", b"2", None, b"4")]
        assert await transport.send("compacted", 0, emits) == 2
        with pytest.raises(RecordRefusedError, match="InvalidRecord"):
            await transport.send("compacted", 0, emits[2:])
        assert await transport.send("compacted", 0, emits[3:]) == 1
    await asyncio.to_thread(delete, kafka.bootstrap, prefix)


async def test_a_client_that_fails_again_and_again_is_replaced(kafka: Broker, prefix: str) -> None:
    """A client that does not recover (aiokafka #1018) is not kept for ever."""
    async with topics(kafka, prefix) as connection, producing(connection, failures=2) as transport:
        await put(transport, [b"1"])
        broken = transport._outlet
        assert broken is not None
        await broken.client.close()
        broken.client.cluster._brokers.clear()
        broken.client.cluster._bootstrap_brokers = {}
        for _ in range(2):
            assert transport._outlet is broken
            with pytest.raises(BrokerUnavailableError):
                await transport.send("in", 0, [Emit("in", 0, None, b"2")])
        await transport.send("in", 0, [Emit("in", 0, None, b"2")])
        assert transport._outlet is not broken
        assert [record.value for record in await take(connection, "in")] == [b"1", b"2"]


async def test_a_process_runs_roles_until_told_to_stop(kafka: Broker, prefix: str) -> None:
    """Two roles, one producer; both leave in order."""
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        await put(transport, [b"1", b"2"])

        def pass_on(record: Record) -> Effects:
            return [echo(record, "applications")] if record.topic == "out" else []

        kernels = ScriptedKernel(), ScriptedKernel(decide=pass_on)
        roles = ROLE, Role("second", "second-1", ("out",), follows=("reports",))
        shared = KafkaTransport(connection, CLOCK)
        loops = [
            kafka_loop(role, kernel, connection, shared, CLOCK, lambda _report: b"report", settings=QUICK)
            for role, kernel in zip(roles, kernels, strict=True)
        ]
        stop = asyncio.Event()
        running = asyncio.create_task(run_process(loops, shared, stop))
        await until(lambda: kernels[1].seen().count(b"2") == 1)
        stop.set()
        await running
        assert [record.value for record in await take(connection, "applications")] == [b"1", b"2"]


async def test_a_kernel_that_fails_once_does_not_stop_the_partition(kafka: Broker, prefix: str) -> None:
    """Its culprit is a dead letter with cause `bug`, the neighbours are served."""

    def decide(record: Record) -> Effects:
        if record.value == b"poison":
            raise KeyError("bug")
        return [echo(record)]

    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        await put(transport, [b"1", b"2", b"poison", b"3"])
        kernel = ScriptedKernel(decide=decide)
        async with looping(connection, kernel, ROLE):
            async with asyncio.timeout(30):
                while len(await take(connection, "in.dlq")) + len(await take(connection, "out")) < 4:
                    pass
        (letter,) = await take(connection, "in.dlq")
        assert (letter.value, dict(letter.headers)["skysail.error.cause"]) == (b"poison", b"bug")
        assert {r.value for r in await take(connection, "out")} == {b"1", b"2", b"3"}
        assert (await committed(connection))[0] == 4
