"""Splits the time to answer over the stages of a graph so that their models need as few workers as possible. Pure.

A model that may take longer makes larger batches, which cost less a row. Of two stages that share a deadline, the one
that gains more by that, or is asked more often, should have more of it. How many workers a stage needs follows from its
budget:

    rows(budget)    = the largest batch with  took(rows) + max(took(rows), wait for the rows) + way <= budget
    workers(budget) = rows a second * took(rows) / rows

A row waits for the batch before its own, or until enough rows have come for a batch. The sum over all stages is made as
small as possible by dynamic programming over the time in steps: a stage that takes k of t steps leaves t - k to each of
those after it, since the graph is a tree.

References:
    Shen et al., Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis, SOSP'19, section 6.2.
"""

from __future__ import annotations

from functools import cache
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEPS: Final = 200  # that the time is split into: half a percent of it is the finest


class Load(NamedTuple):
    """One stage, its model and how often it is asked.

    Attributes:
        name: of the stage.
        before: the stage that it comes after; empty = none.
        per_s: rows a second that it is asked, more than 0.
        profile: rows and how long a batch of them takes (us), rising.
        way_us: to the model and back.
    """

    name: str
    before: str
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

    def until_us(self, loads: Sequence[Load]) -> dict[str, int]:
        """Return when each stage must have answered, counted from the query."""
        found: dict[str, int] = {}
        for load in loads:  # each stands behind that before it
            found[load.name] = found.get(load.before, 0) + self.budgets_us[load.name]
        return found


def split(loads: Sequence[Load], objective_us: int, steps: int = STEPS) -> Split:
    """Return the budgets with which the stages need the fewest workers.

    Args:
        loads: of the stages, each behind that before it.
        objective_us: on every path from the query to its last stage.
        steps: that the objective is split into.
    """
    step_us = objective_us / steps
    after = {load.name: [one for one in loads if one.before == load.name] for load in loads}

    @cache
    def best(load: Load, left: int) -> tuple[float, int]:
        """Return the fewest workers of a stage and all after it, and the steps that it takes itself."""
        most = left - len(after[load.name] and [0])  # what follows needs a step at least
        found = [(load.workers(k * step_us) + fewest(load.name, left - k), k) for k in range(1, most + 1)]
        return min(found, default=(inf, left))

    def fewest(name: str, left: int) -> float:
        return sum([best(load, left)[0] for load in after[name]])

    budgets_us: dict[str, int] = {}
    left = {"": steps}
    for load in loads:
        k = best(load, left[load.before])[1] if after[load.name] else left[load.before]
        budgets_us[load.name], left[load.name] = int(k * step_us), left[load.before] - k
    return Split(budgets_us, sum([load.workers(budgets_us[load.name]) for load in loads]))


def evenly(loads: Sequence[Load], objective_us: int) -> Split:
    """Return the same budget for each stage of a path: the longest path through a stage says how much that is."""
    depth: dict[str, int] = {"": 0}
    for load in loads:
        depth[load.name] = depth[load.before] + 1
    longest = dict(depth)
    for load in reversed(loads):
        longest[load.before] = max(longest[load.before], longest[load.name])
    budgets_us: dict[str, int] = {}
    left = {"": objective_us}
    for load in loads:
        remaining = longest[load.name] - depth[load.name] + 1
        budgets_us[load.name] = left[load.before] // remaining
        left[load.name] = left[load.before] - budgets_us[load.name]
    return Split(budgets_us, sum([load.workers(budgets_us[load.name]) for load in loads]))
