"""The declarations of figures: every figure of a stored result has one, and what has a target is compared."""

import json
from pathlib import Path

import pytest

from load.figures import Better
from load.registry import SCENARIOS

# The figures of one result a scenario; of names that only the run knows, some.
STORED: dict[str, list[str]] = json.loads(Path(__file__).with_name("stored_figures.json").read_text())
_UNITS = {"_per_s": "1/s", "_per_core_s": "1/s", "_ms": "ms", "_us": "us", "_mib": "MiB", "_s": "s", "_cores": "cores"}


def test_every_scenario_has_stored_figures() -> None:
    """A new scenario brings the names of its figures along."""
    assert STORED.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("name", STORED)
def test_every_figure_of_stored_results_is_declared(name: str) -> None:
    """Whoever compares with an older result knows what each of its figures means."""
    assert [figure for figure in STORED[name] if SCENARIOS[name].figures.of(figure) is None] == []


@pytest.mark.parametrize("name", STORED)
def test_every_target_is_for_a_figure_that_a_result_has(name: str) -> None:
    """A target nobody measures would never be reached."""
    assert {target.figure for target in SCENARIOS[name].figures.targets} <= {*STORED[name]}


@pytest.mark.parametrize("name", STORED)
def test_what_has_a_target_is_compared_in_its_direction(name: str) -> None:
    """A figure without a direction could get worse without anybody noticing, unless it is bounded from both sides."""
    for figure in SCENARIOS[name].figures:
        relations = {bound.relation for bound in figure.must if bound.bound or bound.relation != ">="}
        if len(relations) == 1 and relations != {"=="}:
            assert figure.better is (Better.LOWER if relations == {"<="} else Better.HIGHER), figure.name
        elif relations == {"=="}:
            assert figure.better is (Better.LOWER if figure.must[0].bound == 0 else Better.HIGHER), figure.name


@pytest.mark.parametrize("name", STORED)
def test_units_follow_from_names(name: str) -> None:
    """A name ends in its unit."""
    for figure in SCENARIOS[name].figures:
        ending = next((ending for ending in _UNITS if figure.name.endswith(ending)), None)
        expected = _UNITS[ending] if ending else figure.unit
        assert figure.unit == ("h/s" if figure.name == "hours_per_s" else expected), figure.name
