"""The scenario `graph`: its lanes in virtual time, and what its page shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from load.results.results import Result
from load.scenarios.graph import FIGURES, NAME
from load.scenarios.graph_page import plots, tables
from load.scenarios.graph_virtual import Form, lanes, play
from policies.packing.work import Times

if TYPE_CHECKING:
    from load.scenarios.graph_virtual import Lane

TIMES = {
    "detector": Times((1, 16), (8_000.0, 45_000.0)),
    "car-net": Times((1, 16), (1_300.0, 7_000.0)),
    "face-net": Times((1, 16), (2_600.0, 16_000.0)),
}


def lane(name: str = "split") -> Lane:
    """Return ten workers with a split."""
    return lanes(TIMES, 60.0, Form(10, 300.0))[name][0]


def test_a_lane_has_all_its_workers_where_its_split_needs_them() -> None:
    """Every stage has one at least, and the detector, which takes longest, most of them."""
    found = lane()
    assert sum(found.workers.values()) == 10
    assert found.workers["detect"] > found.workers["cars"] >= 1
    assert found.shares["cars"] == found.shares["faces"] == 1.0
    assert lane("even").shares["detect"] == pytest.approx(0.5, abs=0.01)


def test_few_pictures_are_all_answered_whole_and_many_are_not() -> None:
    """Whatever is not whole is answered in part or by default: none is forgotten."""
    few, many = (play(TIMES, lane(), 60.0, rate, 300, 1) for rate in (20.0, 4_000.0))
    assert few.share > 0.99
    assert many.share < 0.5
    assert {found.whole + found.partial + found.defaults for found in (few, many)} == {300}


def test_a_lane_in_virtual_time_is_the_same_each_time() -> None:
    """It follows from its seed."""
    first, again, other = (play(TIMES, lane(), 60.0, 800.0, 200, seed) for seed in (5, 5, 6))
    assert first == again != other


def test_a_result_has_tables_and_a_picture() -> None:
    """Objectives that were not measured are left out."""
    figures = {"workers": 20.0, "tightest_ratio": 1.5, "at_45_ratio": 1.5}
    figures |= {f"at_45_{name}_{of}": 1_000.0 for name in ("split", "even", "whole") for of in ("per_s", "over_per_s")}
    figures |= {
        f"at_45_{name}_{stage}_{of}": 1.0
        for name in ("split", "even")
        for stage in ("detect", "cars", "faces")
        for of in ("share", "workers", "rows")
    }
    result = Result(NAME, figures)
    assert all(FIGURES.of(name) is not None for name in figures)
    assert [len(table.rows) for table in tables(result)] == [1, 1, 2]
    assert plots(result)["graph.svg"].startswith("<svg")
