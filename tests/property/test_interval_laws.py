"""Laws of intervals: the promise is kept on any sequence and in any part of it, and a state is a fold."""

from __future__ import annotations

from math import inf, isinf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies.errors import PolicyError
from policies.intervals import MOST_PROMISED, STEPS, kept, margin, most_excess, observe, start
from schemas.records import Decision, NumberInterval, Prediction, Status
from streams.operators.number_intervals import holds, interval

COVERAGES = st.floats(0.01, MOST_PROMISED)
ERRORS = st.floats(0.0, 1e300) | st.sampled_from((0.0, 1e-300, 1.0))
STREAMS = st.lists(ERRORS, min_size=1, max_size=300) | st.lists(st.sampled_from((0.0, 1.0, 5.0)), max_size=300)
NOBODY = Decision((0,), 0, "digits", "single()", ("a",), (1.0,))


def worst_excess(missed: list[bool], coverage: float) -> float:
    """Return by how many misses some part of a sequence is above what was promised, at most."""
    worst = so_far = 0.0
    for each in missed:
        so_far = max(0.0, so_far + each - (1.0 - coverage))
        worst = max(worst, so_far)
    return worst


@settings(deadline=None)
@given(COVERAGES, STREAMS)
def test_no_more_is_missed_than_was_promised_in_any_part_of_any_sequence(coverage: float, errors: list[float]) -> None:
    """The excess in the state is that of the worst part that ends now, and it is bounded."""
    state, missed = start(coverage), list[bool]()
    for error in errors:
        missed.append(error > margin(coverage, state).radius)
        state = observe(coverage, state, error)
        assert state[1] <= most_excess(coverage) + 1.0
    assert worst_excess(missed, coverage) <= most_excess(coverage) + 1.0 + 1e-9


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_an_adversary_cannot_break_the_promise(coverage: float) -> None:
    """One who sees each interval before the number is told, and tells one just outside, for thousands of queries."""
    state, missed = start(coverage), list[bool]()
    for _ in range(3_000):
        radius = margin(coverage, state).radius
        error = 0.0 if isinf(radius) else radius * 1.01 + 1e-9
        missed.append(error > radius)
        state = observe(coverage, state, error)
    bound = most_excess(coverage) + 1.0
    assert sum(missed) / len(missed) - (1.0 - coverage) <= bound / len(missed)
    assert worst_excess(missed, coverage) <= bound


def test_while_too_much_was_missed_any_number_is_in_an_interval() -> None:
    """However few errors a state knows to be large: an excess alone opens it, and a hit each time closes it again."""
    state = (0.9, most_excess(0.9), *start(0.9)[2:], *(1.0,) * 200)
    assert margin(0.9, state).radius == inf
    assert margin(0.9, observe(0.9, state, 5.0)).radius == 1.0


@given(COVERAGES, STREAMS)
def test_a_state_is_a_fold_that_does_not_grow(coverage: float, errors: list[float]) -> None:
    """The same observations give the same numbers, with no more errors than are kept, the latest last."""
    first = second = start(coverage)
    for error in errors:
        first, second = observe(coverage, first, error), observe(coverage, second, error)
    assert first == second
    assert list(first[2 + 2 * len(STEPS) :]) == errors[-kept(coverage) :]


def test_after_a_change_intervals_hold_again_soon() -> None:
    """Errors grow a hundredfold at once: of the next 60 many more are held than with an alpha that stays."""
    errors = [(number * 7919 % 101) / 101 for number in range(1_000)]
    errors += [100.0 * each for each in errors[:60]]
    held = {}
    for steps in ((0.0,), STEPS):
        state, held[steps] = start(0.9, (), steps), 0
        for number, error in enumerate(errors):
            held[steps] += number >= 1_000 and error <= margin(0.9, state, steps).radius
            state = observe(0.9, state, error, steps)
    assert held[STEPS] > held[(0.0,)] + 10
    assert held[STEPS] >= 36


def test_another_promise_keeps_the_errors_and_starts_the_rest_anew() -> None:
    """Errors do not depend on the promise; what is no state of intervals counts as nothing."""
    state = observe(0.9, observe(0.9, (), 1.0), 2.0)
    assert start(0.8, state) == (*start(0.8), 1.0, 2.0)
    assert start(0.9, state) is state
    assert start(0.9, (0.9, 0.1)) == start(0.9)


@pytest.mark.parametrize("coverage", [0.0, 0.995, 1.0, -1.0, float("nan")])
def test_a_promise_that_cannot_be_kept_is_refused(coverage: float) -> None:
    """None at all, certainty, one that takes thousands of errors, and what is no share."""
    with pytest.raises(PolicyError, match="coverage of numbers"):
        margin(coverage)


@pytest.mark.parametrize("error", [-1.0, inf, float("nan")])
def test_what_is_no_error_is_refused(error: float) -> None:
    """It would stay in the state for hundreds of observations."""
    with pytest.raises(PolicyError, match="cannot be wrong"):
        observe(0.9, (), error)


FARTHEST = st.floats(-1e300, 1e300)
TENTHS = st.integers(0, 2_000).map(lambda number: number / 10)  # so that errors are often equal but for rounding


@given(FARTHEST | TENTHS, FARTHEST, FARTHEST)
@example(0.0, 0.0, 0.0)
@example(-1e300, 1e300, 1e16)
@example(1e16, -1.0, 0.0)
def test_an_interval_holds_exactly_what_its_radius_says(answer: float, told: float, other: float) -> None:
    """Also next to its ends: what a state counts as missed is outside, and nothing else is."""
    _holds_by_error(answer, told, abs(other - answer))
    _holds_by_error(answer, answer + abs(other - answer), abs(other - answer))


@given(TENTHS, TENTHS, st.sampled_from((1.0, -1.0)))
def test_an_interval_whose_end_is_rounded_judges_as_its_state(answer: float, other: float, sign: float) -> None:
    """Errors of numbers with a digit behind the point are the same number, but for rounding."""
    radius = abs(other - answer)
    _holds_by_error(answer, round(answer + sign * radius, 1), radius)


def _holds_by_error(answer: float, told: float, radius: float) -> None:
    made = interval(
        Prediction("q", "taxi", None, NOBODY, Status.COMPLETE, None, answer, 1.0, (), 0, 0, 0, 0),
        margin(0.9)._replace(radius=radius),
    )
    assert made is not None
    assert made.middle == answer
    assert holds(made, told) == (abs(told - answer) <= radius)


def test_what_is_no_number_has_no_interval_and_is_in_none() -> None:
    """Texts, and answers by default."""
    asked = Prediction("q", "taxi", None, NOBODY, Status.COMPLETE, None, "seven", 1.0, (), 0, 0, 0, 0)
    assert interval(asked, margin(0.9)) is None
    assert interval(asked._replace(answer=7, status=Status.DEFAULT), margin(0.9)) is None
    assert not holds(NumberInterval(None, None, 0.9, 0.1, 7.0), "seven")
