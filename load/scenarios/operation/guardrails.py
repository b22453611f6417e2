"""`guardrails`: a candidate whose loss is better and whose latency is worse is held back, and by how many errors.

A simulated month, looked at each day. Half of the queries are the candidate's. Beside the loss three metrics have
guardrails. The kernel of promotion sees each query; on the same draws stand a t-test of each metric, peeked at each
day, and the kernel's own bounds with alpha divided among all comparisons for promotion, too (Bonferroni everywhere).
"""

from __future__ import annotations

from collections import Counter
from math import sqrt
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.figures import FAULTS, RIGHT, SHOWN, Figures, at_least, at_most
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import (
    Candidate,
    Decision,
    JoinStatus,
    Measurement,
    MetricValue,
    Observation,
    VersionLoss,
    WatchedMetric,
)
from streams.promotion.guardrails import guardrails
from streams.promotion.lifecycle import comparison, next_verdict
from streams.promotion.verdict import Action, CandidateStage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from load.harness.system import Stage
    from streams.promotion.evidence import Comparison

NAME = "guardrails"
ALPHA: Final = 0.1
DAYS, A_DAY, RUNS, _FEW = 30, 150, 60, 10
LIMIT: Final = 0.1  # how much worse each metric may be, as a loss
METRICS: Final = ("latency", "price", "returned")
_BASE, _SPREAD = 0.4, 0.15  # of metrics
_LOSS: Final = 0.4  # mean loss of the version that serves
_WINDOW_US: Final = 60_000_000
_DECISION = Decision((0,), 0, "shop", "single()", ("model",), (1.0,))
_STAGE = CandidateStage(0.5, 0)
PROMOTED, BACK, STAYED = "promoted", "back", "stayed"


class World(NamedTuple):
    """By how much the candidate's mean loss is less, and each metric's more."""

    gain: float
    worse: tuple[float, float, float]


WORLDS: Final[Mapping[str, World]] = {
    "better": World(0.2, (0.0, 0.0, 0.0)),
    "at_its_limit": World(0.2, (LIMIT, 0.0, 0.0)),  # to promote it is an error
    "slower": World(0.2, (0.3, 0.0, 0.0)),
    "all_at_their_limits": World(0.0, (LIMIT, LIMIT, LIMIT)),  # no worse than may be: to send it back is an error
}
RULES: Final = ("skysail", "t_test", "bonferroni")

FIGURES = Figures(
    FAULTS("skysail_promoted_at_its_limit", "skysail_back_all_at_their_limits", must=at_most(ALPHA)),
    FAULTS("skysail_promoted_slower", must=at_most(0.0)),
    RIGHT("skysail_promoted_better", must=at_least(0.9)),
    SHOWN(*[f"{rule}_{end}_{world}" for rule in RULES for world in WORLDS for end in (PROMOTED, BACK)]),
    SHOWN(*[f"{rule}_days_to_promote" for rule in RULES]),
)


async def run(stage: Stage) -> Result:
    """Play each world some times, and judge it by each rule."""
    seeds = range(stage.seed, stage.seed + (_FEW if stage.short else RUNS))
    figures: dict[str, float] = {}
    for world, its in WORLDS.items():
        ends = [played(its, seed) for seed in seeds]
        for rule in RULES:
            counts = Counter(end for each in ends for end, _ in [each[rule]])
            figures |= {f"{rule}_{end}_{world}": counts[end] / len(seeds) for end in (PROMOTED, BACK)}
            days = [day for each in ends for end, day in [each[rule]] if end == PROMOTED]
            if world == "better" and days:
                figures[f"{rule}_days_to_promote"] = float(median(days))
    parameters: dict[str, float | str] = {
        "form": stage.form,
        "runs": len(seeds),
        "days": DAYS,
        "queries_a_day": A_DAY,
        "alpha": ALPHA,
    }
    return Result(NAME, figures, parameters, notes=(f"each metric may be {LIMIT:g} of its span worse",))


