"""What selection holds for each application: its queries in hand, the ids it has seen, and how much it may hold.

    held by all:  0 ──────────── half of the bound ──────────── the bound: the role reads no more
                   anybody may take more │ who has its share is refused

So one application, however much is asked of it, leaves room for the others: what is refused is answered with the
default at once, which holds up nobody, while to stop reading would hold up all. Where all have as much in hand nobody
is to blame, and the role stops reading, as it does for an application alone: there, too, nobody would be protected.
"""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING

from streams.operators.counters import render
from streams.operators.ids.recent import RecentIds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streams.operators.configuration import Deployed

# A share is somewhat more than an equal part, and no less than a sixteenth of the bound: applications that are asked
# alike are never refused, by chance either, before the role stops reading.
_SURPLUS, _LEAST = 1.25, 1 / 16


class Intake:
    """One application.

    Attributes:
        deployed: as it is now.
        recent: ids of its queries.
        queries: that have come and are not counted yet.
        places: that its queries in hand take.
        limit: of places; from there on its queries are refused.
    """

    __slots__ = ("deployed", "limit", "places", "queries", "recent")

    def __init__(self, deployed: Deployed, remembered: int) -> None:
        self.deployed = deployed
        self.recent = RecentIds(remembered)
        self.queries = self.places = 0
        self.limit = maxsize


class Intakes:
    """All applications that are deployed.

    Args:
        bound: places that all of them hold when the role stops reading.
        remembered: ids kept for each application and partition.

    Attributes:
        by_name: one for each.
    """

    __slots__ = ("_bound", "_remembered", "by_name")

    def __init__(self, bound: int, remembered: int) -> None:
        self._bound = bound
        self._remembered = remembered
        self.by_name: dict[str, Intake] = {}

    def __iter__(self) -> Iterator[Intake]:
        return iter(self.by_name.values())

    def follow(self, applications: Mapping[str, Deployed]) -> None:
        """Take the applications as they are deployed now."""
        self.by_name = {name: self._of(name, deployed) for name, deployed in applications.items()}

    def _of(self, name: str, deployed: Deployed) -> Intake:
        intake = self.by_name.get(name) or Intake(deployed, self._remembered)
        intake.deployed = deployed
        return intake

    def set_limits(self) -> None:
        """Work out how much each may hold now."""
        count = len(self.by_name)
        if count < 2:
            for intake in self:
                intake.limit = maxsize
            return
        room = self._bound // 2 - sum([intake.places for intake in self])
        share = int(self._bound * max(_SURPLUS / count, _LEAST))
        for intake in self:
            intake.limit = max(share, intake.places + room)

    def counted(self) -> Iterator[tuple[str, int]]:
        """Yield the applications that queries have come for, and how many, once."""
        for name, intake in self.by_name.items():
            if intake.queries:
                count, intake.queries = intake.queries, 0
                yield name, count

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the ids of these partitions."""
        for intake in self:
            intake.recent.drop(partitions)

    def statistics(self) -> dict[str, float]:
        """Return by application the places that its queries in hand take, and may take."""
        found: dict[str, float] = {}
        self.set_limits()
        for name, intake in self.by_name.items():
            label = ("application", name)
            found[render(("held", *label))] = float(intake.places)
            found[render(("held_limit", *label))] = float(min(intake.limit, self._bound))
        return found
