"""Batches divided among several processes: the parts, and putting them together again."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Model, Outcome
from streams.operators.contract import Predicted
from workers.executors.factory import executor_of
from workers.executors.pool import edges_of, joined
from workers.manifest import digest
from workers.packages.packaging import package_function
from workers.settings import WorkerSettings

OK, FAILED, INVALID = Outcome.OK, Outcome.FAILED, Outcome.INVALID


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_parts_put_together_are_the_batch(sizes: list[int]) -> None:
    """Outcomes, answers, scores and reasons of every row are where they would be in one piece."""
    rows = sum(sizes)
    outcomes = tuple(INVALID if row % 3 == 2 else OK for row in range(rows))
    answers, scores = np.arange(rows), np.arange(2.0 * rows).reshape(rows, 2)
    edges = np.cumsum([0, *sizes]).tolist()
    parts = [
        Predicted(
            outcomes[start:end],
            answers[start:end],
            scores[start:end],
            {row - start: "shape" for row in range(start, end) if outcomes[row] is INVALID},
        )
        for start, end in pairwise(edges)
    ]
    found = joined(parts)
    assert found.outcomes == outcomes
    assert np.array_equal(np.asarray(found.answers), answers)
    assert found.scores is not None
    assert np.array_equal(found.scores, scores)
    assert sorted(found.reasons) == [row for row in range(rows) if outcomes[row] is INVALID]


def test_a_part_that_failed_is_filled_up_in_the_form_of_the_others() -> None:
    """Texts beside texts, scores beside scores; the fault is told."""
    texts = joined([Predicted.failed(2, "it died"), Predicted((OK,), ("a",))])
    assert texts == Predicted((FAILED, FAILED, OK), ("", "", "a"), fault="it died")
    scores = joined([Predicted((OK,), np.array([1]), np.array([[0.25, 0.75]])), Predicted.failed(1, "it died")])
    assert scores.scores is not None
    assert scores.scores.tolist() == [[0.25, 0.75], [0.0, 0.0]]


@pytest.mark.parametrize("other", [Predicted((OK,), ("a",)), Predicted((OK,), np.array([1]), np.array([[1.0]]))])
def test_a_part_with_answers_of_another_form_has_failed(other: Predicted) -> None:
    """The first form counts, as in one piece."""
    found = joined([Predicted((OK,), np.array([7])), other])
    assert (found.outcomes, np.asarray(found.answers).tolist()) == ((OK, FAILED), [7, 0])
    assert found.fault is not None


def test_if_all_parts_failed_the_first_fault_is_told() -> None:
    """None of the rows has an answer."""
    found = joined([Predicted.failed(1, "first"), Predicted.failed(2, "second")])
    assert (found.outcomes, found.fault) == ((FAILED,) * 3, "first")


@given(st.integers(1, 200), st.integers(1, 8), st.sampled_from(((), (1,), (1, 8, 32), (4, 64))))
def test_a_batch_is_cut_into_as_many_parts_as_there_are_children_at_most(
    rows: int, children: int, sizes: tuple[int, ...]
) -> None:
    """Every row is in one part, and none is empty; without fixed sizes they differ by a row."""
    edges = edges_of(rows, children, sizes)
    lengths = [end - start for start, end in pairwise(edges)]
    assert (edges[0], edges[-1]) == (0, rows)
    assert 1 <= len(lengths) <= children
    assert min(lengths) >= 1
    assert sizes or max(lengths) - min(lengths) <= 1


def test_parts_fill_the_allowed_sizes() -> None:
    """Three parts of 11 rows would each be padded to 32: one child does as much alone."""
    assert edges_of(32, 3, (1, 8, 32)) == [0, 32]
    assert edges_of(24, 3, (1, 8, 32)) == [0, 8, 16, 24]


def test_how_many_processes_a_model_has_is_said_for_all_or_by_name() -> None:
    """One whose memory is bounded has one anyway."""
    assert WorkerSettings(processes=2).processes_of("net") == 2
    by_name = WorkerSettings(processes={"net": 3}, memory_bytes={"rule": 1 << 20})
    assert [by_name.processes_of(name) for name in ("net", "rule", "forest")] == [3, 1, 0]


def test_another_version_of_a_trusted_model_has_a_process() -> None:
    """It may do anything; models of which none is trusted run as the settings say."""
    settings = WorkerSettings(trusted={"net": "d1"})
    assert [settings.processes_of("net", digest) for digest in ("d1", "d2")] == [0, 1]
    assert settings.processes_of("rule", "d2") == 0


async def test_a_model_with_several_processes_runs_in_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the settings say, by its name."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    manifest = package_function("tests.toys:whereabouts", tmp_path / "w", "w", "1", ["x"])
    model = Model("w", "1", manifest.runtime, str(tmp_path / "w"), digest(tmp_path / "w"), "label", "", ())
    executor = executor_of(model, WorkerSettings(processes={"w": 2}), lambda: 0, lambda _: None)
    await executor.start()
    answers = (await executor.run(["a", "b"], 30.0)).predicted.answers
    await executor.stop()
    assert len({str(answer).split()[1] for answer in answers}) == 2
