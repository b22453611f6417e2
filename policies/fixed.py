"""`fixed`: the same cap always; and `Linger`, how controllers wait that have no rule of their own."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, TypeVar

from policies.errors import require

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Linger:
    """Base of the controllers that take all rows at once, unless they linger.

    Args:
        linger_ms: A free model waits at most this long for a batch that fills the cap, and never longer than the most
            urgent row can; 0 = not at all.
    """

    linger_ms: float = 0.0

    @property
    def linger_us(self) -> int:
        """Return how long a free model waits at most."""
        return round(self.linger_ms * 1_000)

    def arrived(self, state: S, rows: int, now_us: int) -> S:
        """Return the state as it is."""
        return state

    def wait_until(self, state: object, queued: int, due_us: int, now_us: int) -> int:
        """Return now, or when the most urgent row is due: the caller knows how long the batch takes."""
        return due_us if self.linger_ms else now_us

    def require_linger(self, name: str) -> None:
        """Check the parameter.

        Raises:
            PolicyError: it is negative or has no end.
        """
        require(0.0 <= self.linger_ms < inf, f"{name}: linger_ms is {self.linger_ms}; it must be at least 0")


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
