"""Tests of the keeper: reads and writes of policy states."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas.records import PolicyState
from streams.operators.contract import FetchStates, Position, StateKey, WriteStates
from streams.runtime.keeper import READ_KEYS, WRITE_STATES, Keeper, KeeperEvents
from streams.runtime.store import MemoryStore, merged
from tests.fakes import FaultyStore
from tests.virtual import elapse, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


def state(version: int) -> PolicyState:
    """Return a state that is told from others by its version."""
    return PolicyState("exp3()", ("a", "b"), version, (0.1, 0.2))


def write(expected: int | None, offset: int, partition: int = 0, **states: PolicyState) -> WriteStates:
    """Return a write that completes the record before `offset`."""
    return WriteStates(partition, expected, offset, states, (Position("observations", partition, offset - 1),))


@dataclass
class Scene:
    """A running keeper and what it told."""

    keeper: Keeper
    store: FaultyStore
    answers: dict[StateKey, PolicyState | None] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    refused: list[tuple[int, int | None]] = field(default_factory=list)


@asynccontextmanager
async def running() -> AsyncIterator[Scene]:
    """Run a keeper."""

    async def refuse(partition: int, stored: int | None) -> None:
        scene.refused.append((partition, stored))

    def answer(states: Mapping[StateKey, PolicyState | None]) -> None:
        scene.answers |= states

    store = FaultyStore()
    events = KeeperEvents(answer, lambda positions: scene.done.extend(p.offset for p in positions), refuse)
    scene = Scene(Keeper(store, events), store)
    task = asyncio.create_task(scene.keeper.run())
    yield scene
    task.cancel()


def test_a_read_sees_every_write_asked_for_before_it() -> None:
    """The order of asking is the order of doing, per partition."""

    async def scene() -> None:
        async with running() as s:
            s.keeper.ask(write(None, 5, digits=state(5)))
            s.keeper.ask(FetchStates((StateKey(0, "digits"), StateKey(0, "other"))))
            assert await s.keeper.flush(1)
            assert s.answers == {StateKey(0, "digits"): state(5), StateKey(0, "other"): None}

    run(scene())


def test_a_read_asked_for_during_a_write_still_sees_the_write_before_it() -> None:
    """Also when the store is busy with another write in between."""

    async def scene() -> None:
        async with running() as s:
            s.keeper.ask(write(None, 5, digits=state(5)))
            await asyncio.sleep(0)
            s.keeper.ask(write(5, 6, digits=state(6)))
            s.keeper.ask(FetchStates((StateKey(0, "digits"),)))
            await s.keeper.flush(1)
            assert s.answers == {StateKey(0, "digits"): state(6)}

    run(scene())


def test_what_piles_up_is_merged() -> None:
    """Ten writes that wait become one; all their records are complete."""

    async def scene() -> None:
        async with running() as s:
            for offset in range(1, 11):
                s.keeper.ask(write(offset - 1 or None, offset, digits=state(offset)))
            await s.keeper.flush(1)
            assert [w.offset for w in s.store.writes] == [10]
            assert s.done == list(range(10))

    run(scene())


def test_a_merged_write_has_a_limit() -> None:
    """One script may not hold Redis for long."""

    async def scene() -> None:
        async with running() as s:
            half = {str(n): state(1) for n in range(WRITE_STATES // 2)}
            for offset in range(1, 5):
                s.keeper.ask(write(offset - 1 or None, offset, **{f"{offset}-{k}": v for k, v in half.items()}))
            await s.keeper.flush(1)
            assert [w.offset for w in s.store.writes] == [2, 4]

    run(scene())


def test_many_keys_are_read_in_pieces() -> None:
    """One answer may not hold the event loop for long."""

    async def scene() -> None:
        async with running() as s:
            s.keeper.ask(FetchStates(tuple(StateKey(0, str(n)) for n in range(READ_KEYS + 1))))
            await s.keeper.flush(1)
            assert [len(keys) for keys in s.store.reads] == [READ_KEYS, 1]

    run(scene())


def test_a_store_that_is_down_is_asked_until_it_answers() -> None:
    """Neither a read nor a write is given up, and the order holds."""

    async def scene() -> None:
        async with running() as s:
            s.store.down = True
            s.keeper.ask(write(None, 1, digits=state(1)))
            s.keeper.ask(FetchStates((StateKey(0, "digits"),)))
            assert not await s.keeper.flush(30)
            assert s.done == []
            s.store.down = False
            assert await s.keeper.flush(5)
            assert s.answers == {StateKey(0, "digits"): state(1)}
            assert s.keeper.counters["store_failures_total"] > 20

    run(scene())


def test_a_write_whose_answer_was_lost_is_recognised() -> None:
    """It is repeated as it was, although more has piled up, and counts as done."""

    async def scene() -> None:
        async with running() as s:
            s.store.lose_answers = 1
            s.keeper.ask(write(None, 1, digits=state(1)))
            await elapse(0.002)
            s.keeper.ask(write(1, 2, digits=state(2)))
            assert await s.keeper.flush(5)
            assert [w.offset for w in s.store.writes] == [1, 1, 2]
            assert (s.done, s.refused) == ([0, 1], [])

    run(scene())


def test_a_refused_write_takes_its_successors_along() -> None:
    """They build on states that the store does not have; other partitions go on."""

    async def scene() -> None:
        async with running() as s:
            s.store.offsets[0] = 7
            s.keeper.ask(write(3, 4, digits=state(4)))
            s.keeper.ask(write(None, 9, partition=1, digits=state(9)))
            await asyncio.sleep(0)
            s.keeper.ask(write(4, 5, digits=state(5)))
            await s.keeper.flush(1)
            assert s.refused == [(0, 7)]
            assert s.done == [8]
            assert s.store.offsets == {0: 7, 1: 9}

    run(scene())


def test_forgotten_partitions_are_neither_written_nor_answered() -> None:
    """What was revoked is someone else's."""

    async def scene() -> None:
        async with running() as s:
            s.store.down = True
            s.keeper.ask(write(None, 1, digits=state(1)))
            s.keeper.ask(FetchStates((StateKey(0, "digits"), StateKey(1, "kept"))))
            await elapse(0.5)
            s.keeper.forget([0])
            s.store.down = False
            await s.keeper.flush(5)
            assert s.store.offsets == {}
            assert s.answers == {StateKey(1, "kept"): None}

    run(scene())


