"""The scenario `graph`: its lanes in virtual time, and what its page shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from load.research.models.traffic import MOST, found, picture
from load.research.nexus.graph import FIGURES, NAME, SCENARIO, plots, tables
from load.research.nexus.graph_live import FORM, LANES, OBJECTIVES_MS, WORKERS, Became, became, times_of
from load.research.nexus.graph_virtual import Form, lanes, play
from load.results.results import Result
from policies.packing.work import BatchTimes
from schemas.records import Outcome, Prediction, StageOutput, Status

if TYPE_CHECKING:
    from load.research.nexus.graph_virtual import Lane

TIMES = {
    "detector": BatchTimes((1, 16), (8_000.0, 45_000.0)),
    "car-net": BatchTimes((1, 16), (1_300.0, 7_000.0)),
    "face-net": BatchTimes((1, 16), (2_600.0, 16_000.0)),
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
    first, again, other = (play(TIMES, lane(), 60.0, 2_000.0, 200, seed) for seed in (5, 5, 6))
    assert first == again != other


def simulated() -> dict[str, float]:
    """Return figures of one objective."""
    figures = {"workers": 20.0, "tightest_ratio": 1.5, "at_45_ratio": 1.5}
    figures |= {f"at_45_{name}_{of}": 1_000.0 for name in ("split", "even", "whole") for of in ("per_s", "over_per_s")}
    return figures | splits("at_45")


def splits(prefix: str) -> dict[str, float]:
    """Return figures of how the time is split."""
    return {
        f"{prefix}_{name}_{stage}_{of}": 1.0
        for name in ("split", "even")
        for stage in ("detect", "cars", "faces")
        for of in ("share", "workers", "rows")
    }


def live() -> dict[str, float]:
    """Return figures of one objective on Kafka."""
    figures = {"live_workers": 12.0, "live_wrong": 0.0, "live_tightest_ratio": 1.4, "live_own_ratio": 1.0}
    parts = [f"over_{each.value}" for each in Became] + ["per_s", "p99_ms", "over_per_s"]
    ats = (f"live_at_{OBJECTIVES_MS[0]}", "live_own")
    figures |= {f"{at}_{lane}_{part}": 0.25 for at in ats for lane in LANES for part in parts}
    figures |= {f"{ats[0]}_{lane}_virtual_per_s": 80.0 for lane in LANES}
    return figures | splits(ats[0]) | {f"{ats[0]}_ratio": 1.4}


def test_a_result_has_tables_and_a_picture() -> None:
    """Objectives and parts that were not measured are left out."""
    result = Result(NAME, simulated())
    assert all(FIGURES.of(name) is not None for name in result.figures)
    assert [len(table.rows) for table in tables(result)] == [1, 1, 2]
    assert plots(result)["graph.png"].startswith(b"\x89PNG")
    assert "On Kafka" not in SCENARIO.written(result, {"processor": "a machine"})


def test_a_result_on_kafka_has_tables_and_a_picture_too() -> None:
    """What was answered with what was there is a column of its own."""
    result = Result(NAME, live())
    assert all(FIGURES.of(name) is not None for name in result.figures)
    assert [len(table.rows) for table in tables(result)] == [2, 4, 2]
    assert plots(result)["graph.png"].startswith(b"\x89PNG")
    shown = SCENARIO.written(result, {"processor": "a machine"})
    assert "| 540 ms | 0 (80) | 0 (80) | 1.40 |" in shown
    assert "with what was there" in shown
    assert "## Simulated" not in shown


def test_the_two_parts_together_have_all_figures() -> None:
    """Each has a name of its own."""
    assert not simulated().keys() & live().keys()


@pytest.mark.parametrize(("cars", "faces"), [(0, 0), (3, 1), (MOST, MOST), (0, 2)])
def test_the_detector_finds_what_a_picture_has_and_cuts_to_its_tiles(cars: int, faces: int) -> None:
    """Each car and each face once, in a tile of its own."""
    image = picture(cars, faces)
    seen = json.loads(found(image))
    assert [one["label"] for one in seen] == ["car"] * cars + ["face"] * faces
    for one in seen:
        left, top, right, bottom = one["box"]
        assert (image[top:bottom, left:right] == (1.0 if one["label"] == "car" else -1.0)).all()
    assert len({tuple(one["box"]) for one in seen}) == cars + faces


@pytest.mark.parametrize(
    ("status", "answer", "after_us", "is_worth"),
    [
        (Status.COMPLETE, "[0, 0]", 500, Became.WHOLE),
        (Status.COMPLETE, "[0, 0]", 1_001, Became.LATE),
        (Status.COMPLETE, "[0]", 500, Became.WRONG),
        (Status.PARTIAL, "[0, null]", 500, Became.PART),
        (Status.DEFAULT, "?", 500, Became.DEFAULT),
        (Status.DEFAULT, "?", 1_500, Became.LATE),
    ],
)
def test_only_a_picture_answered_whole_and_right_and_in_time_counts(
    status: Status, answer: str, after_us: int, is_worth: Became
) -> None:
    """Its time runs from when it was meant to be sent; it has two cars and a face."""
    rows = tuple(StageOutput(stage, "m", "1", Outcome.OK, 0) for stage in ("detect", "cars", "cars", "faces"))
    made = Prediction("q", "traffic", None, None, status, None, answer, 1.0, (), 0, 0, 1_000, 0, stages=rows)
    assert became(made, made.sent_us + after_us, 1_000, (2, 1)) is is_worth


def test_each_lane_on_kafka_has_all_workers_and_the_sizes_of_its_plan() -> None:
    """At the tightest objective an even split leaves the detector one picture a batch."""
    made = lanes(times_of(), OBJECTIVES_MS[0], FORM)
    assert {sum(lane.workers.values()) for lane, _ in made.values()} == {WORKERS}
    assert made["even"][0].rows["detect"] == 1
    assert made["split"][0].rows["detect"] > 1
