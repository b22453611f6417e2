"""The policy states that the learner has in memory: bounded by number and by bytes, with shares for applications."""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING

from streams.operators.fair_cache import FairCache
from streams.operators.policy_state import numbers
from streams.topology import application_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from schemas.records import PolicyState

# Memory of a state beside its name and its numbers (376 B measured, with two arms), and of each number: a float and the
# place in its tuple.
ENTRY_BYTES, NUMBER_BYTES = 512, 32


class KnownStates:
    """States by partition and name; None = the store has none.

    Args:
        capacity: of states.
        capacity_bytes: that they may take, estimated.
    """

    def __init__(self, capacity: int, capacity_bytes: int = maxsize) -> None:
        self._shelves: FairCache[tuple[int, str], str, PolicyState | None] = FairCache(_size, capacity, capacity_bytes)

    def __len__(self) -> int:
        return len(self._shelves)

    @property
    def size(self) -> int:
        """The bytes that they take."""
        return self._shelves.size

    def known(self, number: int, names: Iterable[str]) -> dict[str, PolicyState | None]:
        """Return those of a partition's states that are here."""
        found: dict[str, PolicyState | None] = {}
        last, shelf = None, None
        for name in names:
            if (application := application_of(name)) != last:
                last, shelf = application, self._shelves.find((number, application))
            if shelf is not None and name in shelf.entries:
                found[name] = shelf.entries[name]
        return found

    def put(self, number: int, states: Mapping[str, PolicyState | None]) -> None:
        """Store states of a partition as those used last."""
        shelves = self._shelves
        for name, state in states.items():
            owner = number, application_of(name)
            shelf = shelves.find(owner)
            if shelf is None or name not in shelf.entries:
                shelves.put(owner, name, state, _size(name, state))
                continue
            entries = shelf.entries
            if more := NUMBER_BYTES * (numbers(state) - numbers(entries[name])):
                shelves.put(owner, name, state, more)
            else:
                entries[name] = state
            entries.move_to_end(name)

    @property
    def is_large(self) -> bool:
        """Whether they take too many bytes."""
        return self._shelves.is_large

    def trim(self, kept: Callable[[], Container[str]]) -> None:
        """Drop states if there are too many, but none of these names; a later fetch sees every earlier write."""
        if self._shelves.is_over:
            self._shelves.trim(kept())

    def forget(self, number: int) -> None:
        """Drop the states of a partition."""
        self._shelves.drop(lambda owner: owner[0] == number)


def _size(name: str, state: PolicyState | None) -> int:
    return ENTRY_BYTES + 4 * len(name) + NUMBER_BYTES * numbers(state)
