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
