"""Evidence, guards and plan into one verdict.

    a guard is over its limit, it has cost its budget for sure, or is worse (upper < -tolerance) ▶ back, at once
    a metric's guardrail is broken for sure (`guardrails`)                                    ▶ back, at once
    it has not been long enough at its share                                                  ▶ stay
    the next share may cost more than `risk` of all queries (next share * -lower)             ▶ stay
    the next share is 1             ▶ promote, if lower > -tolerance (0 by default) and each guardrail is shown to hold
    otherwise                                                                                 ▶ step

One that stays although everybody who asks has been counted says so: it waits for new people, or for new draws.

Every verdict is taken by a bound that holds at all times at once, none by a sum, which goes up and down by chance. So a
version that is worse goes back when its bounds say so. With a tolerance it is worse when it costs more than that for
sure; `budget` bounds what the tolerated may cost in all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING

from streams.promotion.guardrails import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Candidate
    from streams.promotion.evidence import Evidence
    from streams.promotion.guardrails import Guardrails

# The share with which a version answers everything.
WHOLE = 1.0
SPENT = "everybody who asks has been counted, once a draw; by `sticky_s` or another `salt` they are drawn anew"
# What a guard may be about: all are of the candidate, but for `defaults`, and are compared with its limits.
GUARDS = {
    "loss": "mean loss of the candidate",
    "failures": "share of its rows at which it failed",
    "late": "share of its rows that it dropped, as they were too late",
    "defaults": "share of default answers of the applications that ask the model",
    "latency": "mean time of a row, as a multiple of the incumbent's",
}


class Action(Enum):
    """What to do; in the words of the events."""

    BEGIN = "begin"
    STAY = "stay"
    STEP = "step"
    PROMOTE = "promote"
    BACK = "back"
    END = "end"


@dataclass(frozen=True, slots=True)
class CandidateStage:
    """Where a candidate is.

    Attributes:
        share: of the queries that it answers; 0 = a shadow, 1 = it has taken over.
        since_us: from when.
        pairs: comparisons that there were then.
    """

    share: float
    since_us: int
    pairs: int = 0

    @property
    def is_promoted(self) -> bool:
        """Whether it has taken over; it goes back all the same if it turns out worse."""
        return self.share == WHOLE


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a candidate, and why; `share` is that of the queries which it answers from then on."""

    action: Action
    share: float
    reason: str


def judge(
    plan: Candidate,
    stage: CandidateStage,
    evidence: Evidence,
    now_us: int,
    guards: Mapping[str, float] | None = None,
    beside: Guardrails = NONE,
) -> Verdict:
    """Return what to do.

    Args:
        plan: of the candidate.
        stage: where it is.
        evidence: on the difference to its incumbent.
        now_us: the time.
        guards: measured values by name (`GUARDS`); what has not been measured is not there.
        beside: what its metrics say.
    """
    surely = replace(evidence, upper=max(evidence.upper, beside.upper)) if beside.metrics else evidence
    fault = _fault(plan, surely, guards or {}) or beside.broken
    if fault:
        return Verdict(Action.BACK, 0.0, fault)
    if stage.is_promoted:
        return Verdict(Action.STAY, stage.share, "it has taken over and is not worse")
    wait = _wait(plan, stage, evidence, now_us)
    found = _stay(stage, wait) if wait else _forward(plan, stage, evidence, beside.lacks)
    if evidence.is_spent and found.action is Action.STAY:
        return _stay(stage, f"{found.reason}; {SPENT}")
    return found


def _wait(plan: Candidate, stage: CandidateStage, evidence: Evidence, now_us: int) -> str:
    """Say how long a candidate stays at its share all the same; empty = no longer."""
    # After a restart the log may no longer have all that there was at the step: then what it has came about since.
    here = evidence.pairs - stage.pairs if evidence.pairs >= stage.pairs else evidence.pairs
    waited_us = now_us - stage.since_us
    if here < plan.least:
        return f"{here} of {plan.least} comparisons at this share"
    return f"{waited_us / 1e6:.0f} of {plan.dwell_us / 1e6:g} s at this share" if waited_us < plan.dwell_us else ""


def _forward(plan: Candidate, stage: CandidateStage, evidence: Evidence, lacks: str) -> Verdict:
    """Return the next step, if the evidence allows it."""
    following = next((share for share in plan.steps if share > stage.share), WHOLE)
    if following == WHOLE:
        if evidence.lower > -plan.tolerance:
            if lacks:
                return _stay(stage, lacks)
            return Verdict(Action.PROMOTE, WHOLE, proof(plan, evidence))
        return _stay(stage, f"not shown to be better yet{_more(evidence)}")
    risk = following * max(0.0, -evidence.lower)
    if risk > plan.risk:
        return _stay(stage, f"a share of {following:g} might cost {risk:.3g} errors a query")
    return Verdict(Action.STEP, following, f"it costs {risk:.3g} errors a query at most")


def _fault(plan: Candidate, evidence: Evidence, guards: Mapping[str, float]) -> str:
    measured = dict(guards)
    if evidence.candidate_loss is not None and evidence.pairs >= plan.least:
        measured.setdefault("loss", evidence.candidate_loss)
    for name, limit in sorted(plan.limits.items()):
        value = measured.get(name)
        if value is not None and not value <= limit:  # nor NaN
            return f"{name} {value:.3g} is over its limit of {limit:g}: {GUARDS.get(name, name)}"
    if evidence.least_cost > plan.budget:
        return f"it has cost {evidence.least_cost:.1f} errors at least, over its budget of {plan.budget:g}"
    return "it is worse" if evidence.upper < -max(0.0, plan.tolerance) else ""


def _stay(stage: CandidateStage, reason: str) -> Verdict:
    return Verdict(Action.STAY, stage.share, reason)


def proof(plan: Candidate, evidence: Evidence) -> str:
    """Say why a candidate may take over, for a person; what `bounds` says stands beside it."""
    return "it is better" if evidence.is_better else f"it costs {plan.tolerance:g} errors a query at most"


def bounds(evidence: Evidence) -> str:
    """Return the difference with its bounds, for a person."""
    return f"difference {evidence.difference:.3f} [{evidence.lower:.3f}, {evidence.upper:.3f}]"


def _more(evidence: Evidence) -> str:
    return "" if not evidence.missing else f", about {evidence.missing:,} more comparisons needed"


def fault_of_plan(plan: Candidate) -> str:
    """Say what is wrong with a plan; empty = nothing."""
    shares = plan.steps
    faults = {
        "steps must be shares that rise": not shares or list(shares) != sorted(set(shares)) or shares[0] < 0.0,
        "the last step must be 1: the candidate takes over": WHOLE not in shares[-1:],
        f"holdback must lie in [0, 1), not {plan.holdback:g}": not 0.0 <= plan.holdback < WHOLE,
        f"alpha must lie between 0 and 1, not {plan.alpha:g}": not 0.0 < plan.alpha < 1.0,
        f"least must be at least 1, not {plan.least}": plan.least < 1,
        "risk, budget, tolerance and limits must be finite": not all(
            map(isfinite, (plan.risk, plan.budget, plan.tolerance, *plan.limits.values()))
        ),
    }
    unknown = sorted(set(plan.limits) - GUARDS.keys())
    if unknown:
        faults[f"there is no guard {unknown[0]}; there are: {', '.join(GUARDS)}"] = True
    return next((fault for fault, is_there in faults.items() if is_there), "")
