"""The demo's second act: two pens write for one application, and each pen, a context, has a policy state of its own.

What is written in pencil is faint. Models that go by distances and densities get worse at it, the linear one that goes
by directions does not. So each pen has another best model, and one state for both could follow only one of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from load.harness.openloop import Asked, OpenLoop
from load.harness.recorder import Recorder
from load.harness.workload import Rows
from policies.registry import parse, spec
from schemas.records import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from deploy.demo.models import Digits
    from deploy.demo.traffic import Link
    from schemas.records import Prediction

APPLICATION = "pens"
POLICY = "thompson"
PENS: dict[str, float] = {"ink": 1.0, "pencil": 0.3}  # how dark each writes
SLO_MS = 100.0
PARTS = 20  # that an act is plotted in
SEED = -3  # of query ids that nothing else has
LATE = range(PARTS // 2, PARTS)


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


class PenFigures(NamedTuple):
    """One pen: errors are shares of wrong answers, `late_*` in the second half of the act; None = nothing answered."""

    answered: int
    error: float | None
    late_error: float | None
    late_most_asked: str | None
    late_share: float | None  # of that model
    best_model: str  # in hindsight
    error_best: float
    error_by_model: Mapping[str, float]


def content(pens: Pens, errors: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return what stands in `report.json`.

    Args:
        pens: what was counted.
        errors: by pen and model, of that model alone on all held-out rows as that pen writes them.
    """
    found = {pen: figures(count, errors[pen]) for pen, count in pens.count.items()}
    counted = pens.recorder.figures()
    best, error = best_for_all(errors)
    late = [(count.wrong[part], count.answered[part]) for count in pens.count.values() for part in LATE]
    wrong, answered = (sum(column) for column in zip(*late, strict=True))
    return {
        "application": APPLICATION,
        "policy": spec(parse(POLICY)),
        **{name: int(counted[name]) for name in ("queries_sent", "lost", "defaults")},
        "late_error": _rounded(wrong / answered if answered else None),
        "best_for_all": best,
        "error_best_for_all": _rounded(error),
        "pens": {pen: {name: _rounded(value) for name, value in row._asdict().items()} for pen, row in found.items()},
    }


def figures(count: PenCount, error_by_model: Mapping[str, float]) -> PenFigures:
    """Return one pen's figures, beside each model's error alone."""
    answered, wrong = (sum(counts[part] for part in LATE) for counts in (count.answered, count.wrong))
    asked = {model: sum(parts[part] for part in LATE) for model, parts in count.asked.items()}
    most = max(asked, key=lambda model: asked[model]) if any(asked.values()) else None
    best = min(error_by_model, key=lambda model: error_by_model[model])
    total = count.answered.total()
    return PenFigures(
        answered=total,
        error=count.wrong.total() / total if total else None,
        late_error=wrong / answered if answered else None,
        late_most_asked=most,
        late_share=None if most is None else asked[most] / sum(asked.values()),
        best_model=best,
        error_best=error_by_model[best],
        error_by_model=error_by_model,
    )


def best_for_all(errors: Mapping[str, Mapping[str, float]]) -> tuple[str, float]:
    """Return the model with the least error over all pens, and that error."""
    models = next(iter(errors.values()))
    mean = {model: float(np.mean([by_model[model] for by_model in errors.values()])) for model in models}
    best = min(mean, key=lambda model: mean[model])
    return best, mean[best]


def shares(count: PenCount, models: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return each model's share of what was asked, by part, shape (PARTS,); 0 where nothing was."""
    asked = np.array([[count.asked[model][part] for part in range(PARTS)] for model in models], dtype=np.float64)
    return dict(zip(models, asked / np.maximum(asked.sum(axis=0), 1.0), strict=True))


def sentence(contexts: Mapping[str, Any] | None) -> str:
    """Say what came of it."""
    if contexts is None or contexts["late_error"] is None:
        return "It was ended before anybody asked with two pens."
    followed = [
        f"of what was written in {pen} {row['late_most_asked']} was asked {row['late_share']:.0%} of the time"
        f" ({row['late_error']:.1%} wrong)"
        for pen, row in contexts["pens"].items()
        if row["late_most_asked"] is not None
    ]
    return (
        f"In the end, {', '.join(followed)}. Together {contexts['late_error']:.1%} were wrong, while each pen's policy"
        f" was still learning; one model for both would mean {contexts['error_best_for_all']:.1%} at best"
        f" ({contexts['best_for_all']})."
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 5)
    return {name: _rounded(part) for name, part in value.items()} if isinstance(value, dict) else value
