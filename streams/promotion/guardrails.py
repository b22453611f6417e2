"""Metrics beside the loss: how a candidate compares by each, and what of it holds it back or sends it back.

    take over    the loss is better *and* each guardrail holds: its lower bound is above -guardrail
    go back      the loss is worse *or* a guardrail is broken: its upper bound is below -guardrail

To take over all must be shown, each by a confidence sequence at alpha. If one of these is not so, that one alone has to
be shown in error, with probability alpha at most: nothing is to be corrected for (intersection-union). To go back one
is enough, so m + 1 sequences share alpha: each has alpha / (m + 1) (Bonferroni). Both hold however often one looks.

Sources: Berger, Multiparameter hypothesis testing and acceptance sampling, Technometrics 24 (1982); Howard, Ramdas,
McAuliffe and Sekhon (2021), as in `policies.estimators.sequence`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from policies.metrics import width
from schemas.records import MetricEvidence, WatchedMetric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Application, Candidate, Measurement
    from streams.promotion.evidence import Comparison, Evidence


class Guardrails(NamedTuple):
    """What the metrics of a candidate say.

    Attributes:
        metrics: how it compares by each, in its unit, with bounds at alpha.
        broken: why it has to go back: a guardrail is broken for sure; empty = none is.
        upper: bound of the loss's difference, at its part of alpha.
    """

    metrics: tuple[MetricEvidence, ...] = ()
    broken: str = ""
    upper: float = 1.0

    @property
    def lacks(self) -> str:
        """Why it may not take over: the first guardrail that is not shown to hold; empty = all are."""
        held = [one for one in self.metrics if one.guardrail is not None and not one.lower > -one.guardrail]
        return f"{held[0].metric} is not shown to hold its guardrail yet: {told(held[0])}" if held else ""


NONE: Final = Guardrails()


def share_of(plan: Candidate) -> float:
    """Return the alpha of each comparison that may send a candidate back: they share one."""
    return plan.alpha / (1 + sum(watched.guardrail is not None for watched in plan.metrics))


def guardrails(plan: Candidate, comparison: Comparison) -> Guardrails:
    """Return what a candidate's metrics say; nothing where it has none."""
    if not plan.metrics:
        return NONE
    known = zip(plan.metrics, comparison.measured(plan.alpha), strict=True)
    surely = zip(plan.metrics, comparison.measured(share_of(plan)), strict=True)
    metrics = [_in_unit(*one) for one in known]
    worse = [one for one in [_in_unit(*one) for one in surely] if _is_broken(one)]
    broken = f"{worse[0].metric} breaks its guardrail: {told(worse[0])}" if worse else ""
    return Guardrails(tuple(metrics), broken, comparison.evidence(share_of(plan)).upper)


def verdicts(plan: Candidate, comparison: Comparison) -> list[str]:
    """Say of each metric what its guardrail says, each as surely as that decides; empty = it has none."""
    known = zip(plan.metrics, comparison.measured(plan.alpha), comparison.measured(share_of(plan)), strict=True)
    return [_verdict(_in_unit(watched, at_alpha), _in_unit(watched, surely)) for watched, at_alpha, surely in known]


def _verdict(found: MetricEvidence, surely: MetricEvidence) -> str:
    if found.guardrail is None:
        return ""
    if _is_broken(surely):
        return "its guardrail is broken"
    return "its guardrail holds" if found.lower > -found.guardrail else "its guardrail is not shown to hold"


def _is_broken(found: MetricEvidence) -> bool:
    return found.guardrail is not None and found.upper < -found.guardrail


def _in_unit(watched: WatchedMetric, found: Evidence) -> MetricEvidence:
    difference, lower, upper = [watched.width * value for value in (found.difference, found.lower, found.upper)]
    name = watched.application, watched.metric
    return MetricEvidence(*name, found.pairs, difference, lower, upper, watched.unit, watched.guardrail)


def told(found: MetricEvidence) -> str:
    """Say how a candidate compares by a metric, for a person."""
    better = "better" if found.difference >= 0.0 else "worse"
    ends = f"[{found.lower:+.4g}, {found.upper:+.4g}]"
    bound = "" if found.guardrail is None else f"; at most {found.guardrail:g}{_unit(found)} worse"
    return f"{abs(found.difference):.4g}{_unit(found)} {better} {ends}, {found.pairs:,} comparisons{bound}"


def _unit(found: MetricEvidence) -> str:
    return f" {found.unit}" if found.unit else ""


def watched_of(application: Application) -> tuple[WatchedMetric, ...]:
    """Return an application's metrics as a candidate's wish holds them."""
    return tuple(
        [WatchedMetric(application.name, one.name, width(one), one.unit, one.guardrail) for one in application.metrics]
    )


def drawn(seen: Measurement, model: str, versions: Sequence[str]) -> list[str]:
    """Return which of some versions of a model were drawn for a query."""
    return [version for version in versions if f"{model}@{version}" in seen.versions]
