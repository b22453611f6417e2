"""When each stage of a graph must have answered, in whole steps, so that a sum of costs is smallest. Pure.

    a stage's cost    what it costs to take the steps from its begin to its end
    its begin         the end of the stage before it; of a stage that waits for several, a time after all their ends
    its end           for the last stages all steps are over

Each begin and end is a number of steps, and each cost depends on two of them. So dynamic programming takes one time out
after the other: for all values of those that it meets in a cost, it keeps the best value and what that costs. In a tree
a time meets one other by then, and that takes steps² sums. Where stages wait for several others it may meet more, and
each takes `steps` times as many sums (Bertelè and Brioschi, Nonserial Dynamic Programming, 1972). Then there are fewer
steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

_MOST_SUMS: Final = 9_000_000  # at once: 72 MB, some tens of ms
_IMPOSSIBLE: Final = 1e15  # of a stage without enough steps: more than any cost, and can be added

Time: TypeAlias = "tuple[str, ...]"  # the end of one stage, or a time after the ends of several; none = the query
Befores: TypeAlias = "Mapping[str, tuple[str, ...]]"


class _Table(NamedTuple):
    """Costs by the values of some times, an axis for each."""

    times: tuple[Time, ...]
    costs: NDArray[np.float64]


class TimedGraph:
    """The times of a graph, and in which order they are taken out.

    Args:
        befores: of each stage, those that it waits for; each stands behind them.
    """

    def __init__(self, befores: Befores) -> None:
        self._begins: Mapping[str, Time] = {name: tuple(sorted({*its})) for name, its in befores.items()}
        self._ends = {name: self._end(name) for name in befores}
        pairs = [{self._begins[name], end} for name, end in self._ends.items()]
        pairs += [{(name,), join} for name, join in self._waits()]
        self._order = _order([{time for time in pair if time} for pair in pairs])
        self._deepest = max((len(met) for _, met in self._order), default=0) + 1

    def steps(self, most: int) -> int:
        """Return how many steps there can be."""
        return min(most, int(_MOST_SUMS ** (1 / self._deepest)))

    def best(self, costs: Mapping[str, Sequence[float]]) -> dict[str, int]:
        """Return after how many steps each stage must have answered.

        Args:
            costs: of each stage: what it costs to take 0, 1, 2 … steps; all as many.
        """
        steps = len(next(iter(costs.values()))) - 1
        tables = [self._cost(name, np.asarray(its, np.float64), steps) for name, its in costs.items()]
        tables += [_Table(((name,), join), np.where(_later(steps) >= 0, 0.0, np.inf)) for name, join in self._waits()]
        chosen: list[_Table] = []
        for time, met in self._order:
            its = [table for table in tables if time in table.times]
            whole = _sum(its, (*met, time), steps)
            tables = [table for table in tables if time not in table.times] + [_Table(met, whole.min(axis=-1))]
            chosen.append(_Table(met, whole.argmin(axis=-1)))
        values: dict[Time, int] = {}
        for (time, _), (met, best) in zip(reversed(self._order), reversed(chosen), strict=True):
            values[time] = int(best[tuple(values[other] for other in met)])
        return {name: self._value(name, values, steps) for name in costs}

    def _followers(self, name: str) -> set[Time]:
        return {begin for begin in self._begins.values() if name in begin}

    def _end(self, name: str) -> Time:
        """Return the time at which a stage ends; none = with the last step.

        Where all that follows begins at one time, that is its end: more is of use to nobody.
        """
        following = self._followers(name)
        return next(iter(following)) if len(following) == 1 else (name,) if following else ()

    def _waits(self) -> list[tuple[str, Time]]:
        """Return the stages with an end of their own for which others wait, and those times."""
        return [
            (name, begin)
            for name, end in self._ends.items()
            if end == (name,)
            for begin in sorted(self._followers(name))
            if begin != end
        ]

    def _cost(self, name: str, costs: NDArray[np.float64], steps: int) -> _Table:
        """Return what a stage costs by its begin and its end, of which the query's and the last are known."""
        took = _later(steps)
        costs = np.where(np.isfinite(costs), costs, _IMPOSSIBLE)
        whole = np.where(took > 0, costs[np.maximum(took, 0)], np.inf)
        begin, end = self._begins[name], self._ends[name]
        whole = whole if end else whole[:, steps]
        return _Table(tuple(time for time in (begin, end) if time), whole if begin else whole[0])

    def _value(self, name: str, values: Mapping[Time, int], steps: int) -> int:
        end = self._ends[name]
        if end != (name,):
            return values[end] if end else steps
        following = self._followers(name)
        return values[end] if end in following else min(values[begin] for begin in following)


def _later(steps: int) -> NDArray[np.int64]:
    """Return how many steps lie between two times, by the first and the second."""
    times = np.arange(steps + 1)
    return times[None, :] - times[:, None]


def _order(scopes: Iterable[set[Time]]) -> list[tuple[Time, tuple[Time, ...]]]:
    """Return the times in the order in which they are taken out, with those that each meets then: the fewest first."""
    known = [scope for scope in scopes if scope]
    left, order = {time for scope in known for time in scope}, []
    while left:
        meets = {time: set().union(*[scope for scope in known if time in scope]) - {time} for time in left}
        time = min(left, key=lambda each: (len(meets[each]), each))
        known = [scope for scope in known if time not in scope] + [meets[time]]
        order.append((time, tuple(sorted(meets[time]))))
        left.remove(time)
    return order


def _sum(tables: Sequence[_Table], times: tuple[Time, ...], steps: int) -> NDArray[np.float64]:
    """Return the sum of tables, with an axis for each of these times."""
    whole = np.zeros((steps + 1,) * len(times))
    for its, costs in tables:
        axes = np.argsort([times.index(time) for time in its])
        shape = [steps + 1 if time in its else 1 for time in times]
        whole += costs.transpose(axes).reshape(shape)
    return whole
