"""Observations as those see them who judge: by weight, and in one unit.

What judges policies and versions compares losses. An observation of less weight has losses that are as much smaller,
so they stay in [0, 1] and bounds on their means hold. These are means over observations: which of two is less does not
depend on it, but how large they are does. Divided by the mean of what observations count (`InOneUnit.parts`), they are
weighted means, sum of w loss over sum of w, as the page shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Observation


class InOneUnit(NamedTuple):
    """Observations whose losses can be compared.

    Attributes:
        observations: with losses times their part.
        worth: what a loss of 1 costs; None = that is not known of all.
        parts: what each counts, in (0, 1]: its weight over the largest one.
        units: what each one's losses were multiplied with beside its part, in [0, 1].
    """

    observations: list[Observation]
    worth: float | None
    parts: tuple[float, ...]
    units: tuple[float, ...]


def weighed(seen: Observation) -> Observation:
    """Return an observation with its losses as its weight makes them; one without a weight is the same object."""
    return seen if seen.weight is None else scaled(seen, seen.weight)._replace(weight=None)


def scaled(seen: Observation, part: float) -> Observation:
    """Return an observation with all losses times a number in [0, 1]."""
    if part == 1.0:
        return seen
    return seen._replace(
        losses=tuple([None if loss is None else part * loss for loss in seen.losses]),
        loss=None if seen.loss is None else part * seen.loss,
        versions=tuple([one._replace(loss=part * one.loss) for one in seen.versions]),
    )


def in_one_unit(observations: Sequence[Observation]) -> InOneUnit:
    """Return observations whose losses can be compared.

    Losses whose worth has changed, as a learnt span does, are put on the scale of the largest. Of weights only the
    ratios count: the heaviest observation counts whole.
    """
    worths = [seen.worth for seen in observations]
    largest = max([worth for worth in worths if worth is not None], default=None)
    is_known = largest is not None and largest > 0.0 and None not in worths
    weights = [1.0 if seen.weight is None else seen.weight for seen in observations]
    heaviest = max(weights, default=1.0)
    parts = tuple([weight / heaviest for weight in weights])
    units = (1.0,) * len(weights)
    if is_known and largest is not None:
        units = tuple([worth / largest for worth in worths if worth is not None])
    found = [scaled(seen, part * unit) for seen, part, unit in zip(observations, parts, units, strict=True)]
    return InOneUnit(found, largest if is_known else None, parts, units)
