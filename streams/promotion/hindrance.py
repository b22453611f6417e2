"""Why a candidate cannot be compared with its incumbent: by what is deployed, or by what was observed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies import assignment, registry
from policies.contract import is_stepwise
from policies.errors import PolicyError
from policies.loss_rules import kind_named
from schemas.records import JoinStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import Application, Candidate, Observation

# Kind of loss of which only the served answer's is known.
_GIVEN = "given"


def hindrance(plan: Candidate, applications: Iterable[Application], share: float | None = None) -> str:
    """Say why no application's answers can compare a version with the one that serves; empty = some can.

    Args:
        plan: of the candidate; a policy has its application.
        applications: that are deployed.
        share: of the queries that the version answers; 0 = it is a shadow, None = it does not run.
    """
    if plan.kind != "version":
        return ""
    reasons = [_hindrance(plan.name, each, share) for each in applications if plan.name in each.asks]
    if not reasons:
        return f"no application asks {plan.name}"
    return "" if "" in reasons else "; ".join(reasons)


def counted_once(plan: Candidate, applications: Iterable[Application]) -> str:
    """Say in which applications each person counts once and no more, whatever the share; empty = in none."""
    is_version = plan.kind == "version"
    standing = [each for each in applications if each.assign == assignment.CONTEXT and not each.sticky_s]
    by_person = [each for each in standing if is_version or not each.per_context]  # else the query draws the arm
    names = [each.name for each in by_person if plan.name in (each.asks if is_version else (each.name,))]
    if not names:
        return ""
    return (
        f"a draw of {', '.join(names)} stands for ever (sticky_s is 0), so each person counts once, at one share: where"
        " no new people come it gets stuck; set sticky_s, such as 604800"
    )


def _hindrance(model: str, application: Application, share: float | None) -> str:
    name = application.name
    if model not in application.models:
        return f"{name} asks {model} in a stage only: feedback does not judge that"
    if model in application.versions:
        return (
            f"{name} names {model}@{application.versions[model]} and no draw decides which version answers it: take the"
            " version out of its models with skysail app set"
        )
    if _never_asks(application, application.models.index(model)):
        return f"the policy of {name} never asks {model}: {application.policy}"
    if kind_named(application.loss) == _GIVEN and share == 0.0:
        return f"the feedback of {name} is the loss of the served answer: it does not judge a shadow"
    return ""


def _never_asks(application: Application, arm: int) -> bool:
    """Tell whether a policy that learns nothing gives a model no queries."""
    count = len(application.models)
    try:
        policy = registry.policy_of(application)
        state = policy.init(count)
        return not state and not is_stepwise(policy) and policy.propensities(state, count)[arm] == 0.0
    except (PolicyError, ArithmeticError, IndexError, ValueError):
        return False  # of a policy from outside: its queries say so


class Heard:
    """Counts what observations have to compare a candidate by.

    Args:
        plan: of the candidate.
    """

    def __init__(self, plan: Candidate) -> None:
        self._plan = plan
        self._joined = self._asked = self._candidate = self._incumbent = 0

    def take(self, seen: Observation) -> None:
        """Count one observation."""
        plan, decision = self._plan, seen.decision
        if seen.status is not JoinStatus.JOINED:
            return
        if plan.kind != "version":
            if seen.application == plan.name:
                self._joined += 1
                self._asked += 1
                self._candidate += 1
                self._incumbent += decision.policy == plan.incumbent
        elif plan.name in decision.arms:
            versions = {version for model, version, _ in seen.versions if model == plan.name}
            self._joined += 1
            self._asked += any(decision.arms[arm] == plan.name for arm in decision.chosen) or bool(versions)
            self._candidate += plan.candidate in versions
            self._incumbent += plan.incumbent in versions

    @property
    def lacks(self) -> str:
        """What is missing; empty = nothing is. Without numbers, which would change all the time."""
        plan = self._plan
        if not self._joined:
            return "no answer that could compare them has had feedback"
        if not self._asked:
            return f"no answer that had feedback asked {plan.name}"
        for version, count in ((plan.candidate, self._candidate), (plan.incumbent, self._incumbent)):
            if not count:
                return f"no answer that had feedback is of {version}, nor tells what it would have cost"
        return ""
