"""What came of the second act: each pen's figures, and what one model for both would have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from deploy.demo.pens import APPLICATION, PARTS, POLICY
from policies.registry import parse, spec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from deploy.demo.pens import PenCount, Pens

LATE = range(PARTS // 2, PARTS)


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
