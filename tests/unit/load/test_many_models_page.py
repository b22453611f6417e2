"""The page of the three scenarios with many models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from load.research.many_models import PAGE, PARTS
from load.research.steps import PAGE as STEPS
from load.results.results import Result

if TYPE_CHECKING:
    from load.harness.environment import Environment

MACHINE = cast("Environment", {"cores_usable": 2, "processor": "a machine"})
NAMES = [part.scenario.name for part in PARTS]
WAYS = ("processes", "staged", "sklearn", "alone_0", "shared_0", "shared_50", "shared_100")
SERIES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "pretzel": {
        what: [{"way": way, "pipelines": 10, value: 3.0} for way in WAYS]
        for what, value in (("memory", "pss_mib"), ("work", "per_s"))
    }
}


def results(**figures: dict[str, float]) -> list[tuple[Result, Environment]]:
    """Return a result of each scenario with these figures."""
    return [(Result(name, figures.get(name, {}), {"form": "short"}, SERIES.get(name, {})), MACHINE) for name in NAMES]


def test_every_figure_stands_beside_what_was_published() -> None:
    """Those that no result has are left out, and a result of another part is added."""
    given = results(nexus={"workers_ratio": 6.0}, pretzel={"memory_gain_over_sklearn": 10.74})
    given += [(Result("nexus", {"measured_moves": 16.0}, {"form": "short"}), MACHINE)]
    text = PAGE.page(given)
    assert "| a worker a model takes more hosts | 6.0 times | 1.8 to 12.7 times the rate |" in text
    assert "| models that moved meanwhile | 16 |  |" in text
    assert "| memory less than scikit-learn in one process | 10.7 times |  |" in text
    assert "cold" not in text
    assert "(pretzel.png)" in text


def test_a_page_lacks_no_scenario_and_has_no_other_one() -> None:
    """Which ones it is made of is said."""
    with pytest.raises(LookupError, match="results of clockwork, pretzel, nexus; these are of clockwork, pretzel"):
        PAGE.page(results()[:2])
    with pytest.raises(LookupError, match="hosts"):
        PAGE.page([*results(), (Result("hosts", {}), MACHINE)])


def test_all_its_figures_are_declared_by_their_scenarios() -> None:
    """A figure that was renamed would be left out without a word."""
    for part in (*PARTS, *STEPS.parts):
        for row in part.rows:
            assert part.scenario.figures.of(row.figure) is not None, row.figure


def test_the_page_of_steps_has_the_scenarios_that_have_results() -> None:
    """They are many, and each takes its time."""
    text = STEPS.page(
        [(Result("hedge", {"p999_saved": 0.5, "plain_p50_ms": 9.0, "hedged_p50_ms": 9.0}, {"form": "full"}), MACHINE)]
    )
    assert "| p99.9 less than without | 50.000% |  |" in text
    assert "Cascade" not in text
    with pytest.raises(LookupError, match="pretzel"):
        STEPS.page([(Result("pretzel", {}), MACHINE)])
