"""A process that was told to stop has stopped by one deadline, whatever is away, before its supervisor kills it."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError

from deploy.local.supervisor import Supervisor
from deploy.system import launch
from streams.control import faust_kafka
from streams.runtime.process.run import run_process
from streams.runtime.role.definition import Role
from streams.runtime.role.loop import RoleLoop
from streams.runtime.stopping import (
    AFTER_COMMIT_S,
    AFTER_LEAVING_S,
    AFTER_ROLES_S,
    AFTER_WORK_S,
    PATIENCE_S,
    STOP_S,
    Deadline,
    Stopping,
)
from streams.testing.broker import FakeBroker
from streams.testing.connections import Process, SimulatedBroadcast, SimulatedTransport
from streams.testing.consumers import SimulatedConsumer
from tests.fakes import FakeBroadcast, FakeConsumer, FakeTransport, FaultyStore, ScriptedKernel, fake_ports
from tests.virtual import VirtualClock, elapse, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from streams.operators.contract import Record
    from streams.runtime.ports import Rebalanced, TopicPartition

ROOT = Path(__file__).resolve().parents[3]
QUERIES = ("queries", 0)


async def never() -> NoReturn:
    """Wait for an answer that does not come."""
    await asyncio.Event().wait()
    raise AssertionError


class SilentConsumer(FakeConsumer):
    """A member whose broker says nothing any more once it is `away`."""

    away = False
    left_s: float | None = None

    async def poll(self, timeout_ms: int, only: frozenset[str] | None = None) -> list[Record]:
        """Wait, as in a rebalance without a coordinator."""
        return await never() if self.away else await super().poll(timeout_ms, only)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Wait."""
        return await never() if self.away else await super().commit(offsets)

    async def stop(self, timeout_s: float) -> None:
        """Wait as long as that may take."""
        self.left_s = timeout_s
        await asyncio.sleep(timeout_s if self.away else 0.01)
        await super().stop(timeout_s)


class SilentBroadcast(FakeBroadcast):
    """A follower whose broker lets it wait until its time is over."""

    async def stop(self, timeout_s: float) -> None:
        """Wait."""
        self.stopped = True
        await asyncio.sleep(timeout_s)


class SilentStore(FaultyStore):
    """A store that answers nothing, and does not let go."""

    async def write(self, write: Any, token: str) -> NoReturn:
        """Wait."""
        return await never()

    async def close(self) -> None:
        """Wait."""
        await never()


class SilentProducer(FakeTransport):
    """A producer whose broker never takes leave."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Wait."""
        await never()


@asynccontextmanager
async def stopped(loop: RoleLoop, after_s: float = 1.0, silence: Any = None) -> AsyncIterator[None]:
    """Run a loop, have its surroundings fall silent, and stop it; the block runs once it has ended."""
    stop = asyncio.Event()
    task = asyncio.create_task(loop.run(stop))
    await elapse(after_s)
    if silence is not None:
        silence()
        await elapse(0.1)
    stop.set()
    await task
    yield


def taken(consumer: FakeConsumer, **more: Any) -> RoleLoop:
    """Return a role that holds a query."""
    role = Role("role", "role-1", ("queries",), drain_s=1.0, follows=("models",))
    return RoleLoop(role, ScriptedKernel(), fake_ports(consumer.broker, consumer, **more))


@in_virtual_time
async def test_a_role_has_stopped_by_the_deadline_though_nothing_answers() -> None:
    """The poll, the store, the producer, the commit, the leave and the follower hang, one after the other."""
    broker = FakeBroker()
    consumer, transport = SilentConsumer(broker, [QUERIES]), FakeTransport(broker)
    loop = taken(consumer, transport=transport, broadcast=SilentBroadcast(broker, ("models",)), store=SilentStore())

    def silence() -> None:
        consumer.away = True
        transport.up.clear()
        broker.put(*QUERIES, b"1")

    began_s = 1.1
    async with stopped(loop, silence=silence):
        assert now_s() - began_s <= STOP_S - AFTER_LEAVING_S + 0.01
    assert consumer.stopped


@in_virtual_time
async def test_a_store_that_is_away_keeps_no_member_from_committing_and_leaving() -> None:
    """Each step leaves the later ones their time, so that others have the partitions at once."""
    broker = FakeBroker()
    consumer = SilentConsumer(broker, [QUERIES])
    store = FaultyStore()
    store.down = True
    kernel = ScriptedKernel(states=lambda _: [])
    loop = RoleLoop(Role("role", "role-1", ("queries",)), kernel, fake_ports(broker, consumer, store=store))
    broker.put(*QUERIES, b"1", b"2")
    async with stopped(loop):
        pass
    assert broker.committed == {QUERIES: 2}
    assert consumer.left_s is not None
    assert consumer.left_s > 1.0


@in_virtual_time
async def test_a_step_that_is_done_early_leaves_its_time_to_the_next() -> None:
    """Only what waits is cut short: nobody sleeps until a deadline."""
    consumer = SilentConsumer(FakeBroker(), [QUERIES])
    async with stopped(RoleLoop(Role("role", "role-1", ("queries",)), ScriptedKernel(), ports_of(consumer))):
        assert now_s() < 1.6  # a poll
    assert consumer.left_s is not None
    assert consumer.left_s > STOP_S - AFTER_LEAVING_S - 0.6


@in_virtual_time
async def test_a_role_that_waits_for_a_silent_broker_at_its_start_stops_as_well() -> None:
    """It has not even joined its group."""

    class Deaf(SilentConsumer):
        async def start(self, rebalanced: Rebalanced) -> None:
            await never()

    async with stopped(taken(Deaf(FakeBroker(), [QUERIES]), broadcast=FakeBroadcast(FakeBroker(), ("models",)))):
        assert now_s() - 1.0 <= STOP_S


