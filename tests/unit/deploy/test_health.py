"""Which roles `skysail doctor` expects to report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deploy.config.settings import Settings
from deploy.diagnose import health
from deploy.diagnose.doctor import Level
from schemas.records import Model, Report

if TYPE_CHECKING:
    from pathlib import Path

MODELS = {name: Model(name, "1", "linear", "p", "d", "label", None, ()) for name in ("cheap", "dear")}


def report(role: str, number: int = 1, **gauges: float) -> Report:
    """Return what a role says."""
    return Report(f"{role}@{number}", role, 0, {}, {"partitions": 4.0, **gauges})


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a check of deployments whose roles report so, and which were not started from here."""
    monkeypatch.chdir(tmp_path)

    def found(*reports: Report, **more: Any) -> dict[str, Level]:
        by_role: dict[str, list[Report]] = {}
        for each in reports:
            by_role.setdefault(each.role, []).append(each)
        settings = Settings(roles=("selection", "joiner", "learner", "worker"), processes="shared", **more)
        return {check.name: check.level for check in health.check_roles(settings, MODELS, by_role)}

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


@pytest.mark.parametrize(
    ("more", "role"),
    [
        ({"hosts": {"texts": {"models": ["cheap", "dear"], "replicas": 2}}}, "host.texts"),
        ({"worker": {"isolated": ["cheap"], "replicas": {"dear": 2}}}, "worker.dear"),
    ],
    ids=["hosts", "workers"],
)
def test_each_process_of_several_counts(levels: Any, more: dict[str, Any], role: str) -> None:
    """Two were asked for: both report and all is well, also where one stands by; one alone is told."""
    others = [report(name) for name in ("selection", "joiner", "learner", "worker.cheap")]
    assert levels(*others, report(role), report(role, 2, partitions=0.0), **more)[role] is Level.OK
    assert levels(*others, report(role, 2), **more)[role] is Level.WARN
    found = levels(*others, **more)
    assert found[role] is Level.DOWN
    assert not [name for name in found if "@" in name]


def test_a_gateway_is_told_by_its_address() -> None:
    """A number of partitions would tell a newcomer nothing."""
    settings = Settings(roles=("gateway",))
    ready = {check.name: check for check in health.check_roles(settings, {}, {"gateway": [report("gateway")]})}
    assert ready["gateway"].found == "http://127.0.0.1:8080/v2 is served"
    away = report("gateway", partitions=0.0)
    assert [check.level for check in health.check_roles(settings, {}, {"gateway": [away]})] == [Level.WARN]
