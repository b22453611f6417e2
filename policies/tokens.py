"""A bucket of tokens: what may be done beside the usual, as a share of the usual."""

from __future__ import annotations

from typing import Final, NamedTuple

MOST: Final = 20.0  # tokens: so much at once after a quiet time, and without a single answer


class Tokens(NamedTuple):
    """What is held; a value.

    Attributes:
        held: tokens, at most `MOST`.

    Examples:
        >>> Tokens().earn(0.05, answers=40).held
        2.0
        >>> Tokens(1.5).spend(), Tokens(0.5).spend()
        (Tokens(held=0.5), None)
    """

    held: float = 0.0

    def earn(self, share: float, answers: int) -> Tokens:
        """Return the tokens after answers; each brings `share` of one."""
        return Tokens(min(MOST, self.held + share * answers))

    def spend(self, *, is_urgent: bool = True) -> Tokens | None:
        """Return the tokens less one; None = there is none, or only those that are kept for what is urgent: half."""
        return Tokens(self.held - 1.0) if self.held >= (1.0 if is_urgent else MOST / 2 + 1.0) else None
