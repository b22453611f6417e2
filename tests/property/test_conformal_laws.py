"""Laws of sets of labels: the promise is kept on any sequence, and every set says something."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.conformal import EDGES, GAMMA, MOST, Aim, aim, cap, observe, start
from policies.errors import PolicyError
from schemas.records import Decision, ModelOutput, Outcome, Prediction, Status
from streams.operators.label_sets import holds, label_set, weight_of

COVERAGES = st.floats(0.01, MOST)
SHARES = st.floats(0.0, 1.0)
STREAMS = st.lists(SHARES, min_size=1, max_size=300) | st.lists(st.sampled_from((0.0, 0.05, 0.5, 1.0)), max_size=300)
LABELS = st.integers(-3, 9) | st.sampled_from(("cat", "dog", "7"))
NOBODY = Decision((0,), 0, "digits", "exp3()", ("a", "b", "c"), (0.5, 0.25, 0.25))


def bound(coverage: float, observations: int) -> float:
    """Return by how much the share of misses may differ from what was promised (Gibbs and Candes, Proposition 4.1)."""
    return (max(coverage, 1.0 - coverage) + GAMMA) / (GAMMA * observations) + 1e-9


@settings(deadline=None)
@given(COVERAGES, STREAMS)
def test_no_more_is_missed_than_was_promised_whatever_comes(coverage: float, weights: list[float]) -> None:
    """After every observation of any sequence; and no less either, as long as alpha has not met its cap."""
    state, missed, is_capped = start(coverage), 0, False
    for number, weight in enumerate(weights, 1):
        missed += weight < aim(coverage, state).least
        state = observe(coverage, state, weight)
        is_capped |= state[1] == cap(coverage)
        above = missed / number - (1.0 - coverage)
        assert above <= bound(coverage, number)
        assert is_capped or -above <= bound(coverage, number)
        assert is_capped or above == pytest.approx((1.0 - coverage - state[1]) / (GAMMA * number), abs=1e-6)
        assert -GAMMA <= state[1] <= cap(coverage)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from((0.5, 0.9, 0.99)), st.sampled_from((0.0, 1.0)), st.integers(0, 50))
def test_an_adversary_cannot_break_the_promise(coverage: float, other: float, patience: int) -> None:
    """One who sees each set before the label is told, and tells one that just misses it, for thousands of queries."""
    state, missed, count = start(coverage), 0, 4_000
    for number in range(count):
        least = aim(coverage, state).least
        weight = other if number % (patience + 1) else max(0.0, min(1.0, least - 1e-7))
        missed += weight < least
        state = observe(coverage, state, weight)
    assert missed / count - (1.0 - coverage) <= bound(coverage, count)


def test_a_change_after_a_long_time_without_a_miss_is_followed_soon() -> None:
    """Alpha has not risen to 1 meanwhile: of 200 labels after the change 85 of 100 are held, though 40 are unlikely."""
    state = start(0.9)
    for _ in range(5_000):
        state = observe(0.9, state, 1.0)
    assert state[1] == cap(0.9)
    held = 0
    for number in range(400):
        weight = 0.3 if number % 5 < 2 else 0.7
        held += number >= 200 and weight >= aim(0.9, state).least
        state = observe(0.9, state, weight)
    assert held >= 170


@given(COVERAGES, STREAMS)
def test_a_state_is_a_fold_of_fixed_length(coverage: float, weights: list[float]) -> None:
    """The same observations give the same numbers, as many as at the start."""
    first = second = start(coverage)
    for weight in weights:
        first, second = observe(coverage, first, weight), observe(coverage, second, weight)
    assert first == second
    assert len(first) == len(start(coverage))


@given(COVERAGES, STREAMS, st.lists(st.floats(-0.1, 1.1), min_size=2, max_size=2).map(sorted))
def test_a_set_of_fewer_misses_holds_that_of_more(coverage: float, weights: list[float], alphas: list[float]) -> None:
    """The weight that a label needs rises with alpha, at whatever was learnt."""
    state = start(coverage)
    for weight in weights:
        state = observe(coverage, state, weight)
    low, high = (aim(coverage, (coverage, alpha, *state[2:])).least for alpha in alphas)
    assert low <= high
    assert aim(coverage, (coverage, 0.0, *state[2:])).least == 0.0
    assert aim(coverage, (coverage, 1.0, *state[2:])).least > 1.0


@given(
    st.lists(LABELS, min_size=3, max_size=3),
    st.lists(SHARES, min_size=3, max_size=3),
    st.sampled_from((*EDGES, 2.0)),
    LABELS,
)
def test_a_set_is_never_empty_and_holds_all_labels_of_enough_weight(
    answers: list[int | str], votes: list[float], least: float, told: int | str
) -> None:
    """Its labels stand in order of their weight, with the heaviest always in it; no other label has enough weight."""
    outputs = tuple(ModelOutput(name, "1", Outcome.OK, its) for name, its in zip("abc", answers, strict=True))
    made = Prediction(
        "q", "digits", None, NOBODY._replace(chosen=(0, 1, 2)), Status.COMPLETE, None, 1, 1.0, outputs, 0, 0, 0, 0
    )
    found = label_set(made, votes, Aim(0.9, 0.1, least), {})
    assert found is not None
    assert found.labels
    assert list(found.weights) == sorted(found.weights, reverse=True)
    assert len(found.weights) == len(found.labels) + len(found.others)
    assert all(weight >= least for weight in found.weights[1 : len(found.labels)])
    assert all(weight < least for weight in found.weights[len(found.labels) :])
    if weight_of(found, told) >= least:
        assert holds(found, told)


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, float("nan")])
def test_a_promise_that_cannot_be_kept_is_refused(coverage: float) -> None:
    """None at all, certainty, and what is no share."""
    with pytest.raises(PolicyError, match="coverage"):
        aim(coverage)


def test_another_promise_keeps_what_was_learnt_and_starts_alpha_anew() -> None:
    """The histogram does not depend on the promise."""
    state = observe(0.9, observe(0.9, (), 1.0), 0.0)
    assert start(0.95, state) == (0.95, 1.0 - 0.95, *state[2:])
    assert start(0.9, (0.9, 0.1)) == start(0.9), "of another version"
