"""Changes a placement as little as it can: a model moves only if that pays what loading it and the change cost.

Nexus (SOSP'19) plans anew every epoch from what is placed, and so does this:

1. A model stays where it is. Where a host cannot do all in time any more, the model that is cheapest to load moves.
2. What moves, is new, or has lost its host goes onto the host where it leaves the least time unused.
3. A host without work takes half of what the busiest one does, until as many have some as are asked for.
4. Beyond these the host that does least is emptied, if the others can do its models, and it is long enough since the
   last change.

Every change of the plan stops all hosts of the pool for a moment, since Kafka hands all partitions out anew. A move
away from a host that cannot keep up pays if it costs less time than that host lacks within an epoch. A move that only
frees a host may cost a small share of the time since the last change.

Models that nobody asks take no time: they stay, or go where the fewest models are. If several hosts are asked for, none
keeps more of them than its part of all models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from policies.packing.squishy import best, fault_of, ordered, pack, saturated
from policies.packing.work import HostShare, Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policies.packing.work import Work


class MoveTerms(NamedTuple):
    """When a move pays.

    Attributes:
        memory_bytes: that the models of a host may take; None = any.
        epoch_us: for how long a placement is reckoned to be right.
        pause_us: for how long every host stands still when the placement changes.
        spent: the share of its time that a pool may stand still to free hosts.
        least: so many hosts have work, as far as there are models for them; more have some where that is needed.
    """

    memory_bytes: int | None = None
    epoch_us: int = 30_000_000
    pause_us: int = 0
    spent: float = 0.002
    least: int = 1


class HostPlacement(NamedTuple):
    """What each host does, by the host's name; how many hosts it takes; and why it is not as before."""

    nodes: Mapping[str, HostShare]
    needed: int
    reasons: tuple[str, ...] = ()

    def hosts_of(self) -> dict[tuple[str, int], str]:
        """Return the host of every partition."""
        return {
            (share.work.model, number): host
            for host, node in self.nodes.items()
            for share in node.shares
            for number in share.partitions
        }


def moved(
    before: Mapping[tuple[str, int], str],
    works: Iterable[Work],
    hosts: Sequence[str],
    terms: MoveTerms,
    since_us: int = 1 << 62,
) -> HostPlacement:
    """Return the next placement.

    Args:
        before: the host of each (model, partition).
        works: of different models, at their present rates.
        hosts: that there are, at least one; what they cannot do in time is spread over them all the same.
        terms: when a move pays.
        since_us: the time since the last change.
    """
    moving = _Moving(before, {work.model: work for work in works}, hosts, terms)
    moving.relieve()
    moving.place()
    if moving.missing:
        moving.anew()
    else:
        moving.spread()
        moving.empty(since_us)
    faults = [
        f"{work.model}: {fault}" for work in moving.works.values() if (fault := fault_of(work, terms.memory_bytes))
    ]
    used = sum(1 for node in moving.nodes.values() if node.is_asked)
    moving.fill()
    if moving.missing:
        faults.append(f"{used + moving.missing} hosts are needed, and there are {len(hosts)}: some rows will be late")
    return HostPlacement(moving.nodes, used + moving.missing, (*moving.reasons(), *faults))


