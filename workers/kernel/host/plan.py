"""The plan of a pool, as one of its hosts follows it: which models are its own, from when on.

topic `plan` ─▶ next plan ─▶ models that come are loaded where there is room ─▶ from_us ─▶ partitions are spread anew

A plan that moves a model says from when on it is followed, so that all hosts change at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from schemas.errors import DecodeError
from schemas.records import Plan
from streams.operators.contract import LogMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.codec import Codec
    from streams.operators.contract import Effects, Record

# The longest time that a plan is put off (us), whatever it says: hosts with other clocks follow it, too.
MOST_US: Final = 10_000_000

_Homes: TypeAlias = "frozenset[tuple[str, int, str]]"  # model, partition, host


class PlanFollower:
    """The plan that one host follows, and the next one.

    Args:
        codec: of plans.
        pool: whose plan.
        instance: of the host.

    Attributes:
        plan: that is followed; None = there is none.
        homes: the host of each partition by that plan; the same object as long as they are the same.
        due_us: when the next plan is followed; None = there is none.
    """

    def __init__(self, codec: Codec, pool: str, instance: str) -> None:
        self._codec = codec
        self._pool = pool
        self._instance = instance
        self._next: Plan | None = None
        self.plan: Plan | None = None
        self.homes: _Homes | None = None
        self.due_us: int | None = None
        self._expected: frozenset[str] = frozenset()

    def on_record(self, record: Record, now_us: int) -> Effects:
        """Take a record of topic `plan`; what is no plan of this pool is skipped."""
        if record.key != self._pool.encode():
            return []
        if record.value is None:
            self._follow(None)
            return []
        try:
            plan = self._codec.decode(Plan, record.value)
        except DecodeError as fault:
            return [LogMessage(f"skipped a record about the plan of pool {self._pool}: {fault}", is_fault=True)]
        if self.plan is None or plan.from_us <= now_us or _homes_of(plan) == self.homes:
            self._follow(plan)
        else:
            self._next, self.due_us = plan, min(plan.from_us, now_us + MOST_US)
            self._expected = self._asked_here()
        return []

    def advance(self, now_us: int) -> None:
        """Follow the next plan, if it is time."""
        if self.due_us is not None and self.due_us <= now_us:
            self._follow(self._next)

    @property
    def own(self) -> Mapping[str, float]:
        """The models of which this host has a partition, and the rows a second that are provided for."""
        return _of(self.plan, self._instance)

    @property
    def per_s(self) -> Mapping[str, float]:
        """The rows a second that are provided for in all hosts of the pool, by model."""
        found: dict[str, float] = {}
        for place in self.plan.places if self.plan is not None else ():
            found[place.model] = found.get(place.model, 0.0) + place.per_s
        return found

    @property
    def expected(self) -> frozenset[str]:
        """The models that are asked here, or will be by the next plan."""
        return self._expected

    def _follow(self, plan: Plan | None) -> None:
        self.plan, self._next, self.due_us = plan, None, None
        self._expected = self._asked_here()
        homes = None if plan is None else _homes_of(plan)
        if homes != self.homes:
            self.homes = homes

    def _asked_here(self) -> frozenset[str]:
        both = (*_of(self.plan, self._instance).items(), *_of(self._next, self._instance).items())
        return frozenset(model for model, per_s in both if per_s)


def _homes_of(plan: Plan) -> _Homes:
    return frozenset((place.model, number, place.host) for place in plan.places for number in place.partitions)


def _of(plan: Plan | None, host: str) -> dict[str, float]:
    return {place.model: place.per_s for place in (plan.places if plan is not None else ()) if place.host == host}
