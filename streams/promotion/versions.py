"""Evidence on a version of a model, from the losses of its versions in the observations.

    shadow   both versions saw the query: their losses are compared on it
    canary   a draw by the query's id gave it to one of them: the mean losses of a run of queries are compared
    context  a draw by who asks did: the mean of what each cost is one value (`persons`), the rest is the same

A run of queries is as short as can be: it ends as soon as both versions have answered one of them. So what changes with
time, the share above all, changes both sides of a comparison alike: how hard queries are, which replicas have loaded
the version, who asks. Which version answers is drawn by the query's id alone, so the difference of the means is
unbiased. It lies in [-1, 1] whatever the share is, where weights of 1 / share would reach to 1 / share.

Where an application bounds what one teacher may teach, what is beyond that does not count here either.

A version that was drawn and gave no answer has a loss of 1. A shadow that was not heard of on a query is left out of
the comparison and counted: the cache may have answered, or the feedback may have been quicker.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from policies.estimators.sequence import ConfidenceSequence
from streams.operators.learn.bounds import LessonCounts, Reach
from streams.operators.weighing import weighed
from streams.promotion.evidence import Totals
from streams.promotion.guardrails import drawn
from streams.promotion.persons import Units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Measurement, Observation, WatchedMetric
    from streams.promotion.evidence import Evidence


class Mean(NamedTuple):
    """Losses, summed, each times its part; the parts; and how many answers they are of."""

    total: float = 0.0
    losses: int = 0
    parts: float = 0.0
    answers: int = 0

    def plus(self, loss: float, part: float, answers: int = 1) -> Mean:
        """Return it with one more, which may be the mean of several answers."""
        return Mean(self.total + loss, self.losses + 1, self.parts + part, self.answers + answers)

    @property
    def value(self) -> float:
        """The mean of at least one."""
        return self.total / self.losses


class ComparedRun:
    """The queries of one application since its last comparison, and all comparisons before; or its people.

    Attributes:
        candidate: losses of the run.
        incumbent: likewise.
        difference: of the comparisons.
        losses: sums of the candidate's losses and of their parts, and of the incumbent's.
        cost: errors of the candidate beyond the incumbent's.
        answers: of the candidate.
        is_shadow: whether the last comparison was of both on one query.
        left_out: the incumbent's answers to queries on which a shadow was not heard of.
    """

    __slots__ = ("answers", "candidate", "cost", "difference", "incumbent", "is_shadow", "left_out", "losses")

    def __init__(self) -> None:
        self.candidate, self.incumbent = Mean(), Mean()
        self.difference = ConfidenceSequence()
        self.losses = (0.0, 0.0, 0.0, 0.0)
        self.cost = 0.0
        self.answers = self.left_out = 0
        self.is_shadow = False

    def compare(self, candidate: float, incumbent: float, part: float) -> None:
        """Take both losses on one query."""
        self.difference.add(incumbent - candidate)
        self._count(Mean(candidate, 1, part), Mean(incumbent, 1, part))
        self.left_out += self.incumbent.losses if self.is_shadow else 0
        self.is_shadow, self.candidate, self.incumbent = True, Mean(), Mean()

    def extend(
        self, part: float, *, candidate: float | None = None, incumbent: float | None = None, answers: int = 1
    ) -> None:
        """Take the loss of the one that answered; compare as soon as there are two to compare."""
        if candidate is not None:
            self.candidate = self.candidate.plus(candidate, part, answers)
        if incumbent is not None:
            self.incumbent = self.incumbent.plus(incumbent, part, answers)
        mine, its = self.candidate, self.incumbent
        if mine.losses and its.losses:
            self.difference.add(its.value - mine.value)
            self.cost += mine.answers * (mine.value - its.value)
            self.answers += mine.answers
            self._count(mine, its)
            self.is_shadow, self.candidate, self.incumbent = False, Mean(), Mean()

    def _count(self, candidate: Mean, incumbent: Mean) -> None:
        mine, mines, its, theirs = self.losses
        self.losses = mine + candidate.total, mines + candidate.parts, its + incumbent.total, theirs + incumbent.parts

    @property
    def totals(self) -> Totals:
        """What it comes to."""
        found = self.difference
        count, left = found.count, self.left_out + (self.incumbent.losses if self.is_shadow else 0)
        return Totals(count, found.below, found.above, count, count, *self.losses, self.cost, self.answers, left)


class _UnitLosses:
    """What one context cost under its draw, see `persons`: under the version that answered it first, or under both."""

    __slots__ = ("candidate", "incumbent")

    def __init__(self) -> None:
        self.candidate, self.incumbent = Mean(), Mean()

    def add(self, candidate: float | None, incumbent: float | None, part: float) -> None:
        """Take the losses on one query; a share that grows may give the context to the other version: too late."""
        is_first = not (self.candidate.losses or self.incumbent.losses)
        if candidate is not None and (is_first or self.candidate.losses):
            self.candidate = self.candidate.plus(candidate, part)
        if incumbent is not None and (is_first or self.incumbent.losses):
            self.incumbent = self.incumbent.plus(incumbent, part)

    def put(self, run: ComparedRun) -> None:
        """Count as one value of each."""
        mine, its = self.candidate, self.incumbent
        known = mine if mine.losses else its
        part = known.parts / known.losses
        if mine.losses and its.losses:
            run.compare(mine.value, its.value, part)
        elif mine.losses:
            run.extend(part, candidate=mine.value, answers=mine.answers)
        else:
            run.extend(part, incumbent=its.value, answers=its.answers)


class VersionEvidence:
    """Folds observations into the evidence on a version; each is taken once.

    Args:
        model: name.
        candidate: version.
        incumbent: version that it is compared with.
        application: whose observations count; empty = of all that ask the model.
        watch: of a candidate that has taken over: how often to look (comparisons of an application), and alpha. As soon
            as it is shown to be better again, its comparisons begin anew: a good past must not hide a bad present.
        metrics: by which it is compared, too, each by itself.
    """

    def __init__(
        self,
        model: str,
        candidate: str,
        incumbent: str,
        application: str = "",
        watch: tuple[int, float] | None = None,
        metrics: Sequence[WatchedMetric] = (),
    ) -> None:
        self._model = model
        self._names = candidate, incumbent
        self._application = application
        self._watch = watch
        self._runs: dict[str, ComparedRun] = {}  # by application, each in one partition
        self._units: dict[str, Units[_UnitLosses]] = {}  # of those whose contexts draw
        self._lessons: dict[str, LessonCounts] = {}  # by application, where these are bounded
        self._metrics = {
            (one.application, one.metric): VersionEvidence(model, candidate, incumbent, one.application, watch)
            for one in metrics
        }

    def take(self, seen: Observation, timestamp_us: int = 0) -> None:
        """Fold one observation, unless its teacher has told too much; those of a partition come in its order."""
        if self._application not in ("", seen.application) or not self._counts(seen, timestamp_us) or not seen.versions:
            return
        part = 1.0 if seen.weight is None else seen.weight
        its = [one for one in weighed(seen).versions if one.model == self._model and 0.0 <= one.loss <= 1.0]
        self._put(seen, {one.version: one.loss for one in its}, part, timestamp_us)

    def _counts(self, seen: Observation, timestamp_us: int) -> bool:
        """Tell whether an observation counts: it is within the bounds on teachers, as the learner counts them."""
        if seen.bound is None:
            return True
        return self._lessons.setdefault(seen.application, LessonCounts()).reach(seen, timestamp_us) is Reach.ALL

    def _put(self, seen: Observation | Measurement, losses: Mapping[str, float], part: float, now_us: int) -> None:
        """Take the losses of one query, by version, times its part of a full lesson."""
        if seen.drawn:
            self._take_unit(seen, losses, part, now_us)
        else:
            self._compare(seen.application, losses, part)

    def _take_unit(
        self, seen: Observation | Measurement, losses: Mapping[str, float], part: float, now_us: int
    ) -> None:
        """Take the losses of one query of somebody who has drawn."""
        candidate, incumbent = (losses.get(name) for name in self._names)
        if candidate is None and incumbent is None:
            return
        run = self._runs.setdefault(seen.application, ComparedRun())
        units = self._units.setdefault(seen.application, Units(_UnitLosses))
        for closed in units.close(now_us):
            closed.put(run)
        if (its := units.of(seen, now_us)) is not None:
            its.add(candidate, incumbent, part)
        if self._watch is not None:
            self._renew(seen.application, run.difference, *self._watch)

    def measure(self, seen: Measurement, timestamp_us: int = 0) -> None:
        """Fold what metrics came to on one query, whichever version was drawn for it."""
        for value in seen.values:
            own = self._metrics.get((seen.application, value.metric))
            if own is not None and 0.0 <= value.loss <= 1.0:
                versions = drawn(seen, self._model, self._names)
                own._put(seen, dict.fromkeys(versions, value.loss), 1.0, timestamp_us)  # noqa: SLF001  # of its own class

    def until(self, now_us: int) -> None:
        """Count whose hour has ended by a time, by the loss and by each metric: nobody may ask any more."""
        for name, units in self._units.items():
            for closed in units.close(now_us):
                closed.put(self._runs[name])
        for own in self._metrics.values():
            own.until(now_us)

    def _compare(self, application: str, losses: Mapping[str, float], part: float) -> None:
        """Take the losses of one query, by version, times its part of a full lesson."""
        candidate, incumbent = self._names
        if candidate not in losses and incumbent not in losses:
            return
        run = self._runs.setdefault(application, ComparedRun())
        if candidate in losses and incumbent in losses:
            run.compare(losses[candidate], losses[incumbent], part)
        elif candidate in losses:
            run.extend(part, candidate=losses[candidate])
        else:
            run.extend(part, incumbent=losses[incumbent])
        if self._watch is not None:
            self._renew(application, run.difference, *self._watch)

    def _renew(self, application: str, found: ConfidenceSequence, every: int, alpha: float) -> None:
        if found.count and found.count % every == 0 and found.below.is_above(0.0, alpha):
            self._runs[application] = ComparedRun()

    @property
    def applications(self) -> tuple[str, ...]:
        """Whose losses are compared."""
        return tuple(sorted(self._runs))

    def evidence(self, alpha: float) -> Evidence:
        """Return what is known, at confidence 1 - alpha; the same however partitions took turns."""
        totals = Totals()
        for name in sorted(self._runs):
            totals = totals.plus(self._runs[name].totals)
        is_spent = bool(self._units) and all(units.is_spent for units in self._units.values())
        waiting = sum(units.waiting for units in self._units.values())
        return replace(totals.evidence(alpha), is_spent=is_spent, waiting=waiting)

    def measured(self, alpha: float) -> list[Evidence]:
        """Return what is known by each metric, in their order."""
        return [one.evidence(alpha) for one in self._metrics.values()]