def played(world: World, seed: int) -> dict[str, tuple[str, int]]:
    """Return how the candidate of a world ends by each rule, and on which day."""
    metrics = tuple([WatchedMetric("shop", name, 1.0, "", LIMIT) for name in METRICS])
    plan = Candidate("version", "model", "2", "1", 0, (0.5, 1.0), alpha=ALPHA, budget=1e9, metrics=metrics)
    found, ends = comparison(plan, _WINDOW_US), dict.fromkeys(RULES, (STAYED, DAYS))
    mine, losses = _drawn(world, seed)
    for day in range(1, DAYS + 1):
        today = slice((day - 1) * A_DAY, day * A_DAY)
        for query, (is_mine, row) in enumerate(zip(mine[today], losses[today].tolist(), strict=True), today.start):
            _fold(found, query, "2" if is_mine else "1", row)
        judged = {
            "skysail": _by_kernel(plan, found),
            "t_test": _by_t_tests(mine[: today.stop], losses[: today.stop]),
            "bonferroni": _divided(plan, found),
        }
        for rule, end in judged.items():
            if ends[rule][0] == STAYED and end != STAYED:
                ends[rule] = end, day
    return ends


def _drawn(world: World, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which queries are the candidate's, and the loss and metrics of each."""
    random, count = np.random.default_rng(seed), DAYS * A_DAY
    mine = random.random(count) < 0.5
    losses = (random.random(count) < _LOSS - world.gain * mine).astype(float)
    means = _BASE + np.outer(mine, world.worse)
    measured = np.clip(means + random.uniform(-2 * _SPREAD, 2 * _SPREAD, means.shape), 0.0, 1.0)
    return mine, np.column_stack([losses, measured])


def _fold(found: Comparison, query: int, version: str, row: Sequence[float]) -> None:
    loss, *rest = row
    name, versions = f"q{query}", (VersionLoss("model", version, loss),)
    values = tuple([MetricValue(metric, value, value) for metric, value in zip(METRICS, rest, strict=True)])
    found.measure(Measurement(name, "shop", None, _DECISION, values, (f"model@{version}",)), 0)
    seen = Observation(name, "shop", None, _DECISION, (loss,), loss, None, JoinStatus.JOINED, 0, 0, versions=versions)
    found.take(seen, 0)


def _by_kernel(plan: Candidate, found: Comparison) -> str:
    verdict = next_verdict(plan, _STAGE, found.evidence(plan.alpha), 1, {}, guardrails(plan, found))
    return {Action.PROMOTE: PROMOTED, Action.BACK: BACK}.get(verdict.action, STAYED)


def _divided(plan: Candidate, found: Comparison) -> str:
    """Judge by the same bounds, each with its part of alpha whatever is decided."""
    part = plan.alpha / (1 + len(METRICS))
    loss, measured = found.evidence(part), found.measured(part)
    if loss.upper < 0.0 or any(one.upper < -LIMIT for one in measured):
        return BACK
    return PROMOTED if loss.lower > 0.0 and all(one.lower > -LIMIT for one in measured) else STAYED


def _by_t_tests(mine: NDArray[np.bool_], losses: NDArray[np.float64]) -> str:
    """Judge by the usual test of each at the level alpha, as if this were the only look."""
    level, scores = NormalDist().inv_cdf(1.0 - ALPHA / 2.0), [*_scores(mine, losses)]
    if any(score < -level for score in scores):
        return BACK
    return PROMOTED if all(score > level for score in scores) else STAYED


def _scores(mine: NDArray[np.bool_], losses: NDArray[np.float64]) -> Iterator[float]:
    """Yield by how many standard errors the candidate is better than it has to be."""
    candidate, incumbent = losses[mine], losses[~mine]
    for column, slack in enumerate((0.0, LIMIT, LIMIT, LIMIT)):
        ours, theirs = candidate[:, column], incumbent[:, column]
        error = sqrt(ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs))
        yield (theirs.mean() - ours.mean() + slack) / error


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a candidate that is better and slower is held back; errors beside peeked t-tests and Bonferroni; simulated",
    short=True,
    offline=True,
)
