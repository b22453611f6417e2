"""Intervals around answers that are numbers: made with a prediction, judged by the number that is told later."""

from __future__ import annotations

from math import inf, isfinite, nextafter, ulp
from typing import TYPE_CHECKING

from policies import intervals
from policies.errors import PolicyError
from schemas.records import NumberInterval, Status

if TYPE_CHECKING:
    from policies.contract import State
    from schemas.records import Observation, Prediction, Value


def interval(prediction: Prediction, margin: intervals.Margin) -> NumberInterval | None:
    """Return the interval around an answer; None where models have not made one, or it is no number."""
    middle = number_of(prediction.answer)
    if middle is None or prediction.decision is None or prediction.status is Status.DEFAULT:
        return None
    low, high = _end(middle, margin.radius, -1.0), _end(middle, margin.radius, 1.0)
    if not isfinite(low) or not isfinite(high):
        return NumberInterval(None, None, margin.coverage, margin.alpha, middle)
    return NumberInterval(low, high, margin.coverage, margin.alpha, middle)


def _end(middle: float, radius: float, sign: float) -> float:
    """Return the furthest number to one side whose error, as it is rounded, is not above the radius.

    Numbers are rounded to it from half a unit of its last place beyond, so the search begins there: a step or two.
    """
    end = middle + sign * radius + sign * ulp(radius) / 2
    if not isfinite(end):
        return end
    while abs(end - middle) > radius:
        end = nextafter(end, middle)
    while abs((further := nextafter(end, sign * inf)) - middle) <= radius:
        end = further
    return end


def holds(made: NumberInterval, label: Value) -> bool:
    """Tell whether an interval holds a number: where its error is not above the radius, as a state judges it."""
    number = number_of(label)
    if number is None or made.low is None or made.high is None:
        return number is not None
    return made.low <= number <= made.high


def number_of(value: Value | None) -> float | None:
    """Return a value as a finite number; None where it is none."""
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def covered(seen: Observation, state: State) -> State:
    """Return what an observation makes of a state; without an interval or a number nothing changes.

    Raises:
        PolicyError: its interval cannot be.
    """
    made, number = seen.interval, number_of(seen.label)
    if made is None or number is None:
        return state
    if not isfinite(made.middle):
        raise PolicyError(f"the middle of an interval is {made.middle}, and must be a finite number")
    error = abs(number - made.middle)
    return intervals.observe(made.coverage, state, error) if isfinite(error) else state
