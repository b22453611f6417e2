"""The candidates of a deployment: wishes, past steps and observations in, the next steps out.

A restart continues from the topics alone. The past steps say where each candidate is, and its observations are folded
again from the moment on from which they count: that of the wish, or that at which it took over. Evidence from before a
candidate took over says nothing about what came after; so it begins anew there, the incumbent's holdback being the
baseline. A policy that has taken over is on its way no more: the log has nothing of the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policies.errors import PolicyError
from schemas import topics
from schemas.records import Promotion
from streams.promotion.apprentice import ApprenticeEvidence
from streams.promotion.guardrails import NONE, guardrails
from streams.promotion.measurements import is_since
from streams.promotion.trail import Trail
from streams.promotion.verdict import Action, CandidateStage, Verdict, fault_of_plan, judge
from streams.promotion.versions import VersionEvidence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Candidate, Measurement, MetricEvidence, Observation
    from streams.promotion.evidence import Comparison, Evidence
    from streams.promotion.guardrails import Guardrails

VERSION, POLICY = "version", "policy"
_OVER = (Action.BACK.value, Action.END.value)


def comparison(
    plan: Candidate,
    window_us: int,
    application: str = "",
    *,
    has_taken_over: bool = False,
    learns_along: bool = True,
) -> Comparison:
    """Return the fold that compares a candidate with its incumbent.

    Args:
        plan: of the candidate.
        window_us: of an apprentice: how long states of other policies are kept beside one; the learner's.
        application: of a version: whose observations count; empty = of all.
        has_taken_over: whether the candidate has.
        learns_along: of a policy: whether it is the application's apprentice; else it is judged as if it had been.

    Raises:
        PolicyError: the plan is impossible, or it is of a policy that cannot be compared.
    """
    fault = fault_of_plan(plan)
    if fault:
        raise PolicyError(fault)
    if plan.kind == POLICY:
        names = plan.name, plan.candidate, plan.incumbent
        return ApprenticeEvidence(*names, window_us, learns_along=learns_along, metrics=plan.metrics)
    watch = (plan.least, plan.alpha) if has_taken_over else None
    return VersionEvidence(plan.name, plan.candidate, plan.incumbent, application, watch, plan.metrics)


@dataclass(slots=True)
class Course:
    """One candidate on its way.

    Attributes:
        plan: what is wanted.
        window_us: the learner's; see `comparison`.
        stage: where it is; None = it has not begun.
        comparison: of what counts since `from_us`.
        from_us: since when observations count.
        verdict: the last.
        trail: how the difference has stood since then.
    """

    plan: Candidate
    window_us: int
    stage: CandidateStage | None
    comparison: Comparison
    from_us: int
    verdict: Verdict | None = None
    trail: Trail = field(default_factory=Trail)

    def begin(self, *, has_taken_over: bool) -> None:
        """Begin the comparison anew."""
        self.comparison = comparison(self.plan, self.window_us, has_taken_over=has_taken_over)
        self.trail = Trail()

    def take(self, seen: Observation, timestamp_us: int) -> None:
        """Fold one observation; one from before the comparison began tells nothing."""
        if timestamp_us >= self.from_us:
            self.comparison.take(seen, timestamp_us)
            if self.trail.is_due(timestamp_us):
                found = self.comparison.evidence(self.plan.alpha)
                if found.pairs:
                    self.trail.add(timestamp_us, found.difference, found.lower, found.upper)

    def measure(self, seen: Measurement, timestamp_us: int) -> None:
        """Fold what metrics came to on one query, as `take` does."""
        if is_since(seen, timestamp_us, self.from_us):
            self.comparison.measure(seen, timestamp_us)


class Lifecycle:
    """Folds wishes, steps and observations; pure. Of copies of an observation it is told once (`Copies`).

    Args:
        window_us: the learner's; see `comparison`.
    """

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._courses: dict[str, Course] = {}
        self._over: dict[str, int] = {}  # by key: wishes up to this one have ended
        self._last: dict[str, Promotion] = {}  # by key: the last step, which may be known before its wish

    @property
    def courses(self) -> Mapping[str, Course]:
        """The candidates that are under way, by key."""
        return self._courses

    def wish(self, key: str, plan: Candidate | None) -> None:
        """Take a wish; None ends it. The same again changes nothing. Its steps may have been told before."""
        known = self._courses.get(key)
        if plan is None:
            self._courses.pop(key, None)
        elif plan.since_us > self._over.get(key, -1) and (known is None or known.plan != plan):
            try:
                course = Course(plan, self._window_us, None, comparison(plan, self._window_us), plan.since_us)
            except PolicyError:
                self._courses.pop(key, None)  # another program's, or of a release that could compare it
                return
            self._courses[key] = course
            last = self._last.get(key)
            if last is not None and last.since_us == plan.since_us:
                self._move(course, last)

    def fold_again(self) -> None:
        """Forget the observations: all since the earliest `from_us` of a course come again."""
        for course in self._courses.values():
            course.begin(has_taken_over=course.stage is not None and course.stage.is_promoted)

    def past(self, step: Promotion) -> None:
        """Take a step that was taken; steps of earlier wishes are history."""
        key = topics.candidate(step.kind, step.name)
        course = self._courses.get(key)
        self._last[key] = step
        if step.action in _OVER or (step.action == Action.PROMOTE.value and step.kind == POLICY):
            self._over[key] = max(self._over.get(key, -1), step.since_us)
            if course is not None and course.plan.since_us <= step.since_us:
                self._courses.pop(key)
        elif course is not None and course.plan.since_us == step.since_us:
            self._move(course, step)

    def _move(self, course: Course, step: Promotion) -> None:
        if course.stage is not None and step.time_us <= course.stage.since_us:
            return  # the same step again
        course.stage = next_stage(step)
        if step.action == Action.PROMOTE.value:
            course.begin(has_taken_over=True)
            course.from_us = step.time_us

    def observe(self, seen: Observation, timestamp_us: int) -> None:
        """Fold one observation into whatever it tells about; those of a partition come in its order."""
        for course in self._courses.values():
            course.take(seen, timestamp_us)

    def measure(self, seen: Measurement, timestamp_us: int) -> None:
        """Fold what metrics came to on one query; those of a partition come in its order."""
        for course in self._courses.values():
            course.measure(seen, timestamp_us)

    def steps(
        self, now_us: int, guards: Mapping[str, Mapping[str, float]] | None = None, offsets: Sequence[int] = ()
    ) -> list[Promotion]:
        """Return the steps that are to be taken now; each is told to `past` once it has been.

        Args:
            now_us: the time.
            guards: measured values of each candidate, by key and name.
            offsets: by partition of the log: behind the last observation that was folded.
        """
        found = []
        for key, course in sorted(self._courses.items()):
            plan, measured = course.plan, (guards or {}).get(key, {})
            evidence, beside = course.comparison.evidence(plan.alpha), guardrails(plan, course.comparison)
            course.verdict = next_verdict(plan, course.stage, evidence, now_us, measured, beside)
            if course.verdict.action is not Action.STAY:
                found.append(step(plan, course.verdict, evidence, now_us, measured, offsets, beside.metrics))
        return found


def next_verdict(
    plan: Candidate,
    stage: CandidateStage | None,
    evidence: Evidence,
    now_us: int,
    guards: Mapping[str, float],
    beside: Guardrails = NONE,
) -> Verdict:
    """Return what to do with a candidate; without a stage it has not begun. Arguments are those of `judge`."""
    if stage is None:
        return Verdict(Action.BEGIN, plan.steps[0], "it begins")
    return judge(plan, stage, evidence, now_us, guards, beside)


def next_stage(step: Promotion) -> CandidateStage:
    """Return where a candidate is after a step; the comparisons of one that takes over begin anew."""
    return CandidateStage(step.share, step.time_us, 0 if step.action == Action.PROMOTE.value else step.pairs)


def step(
    plan: Candidate,
    verdict: Verdict,
    evidence: Evidence,
    now_us: int,
    guards: Mapping[str, float] | None = None,
    offsets: Sequence[int] = (),
    metrics: tuple[MetricEvidence, ...] = (),
) -> Promotion:
    """Return a verdict and its evidence as a record."""
    return Promotion(
        kind=plan.kind,
        name=plan.name,
        candidate=plan.candidate,
        incumbent=plan.incumbent,
        since_us=plan.since_us,
        time_us=now_us,
        action=verdict.action.value,
        share=verdict.share,
        reason=verdict.reason,
        pairs=evidence.pairs,
        effective=evidence.effective,
        difference=evidence.difference,
        lower=evidence.lower,
        upper=evidence.upper,
        candidate_loss=evidence.candidate_loss,
        incumbent_loss=evidence.incumbent_loss,
        cost=evidence.cost,
        guards=dict(guards or {}),
        offsets=tuple(offsets),
        metrics=metrics,
    )
