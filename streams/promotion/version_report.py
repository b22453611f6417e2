"""A test of two versions, read from its log: who met which, what that cost, and what each guardrail says.

Nothing is acted upon. Everybody who has asked counts, those of the last hour (`persons`) by what they have cost so far.
So the bounds hold for this look: with a further one their means have moved. Each draw should have met one version, and
as many of them the candidate as its share says. Where that is not so, the rest is not to be trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from policies.assignment import unit
from policies.estimators.sequence import ConfidenceSequence
from streams.promotion.guardrails import guardrails, told, verdicts
from streams.promotion.lifecycle import comparison
from streams.promotion.measurements import is_since
from streams.promotion.persons import UNIT_US
from streams.promotion.verdict import bounds

if TYPE_CHECKING:
    from schemas.records import Candidate, Measurement, MetricEvidence, Observation
    from streams.promotion.evidence import Evidence


class VersionReport(NamedTuple):
    """What the log says.

    Attributes:
        candidate: draws that met it, of people or episodes; of queries, where these draw for themselves.
        incumbent: likewise.
        both: draws under which both were met: the share was changed, or the candidate was not loaded yet.
        by_person: whether those who ask have drawn.
        share: of all that met one of the two, those that met the candidate.
        share_low: bound of what it may be by chance.
        share_high: likewise.
        wanted: what it should be; None = it is not known.
        evidence: mean loss of the incumbent less that of the candidate: above 0 the candidate is better.
        metrics: how they compare by each metric.
        verdicts: what its guardrail says of each.
    """

    candidate: int
    incumbent: int
    both: int
    by_person: bool
    share: float
    share_low: float
    share_high: float
    wanted: float | None
    evidence: Evidence
    metrics: tuple[MetricEvidence, ...]
    verdicts: tuple[str, ...]

    @property
    def is_drawn_otherwise(self) -> bool:
        """Whether chance does not explain how many met the candidate."""
        return self.wanted is not None and not self.share_low <= self.wanted <= self.share_high


class VersionReading:
    """Folds observations and measurements, each once, into the report.

    Args:
        plan: of the candidate, as if it were to take over.
        window_us: the learner's.
        application: whose count; empty = those of all that ask the model.
    """

    def __init__(self, plan: Candidate, window_us: int, application: str = "") -> None:
        self._plan, self._application = plan, application
        self._comparison = comparison(plan, window_us, application)
        self._met: dict[int, set[str]] = {}  # by draw
        self._queries = {plan.candidate: 0, plan.incumbent: 0}
        self._share = ConfidenceSequence(low=0.0)

    def take(self, seen: Observation, timestamp_us: int) -> None:
        """Fold one observation; those of a partition come in its order."""
        self._comparison.take(seen, timestamp_us)
        if self._application not in ("", seen.application):
            return
        names = [one.version for one in seen.versions if one.model == self._plan.name and one.version in self._queries]
        if len(names) != 1:
            return  # none of the two, or both on one query: a shadow
        if seen.drawn:
            who = hash((seen.application, unit(seen.context, seen.episode, seen.drawn)))
            met = self._met.setdefault(who, set())
            if not met:
                self._share.add(float(names[0] == self._plan.candidate))
            met.add(names[0])
        else:
            self._queries[names[0]] += 1
            self._share.add(float(names[0] == self._plan.candidate))

    @property
    def applications(self) -> tuple[str, ...]:
        """Whose losses are compared."""
        return self._comparison.applications

    def measure(self, seen: Measurement, timestamp_us: int) -> None:
        """Fold what metrics came to on one query."""
        if is_since(seen, timestamp_us, self._plan.since_us):
            self._comparison.measure(seen, timestamp_us)

    def report(self, end_us: int, wanted: float | None = None) -> VersionReport:
        """Return what is known at the end of the log; nothing is folded afterwards.

        Args:
            end_us: when that is.
            wanted: the candidate's share, of what it and the incumbent answer together; None = it is not known.
        """
        self._comparison.until(end_us + UNIT_US)
        plan, low_high = self._plan, self._share.bounds(self._plan.alpha)
        counts = [self._queries[one] + sum(one in met for met in self._met.values()) for one in self._queries]
        both = sum(len(met) > 1 for met in self._met.values())
        metrics = guardrails(plan, self._comparison).metrics
        share = self._share.mean, *low_high, wanted
        said = tuple(verdicts(plan, self._comparison))
        evidence = self._comparison.evidence(plan.alpha)
        return VersionReport(counts[0], counts[1], both, bool(self._met), *share, evidence, metrics, said)


def lines(plan: Candidate, found: VersionReport, price: str = "") -> list[str]:
    """Say it for people.

    Args:
        plan: of the candidate.
        found: the report.
        price: the difference in the unit of costs; empty = there is none.
    """
    evidence, who = found.evidence, "draws" if found.by_person else "queries"
    if not evidence.pairs:
        return [f"nothing compares {plan.name} {plan.candidate} with {plan.incumbent}: no feedback is of both"]
    said = [f"{'':16}{who:>10}{'mean loss':>12}"]
    for name, count, loss in (
        (plan.candidate, found.candidate, evidence.candidate_loss),
        (plan.incumbent, found.incumbent, evidence.incumbent_loss),
    ):
        said.append(f"{f'version {name}':16}{count:>10,}{loss or 0.0:>12.4f}")
    said.append(f"{bounds(evidence)} a query{price}{', by person' if found.by_person else ''}: {_word(found)}")
    for one, verdict in zip(found.metrics, found.verdicts, strict=True):
        said.append(f"{one.application} {one.metric}: {told(one)}{verdict and f': {verdict}'}")
    return [*said, *_doubts(plan, found, who)]


def _word(found: VersionReport) -> str:
    if found.evidence.is_better:
        return "it is better"
    return "it is worse" if found.evidence.upper < 0.0 else "it is not shown to be better or worse"


def _doubts(plan: Candidate, found: VersionReport, who: str) -> list[str]:
    """Say how the draws went, and what is to be looked into before anything is believed."""
    ends = f"[{found.share_low:.3f}, {found.share_high:.3f}]"
    said = f"{found.share:.3f} {ends} of the {who} met version {plan.candidate}"
    if found.wanted is not None:
        said += f"; its share is {found.wanted:.3g}"
    doubts = [said]
    if found.is_drawn_otherwise:
        doubts.append("that is no chance: the share was another one for a time, or something keeps answers back")
    if found.both:
        doubts.append(
            f"{found.both:,} met both under one draw, and count for the first: the share was changed, or a worker had"
            " not loaded the version yet"
        )
    return doubts
