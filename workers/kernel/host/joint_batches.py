"""Batches of several models that have one trunk, as a host starts them and hears of them part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from workers.kernel.model.lane import Joint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Model
    from streams.operators.contract import Predict
    from workers.kernel.host.models import Hosted
    from workers.kernel.model.batcher import Learnt
    from workers.kernel.model.lane import Lane
    from workers.settings import WorkerSettings


@dataclass(slots=True)
class JointBatch:
    """A batch that is with the models' process.

    Attributes:
        name: under which the schedule has started it; "" = it has not.
        rows: of all its parts.
        left: parts that are not answered.
    """

    name: str
    rows: int
    left: int


class JointPart(NamedTuple):
    """A model's part of a batch that starts."""

    hosted: Hosted
    unit: str
    lane: Lane
    predict: Predict


class Trunks:
    """What the models of a host have in common, by trunk: what their batches have taught."""

    def __init__(self, settings: WorkerSettings) -> None:
        """Know no trunk; a model that takes batches of some sizes only shares none."""
        self._alone = frozenset(settings.allowed_batch_sizes)
        self._learnt: WeakValueDictionary[str, Learnt] = WeakValueDictionary()

    def of(self, lane: Lane, model: Model) -> str:
        """Return the trunk that a lane shares with others from now on; "" = none."""
        trunk = "" if model.name in self._alone else model.trunk
        if trunk != lane.trunk:
            lane.trunk = trunk
            found = self._learnt.get(trunk) if trunk else None
            lane.batcher.learnt = lane.batcher.unlearnt() if found is None else found
            if trunk:
                self._learnt[trunk] = lane.batcher.learnt
        return trunk


def joined(name: str, parts: Sequence[JointPart], now_us: int) -> JointBatch:
    """Make one batch of parts that have just started; returns it."""
    rows = sum(len(part.predict.rows) for part in parts)
    if len(parts) > 1:
        objective_us = min(part.lane.batcher.objective(now_us) for part in parts)
        for part in parts:
            part.lane.join(Joint(rows, objective_us, part is parts[-1]))
    return JointBatch(name, rows, len(parts))
