"""What a controller says about waiting that never waits: its batch starts as soon as the model is free."""

from __future__ import annotations

from typing import Any, TypeVar

S = TypeVar("S")


class Eager:
    """Part of the controllers that take at once whatever there is."""

    __slots__ = ()

    @property
    def linger_us(self) -> int:
        """Return 0: no row waits for company."""
        return 0

    def arrived(self, state: S, rows: int, now_us: int) -> S:
        """Return the state as it is."""
        return state

    def wait_until(self, state: Any, queued: int, due_us: int, now_us: int) -> int:
        """Return now."""
        return now_us
