"""The demo's second act: two pens write for one application, and each pen, a context, has a policy state of its own.

What is written in pencil is faint. Models that go by distances and densities take that badly, the linear one that goes
by directions does not notice: for each pen another model is the best, and one state for both could follow only one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from load.harness.openloop import Asked, OpenLoop
from load.harness.recorder import Recorder
from load.harness.workload import Rows
from schemas.records import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from deploy.demo.digits import Digits
    from deploy.demo.traffic import Link
    from schemas.records import Prediction

APPLICATION = "pens"
POLICY = "thompson"
PENS: dict[str, float] = {"ink": 1.0, "pencil": 0.3}  # how dark each writes
SLO_MS = 100.0
PARTS = 20  # that an act is plotted in
SEED = -3  # of query ids that nothing else has


@dataclass(slots=True)
class PenCount:
    """What was answered about one pen, by the part of the act in which it was asked."""

    answered: Counter[int] = field(default_factory=Counter)
    wrong: Counter[int] = field(default_factory=Counter)
    asked: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))


class Pens:
    """Asks about rows of both pens by turns, with feedback; see `run`.

    Args:
        link: to the deployment.
        data: whose held-out rows are asked about.
        order: row number of each query of a pen, cyclically.
        planned: how many queries there will be, for the parts that they are counted in.
    """

    def __init__(self, link: Link, data: Digits, order: NDArray[np.intp], planned: int) -> None:
        inputs = [Tensor.of(data.asked_rows[row] * np.float32(dark)) for row in order for dark in PENS.values()]
        labels = [int(data.asked_labels[row]) for row in order for _ in PENS]
        self._rows = Rows(APPLICATION, inputs, labels, tuple(PENS), seed=SEED)
        self._planned = max(1, planned)
        self._asked: dict[str, tuple[int, int]] = {}  # part and label, by query id
        self.count = {pen: PenCount() for pen in PENS}
        self.recorder = Recorder(link.now_us(), int(SLO_MS * 1000))
        self._loop = OpenLoop(link.wire, link.codec, self._query, self.recorder, link.now_us, on_predictions=self.take)
        self.stop = self._loop.stop

    def run(self, offsets_us: Iterable[int]) -> None:
        """Ask at these offsets from when this was made, and wait for the last answers."""
        self._loop.run(offsets_us)

    def take(self, answers: Sequence[Prediction]) -> None:
        """Count first answers."""
        for answer in answers:
            known = self._asked.get(answer.query_id)
            if known is None or answer.context is None:
                continue
            (part, label), pen = known, self.count[answer.context]
            pen.answered[part] += 1
            pen.wrong[part] += answer.answer != label
            for output in answer.outputs:
                pen.asked[output.model][part] += 1

    def _query(self, index: int, intended_us: int) -> Asked:
        asked = self._rows(index, intended_us)
        assert isinstance(asked.label, int)
        part = min(PARTS - 1, index * PARTS // self._planned)
        self._asked[asked.query.query_id] = part, asked.label
        return asked
