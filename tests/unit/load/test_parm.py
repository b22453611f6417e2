"""The scenario `parm`: its stalls, its lanes in virtual time, and what its page shows."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest

from load.research.harness.stalls import pairs
from load.research.parm.parm import FIGURES, NAME
from load.research.parm.parm_forms import Lane
from load.research.parm.parm_tables import plots, tables
from load.research.parm.parm_virtual import World, play
from load.results.results import Result
from policies.calibration import KNOTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANDOM = np.random.default_rng(3)
WEIGHTS: NDArray[np.float32] = RANDOM.normal(size=(5, 3)).astype(np.float32)
ROWS: NDArray[np.float32] = RANDOM.normal(size=(50, 5)).astype(np.float32)
OWN = ROWS @ WEIGHTS


def world(every_s: float = 2.0) -> World:
    """Return rows with a linear network, whose parity model is the same one."""
    labels = OWN.argmax(axis=1)
    return World(ROWS, labels, OWN, {2: lambda sums: sums @ WEIGHTS}, (0.02, 0.04), every_s, (0.2, 0.3), 1_000.0)


def test_stalls_are_of_two_processes_each_and_as_often_for_each() -> None:
    """However many there are; the same seed draws the same ones."""
    for processes in (6, 18):
        drawn = [*islice(pairs(processes, 4.0, (0.1, 0.3), 7), 4_000)]
        assert drawn[:9] == [*islice(pairs(processes, 4.0, (0.1, 0.3), 7), 9)]
        assert all(len({*stall.places}) == 2 and 0.1 <= stall.for_s <= 0.3 for stall in drawn)
        every_s = sum(stall.after_s for stall in drawn) / sum(stall.places.count(1) for stall in drawn)
        assert every_s == pytest.approx(4.0, rel=0.1)


def test_a_coded_lane_decodes_what_stands_still_and_is_asked_a_kth_more() -> None:
    """Of a linear network every answer is right, decoded or not, and the tail is shorter."""
    plain, coded = (play(world(), lane, 60.0, 2_000, 1) for lane in (Lane(6), Lane(6, 3, 2)))
    assert (plain.rows, plain.sums, plain.decoded) == (2_000, 0, [0, 0])
    assert (coded.rows, coded.sums) == (2_000, 1_000)
    assert coded.decoded[0] > 20
    assert coded.decoded[0] == coded.decoded[1]
    assert coded.own[0] == coded.own[1] == 2_000 - coded.decoded[0]
    assert coded.quantiles(0.99)[0] < 0.8 * plain.quantiles(0.99)[0]


def test_a_hedged_lane_asks_late_rows_again_for_no_more_than_its_share() -> None:
    """The tail is shorter for it, and no answer is decoded."""
    plain, hedged = (play(world(), lane, 60.0, 2_000, 1) for lane in (Lane(6), Lane(6, hedge=0.05)))
    assert plain.more_work == 0.0
    assert 0.0 < hedged.more_work <= 0.05 + 20 / 2_000  # so many tokens are there at the beginning
    assert (hedged.sums, hedged.decoded) == (0, [0, 0])
    assert hedged.quantiles(0.99)[0] < plain.quantiles(0.99)[0]


def test_a_decoded_answer_in_virtual_time_is_as_sure_as_its_parity_model_says() -> None:
    """Whatever its scores are."""
    found = play(replace(world(), right={2: (0.7,) * len(KNOTS)}), Lane(6, 3, 2), 60.0, 1_000, 1)
    assert found.sure == pytest.approx(0.7 * found.decoded[0])


def test_a_lane_in_virtual_time_is_the_same_each_time() -> None:
    """It follows from its seed."""
    first, again = (play(world(), Lane(4, 2, 2), 40.0, 300, 5) for _ in range(2))
    assert first == again
    assert play(world(0.0), Lane(4), 1.0, 20, 5).quantiles(1.0)[0] < 100.0  # nobody waits: a call and four legs


def test_a_result_of_any_part_has_tables_and_a_picture() -> None:
    """What was not measured is left out."""
    figures = {"k2_epochs": 3.0, "k2_own_accuracy": 0.98, "k2_accuracy": 0.93, "k2_accuracy_lost_points": 5.0}
    figures |= {f"virtual_{lane}_{point}": 40.0 for lane in ("none", "k2") for point in ("p50_ms", "p99_ms", "p999_ms")}
    figures |= {"virtual_k2_decoded_share": 0.02, "virtual_k2_more_work": 0.5}
    result = Result(NAME, figures)
    assert all(FIGURES.of(name) is not None for name in figures)
    assert [len(table.rows) for table in tables(result)] == [2, 1]
    assert plots(result)["parm.png"].startswith(b"\x89PNG")
