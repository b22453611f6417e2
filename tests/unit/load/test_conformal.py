"""Scenario `conformal`: sets beside fixed ones, what is compared of them, and the page."""

from __future__ import annotations

import numpy as np
import pytest

from load.harness.workload import Rows
from load.research.learning import conformal
from load.research.learning.label_sets import Sets, adaptive, fixed
from load.results.results import Result
from schemas.records import LabelSet, Prediction, Status, Tensor


def stream(count: int = 4_000) -> tuple[list[dict[int | str, float]], list[int]]:
    """Return weights of two labels and the true ones: the likelier one, nine times of ten, then one time of two."""
    random = np.random.default_rng(3)
    likelier = random.random(count) < np.where(np.arange(count) < count // 2, 0.95, 0.5)
    heavy = 0.5 + random.random(count) / 2
    weights: list[dict[int | str, float]] = [{0: weight, 1: 1.0 - weight} for weight in heavy.tolist()]
    return weights, [0 if first else 1 for first in likelier]


def test_adaptive_sets_hold_what_is_promised_after_a_change_and_fixed_ones_do_not() -> None:
    """Both do before it."""
    weights, labels = stream()
    ours, beside = adaptive(weights, labels, 0.9), fixed(weights, labels, 0.9, 1_000)
    assert ours.of(slice(None, 2_000)).held.mean() >= 0.9
    assert beside.of(slice(None, 2_000)).held.mean() >= 0.9
    assert ours.of(slice(2_500, None)).held.mean() >= 0.87
    assert beside.of(slice(2_500, None)).held.mean() < 0.7


def told() -> conformal.Told:
    """Ask four queries, of which the third has no answer, and the first no way to know."""
    judged = conformal.Told(Rows("single", [Tensor.of(np.zeros(1))] * 4, [0, 1, 0, 1]))
    ids = [judged(index, 0).query.query_id for index in range(4)]  # type: ignore[attr-defined]
    sets = {
        0: LabelSet((0, 1), True, 0.9, 0.1, 0.0, (0.6, 0.4)),
        1: LabelSet((0,), False, 0.9, 0.1, 0.5, (0.7, 0.3), (1,)),
        3: LabelSet((1,), False, 0.9, 0.1, 0.5, (0.7, 0.3), (0,)),
    }
    answers = [
        Prediction(ids[at], "single", None, None, Status.COMPLETE, None, made.labels[0], 1.0, (), 0, 0, 0, 0)
        for at, made in sets.items()
    ]
    judged.judge([answer._replace(label_set=made) for answer, made in zip(answers, sets.values(), strict=True)])
    return judged


def test_sets_are_judged_as_they_were_answered() -> None:
    """In the order of the queries; one that any label is in counts as many labels as there are."""
    judged = told()
    served = judged.served([0, 1, 0, 1])
    assert served.held.tolist() == [True, False, True]
    assert served.sizes.tolist() == [2, 1, 1]
    assert judged.weights() == [{0: 0.6, 1: 0.4}, {0: 0.7, 1: 0.3}, {1: 0.7, 0: 0.3}]
    assert judged.error(slice(None)) == pytest.approx(1 / 3)


def test_public_predictions_are_played_and_the_page_shows_all_parts() -> None:
    """Figures are those that are declared, and the picture has a line for each part."""
    figures, series = conformal.replayed(1)
    assert figures["replayed_held_after"] >= conformal.COVERAGE - 0.02
    some = Sets(np.ones(4_000, bool), np.ones(4_000, np.int64))
    for lane in conformal.LANES:
        more, series[lane] = conformal.compared(lane, some, some)
        figures |= more | {f"{lane}_error_before": 0.1, f"{lane}_error_after": 0.2}
    assert all(conformal.FIGURES.of(name) is not None for name in figures)
    result = Result("conformal", figures, {"form": "short"}, series)
    environment = {"cores_usable": 2, "processor": "a processor", "broker": "Kafka", "load_average": [1.0]}
    text = conformal.SCENARIO.written(result, environment)  # type: ignore[arg-type]
    assert "| forest alone, fixed | 1.000 |" in text
    assert conformal.plots(result)["coverage.png"].startswith(b"\x89PNG")
