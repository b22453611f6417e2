"""Laws of the whole loop, workers included, under every script of faults that can be drawn."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.records import Observations, Prediction
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from streams.testing import Crash, Delay, Duplicate, Fault, Reorder, StoreDown, StoreLoss
from tests.loops import CODEC, Loop, digits

if TYPE_CHECKING:
    from schemas.records import Application, Observation

SECOND_US = 1_000_000
MOMENTS = st.integers(0, 6 * SECOND_US)
CIRCLE = st.sampled_from([topics.MODEL_PREDICTIONS, topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS])
FAULTS = st.one_of(
    st.builds(Crash, MOMENTS, st.sampled_from(["selection", "joiner", "learner", "worker.good"])),
    st.builds(Duplicate, CIRCLE),
    st.builds(Delay, CIRCLE, st.integers(1_000, 500_000)),
    st.builds(Reorder, st.sampled_from([topics.FEEDBACK, topics.OBSERVATIONS])),
    st.builds(lambda at, length: StoreDown(at, at + length), MOMENTS, st.integers(1_000, 2 * SECOND_US)),
    st.builds(StoreLoss, MOMENTS, st.integers(1_000, SECOND_US)),
)


# Whether roles are given whole batches, and write them: both ways hold the same laws.
PACKED = st.none() | st.integers(0, 2**32).map(Random)


def run(faults: list[Fault], policy: str, packed: Random | None = None, *, columns: bool = False) -> Loop:
    """Send sixty queries with feedback over six virtual seconds, then wait until every window is over."""
    loop = Loop(
        {"good": lambda _: 7, "bad": lambda _: 3},
        digits(policy=policy, window_s=20.0),
        faults,
        has_workers=True,
        packed=packed,
        columns=columns,
    )
    for number in range(60):
        query_id = loop.query()
        loop.driver.run(0.05)
        if number % 5:
            loop.feedback(query_id, label=7)
        loop.driver.run(0.05)
    loop.driver.run(60)
    return loop


@settings(max_examples=15, deadline=None)
@given(st.lists(FAULTS, max_size=5), st.sampled_from(["exp3", "exp4", "thompson"]), PACKED, st.booleans())
def test_every_query_is_answered_and_every_feedback_is_folded_once(
    faults: list[Fault], policy: str, packed: Random | None, columns: bool
) -> None:
    """Answered ids are the sent ones; states equal the fold of the log bit for bit; nothing stays uncommitted."""
    loop = run(faults, policy, packed, columns=columns)
    answered = {CODEC.decode(Prediction, record.value).query_id for record in loop.driver.read(topics.PREDICTIONS)}
    learnt = {seen.query_id for _, seen in loop.observations()}
    expected = fold(loop.observations(), 130 * SECOND_US)

    assert answered == {f"q{number}" for number in range(1, 61)}
    assert len(learnt) == 48
    assert not loop.dead(topics.FEEDBACK)
    assert loop.driver.store.states == {StateKey(0, name): state for name, state in expected.items()}
    assert sum(state.version for state in expected.values()) == 48
    for role, topic in (("selection", topics.QUERIES), ("joiner", topics.PREDICTIONS), ("joiner", topics.FEEDBACK)):
        assert loop.driver.committed(role, topic, 0) == len(loop.driver.read(topic))


@settings(max_examples=15, deadline=None)
@given(st.lists(FAULTS, max_size=5), st.sampled_from(["exp3", "exp4", "thompson"]), st.sampled_from([None, 0.6, 60.0]))
def test_spread_contexts_are_folded_partition_by_partition(
    faults: list[Fault], policy: str, forget_s: float | None
) -> None:
    """States equal the fold of their own partition's log, bit for bit; each partition has a common state."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, spread(policy, forget_s), faults, partitions=4)
    for number in range(60):
        query_id = loop.query(context=f"user-{number % 20}")
        loop.driver.run(0.05)
        loop.feedback(query_id, label=7)
    loop.driver.run(60)
    logs: defaultdict[int, list[tuple[int, Observation]]] = defaultdict(list)
    for record in loop.driver.read(topics.OBSERVATIONS):
        logs[record.partition] += [(record.timestamp_us, o) for o in CODEC.decode(Observations, record.value).items]
    folded = {number: fold(log, 130 * SECOND_US) for number, log in logs.items()}

    assert folded.keys() == {*range(4)}
    assert loop.driver.store.states == {
        StateKey(p, name): s for p, states in folded.items() for name, s in states.items()
    }
    assert sum(states["digits"].version for states in folded.values()) == 60
    states = Counter(name for names in folded.values() for name in names)
    assert states == {"digits": 4, **{f"digits:user-{number}": 1 for number in range(20)}}
    lessons = [state.version for names in folded.values() for name, state in names.items() if name != "digits"]
    assert sum(lessons) == (60 if forget_s != 0.6 else 20 if not faults else sum(lessons))


def spread(policy: str, forget_s: float | None) -> Application:
    """Make the application whose contexts lie in all partitions; each is asked once a second."""
    return digits(policy=policy, per_context=True, spread=True, forget_s=forget_s)


@settings(max_examples=5, deadline=None)
@given(st.lists(FAULTS, max_size=5))
def test_the_same_script_gives_the_same_records(faults: list[Fault]) -> None:
    """Nothing in the loop draws from the clock or a global generator."""
    logs = [[(r.timestamp_us, r.value) for r in run(faults, "exp3").driver.read(topics.OBSERVATIONS)] for _ in range(2)]

    assert logs[0] == logs[1]
    assert Counter(logs[0])
