"""The model that needs batching: how rates are climbed, what is made of the answers, how the page shows them."""

from __future__ import annotations

from statistics import stdev
from typing import Any

import numpy as np
import pytest

from load.models.training import digits, enlarged, linear_svm, pixels
from load.research.peers import batching, by_turns, forest_tables
from load.research.peers.batching import figures, rows
from load.research.peers.rate_search import Step, best_rate, climb
from load.results.results import Result

ENVIRONMENT = {"cores_usable": 2, "processor": "some processor", "broker": "Apache Kafka", "python": "3.11"}


class System:
    """Answers in time up to its capacity, and nothing beyond it."""

    def __init__(self, capacity_per_s: float, *, settles: bool = True) -> None:
        """Take the capacity."""
        self.capacity_per_s, self.settles, self.asked = capacity_per_s, settles, list[float]()

    def __call__(self, rate: float) -> Step:
        """Answer."""
        self.asked.append(rate)
        kept = rate <= self.capacity_per_s
        return Step({20: rate * kept / 2, 100: rate * kept}, kept or self.settles)


def visit(
    system: str, kind: str, goodput: float, objective_ms: int = 20, setting: str = "defaults"
) -> dict[str, object]:
    """Return the row of one visit."""
    about = {"system": system, "label": system.title(), "kind": kind, "setting": setting}
    return {**about, "objective_ms": objective_ms, "goodput_per_s": goodput, "rate_per_s": 2 * goodput}


@pytest.mark.parametrize(
    ("capacity", "beyond", "best"),
    [(1_100.0, [2**0.5, 2**0.25], 1.0), (1_300.0, [2**0.5, 2**0.25], 2**0.25), (1_500.0, [2**0.5, 2**0.75], 2**0.5)],
)
def test_rates_double_until_two_fail_and_two_are_tried_in_between(
    capacity: float, beyond: list[float], best: float
) -> None:
    """The best rate is found within a factor of 1.2."""
    system = System(capacity)
    tried = climb(system, (20, 100))
    assert system.asked == pytest.approx([500, 1_000, 2_000, 4_000, *(1_000 * each for each in beyond)])
    assert best_rate(tried, 100) == pytest.approx(1_000 * best)


def test_no_rate_is_tried_beyond_what_the_harness_can_do() -> None:
    """Beyond the ceiling the harness would be measured."""
    system = System(10_000.0)
    climb(system, (100,), ceiling_per_s=1_100.0)
    assert system.asked == [500, 1_000]


def test_what_still_works_on_an_earlier_rate_is_asked_no_further() -> None:
    """Its answers would come late for a reason of the rate before."""
    system = System(600.0, settles=False)
    climb(system, (20, 100))
    assert system.asked == [500, 1_000]


def test_everybody_has_their_best_setting_by_the_median_of_rounds() -> None:
    """One lucky round chooses no setting."""
    lucky = [visit("peer", "peer", value, setting="a") for value in (10.0, 10.0, 90.0)]
    steady = [visit("peer", "peer", value, setting="b") for value in (20.0, 30.0, 40.0)]
    (row,) = rows([*lucky, *steady])
    assert (row["setting_20ms"], row["goodput_20ms_per_s"]) == ("b", [30.0, 20.0, 40.0])


def test_ratios_are_to_the_best_of_each_kind() -> None:
    """Of peers, and of loops written by hand."""
    values = {"aimd": ("skysail", 190.0), "inline": ("skysail", 300.0)}
    values |= {"a": ("peer", 50.0), "b": ("peer", 100.0), "h": ("hand", 150.0)}
    visits = [visit(name, kind, value, ms) for name, (kind, value) in values.items() for ms in (20, 50, 100)]
    found = figures(rows(visits))
    assert (found["best_50ms_to_peer_ratio_rate"], found["best_50ms_to_hand_ratio_rate"]) == (3.0, 2.0)


def turn(name: str, setting: str, objective: int, *goodput: float, rate: float = 400.0) -> dict[str, Any]:
    """Make a row of a contender that was asked by turns."""
    about = {"name": name, "label": name.title(), "setting": setting, "rate_per_s": rate}
    return {**about, "objective_ms": objective, "goodput_per_s": list(goodput)}


