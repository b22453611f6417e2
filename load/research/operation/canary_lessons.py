"""What it costs to let a canary teach its model's arm: `docs/versions.md` has the figures.

A model errs in 10 % of the queries, another one in 20 %. After 2,000 queries the first gets a canary for 5,000, which
then ends or takes over for 5,000 more. A policy chooses between the two, and feedback comes at once.
"""

from __future__ import annotations

from random import Random
from statistics import mean, median
from typing import TYPE_CHECKING, Final, NamedTuple

from policies import registry
from policies.draw import pick
from policies.lessons import Lesson

if TYPE_CHECKING:
    from policies.contract import Policy, State

# How the losses of a canary and of the version that serves teach their arm.
MIXED, ALONE, WEIGHED = "both", "the version that serves alone", "by how often it is drawn"
BEFORE, WITH, AFTER = range(3)
QUERIES: Final = (2_000, 5_000, 5_000)


class Case(NamedTuple):
    """What is played: error rates, and the canary's share of its model's queries."""

    policy: str
    share: float
    canary: float = 0.9
    stable: float = 0.1
    other: float = 0.2
    takes_over: bool = False


class Played(NamedTuple):
    """What came of it, by phase: errors a query, and how likely the model is at the end; and when it was back.

    `back` is the number of queries after the canary's end until the model is asked with more than a half.
    """

    errors: tuple[float, ...]
    weights: tuple[float, ...]
    back: int


def play(case: Case, way: str, seed: int, queries: tuple[int, ...] = QUERIES) -> Played:
    """Play a case once."""
    policy, random = registry.parse(case.policy), Random(seed)  # noqa: S311 - a simulation
    state, errors, weights, back = policy.init(2), [], [], queries[AFTER]
    for phase, count in enumerate(queries):
        share = case.share if phase == WITH else 0.0
        rate = case.canary if phase == AFTER and case.takes_over else case.stable
        cost = 0.0
        for number in range(count):
            shares = policy.propensities(state, 2)
            chosen = (0, 1) if policy.full_information else (pick(shares, random.random()),)
            is_canary = random.random() < share
            rates = (case.canary if is_canary else rate, case.other)
            lost = [float(random.random() < each) for each in rates]
            cost += lost[chosen[0] if len(chosen) == 1 else int(_weight(policy, state) < 0.5)]
            losses: list[float | None] = [lost[arm] if arm in chosen else None for arm in range(2)]
            if way != MIXED and is_canary:
                losses[0] = None
            if way == WEIGHED and share and not is_canary:
                shares = (shares[0] * (1.0 - share), shares[1])
            state = policy.observe(state, 2, Lesson(chosen, shares, losses))
            if phase == AFTER and back == count and _weight(policy, state) > 0.5:
                back = number
        errors.append(cost / count)
        weights.append(_weight(policy, state))
    return Played(tuple(errors), tuple(weights), back)


def _weight(policy: Policy, state: State) -> float:
    return (policy.weights if policy.full_information else policy.propensities)(state, 2)[0]


def told(case: Case, way: str, runs: int = 10) -> str:
    """Return the figures of a case as a row of the page: means of so many runs."""
    found = [play(case, way, seed) for seed in range(runs)]
    with_canary, after, weight = (
        mean(each.errors[WITH] for each in found),
        mean(each.errors[AFTER] for each in found),
        mean(each.weights[WITH] for each in found),
    )
    back = median(each.back for each in found)
    when = f"over {QUERIES[AFTER]:,}" if back >= QUERIES[AFTER] else f"{back:,.0f}"
    return f"| `{case.policy}` | {case.share:.0%} | {way} | {with_canary:.1%} | {weight:.2f} | {after:.1%} | {when} |"
