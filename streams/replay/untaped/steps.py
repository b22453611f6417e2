"""Steps of candidates again: the observations that a step goes by, folded by the same kernel into the same verdict.

candidates ─▶ plan ─┐
promotions ─▶ stage ┼▶ evidence up to the step's offsets ─▶ verdict ─▶ a step: the same bytes, or a difference
observations ───────┘

A version that has taken over is compared anew from then on, so its course has two parts, each a fold of its own.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from math import isclose
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from policies.errors import PolicyError
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Candidate, Promotion
from streams.promotion.guardrails import guardrails
from streams.promotion.lifecycle import VERSION, comparison, next_stage, next_verdict, step
from streams.promotion.measurements import ComparableMeasurements, is_since
from streams.promotion.verdict import Action, Verdict
from streams.replay.report import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Measurement, Observation
    from streams.operators.contract import Record
    from streams.promotion.copies import Copies
    from streams.promotion.evidence import Comparison
    from streams.promotion.verdict import CandidateStage
    from streams.replay.report import ReplayReport

WISHED: Final = (topics.CANDIDATES, topics.PROMOTIONS)
# A step that goes by observations which come later than this is wrong: the clocks of broker and control role disagree
# by less, and reading takes less.
_LATE_US: Final = 60_000_000
# Bounds are found to 1e-9. Exponentials of another processor differ in the last bit, and the bounds by as much as that.
_CLOSE: Final = 1e-8
_Wish: TypeAlias = "tuple[str, int]"  # key and `since_us`


class _FirstSeen(NamedTuple):
    """What a record says that none before it did."""

    record: Record
    observations: Sequence[Observation]
    measurements: Sequence[Measurement]

    def tell(self, comparison: Comparison, from_us: int) -> None:
        """Fold what counts for a comparison that began then."""
        for seen in self.observations:
            comparison.take(seen, self.record.timestamp_us)
        for measured in [one for one in self.measurements if is_since(one, self.record.timestamp_us, from_us)]:
            comparison.measure(measured, self.record.timestamp_us)


@dataclass(slots=True)
class _CoursePart:
    """A part of a candidate's course.

    Attributes:
        plan: of the candidate.
        from_us: since when observations count.
        comparison: of these.
        steps: still to be held against it.
        stages: where the candidate was after each step; None = it had not begun.
        held: observations behind the next step's offsets.
    """

    plan: Candidate
    from_us: int
    comparison: Comparison
    steps: deque[Promotion] = field(default_factory=deque)
    stages: list[CandidateStage | None] = field(default_factory=lambda: [None])
    held: deque[_FirstSeen] = field(default_factory=deque)


class StepChecks:
    """Checks the steps of a trace.

    Args:
        codec: of the trace's records.
        records: of `candidates` and `promotions`.
        copies: tells copies of observations from first ones, as the control role's does.
        begun: partitions of `observations` that the trace has from the beginning.
        report: that is told what differs.
    """

    def __init__(
        self, codec: Codec, records: Iterable[Record], copies: Copies, begun: frozenset[int], report: ReplayReport
    ) -> None:
        self._codec = codec
        self._copies = copies
        self._measurements = ComparableMeasurements(codec, copies)
        self._report = report
        self._begun = begun
        self._first_us: dict[int, int] = {}  # by partition: of the first observation in the trace
        self._next: dict[int, int] = {}  # by partition: behind the last observation
        self._parts = _parts(*_decoded(codec, records), copies.window_us, report)

    def take(self, record: Record, items: Sequence[Observation]) -> None:
        """Take the next record of observations."""
        if not self._parts:
            return
        self._first_us.setdefault(record.partition, record.timestamp_us)
        self._next[record.partition] = record.offset + 1
        has = self._copies.has
        first = [seen for seen in items if not has(seen.query_id, record.timestamp_us, record.partition)]
        measured = self._measurements.take(record, has_observations=bool(items))
        for part in self._parts:
            self._fold(part, _FirstSeen(record, first, measured))
        self._parts = [part for part in self._parts if part.steps]

    def end(self) -> None:
        """Count the steps whose observations are not all in the trace."""
        for part in self._parts:
            while part.steps and self._is_reached(part.steps[0]):
                self._take_up(part)
                self._judge(part)
            self._report.unchecked["observations_missing"] += len(part.steps)
        self._parts = []

    def _fold(self, part: _CoursePart, first: _FirstSeen) -> None:
        part.held.append(first)
        while part.steps and (self._is_reached(part.steps[0]) or self._is_late(part, first.record)):
            self._take_up(part)
            self._judge(part)
        self._take_up(part)

    def _is_reached(self, one: Promotion) -> bool:
        return all(self._next.get(number, 0) >= offset for number, offset in enumerate(one.offsets))

    def _is_late(self, part: _CoursePart, record: Record) -> bool:
        return record.timestamp_us > part.steps[0].time_us + _LATE_US

    def _take_up(self, part: _CoursePart) -> None:
        """Fold what lies before the next step's offsets; without a step nothing more is needed."""
        held, part.held = part.held, deque()
        offsets = part.steps[0].offsets if part.steps else ()
        for first in held:
            if not _is_before(first.record, offsets):
                if part.steps:
                    part.held.append(first)
            elif first.record.timestamp_us >= part.from_us:
                first.tell(part.comparison, part.from_us)

    def _judge(self, part: _CoursePart) -> None:
        """Hold the next step against what the kernel says."""
        report, recorded = self._report, part.steps.popleft()
        if not recorded.offsets and recorded.pairs:
            report.unchecked["offsets_missing"] += 1
        elif not self._is_whole(part, recorded):
            report.unchecked["observations_missing"] += 1
        else:
            report.checked[STEPS] += 1
            report.inferred.update(["ended"] if recorded.action == Action.END.value else [])
            made = [self._made(part, stage, recorded) for stage in reversed(part.stages[-2:])]
            fitting = next((each for each in made if self._is_same(recorded, each)), None)
            if fitting is None:
                name = f"{topics.candidate(recorded.kind, recorded.name)}@{recorded.candidate}"
                report.add(STEPS, name, recorded, made[0])
            elif fitting is not made[0]:
                report.inferred["repeated"] += 1
        part.stages.append(next_stage(recorded))

    def _made(self, part: _CoursePart, stage: CandidateStage | None, recorded: Promotion) -> Promotion:
        plan, now_us = part.plan, recorded.time_us
        evidence, beside = part.comparison.evidence(plan.alpha), guardrails(plan, part.comparison)
        if recorded.action == Action.END.value:
            verdict = Verdict(Action.END, 0.0 if stage is None else stage.share, recorded.reason)
        else:
            verdict = next_verdict(plan, stage, evidence, now_us, recorded.guards, beside)
        reached = [self._next.get(number, 0) for number in range(len(recorded.offsets))]
        offsets = [min(pair) for pair in zip(recorded.offsets, reached, strict=True)]
        return step(plan, verdict, evidence, now_us, recorded.guards, offsets, beside.metrics)

    def _is_same(self, recorded: Promotion, made: Promotion) -> bool:
        encode = self._codec.encode
        if encode(recorded) == encode(made):
            return True
        if len(recorded.metrics) != len(made.metrics):
            return False
        ends = [*zip(_ends(recorded), _ends(made), strict=True)]
        if not all(isclose(*pair, rel_tol=0.0, abs_tol=_CLOSE) for pair in ends):
            return False
        if encode(recorded) != encode(_with_ends(made, recorded)):
            return False
        self._report.inferred["rounded"] += 1
        return True

    def _is_whole(self, part: _CoursePart, recorded: Promotion) -> bool:
        """Tell whether the trace has all the observations that a step goes by."""
        return all(
            not offset or number in self._begun or self._first_us.get(number, part.from_us) < part.from_us
            for number, offset in enumerate(recorded.offsets)
        )


