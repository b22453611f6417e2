"""What a replay has shown: every difference by id with both values, and what could not be checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.contract import StateKey

DECISIONS, ANSWERS, OBSERVATIONS, STATES = KINDS = ("decisions", "answers", "observations", "states")
# Why something cannot be checked: what the trace does not hold, or what followed from a process's own memory.
WHY: Final[Mapping[str, str]] = {
    "query_missing": "its query is not in the trace",
    "state_missing": "the state that decided is from before the trace",
    "configuration_missing": "its application's configuration of then is not in the trace",
    "latencies": "its policy goes by latencies, which selection measures",
    "named_version": "it names a version, so no policy state is recorded with it",
    "running_mean": "a running mean stands in for a model; the decision is checked, the answer is not",
    "oversized": "its outputs were too large for one answer, so they are not recorded",
    "undecided": "nothing was decided: no room, overload, or models that did not run",
    "prediction_missing": "its prediction is not in the trace",
    "feedback_missing": "its feedback is not in the trace",
}
# What was checked, but with an input that the trace tells only in part.
HOW: Final[Mapping[str, str]] = {
    "new_context": "a new context: which common state it started from is inferred from its propensities",
    "learnt_span": "the error that costs 1 was learnt: it is taken as recorded",
    "configuration_near": "decided while a configuration changed: the one that fits is taken",
    "cached": "answered at once, perhaps from the cache: outputs are taken as recorded",
}
_KEPT = 1_000  # differences that are kept; all are counted


class Difference(NamedTuple):
    """Two values that should be one."""

    kind: str
    id: str
    recorded: str
    replayed: str


@dataclass(slots=True)
class Report:
    """What was compared, and how it came out.

    Attributes:
        checked: how many, by kind.
        different: how many of them are not as they were, by kind.
        differences: the first of these.
        unchecked: how many cannot be checked, by a name of `WHY`.
        inferred: how many were checked with a part inferred, by a name of `HOW`.
        records: that were read, by topic.
        undecodable: which of them are none of ours, and were dead letters, by topic.
        from_us, until_us: the times of the first record and the last.
        states: as they are after the last observation.
    """

    checked: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    unchecked: Counter[str] = field(default_factory=Counter)
    inferred: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    undecodable: Counter[str] = field(default_factory=Counter)
    from_us: int = 0
    until_us: int = 0
    states: dict[StateKey, PolicyState] = field(default_factory=dict)

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not self.different

    @property
    def span_s(self) -> float:
        """How long the trace took when it was recorded."""
        return (self.until_us - self.from_us) / 1e6

    def add(self, kind: str, name: str, recorded: object, replayed: object) -> None:
        """Note a difference."""
        self.different[kind] += 1
        if len(self.differences) < _KEPT:
            self.differences.append(Difference(kind, name, repr(recorded), repr(replayed)))

    def compare_states(self, stored: Mapping[StateKey, PolicyState], codec: Codec) -> None:
        """Hold the states of the fold against those that a store has."""
        for key in sorted(stored.keys() | self.states.keys()):
            self.checked[STATES] += 1
            known, found = stored.get(key), self.states.get(key)
            if known is None or found is None or codec.encode(known) != codec.encode(found):
                self.add(STATES, f"{key.partition}:{key.name}", known, found)
