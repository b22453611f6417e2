"""`fixed`: the same cap always."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.errors import require
from policies.linger import Linger


@dataclass(frozen=True, slots=True)
class Fixed(Linger):
    """Take at most `rows`, however long it takes: for comparisons, and for models whose best size is known.

    Args:
        rows: The cap, at least 1.
        linger_ms: A free model waits at most so long for a full batch; 0 = it never waits.

    Examples:
        >>> Fixed(rows=8).cap(8)
        8
    """

    name: ClassVar[str] = "fixed"

    rows: int = 1

    def __post_init__(self) -> None:
        """Check the parameters."""
        self.require_linger(self.name)
        require(self.rows >= 1, f"fixed: rows is {self.rows}; it must be at least 1")

    def init(self) -> int:
        """Return the cap."""
        return self.rows

    def cap(self, state: int) -> int:
        """Return the cap."""
        return state

    def observe(self, state: int, rows: int, duration_us: int, objective_us: int) -> int:
        """Return the state as it is."""
        return state
