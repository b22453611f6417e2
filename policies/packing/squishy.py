"""Squishy bin packing (Nexus, SOSP'19, Algorithm 1): as few hosts as it can, all rows in time.

1. ScheduleSaturate: a model that is asked more than one host can answer gets hosts of its own, which run the largest
   batch `B` with `2 * time(B) <= objective`. What is left over is a residue.
2. ScheduleResidue: the residues, the most demanding first, each go onto the node where they leave the least time
   unused, or onto a new one.

Here a model's work can be divided only by the partitions of its topic. A full host of the publication is a share whose
node has no time left, so one rule serves both steps.

>>> from policies.packing.work import Times, Work
>>> a = Work("a", 64, 200_000, Times((4, 8, 16), (50_000, 75_000, 100_000)))
>>> b = Work("b", 32, 250_000, Times((4, 8, 16), (50_000, 90_000, 125_000)))
>>> c = Work("c", 32, 250_000, Times((4, 8, 16), (60_000, 95_000, 125_000)))
>>> [[share.work.model for share in node.shares] for node in pack([a, b, c]).nodes]
[['a', 'b'], ['c']]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from policies.packing.work import HostShare, Share, Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class HostPacking(NamedTuple):
    """What each host does; and the models that no host can do in time, each with the reason."""

    nodes: tuple[HostShare, ...]
    refused: tuple[tuple[str, str], ...] = ()


def pack(works: Iterable[Work], memory_bytes: int | None = None) -> HostPacking:
    """Return a placement from nothing.

    Args:
        works: of different models; those that are not asked take no time.
        memory_bytes: that the models of a host may take; None = any.
    """
    nodes: list[HostShare] = []
    refused: list[tuple[str, str]] = []
    shares: list[Share] = []
    for work in works:
        if fault := fault_of(work, memory_bytes):
            refused.append((work.model, fault))
        shares += saturated(work)
    for share in ordered(shares):
        at = best(nodes, share, memory_bytes)
        if at is None:
            nodes.append(HostShare((share,)))
        else:
            nodes[at] = nodes[at].plus(share)
    return HostPacking(tuple(nodes), tuple(refused))


def fault_of(work: Work, memory_bytes: int | None = None) -> str:
    """Say why no host can do this work in time; empty = hosts can."""
    if memory_bytes is not None and work.bytes > memory_bytes:
        return f"it takes {work.bytes >> 20} MiB, and a host has {memory_bytes >> 20}"
    if work.most_rows < 1:
        return (
            f"one row takes {work.times.of(1) / 1e3:.1f} ms, more than half of the {work.objective_us / 1e3:.0f} ms"
            " that it may: whoever comes while another row runs is late"
        )
    if work.per_s > work.most_per_s * work.partitions * (1 + 1e-9):
        least = int(-(-work.per_s // work.most_per_s))
        return (
            f"it is asked {work.per_s:.0f}/s, and one host answers {work.most_per_s:.0f}/s in time: its topic needs"
            f" {least} partitions, not {work.partitions}"
        )
    return ""


def saturated(work: Work, partitions: Sequence[int] | None = None) -> list[Share]:
    """Divide a model's work into shares that a host can do, each but the last as large as one host can answer.

    Args:
        work: of the model.
        partitions: those that are to be divided; None = all.
    """
    numbers = range(work.partitions) if partitions is None else partitions
    each = work.per_s / work.partitions
    most = max(1, int(work.most_per_s / each + 1e-9)) if each > 0 else max(1, len(numbers))
    return [Share(work, tuple(numbers[at : at + most])) for at in range(0, len(numbers), most)]


def ordered(shares: Iterable[Share]) -> list[Share]:
    """Return the shares, the most demanding first."""
    return sorted(shares, key=lambda share: (-share.occupancy, share.work.model, share.partitions))


def best(nodes: Sequence[HostShare], share: Share, memory_bytes: int | None) -> int | None:
    """Return the number of the node where a share leaves the least time unused; None = it fits into none."""
    found, most = None, 0.0
    for number, node in enumerate(nodes):
        merged = node.plus(share)
        if merged.occupancy > most and merged.fits(memory_bytes):
            found, most = number, merged.occupancy
    return found