def test_memory_store_compares_before_it_sets() -> None:
    """A stale writer changes nothing and learns what is stored."""

    async def scene() -> None:
        store = MemoryStore()
        assert await store.write(write(None, 4, digits=state(4))) == (True, 4)
        assert await store.write(write(3, 5, digits=state(5))) == (False, 4)
        assert await store.write(write(None, 4, digits=state(4))) == (True, 4)
        assert await store.offset(0) == 4
        assert await store.read([StateKey(0, "digits")]) == {StateKey(0, "digits"): state(4)}

    run(scene())


def test_merging_keeps_the_first_expectation_and_the_last_states() -> None:
    """Two writes in one step do what they would have done one after the other."""
    both = merged(write(1, 2, a=state(1), b=state(1)), write(2, 3, b=state(2)))
    assert both[:4] == (0, 1, 3, {"a": state(1), "b": state(2)})
    assert [position.offset for position in both.completes] == [1, 2]


def test_a_write_waits_for_the_dead_letters_of_its_partition() -> None:
    """Its offset says that everything before it has its outcome; other partitions go on."""

    async def scene() -> None:
        async with running() as s:
            refused = Position("observations", 0, 3)
            s.keeper.hold(refused)
            s.keeper.ask(write(None, 5, one=state(1)))
            s.keeper.ask(write(None, 2, partition=1, one=state(1)))
            await elapse(1)
            assert s.store.offsets == {1: 2}
            s.keeper.release([Position("observations", 1, 9), refused])
            await elapse(1)
            assert s.store.offsets == {0: 5, 1: 2}

    run(scene())


def test_a_partition_that_is_not_ours_any_more_is_held_up_by_nothing() -> None:
    """What it waited for is forgotten with it."""

    async def scene() -> None:
        async with running() as s:
            s.keeper.hold(Position("observations", 0, 3))
            s.keeper.forget([0])
            s.keeper.ask(write(None, 5, one=state(1)))
            await elapse(1)
            assert s.store.offsets == {0: 5}

    run(scene())
