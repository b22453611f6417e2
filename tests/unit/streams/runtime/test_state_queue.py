"""Tests of the keeper: reads and writes of policy states."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from schemas.records import PolicyState
from streams.operators.contract import FetchStates, Position, Span, StateKey, WriteStates
from streams.runtime.role.state_batches import (
    FIRST_KEYS,
    READ_BYTES,
    READ_KEYS,
    WAITING_BYTES,
    WAITING_KEYS,
    WRITE_STATES,
    WriteQueue,
    merged,
)
from streams.runtime.role.state_queue import StateQueue, StateQueueEvents
from streams.runtime.stores.base import MemoryStore, WriteResult
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

    keeper: StateQueue
    store: FaultyStore
    answers: dict[StateKey, PolicyState | None] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    refused: list[tuple[int, int | None]] = field(default_factory=list)
    blocked: list[int] = field(default_factory=list)


@asynccontextmanager
async def running(records: int = 0) -> AsyncIterator[Scene]:
    """Run a keeper; the role may have so many records in hand."""

    async def refuse(partition: int, stored: int | None) -> None:
        scene.refused.append((partition, stored))

    def block(partition: int) -> None:
        scene.blocked.append(partition)

    def answer(states: Mapping[StateKey, PolicyState | None]) -> None:
        scene.answers |= states

    store = FaultyStore()
    events = StateQueueEvents(
        answer,
        lambda positions, spans: scene.done.extend(
            [*(p.offset for p in positions), *(at for span in spans for at in range(*span[2:]))]
        ),
        refuse,
        block,
    )
    scene = Scene(StateQueue(store, events, records), store)
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


def test_merged_writes_complete_their_spans_once_stored() -> None:
    """Thousands of observations were folded into one state: nobody names each."""

    async def scene() -> None:
        async with running() as s:
            for end in (300, 700):
                span = Span("observations", 0, end - 300, end)
                s.keeper.ask(write(end - 300 or None, end, digits=state(end))._replace(completes=(), spans=(span,)))
            assert s.done == []
            await s.keeper.flush(1)
            assert len(s.store.writes) == 1
            assert s.done == [*range(300), *range(400, 700)]

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
    """The first are few, since nobody knows how large they are; one answer may not hold the event loop for long."""

    async def scene() -> None:
        async with running() as s:
            s.keeper.ask(FetchStates(tuple(StateKey(0, str(n)) for n in range(3 * READ_KEYS))))
            await s.keeper.flush(1)
            sizes = [len(keys) for keys in s.store.reads]
            assert sizes[:3] == [FIRST_KEYS, 2 * FIRST_KEYS, 4 * FIRST_KEYS]
            assert (max(sizes), sum(sizes)) == (READ_KEYS, 3 * READ_KEYS)

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
            assert s.keeper.statistics()["store_failures_total"] > 20

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
        assert await store.write(write(None, 4, digits=state(4)), "a") == (True, 4, "a")
        assert await store.write(write(3, 5, digits=state(5)), "b") == (False, 4, "a")
        assert await store.offset(0) == 4
        found = await store.read([StateKey(0, "digits")])
        assert (found.states, found.offsets) == ({StateKey(0, "digits"): state(4)}, {0: 4})

    run(scene())


def test_memory_store_recognises_a_repeated_write_by_its_token() -> None:
    """An equal offset alone says nothing: another writer's states may stand for it."""

    async def scene() -> None:
        store = MemoryStore()
        await store.write(write(None, 4, digits=state(4)), "a")
        assert await store.write(write(None, 4, digits=state(4)), "a") == (True, 4, "a")
        assert await store.write(write(None, 4, digits=state(5)), "b") == (False, 4, "a")

    run(scene())


def test_merging_keeps_the_first_expectation_and_the_last_states() -> None:
    """Two writes in one step do what they would have done one after the other."""
    both, count, _ = merged([write(1, 2, a=state(1), b=state(1)), write(2, 3, b=state(2))])
    assert count == 2
    assert both[:4] == (0, 1, 3, {"a": state(1), "b": state(2)})
    assert [position.offset for position in both.completes] == [1, 2]


