"""Recorded answers asked again: applications get the same rows in turns, and each answer is compared with the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from load.harness.openloop import Asked
from load.harness.workload import query_id
from schemas.records import Query, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from schemas.records import Prediction


class InTurns:
    """Asks every application about the same rows in the same order, in turns: a workload.

    Args:
        applications: their names.
        seed: of the ids, which policies draw by.
    """

    def __init__(self, applications: Sequence[str], seed: int) -> None:
        self.applications, self.seed = applications, seed
        self._asked: dict[str, tuple[int, int]] = {}

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`: applications alternate, rows come in order."""
        t, lane = divmod(index, len(self.applications))
        name = query_id(self.seed, index)
        self._asked[name] = lane, t
        return self.ask(Query(name, self.applications[lane], Tensor.of(np.zeros(0)), sent_us=intended_us), lane, t)

    def judge(self, predictions: Sequence[Prediction]) -> None:
        """Take what is answered."""
        for prediction in predictions:
            self.take(prediction, *self._asked.pop(prediction.query_id))

    def ask(self, query: Query, lane: int, t: int) -> Asked:
        """Return the query with what row t is, for this application, and its label."""
        raise NotImplementedError

    def take(self, prediction: Prediction, lane: int, t: int) -> None:
        """Note the answer of this application to row t."""
        raise NotImplementedError


class Replay(InTurns):
    """Notes which answers are wrong; a default output counts as the answer that it is.

    Args:
        applications: their names.
        rows: (n, models) uint8, what each model says about row t.
        labels: (n,) the truth.
        seed: of the ids.

    Attributes:
        wrong: (applications, n) whether that query was answered wrongly or not at all.
    """

    def __init__(
        self, applications: Sequence[str], rows: NDArray[np.uint8], labels: NDArray[np.integer[Any]], seed: int
    ) -> None:
        super().__init__(applications, seed)
        self.rows, self.labels = rows, labels
        self.wrong = np.ones((len(applications), len(labels)), dtype=np.bool_)

    def ask(self, query: Query, lane: int, t: int) -> Asked:
        """Return what models say, and the truth."""
        return Asked(query._replace(input=Tensor.of(self.rows[t])), int(self.labels[t]))

    def take(self, prediction: Prediction, lane: int, t: int) -> None:
        """Note whether it is right."""
        self.wrong[lane, t] = prediction.answer != int(self.labels[t])


@dataclass
class InOrder:
    """Asks one application, and keeps the order of the queries: a workload.

    Attributes:
        workload: makes the queries.
        order: of the queries, by id.
    """

    workload: Any
    order: dict[str, int] = field(default_factory=dict)

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`, and note its place."""
        asked: Asked = self.workload(index, intended_us)
        self.order[asked.query.query_id] = index
        return asked
