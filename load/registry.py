"""All scenarios, by their permanent names. Those of `load.research` are there in a checkout of the repository alone."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from typing import TYPE_CHECKING

from load.scenarios.learning import ab, costs, freshness_tables, learn
from load.scenarios.operation import guardrails, hostile, idle, matrix, replayed, rollout, soak, story, takeover
from load.scenarios.rate import floor, guards, loop, overload, processes
from load.scenarios.scale import scale_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from load.harness.environment import Environment
    from load.results.results import Result
    from load.scenario import Scenario

_RESEARCH = "load.research"
_OWN: tuple[Scenario, ...] = (
    floor.SCENARIO,
    loop.SCENARIO,
    guards.SCENARIO,
    overload.SCENARIO,
    learn.SCENARIO,
    processes.SCENARIO,
    replayed.SCENARIO,
    rollout.SCENARIO,
    takeover.SCENARIO,
    scale_tables.SCENARIO,
    hostile.SCENARIO,
    matrix.SCENARIO,
    soak.SCENARIO,
    freshness_tables.SCENARIO,
    costs.SCENARIO,
    ab.SCENARIO,
    idle.SCENARIO,
    story.SCENARIO,
    guardrails.SCENARIO,
)


def _research() -> ModuleType | None:
    """Return the registry of `load.research`; an installed package comes without that folder."""
    if importlib.util.find_spec(_RESEARCH) is None:
        return None
    return importlib.import_module(f"{_RESEARCH}.registry")


_ALSO = _research()
SCENARIOS: Mapping[str, Scenario] = {each.name: each for each in (*_OWN, *(_ALSO.SCENARIOS if _ALSO else ()))}
# Pages of several scenarios, by name: a page of their results, each with its machine.
COLLECTED: Mapping[str, Callable[[Sequence[tuple[Result, Environment]]], str]] = {
    each.name: each.page for each in (_ALSO.COLLECTED if _ALSO else ())
}


def find(name: str) -> Scenario:
    """Return a scenario.

    Raises:
        LookupError: there is none of that name; the message names the nearest, and where all are to be had.
    """
    if name in SCENARIOS:
        return SCENARIOS[name]
    near = difflib.get_close_matches(name, SCENARIOS, n=1, cutoff=0.0)[0]
    message = f"there is no scenario {name!r}; the nearest is {near!r}. See `skysail load list`"
    if _ALSO is None:
        message += (
            ". Those of papers, and those that compare Skysail with other systems, are not part of the installed"
            " package; run them from a checkout of the repository"
        )
    raise LookupError(message)
