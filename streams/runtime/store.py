"""Policy states: what a store must do, and the store in memory for tests and single-process use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from streams.operators.contract import StateKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import PolicyState
    from streams.operators.contract import WriteStates


class Verdict(NamedTuple):
    """What became of a write.

    Attributes:
        accepted: whether states and offset are stored now.
        stored: the next offset to apply, as the store has it after the call; None = nothing stored.
    """

    accepted: bool
    stored: int | None


class StateStore(Protocol):
    """Keeps the states of each `observations` partition together with the offset they stand for.

    Every method raises `StoreUnavailableError` when the store does not answer; a write may have happened all the same.
    """

    async def read(self, keys: Iterable[StateKey]) -> dict[StateKey, PolicyState | None]:
        """Return the states; None = nothing stored under that key."""
        ...

    async def offset(self, partition: int) -> int | None:
        """Return the next offset to apply; None = nothing stored."""
        ...

    async def write(self, write: WriteStates) -> Verdict:
        """Store states and offset in one step if the stored offset is `write.expected`, else nothing.

        A write that is already there (the answer to an earlier attempt got lost) counts as accepted: states are a
        deterministic fold of the log, so the same partition at the same offset has the same states.
        """
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class MemoryStore:
    """A store that lives and dies with the process."""

    def __init__(self) -> None:
        self.states: dict[StateKey, PolicyState] = {}
        self.offsets: dict[int, int] = {}

    async def read(self, keys: Iterable[StateKey]) -> dict[StateKey, PolicyState | None]:
        """Return the states; see `StateStore`."""
        return {key: self.states.get(key) for key in keys}

    async def offset(self, partition: int) -> int | None:
        """Return the next offset to apply; see `StateStore`."""
        return self.offsets.get(partition)

    async def write(self, write: WriteStates) -> Verdict:
        """Compare and set; see `StateStore`."""
        current = self.offsets.get(write.partition)
        if current != write.expected:
            return Verdict(current == write.offset, current)
        self.states |= {StateKey(write.partition, name): state for name, state in write.states.items()}
        self.offsets[write.partition] = write.offset
        return Verdict(True, write.offset)

    async def close(self) -> None:
        """Do nothing."""


def merged(first: WriteStates, then: WriteStates) -> WriteStates:
    """Make one write of two that follow each other on one partition; the later states win."""
    return first._replace(
        offset=then.offset, states={**first.states, **then.states}, completes=first.completes + then.completes
    )
