"""What a call of a model costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from schemas.records import Outcome
from streams.operators.contract import Predicted
from workers.errors import OutputError
from workers.executors import trial
from workers.executors.predictor import blank
from workers.manifest import MANIFEST, digest, pinned
from workers.packages.packaging import package_function, package_sklearn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from schemas.records import Input


class Model:
    """Answers, and notes how many rows it was given each time, beginning with which."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Input]] = []

    def __call__(self, rows: Sequence[Input]) -> Predicted:
        """Answer 0."""
        self.asked.append((len(rows), rows[-1]))
        return Predicted((Outcome.OK,) * len(rows), np.zeros(len(rows)))


def test_batches_of_all_sizes_are_timed() -> None:
    """More than once each; few rows are repeated."""
    model = Model()
    found = trial.timed(model, ["a", "b", "c"])
    assert tuple(found) == trial.SIZES
    assert all(us > 0 for us in found.values())
    assert {rows for rows, _ in model.asked} == {*trial.SIZES}
    assert {last for rows, last in model.asked if rows == 16} == {"a"}  # row 16 of three in turn


def test_after_a_batch_that_takes_long_no_larger_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is far too dear already."""
    monkeypatch.setattr(trial, "_LONG_US", 0.0)
    assert tuple(trial.timed(Model(), ["a"])) == (1,)


def test_a_model_that_does_not_answer_is_told() -> None:
    """There is nothing to time."""
    with pytest.raises(OutputError, match="out of order"):
        trial.timed(lambda rows: Predicted.failed(len(rows), "out of order"), ["a"])


def test_without_examples_a_blank_row_is_asked(tmp_path: Path) -> None:
    """As when a model is loaded."""
    folder = tmp_path / "m"
    manifest = package_function("tests.toys:shout", folder, "m", "1", ["text"])
    assert trial.examples(folder, manifest) == ["text"]  # it is warmed up on that
    document = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(document | {"files": {}}))
    assert trial.examples(folder, pinned(folder).manifest) == [blank(manifest.input)]


def test_a_pipeline_in_stages_is_measured_by_the_rows_that_it_is_warmed_up_on(tmp_path: Path) -> None:
    """It keeps no examples, as it has no other form; an empty text would be far cheaper than real ones."""
    pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(["good film", "bad film"], [1, 0])
    manifest = package_sklearn(pipeline, tmp_path / "m", "m", "1", ["a good film", "a bad one"], convert="stages")
    assert trial.examples(tmp_path / "m", manifest) == ["a good film", "a bad one"]
    assert tuple(trial.measured(tmp_path / "m", digest(tmp_path / "m"))) == trial.SIZES
