"""Which roles `skysail doctor` expects to report."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.config.settings import Settings
from deploy.diagnose import health
from deploy.diagnose.doctor import Level
from schemas import topics
from schemas.codec import Codec
from schemas.records import Model, Report

MODELS = {name: Model(name, "1", "linear", "p", "d", "label", None, ()) for name in ("cheap", "dear")}


def report(role: str, **gauges: float) -> Report:
    """Return what a role says."""
    return Report(f"{role}@1", role, 0, {}, {"partitions": 4.0, **gauges})


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a check of deployments whose roles report so."""

    def found(*reports: Report) -> dict[str, Level]:
        async def read(*_: object) -> dict[str, list[Report]]:
            return {each.role: [each] for each in reports}

        monkeypatch.setattr(health, "_reports", read)
        monkeypatch.setattr(health.topics, "partition_counts", lambda _: {topics.REPORTS: 1})
        settings = Settings(roles=("selection", "joiner", "learner", "worker"), processes="shared")
        return {check.name: check.level for check in health.check_roles(settings, Codec(), MODELS)}

    return found


def test_a_model_inside_selection_needs_no_worker(levels: Any) -> None:
    """The report of selection says that it serves there."""
    inside = report("selection", **{"serving{model=cheap,version=1}": 1.0})
    found = levels(inside, report("joiner"), report("learner"), report("worker.dear"))
    assert found == dict.fromkeys(("selection", "joiner", "learner", "worker.dear"), Level.OK)


def test_a_model_that_is_nowhere_needs_one(levels: Any) -> None:
    """Whoever was asked to run it says nothing."""
    found = levels(report("selection"), report("joiner"), report("learner"), report("worker.dear"))
    assert found["worker.cheap"] is Level.DOWN


def lines(asked: float, **outcomes: float) -> list[str]:
    """Return what is said of a model of which so many rows ended so between two reports."""
    found = []
    for second, factor in enumerate((0.0, 1.0)):
        rows = {f"rows_total{{model=m,outcome={name}}}": factor * count for name, count in outcomes.items()}
        gauges = {"serving{model=m,version=1}": 1.0}
        counters = {"asked_total{application=a,model=m}": factor * asked}
        found.append(Report("selection@1", "selection", second * 1_000_000, counters, {}))
        found.append(Report("worker.m@1", "worker.m", second * 1_000_000, rows, gauges))
    return [f"{check.name}: {check.found} $ {check.advice}" for check in health.check_answering(found)]


@pytest.mark.parametrize(
    ("outcomes", "why"),
    [
        ({}, "it hangs"),
        ({"failed": 50.0}, "it raises"),
        ({"invalid": 50.0}, "signature"),
        ({"expired": 50.0}, "takes longer"),
    ],
)
def test_a_model_whose_process_lives_and_which_answers_nothing_is_told(outcomes: dict[str, float], why: str) -> None:
    """With the likely cause, and what to type."""
    (line,) = lines(50, **outcomes)
    assert line.startswith("answers of m: m has answered 0 of the last 50 queries to it in time")
    assert why in line
    assert " $ skysail " in line


def test_a_model_that_answers_is_not_told() -> None:
    """Nor one that is hardly asked, nor one of which nothing is known."""
    assert not lines(50, ok=45.0, failed=5.0)
    assert not lines(5)
    assert not [*health.check_answering([])]
