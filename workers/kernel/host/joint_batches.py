"""Batches of several models that have one trunk, as a host starts them and hears of them part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from workers.kernel.model.lane import Joint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import Predict
    from workers.kernel.host.models import Hosted


@dataclass(slots=True)
class JointBatch:
    """A batch that is with the models' process.

    Attributes:
        name: under which the schedule has started it; "" = it has not.
        rows: of all its parts.
        left: parts that are not answered.
        objective_us: how long it may take: the least that is left to any of its models; 0 = it is of one.
    """

    name: str
    rows: int
    left: int = 1
    objective_us: int = 0

    def end_part(self) -> Joint | None:
        """Take that the next part is over; returns what it is a part of, None = it is all."""
        self.left -= 1
        return Joint(self.rows, self.objective_us, not self.left) if self.objective_us else None


class JointPart(NamedTuple):
    """A model's part of a batch that starts."""

    hosted: Hosted
    unit: str
    predict: Predict


def joined(name: str, parts: Sequence[JointPart], now_us: int) -> JointBatch:
    """Make one batch of parts that have just started; returns it."""
    batch = JointBatch(name, sum(len(part.predict.rows) for part in parts), len(parts))
    if len(parts) > 1:
        offers = [part.hosted.offers.by_copy[part.predict.copy] for part in parts]
        batch.objective_us = max(1, min(offer.objective(now_us) for offer in offers))
    return batch
