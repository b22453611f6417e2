"""Figures of each process, in a table that outlives this one: each is written there every ten seconds, not each second.

Kafka compacts a topic lazily, and a page that starts reads all that is left of it. So an hour of reports, each written,
took a minute to read.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from streams.control.figures import AWAY_US, is_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streams.control.figures import Figures

# Less than what counts as an absence: after a start, a process's figures may be as old as that.
EVERY_US: Final = 10_000_000
assert EVERY_US < AWAY_US


class LiveFigures(MutableMapping[str, "Figures"]):
    """Figures by instance.

    Args:
        table: that keeps them; empty until it has been read.
    """

    def __init__(self, table: MutableMapping[str, Figures]) -> None:
        self._table = table
        self._known: dict[str, Figures] = {}
        self._is_loaded = False

    def load(self) -> None:
        """Take what the table has, once."""
        if not self._is_loaded:
            self._is_loaded = True
            self._known |= self._table

    def __getitem__(self, instance: str) -> Figures:
        """Return the last figures of a process."""
        return self._known[instance]

    def __setitem__(self, instance: str, figures: Figures) -> None:
        """Take a process's figures; write them, if it is time, or if they say that it was started again or ends."""
        self._known[instance] = figures
        written = self._table.get(instance)
        if (
            written is None
            or figures["time_us"] >= written["time_us"] + EVERY_US
            or figures["restarts"] != written["restarts"]
            or is_stopped(figures)
        ):
            self._table[instance] = figures

    def __delitem__(self, instance: str) -> None:
        """Forget a process."""
        del self._known[instance]
        self._table.pop(instance, None)

    def __iter__(self) -> Iterator[str]:
        """Go through the instances."""
        return iter(self._known)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._known)
