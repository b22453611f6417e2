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
