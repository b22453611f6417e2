"""Recorded answers asked again: applications get the same rows in turns, and each answer is compared with the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from load.harness.openloop import Asked
from load.harness.workload import query_id
from schemas.records import Query, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from schemas.records import Prediction


@dataclass(slots=True)
class Replay:
    """Asks every application the same rows in the same order, in turns.

    Attributes:
        applications: their names.
        rows: (n, models) uint8, what each model says about row t.
        labels: (n,) the truth.
        seed: of the ids.
        wrong: (applications, n) whether that query was answered wrongly or not at all.
    """

    applications: Sequence[str]
    rows: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    seed: int
    wrong: NDArray[np.bool_] = field(init=False)
    _asked: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take everything for wrong that has not been answered."""
        self.wrong = np.ones((len(self.applications), len(self.labels)), dtype=np.bool_)

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`: applications alternate, rows come in order."""
        t, lane = divmod(index, len(self.applications))
        name = query_id(self.seed, index)
        self._asked[name] = lane, t
        query = Query(name, self.applications[lane], Tensor.of(self.rows[t]), sent_us=intended_us)
        return Asked(query, int(self.labels[t]))

    def judge(self, predictions: Sequence[Prediction]) -> None:
        """Note which answers are right; a default output counts as the answer that it is."""
        for prediction in predictions:
            lane, t = self._asked.pop(prediction.query_id)
            self.wrong[lane, t] = prediction.answer != int(self.labels[t])
