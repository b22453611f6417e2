"""What a replay has shown: every difference by id with both values, and what could not be checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas import topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.contract import StateKey

CALLS, LETTERS, STATES, STEPS, MODELS = "calls", "dead-letters", "states", "steps", "models"
KINDS: Final = (
    *(CALLS, topics.PREDICTIONS, topics.OBSERVATIONS, topics.SHADOWS, topics.MODEL_PREDICTIONS),
    *(LETTERS, STATES, STEPS, MODELS),
)
# What should have been written, and was not.
MISSING: Final = KINDS[1:6]
# Why something cannot be checked.
WHY: Final[Mapping[str, str]] = {
    "tapes_missing": "all that kernels do: the trace has no calls; record with `record.calls: true` in the settings",
    "tape_missing": "a process whose calls are not all in the trace: it began before it, or some were lost",
    "input_missing": "a process that was given what is not in the trace, or a state from before it: no call after it",
    "kernel_unknown": "a process of a role, or of a release, whose kernel cannot be made here",
    "differed": "a process of which one call went otherwise: no further one",
    "call_missing": "written by a process that was killed, or whose calls are not all in the trace",
    "wish_missing": "a step whose wish is not in the trace: a command took it, or the wish was replaced",
    "observations_missing": "a step that goes by observations which are not all in the trace",
    "offsets_missing": "a step that does not say by which observations it goes, from an earlier release",
}
# What was checked, but with an input that the trace tells only in part.
HOW: Final[Mapping[str, str]] = {
    "damaged": "a call that failed on a batch which was damaged on the way, and was read again",
    "copies": "written once more in the same bytes: somebody had tried again",
    "near": "a model that is at hand answers with numbers that differ by less than 1e-5 of them",
    "repeated": "a step that was taken twice: two control roles ran at a time",
    "rounded": "a step whose bounds differ by less than 1e-8: processors round exponentials differently",
    "ended": "a step that says what somebody changed: the reason is taken as recorded",
}
# Why something that was made again need not be in the trace.
WAITING: Final[Mapping[str, str]] = {
    "unwritten": "made by one of the last calls of a process: it was killed before it was written, or the trace ends",
    "dropped": "made for readers of the log alone: such records are dropped while the broker is away",
    "complete": "a dead letter of a record that had become one for another reason, before it was read again",
    "torn": "offsets are left out of its topic, or it is from before the trace",
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
        from_us, until_us: the times of the first call and the last.
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

    def note_time(self, time_us: int) -> None:
        """Note when something happened."""
        self.from_us = min(self.from_us or time_us, time_us)
        self.until_us = max(self.until_us, time_us)

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
