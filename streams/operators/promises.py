"""What an application promises of its answers: each has a set of labels or an interval, which feedback corrects.

Answers that are labels have sets (`label_sets`), numbers have intervals (`number_intervals`). Which of both an
application's are, its `combine` says. The rest of the loop knows neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies import conformal, intervals
from policies.errors import PolicyError
from streams.operators import label_sets, number_intervals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.contract import OwnAnswer, State, VoteWeights
    from schemas.records import Application, Observation, Prediction

NUMBERS = ("mean", "median")  # of `combine`: all answers are numbers


def aim_of(application: Application, state: State = ()) -> conformal.Aim | intervals.Margin:
    """Return how an application's promise is kept in a state.

    Raises:
        PolicyError: it cannot be kept.
    """
    if application.combine in NUMBERS:
        return intervals.margin(application.coverage, state)
    return conformal.aim(application.coverage, state)


def promised(
    prediction: Prediction,
    weights: Sequence[float] | VoteWeights | OwnAnswer,
    aim: conformal.Aim | intervals.Margin,
    classes: Mapping[str, tuple[str, ...]],
) -> Prediction:
    """Return a prediction with its set of labels or its interval, if it has one.

    Args:
        prediction: with the outputs that its answer was made of.
        weights: of the arms, as its answer was made.
        aim: of the state.
        classes: names of the scores' classes, by `MODEL@VERSION`.
    """
    if isinstance(aim, intervals.Margin):
        return prediction._replace(interval=number_intervals.interval(prediction, aim))
    return prediction._replace(label_set=label_sets.label_set(prediction, weights, aim, classes))


def covered(seen: Observation, state: State) -> State:
    """Return what an observation makes of a state; without a promise or a label nothing changes.

    Raises:
        PolicyError: its set or interval cannot be, or the state cannot learn from it.
    """
    try:
        if seen.interval is not None:
            return number_intervals.covered(seen, state)
        return label_sets.covered(seen, state)
    except PolicyError:
        raise
    except (ArithmeticError, ValueError, IndexError) as error:  # reading again would not help
        raise PolicyError(f"the promised coverage cannot learn from it: {error!r}") from error


def is_held(seen: Observation) -> bool | None:
    """Tell whether what was promised held the truth; None where nothing was promised, or nothing was told."""
    if seen.label is None:
        return None
    if seen.interval is not None:
        return number_intervals.holds(seen.interval, seen.label)
    return None if seen.label_set is None else label_sets.holds(seen.label_set, seen.label)