@pytest.mark.parametrize(
    ("stored", "token", "is_done"), [(5, "mine", True), (5, "another's", False), (None, "", False)]
)
def test_an_equal_offset_of_another_writer_is_not_ones_own(stored: int | None, token: str, *, is_done: bool) -> None:
    """A former owner may have stored as far with other states: only the token tells whose write it was.

    Taken for its own, the write would be dropped, and what it has learnt with it.
    """
    queue = WriteQueue()
    queue.ask(write(4, 5, one=state(1)))
    attempt = queue.attempt(10, 1 << 20, "mine")
    assert queue.succeeded(WriteResult(False, stored, token)) == (attempt if is_done else None)
    assert len(queue.waiting) == (not is_done)


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


def big(kilobytes: int, version: int = 1) -> PolicyState:
    """Return a state of about this size as it is stored."""
    return PolicyState("linucb()", ("a", "b"), version, (0.5,) * (kilobytes * 125))


def test_large_states_are_read_few_at_a_time() -> None:
    """By their bytes, not by their number: an answer has to fit into the time of a call."""

    async def scene() -> None:
        async with running() as s:
            keys = [StateKey(0, str(n)) for n in range(40)]
            s.store.states = dict.fromkeys(keys, big(180))
            s.keeper.ask(FetchStates(tuple(keys)))
            await s.keeper.flush(1)
            assert s.answers.keys() == set(keys)
            assert max(map(len, s.store.reads[1:])) <= READ_BYTES // 180_000

    run(scene())


def test_a_read_that_takes_too_long_is_halved_and_others_come_first() -> None:
    """A call can carry five states: all of them arrive in the end."""

    async def scene() -> None:
        async with running() as s:
            s.store.most = 5
            keys = [StateKey(0, str(n)) for n in range(50)]
            s.keeper.ask(FetchStates(tuple(keys)))
            assert await s.keeper.flush(30)
            assert s.answers.keys() == set(keys)
            assert s.store.reads[0][0] not in s.store.reads[1]

    run(scene())


def test_large_writes_go_a_few_at_a_time() -> None:
    """What would be more than a call can carry is not merged; one state that is written often counts once."""

    async def scene() -> None:
        async with running() as s:
            for offset in range(1, 41):
                s.keeper.ask(write(offset - 1 or None, offset, **{str(offset): big(180)}))
            for offset in range(41, 61):
                s.keeper.ask(write(offset - 1, offset, hot=big(180, offset)))
            await s.keeper.flush(1)
            assert all(len(w.states) <= 5 for w in s.store.writes)
            assert [w.offset for w in s.store.writes][-1] == 60
            assert len(s.store.writes) == 9
            assert s.done == list(range(60))

    run(scene())


def test_a_write_that_takes_too_long_is_halved_whether_it_arrived_or_not() -> None:
    """The first attempt did arrive, without an answer: the smaller one is refused, and both are known as our own."""

    async def scene() -> None:
        async with running() as s:
            await s.store.write(write(None, 0), "start")
            s.keeper.own({0: 0})
            for offset in range(1, 9):
                s.keeper.ask(write(offset - 1 or None, offset, **{str(offset): big(100)}))
            s.store.offsets.clear()
            s.store.lose_answers = 1
            assert await s.keeper.flush(30)
            assert (s.refused, s.done, s.store.offsets) == ([], list(range(8)), {0: 8})

    run(scene())


def test_states_of_another_offset_are_not_handed_out() -> None:
    """A former owner's late write came between: the partition starts over from what is stored."""

    async def scene() -> None:
        async with running() as s:
            s.keeper.own({0: None, 1: None})
            await s.store.write(write(None, 6, digits=state(6)), "former owner")
            s.keeper.ask(FetchStates((StateKey(0, "digits"), StateKey(1, "fine"))))
            await s.keeper.flush(1)
            assert s.refused == [(0, 6)]
            assert s.answers == {StateKey(1, "fine"): None}

    run(scene())


