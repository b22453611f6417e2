"""The scenario of many models on Kafka: what becomes of a query, what models sleep, and what its page shows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from load.research.clockwork import clockwork, clockwork_live, clockwork_tables
from load.research.clockwork.live_host import (
    EXPIRED,
    GOOD,
    LATE,
    REFUSED,
    UNLOADED,
    Asking,
    Found,
    Told,
    copies,
    outcome,
)
from load.research.models.published import PART, Sleeping, published
from load.results.results import Result
from schemas.records import Prediction, Status
from workers import manifest as manifests
from workers.entry_point import resolve
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path


def answer(status: Status = Status.COMPLETE, message: str = "") -> Prediction:
    """Return an answer to a query that was meant to be sent at 1 s."""
    return Prediction("q", "m0", None, None, status, None, 1, 1.0, (), 1_000_000, 0, 0, 0, message=message)


@pytest.mark.parametrize(
    ("prediction", "read_us", "expected"),
    [
        (answer(), 1_100_000, GOOD),
        (answer(), 1_100_001, LATE),
        (answer(Status.DEFAULT), 1_050_000, EXPIRED),
        (answer(Status.DEFAULT, "no time is left: one row takes 2.6 ms"), 1_050_000, REFUSED),
        (answer(Status.DEFAULT, "the model is not loaded: that takes 8.3 ms more"), 1_050_000, UNLOADED),
    ],
)
def test_a_query_counts_from_when_it_was_meant_to_be_sent(prediction: Prediction, read_us: int, expected: int) -> None:
    """Until its answer is read; a default output is a miss, whenever it comes."""
    assert outcome(prediction, read_us, 100_000) == expected


def test_a_sleeping_model_takes_what_was_published() -> None:
    """As the next size that is published; of more rows than that, several times the largest."""
    resnet50 = published()["resnet50"]
    assert [resnet50.batch_us(rows) for rows in (1, 2, 3, 16, 17)] == [2_610, 3_780, 5_610, 15_670, 15_670 + 2_610]
    assert resnet50.load_us == 8_330


def test_naming_a_sleeping_model_loads_it() -> None:
    """Each time anew: a runtime names its function whenever a package is loaded."""
    one, other = (resolve("load.research.models.published:resnet18") for _ in range(2))
    assert isinstance(one, Sleeping)
    assert one is not other
    assert one.held_bytes == published()["resnet18"].bytes // PART


def test_copies_of_a_package_are_models_of_their_own(tmp_path: Path) -> None:
    """Each has its name and its digest, and can be read."""
    package_function("load.models.functions:right", tmp_path / "one", "one", "1", np.zeros((1, 1), np.float32))
    made = copies(tmp_path / "one", ["a", "b"], tmp_path)
    assert [manifests.read(folder).name for folder in made.values()] == ["a", "b"]
    assert len({manifests.digest(folder) for folder in made.values()}) == 2


def test_a_page_shows_the_parts_that_were_run() -> None:
    """Of one with Kafka alone: its two tables, and no picture."""
    asking = Asking(np.array([0, 1_000_000]), ["m0", "m1"], 100.0, np.array([True, False]))
    counted = Counter({"host_loads_total": 2.0, "host_predicted_batches_total": 1.0})
    found = Found(
        np.array([GOOD, LATE], np.uint8), 5.0, 9.0, 0.5, Told(counted, Counter(host_resident_models=20.0)), 150.0
    )
    named = clockwork_live.figures_of(found, asking)
    figures = {f"sleeping_{lane}_{name}": value for lane in clockwork_live.CONTROLLERS for name, value in named.items()}
    assert (named["goodput"], named["goodput_within"], named["late_share"]) == (0.5, 1.0, 0.5)
    assert (named["loads_per_s"], named["rows_a_batch"], named["resident"]) == (2.0, 2.0, 20.0)
    figures |= {"sleeping_queries": 1_000.0, "sleeping_per_s": 141.0}
    result = Result(clockwork.NAME, figures=figures, parameters={"form": "sleeping"})
    assert [table.title for table in clockwork_tables.tables(result)] == [
        "Sleeping models on Kafka: 1,000 queries, 141 a second",
        "Sleeping models on Kafka: what it took",
    ]
    assert clockwork_tables.plots(result) == {}
    assert all(clockwork.FIGURES.of(name) is not None for name in figures)
