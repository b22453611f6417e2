"""Calls that are made over and over, but for their times: a byte stands for one.

Most polls of a role bring a record or two, where the last one ended. Writer and reader keep the same calls, as both
tell of each call in its order.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

# The first byte of a call is its method, or from here on the number of a common one.
FIRST: Final = 16
MOST: Final = 200
_LONGEST: Final = 24


class CommonCalls:
    """The short calls that were made lately."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[bytes, int] = OrderedDict()  # the one made last is the last one
        self._said: list[bytes] = []

    def number(self, said: bytes) -> int | None:
        """Return the number of a call; None = it had none, and has one from now on if it is short."""
        number = self._numbers.get(said)
        if number is not None:
            self._numbers.move_to_end(said)
            return number
        if len(said) > _LONGEST:
            return None
        if len(self._said) < MOST:
            self._numbers[said] = len(self._said)
            self._said.append(said)
        else:
            _, number = self._numbers.popitem(last=False)
            self._numbers[said] = number
            self._said[number] = said
        return None

    def said(self, number: int) -> bytes:
        """Return the call that has a number.

        Raises:
            IndexError: none has it.
        """
        return self._said[number]
