"""Laws of joining and learning: whatever the order, the copies and the crashes, each query is learnt once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from streams.testing import Crash, Delay, Duplicate, Fault, Reorder
from tests.loops import Loop, digits

SECOND_US = 1_000_000
QUERIES = 8
FAULTS = st.one_of(
    st.builds(Crash, st.integers(0, 40 * SECOND_US), st.sampled_from(["joiner", "learner"])),
    st.builds(Duplicate, st.sampled_from([topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS])),
    st.builds(Delay, st.just(topics.PREDICTIONS), st.integers(1_000, 4 * SECOND_US)),
    st.builds(Reorder, st.sampled_from([topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS])),
)
# For each query: a wrong label first? how many right ones? when (s)?
TOLD = st.lists(
    st.tuples(st.booleans(), st.integers(0, 3), st.sampled_from([0.0, 0.3, 2.0])), min_size=QUERIES, max_size=QUERIES
)


@settings(max_examples=30, deadline=None)
@given(st.lists(FAULTS, max_size=5), TOLD)
def test_each_query_is_learnt_exactly_once(faults: list[Fault], told: list[tuple[bool, int, float]]) -> None:
    """By its feedback, or by the default loss at its window's end."""
    given_digits = digits(policy="exp3", window_s=20.0, default_loss=0.5)
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, given_digits, faults)
    for is_wrong_first, copies, after_s in told:
        query_id = loop.query()
        loop.driver.run(after_s)
        if is_wrong_first:
            loop.feedback(query_id, label="seven")
        for _ in range(copies):
            loop.feedback(query_id, label=7)
    loop.driver.run(90)

    assert {seen.query_id for _, seen in loop.observations()} == {f"q{number}" for number in range(1, QUERIES + 1)}
    assert sum(state.version for state in loop.driver.store.states.values()) == QUERIES
    for topic in (topics.PREDICTIONS, topics.FEEDBACK):
        assert loop.driver.committed("joiner", topic, 0) == len(loop.driver.read(topic))
