"""What the page shows of evidence: candidates under way, the last steps, and what the policies that serve cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from streams.promotion.guardrails import guardrails
from streams.promotion.lifecycle import POLICY

if TYPE_CHECKING:
    from schemas.records import MetricEvidence, Promotion
    from streams.control.carry.promoting import Promoting
    from streams.promotion.lifecycle import Course
    from streams.promotion.serving_losses import Served
    from streams.promotion.trail import Trail

# Steps on the page, the newest first.
SHOWN = 10


class MetricRow(TypedDict):
    """How a candidate compares by a metric, in its unit."""

    application: str
    metric: str
    pairs: int
    difference: float  # by how much it is better
    lower: float
    upper: float
    unit: str
    guardrail: float | None  # how much worse it may be; None = any amount


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
    course: list[tuple[int, float, float, float]]  # of the difference: time (us), mean, lower, upper
    metrics: list[MetricRow]


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


class ServingRow(TypedDict):
    """What an application's policy that serves costs, with bounds that hold at all times at once."""

    policy: str
    since_us: int
    answers: int  # whose loss is known
    loss: float  # their mean
    lower: float
    upper: float
    course: list[tuple[int, float, float, float]]  # of the mean: time (us), mean, lower, upper


class PromotionRows(TypedDict):
    """All of it."""

    candidates: list[CandidateRow]
    steps: list[StepRow]
    serving: dict[str, ServingRow]  # by application
    forgotten: int  # ids of observations, before their time


def promotion_rows(promoting: Promoting | None) -> PromotionRows:
    """Return the candidates under way by name, the last steps, the newest first, and what serves.

    What serves is of applications that have a candidate, or whose log can tell what other policies would have cost.
    """
    if promoting is None:
        return PromotionRows(candidates=[], steps=[], serving={}, forgotten=0)
    courses = [course for _, course in sorted(promoting.courses.items())]
    compared = {name for course in courses for name in _applications(course)}
    served = sorted(promoting.served.items())
    return PromotionRows(
        candidates=[_candidate(key, promoting) for key in sorted(promoting.courses)],
        steps=[_step(step) for step in reversed(promoting.steps[-SHOWN:])],
        serving={name: _serving(found) for name, found in served if found.is_judged or name in compared},
        forgotten=promoting.forgotten,
    )


def _applications(course: Course) -> tuple[str, ...]:
    return (course.plan.name,) if course.plan.kind == POLICY else course.comparison.applications


def _serving(served: Served) -> ServingRow:
    loss, lower, upper = served.means()
    return ServingRow(
        policy=served.policy,
        since_us=served.since_us,
        answers=served.losses.count,
        loss=round(loss, 4),
        lower=round(lower, 4),
        upper=round(upper, 4),
        course=_course(served.trail),
    )


def _course(trail: Trail) -> list[tuple[int, float, float, float]]:
    return [
        (time_us, round(mean, 4), round(lower, 4), round(upper, 4)) for time_us, mean, lower, upper in trail.moments
    ]


def _candidate(key: str, promoting: Promoting) -> CandidateRow:
    course, hindrance = promoting.courses[key], promoting.hindrances.get(key)
    plan, known = course.plan, course.comparison.evidence(course.plan.alpha)
    return CandidateRow(
        kind=plan.kind,
        name=plan.name,
        candidate=plan.candidate,
        incumbent=plan.incumbent,
        share=None if course.stage is None else course.stage.share,
        pairs=known.pairs,
        difference=round(known.difference, 6),
        lower=round(known.lower, 6),
        upper=round(known.upper, 6),
        cost=round(known.cost, 1),
        reason=_reason(course, hindrance),
        course=_course(course.trail),
        metrics=[_metric(found) for found in guardrails(plan, course.comparison).metrics],
    )


def _metric(found: MetricEvidence) -> MetricRow:
    return MetricRow(
        application=found.application,
        metric=found.metric,
        pairs=found.pairs,
        difference=round(found.difference, 6),
        lower=round(found.lower, 6),
        upper=round(found.upper, 6),
        unit=found.unit,
        guardrail=found.guardrail,
    )


def _reason(course: Course, hindrance: str | None) -> str:
    if hindrance:
        return f"it cannot be compared: {hindrance}"
    return "" if course.verdict is None else course.verdict.reason


def _step(step: Promotion) -> StepRow:
    return StepRow(
        kind=step.kind,
        name=step.name,
        candidate=step.candidate,
        time_us=step.time_us,
        action=step.action,
        share=step.share,
        pairs=step.pairs,
        difference=round(step.difference, 6),
        lower=round(step.lower, 6),
        upper=round(step.upper, 6),
        reason=step.reason,
    )
