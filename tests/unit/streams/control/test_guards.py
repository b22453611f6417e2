"""What reports say of a candidate beside its losses."""

from __future__ import annotations

import pytest

from schemas.records import Report
from streams.control.carry.guards import measured
from streams.control.figures import fold
from streams.control.history import History
from tests.comparisons import SECOND_US, plan

COUNTERS = {
    "rows_total{model=forest,outcome=ok}": 900.0,
    "rows_total{model=forest,outcome=expired}": 100.0,
    "rows_total{model=forest,version=2,outcome=ok}": 160.0,
    "rows_total{model=forest,version=2,outcome=failed}": 30.0,
    "rows_total{model=forest,version=2,outcome=expired}": 10.0,
    "batch_rows_total{model=forest}": 900.0,
    "batch_rows_total{model=forest,version=2}": 190.0,
    "predict_us_total{model=forest}": 900_000.0,
    "predict_us_total{model=forest,version=2}": 570_000.0,
    "asked_total{application=digits,model=forest}": 1_200.0,
    "answers_total{application=digits,status=complete,reason=}": 900.0,
    "answers_total{application=digits,status=default,reason=deadline}": 100.0,
}


def history(counters: dict[str, float]) -> History:
    """Return the history of a process whose counters rose to these from 0."""
    found = History()
    before = fold(None, Report("w", "worker", 1, dict.fromkeys(counters, 0.0), {}))
    found.add(before, fold(before, Report("w", "worker", SECOND_US, counters, {})), SECOND_US)
    return found


def test_a_canary_is_measured_by_its_own_rows() -> None:
    """And by its time beside that of the version that serves."""
    assert measured(plan(), history(COUNTERS), SECOND_US) == pytest.approx(
        {"failures": 0.15, "late": 0.05, "latency": 3.0, "defaults": 0.1}
    )


def test_what_has_taken_over_is_measured_without_the_holdback() -> None:
    """Its figures carry no version then; those of the one before do."""
    taken = plan(candidate="1", incumbent="2")
    assert measured(taken, history(COUNTERS), SECOND_US, has_taken_over=True) == pytest.approx(
        {"failures": 0.0, "late": 0.1, "defaults": 0.1}
    )


def test_a_few_rows_say_nothing() -> None:
    """A share of three rows is no share."""
    few = {name: value / 100 for name, value in COUNTERS.items()}
    assert measured(plan(), history(few), SECOND_US) == {}


def test_policies_have_no_guards() -> None:
    """They answer nothing until they take over."""
    assert measured(plan(kind="policy"), history(COUNTERS), SECOND_US) == {}
