"""Policy states for scoring: as Redis has them when the job begins, and the same after a kill."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

from deploy.connect.stores import state_store
from schemas.records import PolicyState
from streams.operators.contract import StateKey
from streams.topology import state_partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from deploy.config.settings import Settings
    from deploy.scoring.askers import StateReader
    from schemas.codec import Codec
    from schemas.records import Application
    from streams.runtime.stores.base import StateStore

PATIENCE_S = 10.0  # a job has time


class StoredStates:
    """Reads states from the store, one call after the other."""

    def __init__(self, settings: Settings, codec: Codec) -> None:
        self._runner = asyncio.Runner()
        self._settings = settings
        self._codec = codec
        self._store: StateStore | None = None

    def __enter__(self) -> Self:
        """Connect when something is read."""
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        if self._store is not None:
            self._runner.run(self._store.close())
        self._runner.__exit__(kind, error, trace)

    def read(self, keys: Sequence[StateKey]) -> Mapping[StateKey, PolicyState | None]:
        """Return states by key; None = nothing that can be read is stored.

        Raises:
            StoreUnavailableError: Redis does not answer.
        """
        found = self._runner.run(self._read(keys))
        return {key: found.get(key) for key in keys}

    async def _read(self, keys: Sequence[StateKey]) -> Mapping[StateKey, PolicyState | None]:
        if self._store is None:
            self._store = state_store(self._settings, self._codec, PATIENCE_S)
        return (await self._store.read(keys)).states


class PinnedStates:
    """States of an application as they were when a job began; those of contexts are read when they are asked for.

    Args:
        states: by key.
        others: has the contexts'.
    """

    def __init__(self, states: Mapping[StateKey, PolicyState | None], others: StateReader) -> None:
        self._states, self._others = states, others

    def read(self, keys: Sequence[StateKey]) -> Mapping[StateKey, PolicyState | None]:
        """Return states by key; None = nothing is stored."""
        unknown = [key for key in keys if key not in self._states]
        found = self._others.read(unknown) if unknown else {}
        return {key: self._states[key] if key in self._states else found.get(key) for key in keys}


def commons(application: Application, partitions: int) -> list[StateKey]:
    """Return the states that decide for an application, or where those of its contexts start."""
    if application.per_context and application.spread:
        return [StateKey(number, application.name) for number in range(partitions)]
    return [StateKey(state_partition(application.name, partitions), application.name)]


def written(states: Mapping[StateKey, PolicyState | None], codec: Codec) -> list[Any]:
    """Return states as a manifest holds them, bit for bit."""
    return [
        [*key, None if state is None else base64.b64encode(codec.encode(state)).decode()]
        for key, state in states.items()
    ]


def read_back(given: Sequence[Any], codec: Codec) -> dict[StateKey, PolicyState | None]:
    """Return states of a manifest."""
    return {
        StateKey(partition, name): None if text is None else codec.decode(PolicyState, base64.b64decode(text))
        for partition, name, text in given
    }
