"""What the page shows of candidates: those under way with what is known now, and the last steps with their evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from schemas.records import Promotion
    from streams.control.promoting import Promoting
    from streams.promotion.lifecycle import Course

# Steps on the page, the newest first.
SHOWN = 10


class CandidateRow(TypedDict):
    """One candidate under way; a difference is the incumbent's mean loss less the candidate's."""

    kind: str  # version or policy
    name: str  # of the model or application
    candidate: str
    incumbent: str
    share: float | None  # of the queries that it answers; None = it has not begun
    pairs: int
    difference: float
    lower: float
    upper: float
    cost: float  # errors
    reason: str  # why it is where it is


class StepRow(TypedDict):
    """One step that was taken."""

    kind: str
    name: str
    candidate: str
    time_us: int
    action: str
    share: float
    pairs: int
    difference: float
    lower: float
    upper: float
    reason: str


def candidate_rows(promoting: Promoting | None) -> list[CandidateRow]:
    """Return the candidates under way, by name."""
    return [] if promoting is None else [_candidate(course) for _, course in sorted(promoting.courses.items())]


def step_rows(promoting: Promoting | None) -> list[StepRow]:
    """Return the last steps, the newest first."""
    return [] if promoting is None else [_step(step) for step in reversed(promoting.steps[-SHOWN:])]


def _candidate(course: Course) -> CandidateRow:
    plan, known = course.plan, course.comparison.evidence(course.plan.alpha)
    return CandidateRow(
        kind=plan.kind,
        name=plan.name,
        candidate=plan.candidate,
        incumbent=plan.incumbent,
        share=None if course.stage is None else course.stage.share,
        pairs=known.pairs,
        difference=round(known.difference, 4),
        lower=round(known.lower, 4),
        upper=round(known.upper, 4),
        cost=round(known.cost, 1),
        reason="" if course.verdict is None else course.verdict.reason,
    )


def _step(step: Promotion) -> StepRow:
    return StepRow(
        kind=step.kind,
        name=step.name,
        candidate=step.candidate,
        time_us=step.time_us,
        action=step.action,
        share=step.share,
        pairs=step.pairs,
        difference=round(step.difference, 4),
        lower=round(step.lower, 4),
        upper=round(step.upper, 4),
        reason=step.reason,
    )
