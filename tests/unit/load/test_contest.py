"""Batch controllers beside the best fixed batch: what is asked again, and who is said to be the best."""

from __future__ import annotations

import pytest

from load.harness.aggregates import turned
from load.research.batching.controller_comparison import ADAPTIVE, behind, shares, verdict, worth_asking
from load.research.harness.backlog import Answered, settled
from load.research.paper import parts
from load.results.results import Result


def test_a_busy_worker_is_judged_by_the_second_half() -> None:
    """The climb does not count; the model's own time is apart from the worker's."""
    climb = [Answered("w", 1, 1, 1_000, at_us) for at_us in range(0, 1_000_001, 100_000)]
    late = [Answered("w", 100, 100, 5_000, at_us) for at_us in range(1_100_000, 2_000_001, 100_000)]
    found = settled([*climb, *late])
    assert (found["per_s"], found["model_per_s"], found["rows_a_batch"]) == (1_000.0, 20_000.0, 100.0)


def test_a_batch_beyond_the_objective_does_no_good() -> None:
    """Its rows are done, and count among all rows only."""
    batches = [Answered("w", 100, 100, took_us, at_us) for took_us in (5_000, 25_000) for at_us in (0, 1_000_000)]
    found = settled(batches, 20.0)
    assert found["good_per_s"] == found["per_s"] / 2


def of(per_s: float, p99_ms: float, rows: float = 1.0) -> dict[str, float]:
    """Return what was measured of a contender."""
    return {"per_s": per_s, "batch_p99_ms": p99_ms, "rows_a_batch": rows}


def test_only_sizes_within_the_objective_that_do_nearly_as_much_as_the_best_are_asked_again() -> None:
    """The fastest of all breaks it; of the rest one does too little."""
    first = {"fixed-16": of(500, 4), "fixed-64": of(900, 12), "fixed-128": of(1_000, 19), "fixed-256": of(1_200, 30)}
    assert worth_asking(first) == ["fixed-64", "fixed-128"]


def test_where_no_size_meets_the_objective_the_quickest_is_asked_again() -> None:
    """There is something to be held against."""
    assert worth_asking({"fixed-16": of(500, 40), "fixed-64": of(900, 90)}) == ["fixed-16"]


def test_every_other_turn_goes_backwards() -> None:
    """Nobody is always the last, who finds the machine warm."""
    assert [turned("abc", turn) for turn in range(3)] == [["a", "b", "c"], ["c", "b", "a"], ["a", "b", "c"]]


GOOD = 0.9  # of the rows are in batches within the objective
MACHINE = (0.5, 1, 1.1, 1, 0.9, 1)  # how quick it is, start by start


def contenders(model: str, per_s: float) -> list[dict[str, object]]:
    """Return two fixed sizes, of which the faster one breaks the objective, and controllers 100 rows a second apart."""
    rows = {"fixed-64": of(1_000, 12, 64), "fixed-256": of(1_200, 30, 256)}
    rows |= {name: of(per_s - 100 * place, 21 + place) for place, name in enumerate(ADAPTIVE)}
    return [
        {
            "model": model,
            "contender": name,
            **row,
            "rounds_per_s": [row["per_s"] * machine for machine in MACHINE],
            "rounds_good_per_s": [row["per_s"] * machine * GOOD for machine in MACHINE],
        }
        for name, row in rows.items()
    ]


def test_all_rounds_count() -> None:
    """One that was lucky for the controller alone, by its part of all."""
    rows = contenders("forest", 980)
    lucky = 1_980 - 980
    rows[2]["rounds_per_s"] = [980 * machine + (lucky if start == 1 else 0) for start, machine in enumerate(MACHINE)]
    assert shares(rows)["forest_aimd_share_of_best"] == pytest.approx(0.98 + lucky / (1_000 * sum(MACHINE)))


def test_a_controller_is_held_against_the_best_fixed_batch_within_the_objective() -> None:
    """By model, and at its worst."""
    found = shares([*contenders("forest", 980), *contenders("linear-svm", 1_050)])
    assert (found["forest_best_fixed_per_s"], found["forest_best_fixed_rows"]) == (1_000, 64)
    assert found["forest_aimd_share_of_best"] == pytest.approx(0.98)
    assert found["aimd_least_share"] == pytest.approx(0.98)
    assert found["deferred_least_share"] == pytest.approx(0.78)
    assert found["forest_quantile_batch_p99_ms"] == 22


def test_the_verdict_is_for_the_one_that_does_most_within_the_objective() -> None:
    """In words, a line a controller and one for all, and as a figure how far the default is behind."""
    found = shares(contenders("forest", 980))
    *lines, last = verdict(found, "aimd")
    assert lines[0].startswith("aimd     real models: 98% at least, 98% in the middle")
    assert last == "aimd does most within the objective on the model where it does least: the default"
    assert behind(found, "aimd") == {"default_behind": 0.0}
    assert behind(found, "quantile")["default_behind"] == pytest.approx(0.1)
    assert verdict(found, "quantile")[-1].endswith("the default, quantile, is 10.0 points behind")


def test_rows_in_batches_beyond_the_objective_do_not_count_for_the_verdict() -> None:
    """As many rows a second, a third of them in batches that took too long: another controller is better."""
    rows = contenders("forest", 980)
    rows[2]["rounds_good_per_s"] = [per_s * 2 / 3 for per_s in rows[2]["rounds_per_s"]]  # type: ignore[attr-defined]
    found = shares(rows)
    assert found["aimd_least_share"] == pytest.approx(0.98)
    assert found["aimd_least_good_share"] == pytest.approx(0.98 * 2 / 3 / GOOD)
    assert verdict(found, "aimd")[-1].startswith("quantile does most")
    assert behind(found, "aimd")["default_behind"] == pytest.approx(0.88 - 0.98 * 2 / 3 / GOOD)


def test_a_model_without_a_batch_within_the_objective_says_nothing() -> None:
    """Nor is there a verdict, or a figure of one, where it is the only one."""
    rows = [row | {"batch_p99_ms": 30} for row in contenders("forest", 980)]
    assert shares(rows) == behind({}, "aimd") == {}
    assert verdict({}, "aimd") == ("no model has a batch within 20 ms: no verdict",)
    assert set(shares([*rows, *contenders("linear-svm", 980)])) == set(shares(contenders("linear-svm", 980)))


def test_the_page_shows_what_is_reached_of_the_best_fixed_batch() -> None:
    """A line a model; a result from before has none."""
    (line,) = parts._contested(shares(contenders("forest", 980)))
    assert line[0].startswith("forest: aimd / quantile / deferred")
    assert line[2] == "98% / 88% / 78%; 21.0 / 22.0 / 23.0 ms"
    assert list(parts._contested(Result("batching", {"settled_per_s": 1.0}).figures)) == []
