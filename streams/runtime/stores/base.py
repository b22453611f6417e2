"""Policy states: what a store must do, and the store in memory for tests and single-process use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from streams.operators.contract import StateKey
from streams.operators.policy_state import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.records import PolicyState
    from streams.operators.contract import WriteStates

# A double on the wire; what a state costs besides its numbers and its arms' names (policy, version, framing).
VALUE_BYTES, STATE_BYTES = 8, 64


# Before a state's bytes: this letter, then the hour since the epoch when it was taught last, in four bytes.
STAMP = b"T"
STAMP_BYTES = 5
# Where states lie that were set aside, the latest first. The oldest of more than these are gone.
ASIDE = ("aside", "aside:2", "aside:3")


class WriteResult(NamedTuple):
    """What became of a write.

    Attributes:
        accepted: whether states and offset are stored now.
        stored: the next offset to apply, as the store has it after the call; None = nothing stored.
        token: of the write that stored it.
    """

    accepted: bool
    stored: int | None
    token: str = ""


class StatesRead(NamedTuple):
    """The result of a read.

    Attributes:
        states: by key; None = nothing stored under it.
        offsets: by partition, the next offset to apply to these states: read with them in one step.
        unreadable: by key, why a stored state cannot be read; such a key is not in `states`.
        size_bytes: of what was read.
    """

    states: Mapping[StateKey, PolicyState | None]
    offsets: Mapping[int, int | None]
    unreadable: Mapping[StateKey, str]
    size_bytes: int


class StateCodec(Protocol):
    """Turns a policy state into bytes and back, bit for bit."""

    def encode(self, record: PolicyState) -> bytes:
        """Return the state's bytes."""
        ...

    def decode(self, kind: type[PolicyState], value: bytes) -> PolicyState:
        """Return the state; raises the codec's one error on any other bytes."""
        ...


class StateStore(Protocol):
    """Keeps the states of each `observations` partition together with the offset they stand for.

    Every method raises `StoreUnavailableError` when the store does not answer; a write may have happened all the same.
    """

    async def read(self, keys: Iterable[StateKey]) -> StatesRead:
        """Return states, and for each partition the offset that they stand for."""
        ...

    async def offset(self, partition: int) -> int | None:
        """Return the next offset to apply; None = nothing stored."""
        ...

    async def write(self, write: WriteStates, token: str) -> WriteResult:
        """Store states and offset in one step if the stored offset is `write.expected`, else nothing.

        Args:
            write: what to store.
            token: of this write alone. If it is what stored the offset, an earlier attempt arrived whose answer got
                lost: accepted. An equal offset says nothing: the states may be those of another writer, and whoever
                read them meanwhile has folded the same observations twice.
        """
        ...

    async def set_aside(self, partition: int, offset: int) -> bool:
        """Put the states of a partition where nobody reads them, if the stored offset is this one; tell whether it was.

        Nothing is stored of the partition then. What was set aside before lies one place further (`ASIDE`).
        """
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class FeatureStore(Protocol):
    """Has features by key, as an application's own programs write them."""

    async def features(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Return the value of each key, as a record of topic `features` has it; None = nothing is stored.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class StateTable:
    """States, offsets and tokens in memory, with the rules of every store; no I/O, so that drivers can use it, too."""

    def __init__(self) -> None:
        self.states: dict[StateKey, PolicyState] = {}
        self.offsets: dict[int, int] = {}
        self.tokens: dict[int, str] = {}
        self.aside: dict[int, list[dict[StateKey, PolicyState]]] = {}  # the latest first

    def find(self, keys: Iterable[StateKey]) -> StatesRead:
        """Return states and the offsets that they stand for."""
        states = {key: self.states.get(key) for key in keys}
        offsets = {key.partition: self.offsets.get(key.partition) for key in states}
        return StatesRead(states, offsets, {}, sum(size_bytes(state) for state in states.values() if state is not None))

    def compare_and_set(self, write: WriteStates, token: str) -> WriteResult:
        """Store states and offset if the offset is the expected one; recognise a write that is there already."""
        number = write.partition
        current = self.offsets.get(number)
        if current == write.offset and self.tokens.get(number) == token:
            return WriteResult(True, current, token)
        if current != write.expected:
            return WriteResult(False, current, self.tokens.get(number, ""))
        self.states |= {StateKey(number, name): state for name, state in write.states.items()}
        self.offsets[number], self.tokens[number] = write.offset, token
        return WriteResult(True, write.offset, token)

    def put_aside(self, partition: int, offset: int) -> bool:
        """Move the states of a partition out of the way if its offset is the expected one."""
        if self.offsets.get(partition) != offset:
            return False
        latest = {key: state for key, state in self.states.items() if key.partition == partition}
        self.aside[partition] = [latest, *self.aside.get(partition, ())][: len(ASIDE)]
        self.states = {key: state for key, state in self.states.items() if key.partition != partition}
        del self.offsets[partition]
        self.tokens.pop(partition, None)
        return True


class MemoryStore(StateTable):
    """A store that lives and dies with the process."""

    async def read(self, keys: Iterable[StateKey]) -> StatesRead:
        """Return states and offsets; see `StateStore`."""
        return self.find(keys)

    async def offset(self, partition: int) -> int | None:
        """Return the next offset to apply; see `StateStore`."""
        return self.offsets.get(partition)

    async def write(self, write: WriteStates, token: str) -> WriteResult:
        """Compare and set; see `StateStore`."""
        return self.compare_and_set(write, token)

    async def set_aside(self, partition: int, offset: int) -> bool:
        """Move states out of the way; see `StateStore`."""
        return self.put_aside(partition, offset)

    async def close(self) -> None:
        """Do nothing."""


def stamped(value: bytes, now_s: float) -> bytes:
    """Return a state's bytes behind the hour in which they are stored."""
    return STAMP + int(now_s // 3600).to_bytes(STAMP_BYTES - 1, "big") + value


def unstamped(value: bytes) -> bytes:
    """Return the state's own bytes; those of older deployments say not when they were taught."""
    return value[STAMP_BYTES:] if value.startswith(STAMP) else value


def size_bytes(state: PolicyState) -> int:
    """Return about how many bytes a state has when it is stored."""
    return STATE_BYTES + VALUE_BYTES * numbers(state) + sum(map(len, state.arms))
