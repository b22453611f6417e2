"""The learner's whole loop on a store that is slow, out of order, and written by a former owner, too."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from schemas.records import Decision, JoinStatus, Observation, Observations
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from streams.operators.learn.kernel import Learner
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.role.definition import Role
from streams.runtime.role.loop import RoleLoop
from streams.runtime.stores.base import MemoryStore
from streams.testing.broker import FakeBroker
from tests.fakes import FakeConsumer, FakePositions, fake_ports
from tests.loops import CODEC
from tests.virtual import elapse, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeVar

    from schemas.records import PolicyState
    from streams.operators.contract import WriteStates
    from streams.runtime.stores.base import StatesRead, WriteResult

    _T = TypeVar("_T")

LOG = ("observations", 0)
WINDOW_US = 600_000_000
POLICY = "exp3(eta=0.05,gamma=0.05,share=0.0001)"


class SlowStore(MemoryStore):
    """Every request arrives after a while and is answered after another; who waits too long hears nothing.

    Requests overtake each other, and one that nobody waits for any more arrives all the same.
    """

    def __init__(self, seed: int, slowest_s: float, timeout_s: float = 0.25) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._slowest_s = slowest_s
        self._timeout_s = timeout_s
        self._under_way: set[asyncio.Task[object]] = set()

    async def read(self, keys: Iterable[StateKey]) -> StatesRead:
        """Read when the request arrives."""
        wanted = tuple(keys)
        return await self._sent(lambda: MemoryStore.read(self, wanted))

    async def offset(self, partition: int) -> int | None:
        """Ask when the request arrives."""
        return await self._sent(lambda: MemoryStore.offset(self, partition))

    async def write(self, write: WriteStates, token: str) -> WriteResult:
        """Write when the request arrives."""
        return await self._sent(lambda: MemoryStore.write(self, write, token))

    async def _sent(self, do: Callable[[], Awaitable[_T]]) -> _T:
        async def arrive() -> _T:
            await asyncio.sleep(self._random.uniform(0.001, self._slowest_s))
            answer = await do()
            await asyncio.sleep(self._random.uniform(0.001, self._slowest_s))
            return answer

        request = asyncio.create_task(arrive())
        self._under_way.add(request)
        request.add_done_callback(self._under_way.discard)
        try:
            return await asyncio.wait_for(asyncio.shield(request), self._timeout_s)
        except TimeoutError as fault:
            raise StoreUnavailableError("no answer in time") from fault


def observation(n: int) -> Observation:
    """Return the n-th observation, of one of nine contexts: some have to be read again."""
    decision = Decision((n % 2,), n, f"digits/{n * 7 % 9}", POLICY, ("a", "b"), (0.5, 0.5))
    losses = (0.25, None) if n % 2 == 0 else (None, 0.75)
    return Observation(f"q{n}", "digits", None, decision, losses, 0.5, None, JoinStatus.JOINED, n, n)


def learning(broker: FakeBroker, store: MemoryStore) -> tuple[RoleLoop, FakeConsumer]:
    """Return the loop of one learner that caches four states, and its consumer."""
    consumer = FakeConsumer(broker, [LOG])
    ports = fake_ports(broker, consumer, store=store, positions=FakePositions(0))
    return RoleLoop(Role("learner", "l", (LOG[0],), owns_states=True), Learner(CODEC, WINDOW_US, 4), ports), consumer


def folded(broker: FakeBroker) -> dict[StateKey, PolicyState]:
    """Fold the log offline."""
    log = [
        (record.timestamp_us, seen)
        for record in broker.logs[LOG]
        for seen in CODEC.decode(Observations, record.value).items
    ]
    return {StateKey(0, name): state for name, state in fold(log, WINDOW_US).items()}


async def settled(store: MemoryStore, broker: FakeBroker) -> None:
    """Wait until everything is stored, or long enough."""
    for _ in range(600):
        if store.offsets.get(0) == len(broker.logs[LOG]):
            return
        await elapse(0.1)


async def lived(seed: int, slowest_s: float) -> tuple[MemoryStore, FakeBroker]:
    """Let one learner learn a hundred observations over ten seconds of rebalances."""
    chance = random.Random(seed)
    broker, store = FakeBroker(), SlowStore(seed, slowest_s)
    loop, consumer = learning(broker, store)
    stop = asyncio.Event()
    task = asyncio.create_task(loop.run(stop))
    await loop.ready.wait()
    for n in range(100):
        broker.put(*LOG, CODEC.encode(Observations((observation(n),))))
        await elapse(chance.uniform(0, 0.2))
        if chance.random() < 0.2:
            await consumer.rebalance()
    await settled(store, broker)
    stop.set()
    await task
    return store, broker


@pytest.mark.parametrize("seed", range(60))
def test_states_equal_the_fold_whatever_the_store_s_delays_and_rebalances(seed: int) -> None:
    """Each observation is learnt once, although writes arrive after those that took over have read."""
    store, broker = run(lived(seed, (0.02, 0.15, 0.3)[seed % 3]))
    assert store.offsets[0] == len(broker.logs[LOG])
    assert store.states == folded(broker)


async def haunted(seed: int) -> tuple[MemoryStore, FakeBroker]:
    """Let two learners believe that they own the partition, one of them after standing still."""
    chance = random.Random(seed)
    broker, store = FakeBroker(), SlowStore(seed, 0.15)
    loops = [learning(broker, store)[0] for _ in range(2)]
    stop = asyncio.Event()
    tasks = [asyncio.create_task(loop.run(stop)) for loop in loops]
    for loop in loops:
        await loop.ready.wait()
    for n in range(60):
        broker.put(*LOG, CODEC.encode(Observations((observation(n),))))
        await elapse(chance.uniform(0, 0.2))
    await settled(store, broker)
    stop.set()
    await asyncio.gather(*tasks)
    return store, broker


@pytest.mark.parametrize("seed", range(30))
def test_states_equal_the_fold_although_a_former_owner_writes_on(seed: int) -> None:
    """Whoever of the two is first, what is stored is the fold."""
    store, broker = run(haunted(seed))
    assert store.offsets[0] == len(broker.logs[LOG])
    assert store.states == folded(broker)
