"""What a site needs, by arithmetic: cores, processes, partitions, brokers, memory and disk, and what breaks first.

    measured cost of a query ──┬─▶ need(...)     what a rate takes
                               └─▶ breaks(...)   the rate at which each part is full, the lowest first

Everything is proportional to the rate. That is what a site can be planned by, and no more: nothing here knows of queues
or stalls, which `skysail simulate` plays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY_S: Final = 86_400
_SPREAD: Final = ("selection", "joiner", "learner")  # whose processes are bounded by the partitions
_ROOM_BYTES: Final = 512  # that `joiner.waiting_mib` counts for a prediction that waits


@dataclass(frozen=True, slots=True)
class Costs:
    """What one query costs, as measured.

    Attributes:
        cpu_us: CPU time of each role, all of its processes together (us).
        broker_us: CPU time of all brokers together, at the replication of the site (us).
        stored: bytes of one copy, by topic.
        readers: how many groups or clients read each topic.
    """

    cpu_us: Mapping[str, float]
    broker_us: float
    stored: Mapping[str, float]
    readers: Mapping[str, int]

    @property
    def in_bytes(self) -> float:
        """Bytes that come to the brokers from roles and clients, as they are stored."""
        return sum(self.stored.values())

    @property
    def out_bytes(self) -> float:
        """Bytes that the brokers send to roles and clients, without copies for each other."""
        return sum(self.stored[topic] * self.readers.get(topic, 0) for topic in self.stored)


@dataclass(frozen=True, slots=True)
class SiteAssumptions:
    """What is planned, and with which machines. These are assumptions: change them for yours.

    Attributes:
        rate: queries a second.
        partitions: of the topics on the circle of data.
        replication: copies of each record.
        busy: the share of a core that may be used; the rest is for latency and for what fails.
        broker_cores: of one broker's machine.
        network_mb_s: of one broker's machine, each way (MB/s).
        disk_tb: of one broker's machine (TB).
        window_s: for which feedback is waited (s).
        waiting_mib: of one joiner, for predictions that wait (`joiner.waiting_mib`).
        ids_s: for which a learner remembers ids (s): two windows and some minutes.
        id_bytes: of a remembered id, at most.
        retention_s: by topic.
        is_spread: whether an application's contexts lie in all partitions.
    """

    rate: float
    partitions: int
    replication: int
    retention_s: Mapping[str, float]
    busy: float = 0.5
    broker_cores: int = 8
    network_mb_s: float = 1_250.0
    disk_tb: float = 10.0
    window_s: float = 600.0
    waiting_mib: float = 1_465.0
    ids_s: float = 1_380.0
    id_bytes: int = 24
    is_spread: bool = True


class Need(NamedTuple):
    """What a site takes.

    Attributes:
        processes: by role: cores that it keeps busy, divided by the share that may be busy, rounded up.
        cores: by role, busy.
        partitions: a power of two that is enough for the processes of each role, with contexts spread.
        brokers_by_cpu, brokers_by_bytes, brokers_by_disk: each rounded up, without one to lose.
        waiting_mib: of all joiners, if every prediction waits for a whole window.
        ids_mib: of all learners and joiners.
        disk_tb: by topic, all copies.
        in_mb_s, out_mb_s, copied_mb_s: from clients and roles, to them, and between brokers.
    """

    processes: Mapping[str, int]
    cores: Mapping[str, float]
    partitions: int
    brokers_by_cpu: int
    brokers_by_bytes: int
    brokers_by_disk: int
    waiting_mib: float
    ids_mib: float
    disk_tb: Mapping[str, float]
    in_mb_s: float
    out_mb_s: float
    copied_mb_s: float

    @property
    def brokers(self) -> int:
        """Brokers by what asks for most of them, and one that may be lost."""
        return max(self.brokers_by_cpu, self.brokers_by_bytes, self.brokers_by_disk) + 1


class Break(NamedTuple):
    """What is full, at which rate (queries/s), and what helps."""

    what: str
    rate: float
    helps: str


def need(costs: Costs, site: SiteAssumptions) -> Need:
    """Return what a site takes."""
    cores = {role: site.rate * us / 1e6 for role, us in {**costs.cpu_us, "brokers": costs.broker_us}.items()}
    processes = {role: math.ceil(cores[role] / site.busy) for role in costs.cpu_us}
    most = max(processes[role] for role in _SPREAD)
    in_mb_s, out_mb_s = (site.rate * each / 1e6 for each in (costs.in_bytes, costs.out_bytes))
    copied_mb_s = in_mb_s * (site.replication - 1)
    disk_tb = {
        topic: site.rate * size * site.retention_s[topic] * site.replication / 1e12
        for topic, size in costs.stored.items()
    }
    busiest_mb_s = max(in_mb_s + copied_mb_s, out_mb_s + copied_mb_s)
    return Need(
        processes=processes,
        cores=cores,
        partitions=2 ** math.ceil(math.log2(most)),
        brokers_by_cpu=max(site.replication, math.ceil(cores["brokers"] / (site.busy * site.broker_cores))),
        brokers_by_bytes=max(site.replication, math.ceil(busiest_mb_s / (site.busy * site.network_mb_s))),
        brokers_by_disk=max(site.replication, math.ceil(sum(disk_tb.values()) / site.disk_tb)),
        waiting_mib=site.rate * site.window_s * _ROOM_BYTES / 2**20,
        ids_mib=site.rate * site.id_bytes * (site.ids_s + site.window_s) / 2**20,
        disk_tb=disk_tb,
        in_mb_s=in_mb_s,
        out_mb_s=out_mb_s,
        copied_mb_s=copied_mb_s,
    )


def breaks(costs: Costs, site: SiteAssumptions, brokers: int) -> list[Break]:
    """Return the rate at which each part is full, the lowest first.

    Args:
        costs: of a query.
        site: with its partitions; its rate is not looked at.
        brokers: that it has.
    """
    a_core = site.busy * 1e6
    found = [
        Break(f"{role}: a busy process for each partition", a_core * site.partitions / costs.cpu_us[role], "partitions")
        for role in _SPREAD
        if role != "learner" or site.is_spread
    ]
    found.append(
        Break("one learner, where an application's contexts are not spread", a_core / costs.cpu_us["learner"], "spread")
    )
    waiting = site.partitions * site.waiting_mib * 2**20 / _ROOM_BYTES
    found.append(
        Break("joiners' room, where feedback takes a whole window", waiting / site.window_s, "joiner.waiting_mib")
    )
    cpu = brokers * site.broker_cores * a_core
    found.append(Break("CPU of the brokers", cpu / costs.broker_us, "brokers"))
    copies = costs.in_bytes * (site.replication - 1)
    each_way = max(costs.in_bytes, costs.out_bytes) + copies
    found.append(Break("network of the brokers", brokers * site.busy * site.network_mb_s * 1e6 / each_way, "brokers"))
    kept = sum(size * site.retention_s[topic] for topic, size in costs.stored.items()) * site.replication
    found.append(Break("disks of the brokers", brokers * site.disk_tb * 1e12 / kept, "retention_days, brokers"))
    return sorted(found, key=lambda each: each.rate)
