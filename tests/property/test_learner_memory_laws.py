"""Laws of the learner's memory: its states are bounded, however wide an application is, and change nothing learnt."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from policies import registry
from schemas.records import Decision, JoinStatus, Observation, Observations, PolicyState
from streams.operators.contract import FetchStates, Record, StateKey, WriteStates
from streams.operators.learn.fold import fold
from streams.operators.learn.kernel import Learner
from streams.operators.learn.states import ENTRY_BYTES, NUMBER_BYTES
from streams.operators.policy_state import OTHER_NUMBERS
from tests.loops import CODEC

if TYPE_CHECKING:
    from streams.operators.contract import Effects

WINDOW_US = 130_000_000
POLICY = registry.spec(registry.create("linucb", {"features": 2}))
APPRENTICE = registry.spec(registry.create("exp3"))
# A state with its name: two arms of two features have about a dozen numbers, an apprentice two. Room for three of them.
STATE_BYTES = ENTRY_BYTES + 600 + NUMBER_BYTES * (OTHER_NUMBERS + 2)
BOUND = 3 * STATE_BYTES
MOST_OF_A_RECORD = 4  # states that two observations teach
PARTITIONS = 2


class Learning:
    """A learner on a store that answers when told, as many states as told; a read sees the writes before it."""

    def __init__(self, capacity_bytes: int) -> None:
        self.learner = Learner(CODEC, WINDOW_US, capacity_bytes=capacity_bytes)
        self.learner.on_partitions(dict.fromkeys(range(PARTITIONS), 0))
        self.stored: dict[StateKey, PolicyState] = {}
        self.offsets: dict[int, int | None] = {}
        self.fetches = 0
        self._asked: deque[StateKey] = deque()

    def give(self, record: Record) -> None:
        """Hand one record over."""
        self._perform(self.learner.on_records([record], 0))

    def answer(self, most: int) -> bool:
        """Answer so many reads; tell whether there were any."""
        keys = [self._asked.popleft() for _ in range(min(most, len(self._asked)))]
        if keys:
            self._perform(self.learner.on_states({key: self.stored.get(key) for key in keys}, 0))
        return bool(keys)

    def settle(self) -> None:
        """Answer until nothing is asked any more; each record takes two rounds of reads at most."""
        rounds = 0
        while self.answer(1):
            rounds += 1
            assert rounds < 10_000, "it reads the same states for ever"

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, WriteStates):
                assert self.offsets.get(effect.partition) == effect.expected
                self.offsets[effect.partition] = effect.offset
                self.stored |= {StateKey(effect.partition, name): state for name, state in effect.states.items()}
            elif isinstance(effect, FetchStates):
                self.fetches += len(effect.keys)
                self._asked.extend(effect.keys)


def observation(number: int, application: str, context: int) -> Observation:
    """Return one observation of a context."""
    arms, apprentice = ("a", "b"), APPRENTICE if number % 3 else ""
    logged = (0.5, 0.5), (1.0, number % 3), apprentice
    decision = Decision((number % 2,), 0, f"{application}/{context}", POLICY, arms, *logged)
    losses = (0.25, None) if number % 2 == 0 else (None, 0.75)
    return Observation(f"q{number}", application, str(context), decision, losses, 0.5, None, JoinStatus.JOINED, 0, 0)


SEEN = st.tuples(st.sampled_from(["wide", "wide", "small"]), st.integers(0, 11))
STEPS = st.lists(st.tuples(st.lists(SEEN, min_size=1, max_size=2), st.integers(0, 3)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_states_take_no_more_than_they_may_and_what_is_learnt_does_not_depend_on_it(
    steps: list[tuple[list[tuple[str, int]], int]],
) -> None:
    """However reads are answered; beyond the bound is only what each partition's first record needs."""
    narrow, roomy = Learning(BOUND), Learning(1 << 30)
    logs: dict[int, list[tuple[int, Observation]]] = {0: [], 1: []}
    ends, number = [0, 0], 0
    for contexts, answered in steps:
        application = contexts[0][0]
        partition = int(application == "small")
        seen = [observation(number + at, application, context) for at, (_, context) in enumerate(contexts)]
        number += len(seen)
        logs[partition] += [(1_000_000, each) for each in seen]
        value = CODEC.encode(Observations(tuple(seen)))
        record = Record("observations", partition, ends[partition], 1_000_000, None, value)
        ends[partition] += 1
        for learning in (narrow, roomy):
            learning.give(record)
            learning.answer(answered)
        size = narrow.learner.statistics()["states_bytes"]
        assert size <= BOUND + PARTITIONS * MOST_OF_A_RECORD * STATE_BYTES
        assert size <= BOUND or narrow.learner.held
    for learning in (narrow, roomy):
        learning.settle()
        assert learning.learner.held == 0
    assert narrow.learner.statistics()["states_bytes"] <= BOUND
    expected = {StateKey(at, name): state for at in logs for name, state in fold(logs[at], WINDOW_US).items()}
    assert narrow.stored == roomy.stored == expected


def test_the_states_of_a_small_application_stay_while_a_wide_one_floods() -> None:
    """Though the wide one is taught all the time, and the small one was here first."""
    learning = Learning(10 * STATE_BYTES)
    ends = [0, 0]

    def teach(partition: int, application: str, context: int) -> None:
        seen = observation(1_000 * partition + ends[partition], application, context)
        value = CODEC.encode(Observations((seen,)))
        learning.give(Record("observations", partition, ends[partition], 1_000_000, None, value))
        learning.settle()
        ends[partition] += 1

    for context in range(2):
        teach(1, "small", context)
    for context in range(100):
        teach(0, "wide", context)
    assert learning.learner.statistics()["states_bytes"] <= 10 * STATE_BYTES
    before = learning.fetches
    for context in range(2):
        teach(1, "small", context)
    assert learning.fetches == before
    teach(0, "wide", 0)
    assert learning.fetches > before


def test_a_backlog_of_a_wide_application_takes_no_more_than_the_bound_while_it_is_read() -> None:
    """What has been read is folded and makes room, before the rest is read."""
    learning = Learning(20 * STATE_BYTES)
    for at in range(200):
        value = CODEC.encode(Observations((observation(at, "wide", at),)))
        learning.give(Record("observations", 0, at, 1_000_000, None, value))
    most = 0.0
    for _ in range(400):
        learning.answer(2)
        most = max(most, learning.learner.statistics()["states_bytes"])
    assert learning.offsets[0] == 200
    assert 10 * STATE_BYTES < most <= 20 * STATE_BYTES
