"""What a policy learns from: one lesson for all policies, those that ship and those from outside the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Step, Tensor, Value


class Lesson(NamedTuple):
    """What one decision has cost, as it was logged: all that a policy learns from.

    An arm that was asked may have an unknown loss: its label cannot be judged, or the query never reached it.
    """

    chosen: tuple[int, ...]  # the arms that were asked
    # One for each arm, as logged with the decision, never recomputed. Where a model has canaries, that both it and its
    # version that serves were drawn; what a canary costs is not known here.
    propensities: tuple[float, ...]
    losses: Sequence[float | None]  # one for each arm, in [0, 1]; None where it is not known
    features: tuple[float, ...] = ()  # the query's
    answers: Sequence[Value | None] | None = None  # labels by arm, None for all else; None = they are not logged
    steps: Sequence[Step] = ()  # the questions after the first, of a policy that asks again
    scores: Sequence[Tensor | None] | None = None  # by arm, what its model computed; None = they are not logged
    label: Value | None = None  # what was true; None where only a loss was told
    # The part of a whole lesson that it is, in (0, 1]: its feedback's weight divided by the largest one. To a policy
    # that does not say `weighs` it is 1, and the losses are smaller instead.
    weight: float = 1.0
    # Of a place of a ranking: the probability that somebody looked at it, in (0, 1]. What was not looked at earned
    # nothing, whatever it is worth. Only policies that say `places` get such lessons.
    examined: float = 1.0
