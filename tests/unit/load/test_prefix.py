"""The networks of `prefix`, what its figures are made of, and what its page says."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from load.harness.environment import environment
from load.research.nexus import prefix
from load.results.results import Result
from workers.packages.loading import load_package
from workers.runtimes.trunks import trunk_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("trunk", prefix.TRUNKS)
def test_a_network_as_trunk_and_head_is_the_whole_one(trunk: str, tmp_path: Path) -> None:
    """Both packages of a model answer alike, and the models have one trunk and heads of their own."""
    pytest.importorskip("torch", reason="torch is not installed")
    trunks = importlib.import_module("load.research.models.trunks")
    trunks.package(trunk, ["a", "b"], tmp_path, 1)
    rows = trunks.rows(trunk, 20, 2)
    answers, digests = [], set()
    for name in ("a", "b"):
        heads, whole = (load_package(tmp_path / way / name) for way in prefix.WAYS)
        assert np.array_equal(heads.runtime.predict_batch(rows).answers, whole.runtime.predict_batch(rows).answers)
        assert not trunk_of(whole.manifest).digest
        digests.add(trunk_of(heads.manifest).digest)
        answers.append(heads.runtime.predict_batch(rows).answers)
    assert len(digests) == 1
    assert not np.array_equal(*answers)


def made() -> Result:
    """Return a result in which the rate grows by half of the models."""
    figures: dict[str, float] = {"failed": 0.0}
    for trunk in prefix.TRUNKS:
        for way in prefix.WAYS:
            figures[f"{trunk}_{way}_a_model_mib"] = 2.5
            for count in prefix.COUNTS:
                figures[f"{trunk}_{way}_{count}_pss_mib"] = 400.0
                for asked in prefix.ASKED:
                    told = {"per_s": 100.0, "p50_ms": 3.0, "p99_ms": 7.0, "rows_a_batch": 4.0}
                    figures |= {f"{trunk}_{asked}_{way}_{count}_{name}": value for name, value in told.items()}
                    figures[f"{trunk}_{asked}_{count}_gain"] = count / 2
                    figures[f"{trunk}_{asked}_{count}_gain_a_head"] = 0.5
                    figures[f"{trunk}_{asked}_{count}_models_gain"] = count * 0.9
                    figures[f"{trunk}_{asked}_{count}_models_gain_a_head"] = 0.9
    return Result(prefix.NAME, figures, {"form": "full", "seed": 1, "clients": 4, "models": 16})


def test_every_figure_is_declared() -> None:
    """With its unit."""
    assert all(prefix.FIGURES.of(name) is not None for name in made().figures)


def test_the_page_begins_with_when_to_use_it_and_says_what_was_missed() -> None:
    """And it has a table of rates and one of memory for each trunk, and a picture."""
    page = prefix.SCENARIO.written(made(), environment())
    assert page.index("**Use it**") < page.index("## How") < page.index("## As measured")
    assert "16 heads that are asked about the same rows do 8.0 times the rows a second of 16 whole models" in page
    assert "Target missed: image_same_16_gain_a_head is 0.5, and should be >= 0.8." in page
    assert len(prefix.tables(made())) == 4
    assert [*prefix.plots(made())] == ["prefix.png"]