@in_virtual_time
async def test_a_process_whose_broker_is_away_has_ended_before_its_supervisor_kills_it() -> None:
    """The parts that simulate a deployment: a member in its group, a follower, a producer, with the broker gone."""
    broker = FakeBroker(partitions={"queries": 1, "models": 1})
    process = Process("role-1", broker, Random(1), VirtualClock())
    transport = simulated_producer(process)
    loop = RoleLoop(
        Role("role", "role-1", ("queries",), drain_s=1.0, follows=("models",)),
        ScriptedKernel(),
        fake_ports(
            broker,
            SimulatedConsumer(process, ("queries",), "role"),  # type: ignore[arg-type]
            transport=transport,
            broadcast=SimulatedBroadcast(process, ("models",)),
        ),
    )
    stop = asyncio.Event()
    task = asyncio.create_task(run_process([loop], transport, stop))  # type: ignore[arg-type]
    await loop.ready.wait()
    broker.put(*QUERIES, b"1", b"2")
    await elapse(0.01)
    broker.weather.away += 1
    broker.put(*QUERIES, b"3")
    await elapse(3)
    began_s = now_s()
    stop.set()
    await task
    assert now_s() - began_s <= STOP_S < PATIENCE_S


@in_virtual_time
async def test_a_role_that_does_not_end_is_cut_off_and_the_producer_still_disconnects() -> None:
    """Such as a worker that loads its model for two minutes."""

    class Loading:
        async def run(self, stop: asyncio.Event) -> None:
            await never()

    producer = SilentProducer(FakeBroker())
    stop = asyncio.Event()
    task = asyncio.create_task(run_process([Loading()], producer, stop))  # type: ignore[arg-type]
    await elapse(1)
    stop.set()
    await task
    assert now_s() - 1 == pytest.approx(STOP_S)


@in_virtual_time
async def test_a_process_that_cannot_connect_stops_as_well() -> None:
    """Whoever listens there accepts connections and says nothing."""

    class Deaf(SilentProducer):
        async def start(self) -> None:
            await never()

    stop = asyncio.Event()
    task = asyncio.create_task(run_process([], Deaf(FakeBroker()), stop))  # type: ignore[arg-type]
    await elapse(1)
    stop.set()
    await task
    assert now_s() - 1 <= STOP_S


@in_virtual_time
async def test_what_fails_unattended_is_a_line_where_kafka_refused_it_and_else_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such as a commit whose caller was cancelled: aiokafka shields it, and goes on alone."""

    class Careless:
        async def run(self, stop: asyncio.Event) -> None:
            failing: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future() for _ in range(2)]
            failing[0].set_exception(GroupCoordinatorNotAvailableError())
            failing[1].set_exception(ValueError("a fault of ours"))
            failing.clear()
            gc.collect()

    caplog.set_level(logging.INFO)
    await run_process([Careless()], SilentProducer(FakeBroker()), asyncio.Event())  # type: ignore[arg-type]
    said = {each.name: each for each in caplog.records}
    assert "refused what nobody waits for" in said["streams.runtime.kafka.refusals"].getMessage()
    assert said["streams.runtime.kafka.refusals"].exc_info is None
    assert said["asyncio"].levelname == "ERROR"
    assert len(said) == 2


@in_virtual_time
async def test_an_error_inside_of_a_limit_is_no_end_of_time() -> None:
    """A timeout of somebody else's is passed on."""
    with pytest.raises(TimeoutError, match="mine"):
        async with Stopping(asyncio.Event()).limit(0):
            raise TimeoutError("mine")


def test_a_deadline_is_a_moment_and_never_leaves_less_than_nothing() -> None:
    """All of it is arithmetic on a clock that is given."""
    deadline = Deadline.after(6, now_s=100)
    assert (deadline.left_s(100), deadline.left_s(104), deadline.left_s(200)) == (6, 2, 0)
    assert deadline.before(2) == Deadline(104)


def test_every_step_leaves_time_to_the_one_after_it() -> None:
    """Work, commit, leave, the rest of the roles, the producer; then the supervisor still waits."""
    assert STOP_S > AFTER_WORK_S > AFTER_COMMIT_S > AFTER_LEAVING_S > AFTER_ROLES_S > 0
    assert PATIENCE_S >= STOP_S + 2


def test_whoever_stops_roles_waits_for_their_deadline() -> None:
    """The supervisor of `skysail run`, and the compose file."""
    assert launch.PATIENCE_S == PATIENCE_S
    assert "grace_s" in Supervisor.__init__.__annotations__
    compose = (ROOT / "deploy/compose.yaml").read_text(encoding="utf-8")
    (seconds,) = re.findall(r"stop_grace_period: (\d+)s", compose)
    assert float(seconds) >= PATIENCE_S


def test_the_thread_of_the_page_keeps_no_process_alive() -> None:
    """Faust's consumer has one that waits for a broker that is away without a limit."""
    assert faust_kafka._Thread.Worker(None).daemon


def now_s() -> float:
    """Return the virtual time."""
    return asyncio.get_running_loop().time()


def ports_of(consumer: FakeConsumer) -> Any:
    """Return ports on a consumer's broker."""
    return fake_ports(consumer.broker, consumer)


def simulated_producer(process: Process) -> SimulatedTransport:
    """Return a producer that connects and takes leave at once."""

    class Producer(SimulatedTransport):
        async def start(self) -> None:
            """Connect."""

        async def stop(self) -> None:
            """Disconnect."""

    return Producer(process)
