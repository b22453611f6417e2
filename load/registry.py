"""All scenarios, by their permanent names."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from load.scenarios import batching, figure8, floor, idle, learn, loop, parm

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from load.results import Result
    from load.system import Stage


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario: what it shows, in one line, how it runs, and whether its arrivals can be chosen."""

    name: str
    summary: str
    run: Callable[[Stage], Coroutine[Any, Any, Result]]
    any_arrivals: bool = False


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            floor.NAME,
            "hand-written loops and a bare chain of four legs: what everything else is measured by",
            floor.run,
            any_arrivals=True,
        ),
        Scenario(
            loop.NAME,
            "the whole system: sustained rate, CPU a query, latency at 200 and 500/s, against the floor",
            loop.run,
            any_arrivals=True,
        ),
        Scenario(
            figure8.NAME, "the best model breaks and feedback tells: exp3, exp4 and single side by side", figure8.run
        ),
        Scenario(
            batching.NAME,
            "AIMD on a model of 5 ms + 0.1 ms a row: settles, backs off, beats batches of one",
            batching.run,
        ),
        Scenario(
            parm.NAME,
            "ParM's published MNIST network: every answer and logit as direct torch, any batch limits",
            parm.run,
        ),
        Scenario(
            learn.NAME,
            "join and learn: observations a second and core; memory of a million pending predictions",
            learn.run,
        ),
        Scenario(idle.NAME, "resident memory of each role, CPU of all roles when nothing happens", idle.run),
    )
}


def find(name: str) -> Scenario:
    """Return a scenario.

    Raises:
        LookupError: there is none of that name; the message names the nearest.
    """
    if name in SCENARIOS:
        return SCENARIOS[name]
    near = difflib.get_close_matches(name, SCENARIOS, n=1, cutoff=0.0)[0]
    raise LookupError(f"there is no scenario {name!r}; the nearest is {near!r}. See `skysail load list`")
