"""Splits the time to answer over the stages of a graph so that their models need as few workers as possible. Pure.

A model that may take longer makes larger batches, which cost less a row. Of two stages that share a deadline, the one
that gains more by that, or is asked more often, should have more of it. How many workers a stage needs follows from its
budget:

    rows(budget)    = the largest batch with  took(rows) + max(took(rows), wait for the rows) + way <= budget
    workers(budget) = rows a second * took(rows) / rows

A row waits for the batch before its own, or until enough rows have come for a batch. A stage begins when the last of
the stages before it must have answered. `policies.stage_times` makes the sum over all stages as small as possible.

References:
    Shen et al., Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis, SOSP'19, section 6.2.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from policies.stage_times import TimedGraph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEPS: Final = 200  # that the time is split into: half a percent of it is the finest


class StageLoad(NamedTuple):
    """One stage, its model and how often it is asked.

    Attributes:
        name: of the stage.
        before: the stages whose answers it waits for; none = it is asked about the query alone.
        per_s: rows a second that it is asked, more than 0.
        profile: rows and how long a batch of them takes (us), rising.
        way_us: to the model and back.
    """

    name: str
    before: tuple[str, ...]
    per_s: float
    profile: tuple[tuple[int, int], ...]
    way_us: int = 0

    def batch(self, budget_us: float) -> tuple[int, int]:
        """Return the batch that costs least a row and is in time: rows, and what it takes (us); (0, 0) = none is."""
        waits_us = 1e6 / self.per_s
        in_time = [
            (rows, took_us)
            for rows, took_us in self.profile
            if took_us + max(took_us, (rows - 1) * waits_us) + self.way_us <= budget_us
        ]
        return min(in_time, key=lambda batch: batch[1] / batch[0], default=(0, 0))

    def workers(self, budget_us: float) -> float:
        """Return how many workers it keeps busy within a budget; infinite if no batch is in time."""
        rows, took_us = self.batch(budget_us)
        return self.per_s * took_us / rows / 1e6 if rows else inf


class Split(NamedTuple):
    """How the time is split.

    Attributes:
        budgets_us: of each stage, by name; on every path they sum to the objective at most.
        workers: that all stages keep busy; infinite = some stage cannot be in time.
    """

    budgets_us: Mapping[str, int]
    workers: float

    def until_us(self, loads: Sequence[StageLoad]) -> dict[str, int]:
        """Return when each stage must have answered, counted from the query."""
        found: dict[str, int] = {}
        for load in loads:  # each stands behind those before it
            found[load.name] = _begin(load, found) + self.budgets_us[load.name]
        return found


def split(loads: Sequence[StageLoad], objective_us: int, steps: int = STEPS) -> Split:
    """Return the budgets with which the stages need the fewest workers.

    Args:
        loads: of the stages, each behind those before it.
        objective_us: on every path from the query to its last stage.
        steps: that the objective is split into. There are fewer where many stages wait for several others; then an
            even split may be better, and is returned.
    """
    graph = TimedGraph({load.name: load.before for load in loads})
    fewer = graph.steps(steps)
    if fewer < max(_depths(loads).values()):
        return evenly(loads, objective_us)
    step_us = objective_us / fewer
    ends = graph.best({load.name: [load.workers(int(k * step_us)) for k in range(fewer + 1)] for load in loads})
    found = _split(loads, {load.name: int((ends[load.name] - _begin(load, ends)) * step_us) for load in loads})
    return found if fewer == steps else min(found, evenly(loads, objective_us), key=lambda one: one.workers)


def evenly(loads: Sequence[StageLoad], objective_us: int) -> Split:
    """Return the same budget for each stage of a path: the longest path through a stage says how much that is."""
    depths, longest = _depths(loads), _depths(loads)
    for load in reversed(loads):
        longest |= {name: max(longest[name], longest[load.name]) for name in load.before}
    ends: dict[str, int] = {}
    for load in loads:
        begin = _begin(load, ends)
        ends[load.name] = begin + (objective_us - begin) // (longest[load.name] - depths[load.name] + 1)
    for load in reversed(loads):  # whoever is waited for may take until the last of those has answered
        following = [_begin(other, ends) for other in loads if load.name in other.before]
        ends[load.name] = min(following, default=ends[load.name])
    return _split(loads, {load.name: ends[load.name] - _begin(load, ends) for load in loads})


def _depths(loads: Sequence[StageLoad]) -> dict[str, int]:
    """Return how many stages there are up to each."""
    found: dict[str, int] = {}
    for load in loads:
        found[load.name] = 1 + max((found[name] for name in load.before), default=0)
    return found


def _begin(load: StageLoad, ends: Mapping[str, int]) -> int:
    return max((ends[name] for name in load.before), default=0)


def _split(loads: Sequence[StageLoad], budgets_us: Mapping[str, int]) -> Split:
    return Split(budgets_us, sum([load.workers(budgets_us[load.name]) for load in loads]))
