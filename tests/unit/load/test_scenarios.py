"""What the scenarios compute from what they measured, and the list of them."""

import subprocess
import sys

import numpy as np
import pytest

from load import registry
from load.research.batching import batching, cache, controllers
from load.research.batching.batching import Batch
from load.research.batching.replacement import lru
from load.research.learning import figure8
from load.results import report
from load.results.compare import compare
from load.results.report import describe
from load.results.results import Result
from load.results.targets import verdicts
from load.scenarios.rate import loop


def test_without_the_research_folder_the_other_scenarios_are_there() -> None:
    """Nothing outside of it imports it; who asks for one of them reads where it is to be had."""
    code = (
        "import sys, importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'load.research' else found(name, *more)\n"
        "from load import registry\n"
        "print(registry.find('loop').name, 'peers' in registry.SCENARIOS, 'load.research' in sys.modules)\n"
        "try: registry.find('peers')\n"
        "except LookupError as error: print('checkout of the repository' in str(error))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["loop", "False", "False", "True"]


def test_an_unknown_scenario_names_the_nearest() -> None:
    """A typing error costs one try."""
    with pytest.raises(LookupError, match="'figure8'"):
        registry.find("figure-8")


def test_targets_are_judged_and_a_missing_figure_is_a_miss() -> None:
    """Silence does not pass."""
    result = Result("batching", {"settled_share_of_best": 0.95, "settling_batches": 300, "backoff_batches": 5})
    judged = {verdict.target.figure: verdict.reached for verdict in verdicts(result, batching.FIGURES)}
    assert judged == {
        "settled_share_of_best": True,
        "aimd_least_share": False,
        "default_behind": False,
        "settling_batches": False,
        "backoff_batches": True,
        "gain_over_batch_1": False,
    }


def test_targets_for_one_data_set_do_not_bind_another() -> None:
    """The published errors belong to the published predictions."""
    with_public = verdicts(Result("figure8", {}, {"source": "mnist"}), figure8.FIGURES)
    digits = Result("figure8", {}, {"source": "digits"})
    without = verdicts(digits, figure8.FIGURES)
    assert "not judged exp3_error_total <= 0.082: it holds for source mnist" in describe(digits, figure8.FIGURES)
    assert len(with_public) == len(without) + 2


def test_a_report_names_figures_targets_and_notes() -> None:
    """What a person reads after `skysail load run`."""
    result = Result(
        "loop", {"learnt_to_floor_ratio": 0.2, "backlog_lost": 0, "new": 1}, {"seed": 1}, notes=("two cores",)
    )
    text = report.describe(result, loop.FIGURES)
    assert "MISSED   learnt_to_floor_ratio >= 0.3: 0.2" in text
    assert "reached  backlog_lost == 0: 0" in text
    assert "note: two cores" in text
    assert "not declared: new" in text


def test_a_comparison_shows_the_worst_first() -> None:
    """And names what only one side has."""
    base = Result("loop", {"queries_sent": 10, "backlog_learnt_per_s": 9_000, "lost": 0, "gone": 1})
    head = Result("loop", {"queries_sent": 12, "backlog_learnt_per_s": 4_000, "lost": 0, "new": 1})
    lines = report.describe_comparison(compare(base, head, loop.FIGURES)).splitlines()
    assert lines[1].split()[:2] == ["WORSE", "backlog_learnt_per_s"]
    assert lines[-2:] == ["  GONE   gone", "  only in head: new"]


def test_batching_figures_follow_the_batches() -> None:
    """Settled from batch 200 on; the first dear row starts the count of batches that broke the objective."""
    cheap = [Batch(rows=130, cap=130, predict_us=18_000)] * 307
    crossing = Batch(rows=130, cap=130, predict_us=25_000)
    dear = [Batch(117, 117, 28_400), Batch(105, 105, 26_000), Batch(70, 70, 19_000)]
    figures = batching.figures([*cheap, crossing, *dear])
    assert figures["settled_share_of_best"] == pytest.approx(130 / 0.018 / 7_500)
    assert (figures["settled_cap"], figures["settling_batches"], figures["backoff_batches"]) == (130, 1, 3)
    (line,) = batching.side_by_side({"aimd": figures})
    assert line.startswith("aimd       7,222 rows/s,  96% of the best, cap 130")


def test_the_failure_is_the_references() -> None:
    """Within the section the best model is always wrong, outside nothing changes, and a seed fixes it all."""
    labels = np.arange(20_000, dtype=np.uint8) % 10
    rows = np.repeat(labels[:, None], 5, axis=1)
    broken, truth = figure8.shuffle_and_break(rows, labels)
    wrong = broken != truth[:, None]
    assert wrong[figure8.BROKEN, 4].all()
    assert wrong.sum() == 5_000
    again, _ = figure8.shuffle_and_break(rows, labels)
    assert (again == broken).all()


def test_the_replayed_keys_hit_as_often_as_in_a_plain_lru() -> None:
    """Skewed keys, room for half of them and more than is in flight at once; every answer is the model's."""
    keys = np.random.default_rng(1).zipf(1.1, 6_000).clip(max=2_000).tolist()
    replay = cache.Replay(room=600)
    replay.run(keys)
    assert (len(keys) - replay.asked, replay.wrong, replay.lost) == (lru(keys, 600), 0, 0)


def test_the_gain_by_batches_has_three_lines() -> None:
    """What is saved of the model's time, of everything, and of everything where the model is converted."""
    rates = {"batched": 90_000, "rows": 45_000, "alone": 3_000, "converted_batched": 90_000, "converted_alone": 6_000}
    found = {f"whole_{name}_per_s": float(rate) for name, rate in rates.items()} | controllers.gains_of(rates)
    (table,) = controllers.tables(Result("controllers", found))
    assert [row[1:] for row in table.rows] == [
        ("90,000", "45,000", "2.0"),
        ("90,000", "3,000", "30.0"),
        ("90,000", "6,000", "15.0"),
    ]