@dataclass(slots=True)
class _Moving:
    """A placement that is being changed."""

    before: Mapping[tuple[str, int], str]
    works: Mapping[str, Work]
    hosts: Sequence[str]
    terms: MoveTerms
    nodes: dict[str, HostShare] = field(init=False)
    homeless: list[Share] = field(init=False)
    why: dict[str, str] = field(default_factory=dict)
    missing: int = 0

    def __post_init__(self) -> None:
        self.nodes = {host: self._kept(host) for host in self.hosts}
        self.homeless = []
        for work in self.works.values():
            left = [n for n in range(work.partitions) if self.before.get((work.model, n)) not in self.nodes]
            self.homeless += saturated(work, left) if work.per_s else []

    def relieve(self) -> None:
        """Take models away from hosts that cannot do them in time, the cheapest to load first."""
        for host in self.hosts:
            while (share := self._dearest_to_keep(self.nodes[host])) is not None:
                self.why.setdefault(share.work.model, f"{host} would be {self.nodes[host].occupancy:.0%} busy")
                self.homeless.append(share)
                self.nodes[host] = self.nodes[host].minus(share)

    def place(self) -> None:
        """Find a host for what has none, the most demanding first."""
        extra: list[HostShare] = []  # hosts that there are not
        for share in ordered(self.homeless):
            used = [host for host in self.hosts if self.nodes[host].shares]
            at = best([self.nodes[host] for host in used], share, self.terms.memory_bytes)
            free = next((host for host in self.hosts if not self.nodes[host].shares), None)
            is_spread = free is not None and len(used) < self.terms.least
            host = used[at] if at is not None and not is_spread else free
            if host is None:
                there = best(extra, share, self.terms.memory_bytes)
                extra = [*extra, HostShare((share,))] if there is None else _with(extra, there, share)
                host = min(self.hosts, key=lambda each: self._strain(each, share))
            self.nodes[host] = self.nodes[host].plus(share)
        self.missing = len(extra)

    def spread(self) -> None:
        """Give work to hosts that have none, until as many have some as are asked for."""
        while True:
            used = [host for host in self.hosts if self.nodes[host].shares]
            free = next((host for host in self.hosts if not self.nodes[host].shares), None)
            busiest = max(
                (host for host in used if len(self.nodes[host].shares) > 1),
                key=lambda host: self.nodes[host].occupancy,
                default=None,
            )
            if free is None or busiest is None or len(used) >= self.terms.least:
                return
            for share in ordered(self.nodes[busiest].shares)[1::2]:
                self.nodes[busiest], self.nodes[free] = self.nodes[busiest].minus(share), self.nodes[free].plus(share)
                self.why.setdefault(share.work.model, f"{free} has nothing to do")

    def empty(self, since_us: int) -> None:
        """Free the host that does least, if the others can do its models and that pays."""
        used = sorted((host for host in self.hosts if self.nodes[host].shares), key=lambda h: self.nodes[h].occupancy)
        for host in used[:-1] if len(used) > self.terms.least else ():
            others = [each for each in used if each != host]
            nodes = self._taken_over([self.nodes[each] for each in others], self.nodes[host])
            cost_us = self.terms.pause_us + sum(share.work.load_us for share in self.nodes[host].shares) // len(others)
            if nodes is None or cost_us > self.terms.spent * since_us:
                continue
            why = f"{host} is freed, for which the others stand still for {cost_us / 1e6:.1f} s"
            self.why |= {share.work.model: why for share in self.nodes[host].shares}
            self.nodes |= {**dict(zip(others, nodes, strict=True)), host: HostShare()}
            return

    def anew(self) -> None:
        """Pack from nothing, if that needs fewer hosts: nodes go to the hosts that have most of them already."""
        nodes = [*pack([work for work in self.works.values() if work.per_s], self.terms.memory_bytes).nodes]
        if len(nodes) > len(self.hosts):
            return
        free = [*self.hosts]
        placed = dict.fromkeys(self.hosts, HostShare())
        while nodes:
            _, at, host = max((self._had(node, host), -at, host) for at, node in enumerate(nodes) for host in free)
            placed[host] = nodes.pop(-at)
            free.remove(host)
        self.nodes, self.missing = placed, 0
        for work in self.works.values():
            self.why.setdefault(work.model, "all hosts are packed anew, because there were too few")

    def _had(self, node: HostShare, host: str) -> int:
        """Return how long loading would take of what a host has of a node already (us)."""
        its = [
            share
            for share in node.shares
            if any(self.before.get((share.work.model, n)) == host for n in share.partitions)
        ]
        return sum(share.work.load_us + 1 for share in its)

    def fill(self) -> None:
        """Give models that are not asked a host: the one that they had, else one with few models."""
        several = min(self.terms.least, len(self.hosts))
        most = -(-len(self.works) // several) if several > 1 else len(self.works)
        for work in (work for work in self.works.values() if not work.per_s):
            host = self.before.get((work.model, 0), "")
            if host not in self.nodes or len(self.nodes[host].shares) >= most:
                if host in self.nodes:
                    self.why.setdefault(work.model, f"{host} has more than its part of the models")
                host = min(self.hosts, key=lambda each: len(self.nodes[each].shares))
            self.nodes[host] = self.nodes[host].plus(Share(work, tuple(range(work.partitions))))

    def reasons(self) -> list[str]:
        """Say which models have another host now, and why."""
        moves: dict[tuple[str, str, str], None] = {}
        for place, host in HostPlacement(self.nodes, 0).hosts_of().items():
            if self.before.get(place) != host:
                moves[place[0], self.before.get(place, ""), host] = None
        return [
            f"{model} moves from {old} to {new}: {self.why.get(model, f'{old} is gone')}"
            if old
            else f"{model} begins on {new}"
            for model, old, new in sorted(moves)
        ]

    def _kept(self, host: str) -> HostShare:
        """Return what a host had before, at the present rates."""
        held: dict[str, list[int]] = {}
        for (model, number), its in self.before.items():
            work = self.works.get(model)
            if its == host and work is not None and work.per_s and number < work.partitions:
                held.setdefault(model, []).append(number)
        return HostShare(tuple(Share(self.works[model], tuple(sorted(held[model]))) for model in sorted(held)))

    def _dearest_to_keep(self, node: HostShare) -> Share | None:
        """Return what leaves an overloaded host: the cheapest to load that relieves it, one partition of the largest.

        None = nothing has to: all is in time, a single partition is left, or moving costs more than being late.
        """
        if node.fits(self.terms.memory_bytes):
            return None
        pieces = [Share(share.work, share.partitions[-1:]) for share in node.shares]
        if len(pieces) < 2 and (not pieces or len(node.shares[0].partitions) < 2):
            return None
        late_us = (node.occupancy - 1) * self.terms.epoch_us
        able = [piece for piece in pieces if node.minus(piece).fits(self.terms.memory_bytes)] or pieces
        found = min(able, key=lambda piece: (piece.work.load_us, -piece.occupancy, piece.work.model))
        is_worth = self.terms.memory_bytes is not None and node.bytes > self.terms.memory_bytes
        return found if is_worth or late_us > found.work.load_us + self.terms.pause_us else None

    def _strain(self, host: str, share: Share) -> tuple[bool, bool, float]:
        """Return how hard a share would be on a host that has no time for it: by memory, then for being moved."""
        node = self.nodes[host].plus(share)
        is_over = self.terms.memory_bytes is not None and node.bytes > self.terms.memory_bytes
        is_move = self.before.get((share.work.model, share.partitions[0]), host) != host
        return is_over, is_move, node.occupancy

    def _taken_over(self, nodes: list[HostShare], node: HostShare) -> list[HostShare] | None:
        """Return the nodes with all shares of another; None = they have no room for them."""
        for share in ordered(node.shares):
            at = best(nodes, share, self.terms.memory_bytes)
            if at is None:
                return None
            nodes = _with(nodes, at, share)
        return nodes


def _with(nodes: Sequence[HostShare], at: int, share: Share) -> list[HostShare]:
    return [node.plus(share) if number == at else node for number, node in enumerate(nodes)]