def test_a_damaged_state_does_not_keep_others_from_being_read() -> None:
    """Who only reads gets nothing for it, and everything else."""

    async def scene() -> None:
        async with running() as s:
            bad, good = StateKey(0, "bad"), StateKey(0, "good")
            s.store.damaged, s.store.states[good] = {bad}, state(1)
            s.keeper.ask(FetchStates((bad, good)))
            await s.keeper.flush(1)
            assert s.answers == {bad: None, good: state(1)}
            assert s.keeper.statistics()["store_unreadable_total"] == 1

    run(scene())


def test_an_owned_partition_waits_for_a_damaged_state_and_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """It says so once a minute, naming the application and no context, and starts over when the store is mended."""

    async def scene() -> None:
        async with running() as s:
            bad, good = StateKey(0, "bad/ann"), StateKey(1, "good")
            s.store.offsets = {0: 3, 1: 3}
            s.keeper.own({0: 3, 1: 3})
            s.store.damaged = {bad}
            s.keeper.ask(FetchStates((bad, good)))
            await elapse(100)
            assert (s.blocked, s.answers, s.refused) == ([0], {good: None}, [])
            assert s.keeper.statistics()["store_blocked_partitions"] == 1
            assert len([m for m in caplog.messages if "'bad' is damaged; its partition waits" in m]) == 2
            assert not [m for m in caplog.messages if "ann" in m]
            s.store.damaged.clear()
            s.store.offsets.pop(0)
            await elapse(10)
            assert s.refused == [(0, None)]

    run(scene())


def test_reads_that_wait_for_a_store_that_is_away_are_bounded() -> None:
    """The oldest are forgotten; those of owned partitions are not, since their kernel asks once."""

    async def scene() -> None:
        async with running() as s:
            s.store.down = True
            for n in range(0, 3 * WAITING_KEYS, 1_000):
                s.keeper.ask(FetchStates(tuple(StateKey(0, str(n + k)) for k in range(1_000))))
            assert s.keeper.statistics()["store_waiting_reads"] == WAITING_KEYS
            assert s.keeper.statistics()["store_reads_forgotten_total"] == 2 * WAITING_KEYS
            s.keeper.own({1: None})
            s.keeper.forget([0])
            s.keeper.ask(FetchStates(tuple(StateKey(1, str(n)) for n in range(WAITING_KEYS + 5))))
            assert s.keeper.statistics()["store_waiting_reads"] == WAITING_KEYS + 5

    run(scene())


def test_each_record_in_hand_may_wait_for_a_state_of_its_own() -> None:
    """A crowd of new contexts comes at once, to a store that is slow: none of their queries waits for nothing."""

    async def scene() -> None:
        async with running(records=WAITING_KEYS) as s:
            keys = [StateKey(0, str(n)) for n in range(2 * WAITING_KEYS)]
            s.store.down = True
            s.keeper.ask(FetchStates(tuple(keys)))
            assert s.keeper.statistics().get("store_reads_forgotten_total", 0.0) == 0.0
            s.store.down = False
            await elapse(60)
            assert s.answers.keys() == set(keys)

    run(scene())


def test_bytes_that_wait_to_be_written_press() -> None:
    """The role reads no more when too much waits, and goes on when it is written."""

    async def scene() -> None:
        async with running() as s:
            s.store.down = True
            for offset in range(1, 201):
                s.keeper.ask(write(offset - 1 or None, offset, **{str(offset): big(180)}))
            assert s.keeper.pressure() > 1
            assert s.keeper.statistics()["store_waiting_bytes"] > WAITING_BYTES
            s.store.down = False
            await s.keeper.flush(10)
            assert s.keeper.pressure() == 0

    run(scene())


def test_who_hands_over_waits_for_the_write_under_way() -> None:
    """But not for ever."""

    async def scene() -> None:
        async with running() as s:
            s.keeper.ask(write(None, 1, digits=state(1)))
            await asyncio.sleep(0)
            s.keeper.forget([0])
            await s.keeper.settle(1)
            assert s.store.offsets == {0: 1}
            before = asyncio.get_running_loop().time()
            s.store.slow_s = 10
            s.keeper.ask(write(1, 2, digits=state(1)))
            await asyncio.sleep(0)
            await s.keeper.settle(2)
            assert asyncio.get_running_loop().time() - before == pytest.approx(2)

    run(scene())
