"""What a replay has shown: every difference by id with both values, and what could not be checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.contract import StateKey

DECISIONS, ANSWERS, OBSERVATIONS, STATES, STEPS, OUTPUTS, MODELS = KINDS = (
    *("decisions", "answers", "observations", "states", "steps", "outputs", "models"),
)
# What may be missing, beside answers and observations: what they must have been made from.
QUERIES, PREDICTIONS = "queries", "predictions"
MISSING: Final = (QUERIES, ANSWERS, PREDICTIONS, OBSERVATIONS, OUTPUTS)
# Why something cannot be checked: what the trace does not hold, or what followed from a process's own memory.
WHY: Final[Mapping[str, str]] = {
    "query_missing": "its query is not in the trace",
    "state_missing": "the state that decided is from before the trace",
    "configuration_missing": "its application's configuration of then is not in the trace",
    "latencies": "its policy goes by latencies, which selection measures",
    "named_version": "it names a version, so no policy state is recorded with it",
    "running_mean": "a running mean stands in for a model; the decision is checked, the answer is not",
    "reconstructed": "an output was decoded; that, the decision and how sure it is are checked, the answer is not",
    "sum_missing": "a decoded output whose sum, or another output of its group, is not in the trace",
    "oversized": "its outputs were too large for one answer, so they are not recorded",
    "undecided": "nothing was decided: no room, overload, or models that did not run",
    "prediction_missing": "its prediction is not in the trace",
    "feedback_missing": "its feedback is not in the trace",
    "side_output_missing": "it was joined with outputs of shadows, or late ones, that are not in the trace",
    "row_missing": "an output whose row is not in the trace, or came too long before it, or it ran inside selection",
    "cached_output": "an output without a row of its own: perhaps from the cache",
    "version_missing": "a row of a version that `models` does not hold any more",
    "wish_missing": "a step whose wish is not in the trace: a command took it, or the wish was replaced",
    "observations_missing": "a step that goes by observations which are not all in the trace",
    "offsets_missing": "a step that does not say by which observations it goes, from an earlier release",
}
# What was checked, but with an input that the trace tells only in part.
HOW: Final[Mapping[str, str]] = {
    "new_context": "a new context: which common state it started from is inferred from its propensities",
    "learnt_span": "the error that costs 1 was learnt: it is taken as recorded",
    "configuration_near": "decided while a configuration changed: the one that fits is taken",
    "near": "a model that is at hand answers with numbers that differ by less than 1e-5 of them",
    "repeated": "a step that was taken twice: two control roles ran at a time",
    "rounded": "a step whose bounds differ by less than 1e-8: processors round exponentials differently",
    "ended": "a step that says what somebody changed: the reason is taken as recorded",
    "cached": "answered at once, perhaps from the cache: outputs are taken as recorded",
}
# Why something may have no outcome in the trace that would else be missing.
WAITING: Final[Mapping[str, str]] = {
    "unanswered": "a query that has no answer yet where the trace ends",
    "unobserved": "feedback or a window of which nothing is observed yet where the trace ends, or that began before it",
    "copy": "a query without an answer that may be a copy of one from before the trace",
    "letters": "has no outcome, and the trace does not hold the dead letters",
    "room": "feedback or a window of which nothing is observed: the joiner may have had no room",
    "torn": "has no outcome, and offsets are left out of the trace",
    "let_go": "waited too long to be held: whether it has an outcome was not looked for",
}
_KEPT = 1_000  # differences that are kept; all are counted
_LONGEST: Final = 200  # characters of a value that is shown


class Difference(NamedTuple):
    """Two values that should be one, of records the fields that differ; `nothing` was recorded of what is missing."""

    kind: str
    id: str
    recorded: str
    replayed: str


@dataclass(slots=True)
class ReplayReport:
    """What was compared, and how it came out.

    Attributes:
        checked: how many, by kind.
        different: how many of them are not as they were, by kind.
        differences: the first of these.
        unchecked: how many cannot be checked, by a name of `WHY`.
        missing: how many should have been written and were not, by kind.
        waiting: how many have no outcome and need not have one, by a name of `WAITING`.
        inferred: how many were checked with a part inferred, by a name of `HOW`.
        records: that were read, by topic.
        undecodable: which of them are none of ours, and were dead letters, by topic.
        from_us, until_us: the times of the first record and the last.
        gap: the largest of the small differences between what models answered and what they answer now.
        states: as they are after the last observation.
    """

    checked: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    waiting: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    inferred: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    undecodable: Counter[str] = field(default_factory=Counter)
    from_us: int = 0
    until_us: int = 0
    gap: float = 0.0
    states: dict[StateKey, PolicyState] = field(default_factory=dict)

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs and nothing is missing."""
        return not self.different and not self.missing

    @property
    def span_s(self) -> float:
        """How long the trace took when it was recorded."""
        return (self.until_us - self.from_us) / 1e6

    def add(self, kind: str, name: str, recorded: object, replayed: object) -> None:
        """Note a difference."""
        self.different[kind] += 1
        if len(self.differences) < _KEPT:
            self.differences.append(Difference(kind, name, *apart(recorded, replayed)))

    def miss(self, kind: str, name: str, what: str) -> None:
        """Note something that should have been written."""
        self.missing[kind] += 1
        if len(self.differences) < _KEPT:
            self.differences.append(Difference(kind, name, "nothing", what))

    def compare_states(self, stored: Mapping[StateKey, PolicyState], codec: Codec) -> None:
        """Hold the states of the fold against those that a store has."""
        for key in sorted(stored.keys() | self.states.keys()):
            self.checked[STATES] += 1
            known, found = stored.get(key), self.states.get(key)
            if known is None or found is None or codec.encode(known) != codec.encode(found):
                self.add(STATES, f"{key.partition}:{key.name}", known, found)


def apart(recorded: object, replayed: object) -> tuple[str, str]:
    """Return two values that differ as text: of records of one kind the fields that differ, by name.

    Examples:
        >>> apart(Difference("steps", "q", "a", "b"), Difference("steps", "q", "a", "c"))
        ("replayed='b'", "replayed='c'")
    """
    found = [*_apart("", recorded, replayed)]
    if not found:
        return _short(recorded), _short(replayed)
    names = [f"{name}=" if name else "" for name, _, _ in found]
    ours = ", ".join(f"{name}{one}" for name, (_, one, _) in zip(names, found, strict=True))
    theirs = ", ".join(f"{name}{other}" for name, (_, _, other) in zip(names, found, strict=True))
    return ours, theirs


def _apart(name: str, one: object, other: object) -> Iterator[tuple[str, str, str]]:
    """Yield name and both texts of each part that differs; equal floats with other signs differ, too."""
    if isinstance(one, tuple) and isinstance(other, tuple) and type(one) is type(other) and len(one) == len(other):
        fields: Sequence[str] = getattr(one, "_fields", ())
        for place, (its, others) in enumerate(zip(one, other, strict=True)):
            part = f".{fields[place]}" if fields else f"[{place}]"
            yield from _apart(f"{name}{part}".removeprefix("."), its, others)
    elif repr(one) != repr(other) or (not isinstance(one, float) and one != other):
        yield name, _short(one), _short(other)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"