def _ends(one: Promotion) -> list[float]:
    """Return the bounds of a step."""
    beside = [end for found in one.metrics for end in (found.lower, found.upper)]
    return [one.lower, one.upper, *beside]


def _with_ends(made: Promotion, recorded: Promotion) -> Promotion:
    """Return a step with the bounds of another one."""
    pairs = zip(made.metrics, recorded.metrics, strict=True)
    metrics = tuple([one._replace(lower=other.lower, upper=other.upper) for one, other in pairs])
    return made._replace(lower=recorded.lower, upper=recorded.upper, metrics=metrics)


def _is_before(record: Record, offsets: Sequence[int]) -> bool:
    return record.partition < len(offsets) and record.offset < offsets[record.partition]


def _decoded(
    codec: Codec, records: Iterable[Record]
) -> tuple[Mapping[_Wish, Candidate], Mapping[_Wish, list[Promotion]]]:
    """Return plans and steps by the wish that they belong to."""
    plans: dict[_Wish, Candidate] = {}
    steps: defaultdict[_Wish, list[Promotion]] = defaultdict(list)
    for record in records:
        try:
            if record.topic == topics.PROMOTIONS:
                taken = codec.decode(Promotion, record.value)
                steps[topics.candidate(taken.kind, taken.name), taken.since_us].append(taken)
            elif record.value is not None:
                plan = codec.decode(Candidate, record.value)
                plans[topics.candidate(plan.kind, plan.name), plan.since_us] = plan
        except DecodeError:
            continue  # the control role skips it, too
    return plans, steps


def _parts(
    plans: Mapping[_Wish, Candidate], steps: Mapping[_Wish, Sequence[Promotion]], window_us: int, report: ReplayReport
) -> list[_CoursePart]:
    found: list[_CoursePart] = []
    for wish, taken in steps.items():
        plan = plans.get(wish)
        try:
            if plan is not None:
                found += _course(plan, taken, window_us)
                continue
        except PolicyError:
            pass  # of a release that could compare it
        report.unchecked["wish_missing"] += len(taken)
    return found


def _course(plan: Candidate, taken: Sequence[Promotion], window_us: int) -> list[_CoursePart]:
    parts = [_CoursePart(plan, plan.since_us, comparison(plan, window_us))]
    for one in taken:
        parts[-1].steps.append(one)
        if one.action == Action.PROMOTE.value and one.kind == VERSION:
            begun = comparison(plan, window_us, has_taken_over=True)
            parts.append(_CoursePart(plan, one.time_us, begun, stages=[next_stage(one)]))
    return [part for part in parts if part.steps]
