"""Observations as those see them who judge: by weight, and in one unit.

What judges policies and versions compares mean losses. With weights these are weighted: an observation of less weight
has losses that are as much smaller, so they stay in [0, 1] and bounds on their means hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Observation


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


def in_one_unit(observations: Sequence[Observation]) -> tuple[list[Observation], float | None]:
    """Return observations whose losses can be compared, and what a loss of 1 costs; None = that is not known of all.

    Losses whose worth has changed, as a learnt span does, are put on the scale of the largest. Of weights only the
    ratios count: the heaviest observation counts whole.
    """
    worths = [seen.worth for seen in observations]
    largest = max([worth for worth in worths if worth is not None], default=None)
    is_known = largest is not None and largest > 0.0 and None not in worths
    heaviest = max([1.0 if seen.weight is None else seen.weight for seen in observations], default=1.0)
    found = []
    for seen in observations:
        part = (1.0 if seen.weight is None else seen.weight) / heaviest
        if is_known and largest is not None and seen.worth is not None:
            part *= seen.worth / largest
        found.append(scaled(seen, part))
    return found, largest if is_known else None