TURNS = [
    row
    for ms in (20, 50, 100)
    for row in (
        turn("aimd", "defaults", ms, 94.0, 20.0, 300.0, 20.0, 60.0, 60.0),
        turn("aimd", "defaults", ms, 30.0, 10.0, 30.0, 10.0, 30.0, 10.0, rate=800.0),
        turn("fixed", "rows 16", ms, 90.0, 90.0, 90.0, 90.0, 90.0, 90.0),
        turn("fixed", "rows 64", ms, 80.0, 100.0, 80.0, 300.0, 70.0, 70.0),
    )
]


def test_the_fixed_batch_that_is_best_after_all_other_starts_counts_after_each() -> None:
    """The luckiest of many is not the best: 64 rows look the best only where the 300 are among what chooses."""
    found = by_turns.figures(TURNS)
    aimd, fixed = 94.0 + 20.0 + 300.0 + 20.0 + 60.0 + 60.0, 80.0 + 100.0 + 90.0 + 90.0 + 70.0 + 70.0
    assert found == {f"aimd_{ms}ms_to_fixed_ratio_rate": pytest.approx(aimd / fixed) for ms in (20, 50, 100)}
    assert by_turns.figures([]) == {}


def test_goodput_is_that_at_the_rate_where_its_mean_is_highest() -> None:
    """Past what a contender can do, its rounds say how it fails, not what it does."""
    rows_ = [row for row in TURNS if (row["name"], row["objective_ms"]) == ("aimd", 50)]
    assert by_turns.best_rate(rows_)["rate_per_s"] == 400


def test_the_error_of_a_ratio_is_that_of_its_mean_over_the_starts() -> None:
    """Three starts of two rounds each."""
    ratios = (114 / 180, 320 / 180, 120 / 140)
    assert by_turns.standard_error(TURNS, 50) == pytest.approx(stdev(ratios) / 3**0.5)


def test_the_page_shows_goodput_ratios_settings_and_rates() -> None:
    """Whoever is alone has no ratios."""
    visits = [visit("aimd", "skysail", 100.0, ms, "rows 8") for ms in (20, 50, 100)]
    stretch = {"label": "Aimd", "kind": "skysail", "setting": "rows 8", "slo_ms": 20.0, "rate_per_s": 250.0}
    stretch |= {f"goodput_{ms}ms_per_s": 99.0 for ms in (20, 50, 100)}
    systems = rows(visits)
    series = {"systems": systems, "by_turns": TURNS, "stretches": [stretch], "left_out": []}
    found = {**figures(systems), **by_turns.figures(TURNS)}
    result = Result("forest", found, {"source": "mnist"}, series, ("a note",))
    text = forest_tables.SCENARIO.written(result, ENVIRONMENT)
    assert "| Aimd / best fixed batch, by turns | 1.11 ± 0.35 | 1.11 ± 0.35 | 1.11 ± 0.35 |" in text
    assert text.count("| Fixed (rows 64) | 117 (70 to 300) at 400 |") == 1
    assert "| Aimd (rows 8) | 99 |" in text
    assert "\n- a note\n" in text


def test_small_images_are_enlarged_to_784_pixels() -> None:
    """Every pixel three by three, within a frame."""
    rows_ = np.arange(64, dtype=np.float32).reshape(1, 64) / 255
    large = enlarged(rows_).reshape(28, 28)
    assert large.sum() == 9 * np.arange(64).sum()
    assert (large[2:5, 5:8] == 1).all()


def test_every_name_is_asked_once() -> None:
    """Names are permanent and different."""
    assert len(set(batching.NAMES)) == len(batching.NAMES) == len(batching.ALL) + 1


def test_settings_that_were_given_up_after_a_round_count_no_more() -> None:
    """They have one round each, which may have been a lucky one."""
    visits = [visit("peer", "peer", value, setting="a") for value in (10.0, 12.0)]
    assert rows([*visits, visit("peer", "peer", 90.0, setting="b")])[0]["setting_20ms"] == "a"


def test_the_linear_svm_is_the_same_one_for_bytes_and_for_features() -> None:
    """What travels differs, what is answered does not."""
    bytes_, features = pixels(), digits()
    assert (linear_svm(bytes_).predict(bytes_.test_x) == linear_svm(features).predict(features.test_x)).all()
