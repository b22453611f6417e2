"""What models ask of hosts: the work of a model, a share of it, and a node that does several shares in turns.

A node runs its models one after the other, and begins anew after its duty cycle. A row that has just missed its batch
waits for one cycle, and then for its own batch. So `cycle + time of the batch <= objective` keeps every row in time.
Batches shrink with the cycle: the rows that came during one cycle are the next batch (Nexus, SOSP'19: "squishy").
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import ceil

from policies.errors import PolicyError

# Of rounding: 0.125 s of 32 rows a second are four rows, whatever the last bit says.
_EPSILON = 1e-9


@dataclass(frozen=True)
class BatchTimes:
    """What batches of a model take.

    Attributes:
        sizes: rows that were measured, rising from 1 or more. A larger batch than the last is not planned.
        took_us: what a batch of each takes; one that took less than a smaller batch counts as that.
    """

    sizes: tuple[int, ...]
    took_us: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check them.

        Raises:
            PolicyError: there is nothing in them, or they do not rise from 1 row and a positive time.
        """
        rises = all(before < after for before, after in zip(self.sizes, self.sizes[1:], strict=False))
        if not self.sizes or len(self.sizes) != len(self.took_us) or not rises or self.sizes[0] < 1:
            raise PolicyError(f"batch sizes must rise from 1, each with its time: {self.sizes} take {self.took_us}")
        if min(self.took_us) <= 0:
            raise PolicyError(f"batches take longer than nothing: {self.took_us} us")

    @cached_property
    def table(self) -> tuple[float, ...]:
        """What a batch of 1, 2, 3 … rows takes (us); between two measured sizes it lies on a line."""
        known = [*accumulate(self.took_us, max)]
        return tuple(self._between(known, rows) for rows in range(1, self.sizes[-1] + 1))

    def _between(self, known: list[float], rows: int) -> float:
        at = bisect_left(self.sizes, rows)
        if at == 0 or self.sizes[at] == rows:
            return known[at]
        left, right = self.sizes[at - 1], self.sizes[at]
        return known[at - 1] + (known[at] - known[at - 1]) * (rows - left) / (right - left)

    def of(self, rows: int) -> float:
        """Return what a batch takes (us); beyond the largest measured one it takes several of those."""
        table = self.table
        whole, rest = divmod(rows, len(table))
        return whole * table[-1] + (table[rest - 1] if rest else 0.0)


@dataclass(frozen=True)
class Work:
    """What one model is asked.

    Attributes:
        model: its name.
        per_s: rows a second.
        objective_us: from a row's arrival at the host to its output.
        times: of its batches.
        bytes: in memory.
        load_us: what loading it takes.
        partitions: of its topic. Each has the same part of the rows, and one host.
    """

    model: str
    per_s: float
    objective_us: float
    times: BatchTimes
    bytes: int = 0
    load_us: int = 0
    partitions: int = 1

    @cached_property
    def most_rows(self) -> int:
        """The largest batch that may be waited for and then run, both within the objective; 0 = not even one row."""
        return sum(1 for us in self.times.table if 2 * us <= self.objective_us)

    @cached_property
    def most_per_s(self) -> float:
        """What a host answers in time that does nothing else."""
        rows = max(1, self.most_rows)
        return rows / self.times.of(rows) * 1e6


@dataclass(frozen=True)
class Share:
    """A part of a model's work: that of some partitions."""

    work: Work
    partitions: tuple[int, ...]

    @cached_property
    def per_s(self) -> float:
        """Rows a second."""
        return self.work.per_s * len(self.partitions) / self.work.partitions

    @cached_property
    def duty_us(self) -> float:
        """The longest cycle after which its batch is still in time; every shorter one is, too. 0 = there is none."""
        work, longest_us = self.work, 0.0
        for rows, took_us in enumerate(work.times.table, 1):
            left_us = work.objective_us - took_us
            if left_us + _EPSILON < (rows - 1) * self.gap_us:
                break  # a batch of so many is too late, even if the cycle ends as soon as they have come
            longest_us = min(rows * self.gap_us, left_us)
        return longest_us

    @property
    def gap_us(self) -> float:
        """The time from one row to the next; of rows that never come it is the objective."""
        return 1e6 / self.per_s if self.per_s else self.work.objective_us

    @cached_property
    def occupancy(self) -> float:
        """The part of a node's time that it takes by itself."""
        return HostShare((self,)).occupancy

    def rows(self, duty_us: float) -> int:
        """Return the rows of its batch in such a cycle."""
        return max(1, ceil(duty_us * self.per_s / 1e6 - _EPSILON))

    def took_us(self, duty_us: float) -> float:
        """Return what its batch takes in such a cycle."""
        return self.work.times.of(self.rows(duty_us))


@dataclass(frozen=True)
class HostShare:
    """What one host does in turns; of each model one share. Those that are not asked take neither time nor memory."""

    shares: tuple[Share, ...] = field(default=())

    @cached_property
    def _asked(self) -> tuple[Share, ...]:
        return tuple(share for share in self.shares if share.per_s)

    @property
    def is_asked(self) -> bool:
        """Whether any of its models is asked anything."""
        return bool(self._asked)

    @cached_property
    def duty_us(self) -> float:
        """Its cycle; 0 = it does nothing, or cannot do one of its shares in time.

        No share allows a longer one. A little shorter, a batch has one row less, and that may leave more time unused.
        """
        longest_us = min([share.duty_us for share in self._asked], default=0.0)
        shorter = [int(longest_us / share.gap_us + _EPSILON) * share.gap_us for share in self._asked]
        return min([longest_us, *filter(None, shorter)], key=self._occupancy)

    @cached_property
    def occupancy(self) -> float:
        """The part of its time that is taken; above 1 it cannot keep up."""
        return self._occupancy(self.duty_us) if self._asked else 0.0

    def _occupancy(self, duty_us: float) -> float:
        return sum([share.took_us(duty_us) for share in self._asked]) / duty_us if duty_us > 0 else float("inf")

    @cached_property
    def bytes(self) -> int:
        """Of its models in memory."""
        return sum([share.work.bytes for share in self._asked])

    def fits(self, memory_bytes: int | None) -> bool:
        """Tell whether everything is in time, and in memory (None = that is no bound)."""
        return self.occupancy <= 1 + _EPSILON and (memory_bytes is None or self.bytes <= memory_bytes)

    def plus(self, share: Share) -> HostShare:
        """Return the node with one more share; partitions of a model that it has make one batch with those."""
        same = next((each for each in self.shares if each.work.model == share.work.model), None)
        if same is None:
            return HostShare((*self.shares, share))
        more = Share(share.work, tuple(sorted({*same.partitions, *share.partitions})))
        return HostShare(tuple(more if each is same else each for each in self.shares))

    def minus(self, share: Share) -> HostShare:
        """Return the node without these partitions of a model."""
        kept = []
        for each in self.shares:
            left = tuple(n for n in each.partitions if n not in share.partitions)
            if each.work.model != share.work.model:
                kept.append(each)
            elif left:
                kept.append(Share(each.work, left))
        return HostShare(tuple(kept))
