"""When a pool is planned anew: every epoch, earlier when a rate moves or a host is new, at once when one is gone.

The constants are those of Nexus (SOSP'19 and its code): 30 s an epoch, 10 s at least, and a rate has moved when it is
below 0.8 or above 1.1 of what is provided for. A rate that is counted over seconds also moves by chance. So it must be
off by three standard deviations of that, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

from policies.packing.moving import HostPlacement, MoveTerms, moved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.packing.work import Work

LOW, HIGH = 0.8, 1.1
_DEVIATIONS = 3.0
_TERMS = MoveTerms()


@dataclass(frozen=True, slots=True)
class PlanPace:
    """How often a pool is planned, and what for.

    Attributes:
        least_us: between two plans, unless a host is gone or a model is new.
        terms: of moving; its epoch is the longest time between two plans.
        counted_us: over which rates are counted.
        headroom: what is provided for, as a multiple of the rate that was counted.
    """

    least_us: int = 10_000_000
    terms: MoveTerms = _TERMS
    counted_us: int = 10_000_000
    headroom: float = 1.1


@dataclass(frozen=True, slots=True)
class Planned:
    """What was planned last.

    Attributes:
        homes: the host of each (model, partition).
        hosts: that there were.
        per_s: the rates that are provided for, by model.
        at_us: when.
        changed_us: when the placement last was another one than before; hosts have followed it since.
        why: that there is a new plan.
        placement: what each host does; None = that was before a restart.
    """

    homes: Mapping[tuple[str, int], str]
    hosts: tuple[str, ...]
    per_s: Mapping[str, float]
    at_us: int
    changed_us: int
    why: str
    placement: HostPlacement | None = None


def planned(
    before: Planned | None, works: Sequence[Work], hosts: Sequence[str], now_us: int, pace: PlanPace
) -> Planned:
    """Return the plan for now; the same object as before if nothing is to be planned.

    Args:
        before: the last plan; None = there is none.
        works: at the rates that were counted.
        hosts: that there are, at least one.
        now_us: the time.
        pace: of planning.
    """
    why = _why(before, works, hosts, now_us, pace)
    if before is not None and not why:
        return before
    given = [replace(work, per_s=work.per_s * pace.headroom) for work in works]
    held = {} if before is None else before.homes
    placement = moved(held, given, hosts, pace.terms, now_us - before.changed_us if before is not None else 0)
    homes = placement.hosts_of()
    is_same = before is not None and homes == held
    changed_us = before.changed_us if before is not None and is_same else now_us
    per_s = {work.model: work.per_s for work in given}
    return Planned(homes, tuple(hosts), per_s, now_us, changed_us, why, placement)


def _why(before: Planned | None, works: Sequence[Work], hosts: Sequence[str], now_us: int, pace: PlanPace) -> str:
    """Say why it is to be planned now; empty = it is not."""
    if before is None:
        return "the first plan"
    since_us = now_us - before.at_us
    if gone := sorted({*before.hosts} - {*hosts}):
        return f"{', '.join(gone)} gone"
    if {work.model for work in works} != before.per_s.keys():
        return "models have come or gone"
    if since_us >= pace.terms.epoch_us:
        return "the epoch is over"
    if since_us < pace.least_us:
        return ""
    rates = [(work.model, work.per_s, before.per_s[work.model]) for work in works]
    found = [(model, rate, given) for model, rate, given in rates if _has_moved(rate, given, pace)]
    news = [f"{host} is new" for host in sorted({*hosts} - {*before.hosts})]
    return "; ".join(
        news + [f"{model} is asked {rate:.0f}/s, and {given:.0f}/s were provided for" for model, rate, given in found]
    )


def _has_moved(rate: float, given: float, pace: PlanPace) -> bool:
    chance = _DEVIATIONS * sqrt(max(rate, given) / pace.counted_us * 1e6)
    return not LOW * given - chance <= rate <= HIGH * given + chance
