"""A pool of hosts in simulated time: each does the models of the partitions that it reads, and a planner moves these.

A host has one lane. Of the models that wait, the one with the least slack runs: the due time of its first row less what
its batch takes. Its queue is the worker's own batcher, which drops early what would be late. Models
are loaded when they are asked, within a host's memory: the least lately used make room, and the lane is busy meanwhile.
A change of the plan stops all hosts for a while, as a rebalance does. What waited is read again by whoever has the
partition then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from policies.batching import create_controller
from streams.testing.events import Events
from workers.kernel.model.batcher import Batcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from policies.packing.work import Work

Homes: TypeAlias = "Mapping[tuple[str, int], str]"  # the host of each (model, partition)

TICK_US = 1_000_000  # as often as processes report


class Traffic(NamedTuple):
    """What is asked: of each model, when rows come to each partition of its topic (us, rising)."""

    works: Sequence[Work]  # their rates are those that a planner begins with
    arrivals_us: Mapping[str, Sequence[NDArray[np.int64]]]


class PartitionPlanner(Protocol):
    """Says where partitions are read."""

    def homes(self, rates: Mapping[str, float], now_us: int) -> Homes:
        """Return the host of every partition; the same object as before if nothing changes.

        Args:
            rates: that were counted lately, by model.
            now_us: the time.
        """
        ...


@dataclass(frozen=True, slots=True)
class Site:
    """What the hosts are like.

    Attributes:
        memory_bytes: that the models of a host may take; None = any.
        pause_us: for how long all hosts stand still when the plan changes.
        counted_us: over how long rates are counted.
    """

    memory_bytes: int | None = None
    pause_us: int = 500_000
    counted_us: int = 10_000_000


@dataclass(slots=True)
class Played:
    """What became of it all.

    Attributes:
        rows, in_time: of each model.
        changes: of the plan; moves: of models to other hosts, without the first placement.
        loads: of models into memory.
        busy_us: of all lanes.
        hosts: how many read anything, second by second.
        asked: rows a second, counted likewise.
    """

    rows: dict[str, int] = field(default_factory=dict)
    in_time: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    moves: int = 0
    loads: int = 0
    busy_us: int = 0
    hosts: list[int] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)

    @property
    def share_in_time(self) -> float:
        """The rows that were answered in time, as a share of all."""
        return sum(self.in_time.values()) / max(1, sum(self.rows.values()))


class _QueuePartition:
    """The rows of one partition: those before `read` are read; `open` ones among them are not answered."""

    __slots__ = ("dues", "open", "read", "times")

    def __init__(self, times_us: NDArray[np.int64], objective_us: int) -> None:
        self.times = array("q", times_us.tobytes())
        self.dues = array("q", (times_us + objective_us).tobytes())
        self.read = 0
        self.open: dict[int, None] = {}


class _PoolHost:
    """One host."""

    __slots__ = ("batchers", "free_us", "is_idle", "reads", "resident", "wake_us")

    def __init__(self) -> None:
        self.reads: dict[str, list[_QueuePartition]] = {}
        self.batchers: dict[str, Batcher[tuple[_QueuePartition, int]]] = {}
        self.resident: dict[str, int] = {}  # bytes by model, the least lately used first
        self.free_us = 0
        self.wake_us = -1


def play(traffic: Traffic, planner: PartitionPlanner, until_us: int, controller: str, site: Site) -> Played:
    """Return what a pool makes of some traffic; it draws nothing.

    Args:
        traffic: what is asked.
        planner: says where.
        until_us: when no more comes.
        controller: that sizes batches; `fixed` ones are as large as the objective allows.
        site: what the hosts are like.
    """
    return _PoolRun(traffic, planner, until_us, controller, site).run()


class _PoolRun:
    """One run."""

    def __init__(self, traffic: Traffic, planner: PartitionPlanner, until_us: int, controller: str, site: Site) -> None:
        self._works = {work.model: work for work in traffic.works}
        self._partitions = {
            (model, number): _QueuePartition(times_us, int(self._works[model].objective_us))
            for model, several in traffic.arrivals_us.items()
            for number, times_us in enumerate(several)
        }
        self._planner, self._until_us, self._controller, self._site = planner, until_us, controller, site
        self._events = Events()
        self._hosts: dict[str, _PoolHost] = {}
        self._homes: Homes | None = None
        self._played = Played(rows=dict.fromkeys(self._works, 0), in_time=dict.fromkeys(self._works, 0))

    def run(self) -> Played:
        """Let everything happen."""
        self._events.add(0, self._tick)
        self._events.run()
        played = self._played
        for (model, _), partition in self._partitions.items():
            played.rows[model] += len(partition.times)
        return played

    def _tick(self, now_us: int, _about: object) -> None:
        homes = self._planner.homes(self._rates(now_us), now_us)
        if homes is not self._homes:
            self._change(homes, now_us)
        self._played.hosts.append(sum(1 for host in self._hosts.values() if host.reads))
        if now_us + TICK_US < self._until_us:
            self._events.add(now_us + TICK_US, self._tick)

    def _rates(self, now_us: int) -> dict[str, float]:
        """Return the rates of the last seconds."""
        span_us = min(now_us, self._site.counted_us)
        found = dict.fromkeys(self._works, 0.0)
        for (model, _), each in self._partitions.items():
            if span_us:
                rows = bisect_right(each.times, now_us) - bisect_right(each.times, now_us - span_us)
                found[model] += rows / span_us * 1e6
        self._played.asked.append(sum(found.values()))
        return found

    def _change(self, homes: Homes, now_us: int) -> None:
        """Hand all partitions out anew; running batches end before."""
        before, self._homes = self._homes, homes
        if before is not None:
            self._played.changes += 1
            self._played.moves += len({(place[0], host) for place, host in homes.items() if before.get(place) != host})
        reads: dict[str, dict[str, list[_QueuePartition]]] = {}
        for (model, number), name in homes.items():
            reads.setdefault(name, {}).setdefault(model, []).append(self._partitions[model, number])
        for name in reads.keys() | self._hosts.keys():
            host = self._hosts.setdefault(name, _PoolHost())
            host.reads = reads.get(name, {})
            for batcher in host.batchers.values():
                batcher.forget(lambda _: True)
            host.free_us = max(host.free_us, now_us) + (self._site.pause_us if before is not None else 0)
            for model, partitions in host.reads.items():
                batcher = self._batcher(host, model)
                for partition in partitions:
                    batcher.offer([(partition.dues[row], (partition, row)) for row in partition.open], host.free_us)
            self._look(host, host.free_us)

    def _batcher(self, host: _PoolHost, model: str) -> Batcher[tuple[_QueuePartition, int]]:
        found = host.batchers.get(model)
        if found is None:
            work = self._works[model]
            rows = {"rows": float(max(1, work.most_rows))} if self._controller == "fixed" else {}
            found = host.batchers[model] = Batcher(create_controller(self._controller, rows), limit=1 << 40)
        return found

    def _look(self, host: _PoolHost, at_us: int) -> None:
        """Have a host look for work at a time."""
        if host.wake_us < 0 or at_us < host.wake_us or host.wake_us < host.free_us:
            host.wake_us = at_us
            self._events.add(at_us, self._awake, host)

    def _awake(self, now_us: int, host: _PoolHost) -> None:
        if now_us != host.wake_us:
            return  # it looks at another time
        host.wake_us = -1
        if now_us < host.free_us:
            self._look(host, host.free_us)
            return
        next_us = self._read(host, now_us)
        if self._start(host, now_us):
            self._look(host, host.free_us)
        elif next_us is not None:
            self._look(host, next_us)

    def _read(self, host: _PoolHost, now_us: int) -> int | None:
        """Take what has come; return when the next row comes."""
        next_us: int | None = None
        for model, partitions in host.reads.items():
            for each in partitions:
                times, first = each.times, each.read
                last = bisect_right(times, now_us, first)
                if last > first:
                    rows = range(first, last)
                    each.open.update(dict.fromkeys(rows))
                    self._batcher(host, model).offer([(each.dues[row], (each, row)) for row in rows], now_us)
                    each.read = last
                if last < len(times) and (next_us is None or times[last] < next_us):
                    next_us = times[last]
        return next_us

    def _start(self, host: _PoolHost, now_us: int) -> bool:
        """Run the batch with the least slack; tell whether there is one."""
        waits = [model for model in host.reads if len(host.batchers[model])]
        waits.sort(key=lambda model: self._slack_us(host, model))
        for model in waits:
            take = host.batchers[model].take(now_us)
            for row in take.expired:
                row.item[0].open.pop(row.item[1], None)
            if not take.rows:
                continue
            took_us = self._load(host, model) + round(self._works[model].times.of(len(take.rows)))
            done_us = host.free_us = now_us + took_us
            self._played.busy_us += took_us
            self._played.in_time[model] += sum(1 for row in take.rows if row.due_us >= done_us)
            for row in take.rows:
                row.item[0].open.pop(row.item[1], None)
            host.batchers[model].done(len(take.rows), round(self._works[model].times.of(len(take.rows))), done_us)
            return True
        return False

    def _load(self, host: _PoolHost, model: str) -> int:
        """Make a model the most lately used; return how long it loads, 0 if it is there."""
        work, resident = self._works[model], host.resident
        is_there = resident.pop(model, None) is not None
        memory = self._site.memory_bytes
        while memory is not None and resident and sum(resident.values()) + work.bytes > memory:
            del resident[next(iter(resident))]
        resident[model] = work.bytes
        self._played.loads += not is_there
        return 0 if is_there else work.load_us

    def _slack_us(self, host: _PoolHost, model: str) -> float:
        batcher, work = host.batchers[model], self._works[model]
        return batcher.due_us(0) - work.times.of(min(len(batcher), max(1, work.most_rows)))
