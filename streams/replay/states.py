"""What each version of a policy state was: the fold of the observations, as the learner does it.

A decision names its state and that state's version. The latest versions are kept, bounded by their numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from policies import registry
from policies.contract import has_shared_prior
from policies.errors import PolicyError
from streams.operators.contract import StateKey
from streams.operators.ids import SeenIds
from streams.operators.learn.fold import taught
from streams.operators.policy_state import adopted, alone, numbers, state_of
from streams.topology import application_of, state_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemas.records import Decision, Observation, PolicyState

# Numbers in the versions that are kept, at about 30 bytes each, and what a version takes beside its own.
_NUMBERS: Final = 6_000_000
_VERSION_NUMBERS: Final = 16
# Versions of a common state that a new context may have started from, the latest first.
_TRIED: Final = 4_096


class _Version(NamedTuple):
    partition: int  # each may have a common state of the same application
    name: str
    policy: str
    version: int


class StateHistory:
    """Folds the observations of a trace, and keeps what the states were on the way.

    Args:
        partitions: of `observations`.
        window_us: how long the learner remembers ids.
        begun: the partitions that the trace has from their first observation on.
        initial: states from before the trace, where they are known.
    """

    def __init__(
        self,
        partitions: int,
        window_us: int,
        begun: frozenset[int],
        initial: Mapping[StateKey, PolicyState] | None = None,
    ) -> None:
        self._partitions = partitions
        self._window_us = window_us
        self._seen = [SeenIds(window_us) for _ in range(partitions)]
        self._begun = begun
        self.states: dict[StateKey, PolicyState] = dict(initial or {})
        self._by_partition: list[dict[str, PolicyState | None]] = [{} for _ in range(partitions)]
        self._versions: dict[_Version, PolicyState] = {}
        self._numbers = 0
        for key, state in self.states.items():
            self._by_partition[key.partition][key.name] = state
            self._keep(key, state)

    def key(self, name: str) -> StateKey:
        """Return the key of a state."""
        return StateKey(state_partition(name, self._partitions), name)

    def fold(self, partition: int, timestamp_us: int, seen: Observation) -> None:
        """Fold one observation; one that cannot be learnt from leaves the states, as it does the learner's."""
        if partition not in self._begun or not self._seen[partition].add(seen.query_id, timestamp_us):
            return
        states = self._by_partition[partition]
        try:
            changed = taught(states, seen, timestamp_us, self._window_us)
        except PolicyError:
            return
        states.update(changed)
        for name, state in changed.items():
            key = StateKey(partition, name)
            self.states[key] = state
            self._keep(key, state)

    def find(self, decision: Decision) -> PolicyState | None:
        """Return the state that a decision names.

        Raises:
            LookupError: it is not known (any more, or yet).
        """
        if not decision.state_version:
            return None
        key, version = self.key(decision.state), decision.state_version
        found = self._versions.get(_Version(*key, decision.policy, version)) or self._adopted(key, decision)
        if found is None:
            raise LookupError(f"version {version} of {decision.state}")
        return found

    def _adopted(self, key: StateKey, decision: Decision) -> PolicyState | None:
        """Return the state of other parameters from which a policy went on."""
        last = self.states.get(key)
        if last is None:
            return None
        names = [last.policy, *(other.policy for other in last.others)]
        before = (self._versions.get(_Version(*key, name, decision.state_version)) for name in names)
        return next((found for state in before if (found := adopted(state, decision.policy)) is not None), None)

    def commons(self, decision: Decision, latest: int | None = None) -> Iterator[tuple[StateKey, PolicyState]]:
        """Yield the states that a new context may have started from, the latest first; none for other decisions.

        Args:
            decision: for the context.
            latest: the version to begin with; None = the one that there is now.
        """
        application = application_of(decision.state)
        is_common = application == decision.state
        if decision.state_version or is_common or not has_shared_prior(registry.parse(decision.policy)):
            return
        key = StateKey(self.key(decision.state).partition, application)
        known = state_of(self.states.get(key), decision.policy)
        version = (0 if known is None else known.version) if latest is None else latest
        for number in range(version, max(0, version - _TRIED), -1):
            state = self._versions.get(_Version(*key, decision.policy, number))
            if state is not None:
                yield key, state

    def _keep(self, key: StateKey, state: PolicyState) -> None:
        """Keep a version of each policy's state."""
        for other in state.others:
            self._keep_one(key, alone(other))
        self._keep_one(key, state._replace(others=()) if state.others else state)

    def _keep_one(self, key: StateKey, state: PolicyState) -> None:
        version = _Version(*key, state.policy, state.version)
        gone = self._versions.pop(version, None)
        self._versions[version] = state
        self._numbers += _size(state) - (0 if gone is None else _size(gone))
        while self._numbers > _NUMBERS:
            self._numbers -= _size(self._versions.pop(next(iter(self._versions))))


def _size(state: PolicyState) -> int:
    return numbers(state) + _VERSION_NUMBERS
