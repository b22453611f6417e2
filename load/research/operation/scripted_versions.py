"""Two versions of a model with scripted losses, and the promotion kernel on them, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from schemas.records import Candidate, Decision, JoinStatus, Observation, VersionLoss
from streams.promotion.lifecycle import Lifecycle
from streams.promotion.versions import VersionEvidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.records import Promotion

MODEL, CANDIDATE, INCUMBENT = "model", "2", "1"
KEY = f"version/{MODEL}"
_DECISION = Decision((0,), 0, "app", "single()", (MODEL,), (1.0,))
_LOOK_US = 2_000_000  # how often the control role judges
_LOOK_PAIRS = 25
_DRAWN = 4_096
_WINDOW_US = 600_000_000
_ENDS = frozenset(("back", "promote"))  # steps


@dataclass(frozen=True, slots=True)
class Errors:
    """How often each version is wrong."""

    candidate: float
    incumbent: float


@dataclass(frozen=True, slots=True)
class Way:
    """What became of a candidate.

    Attributes:
        action: of its last step; `step` or `begin` = it is still on its way.
        seconds: from its wish to its last step.
        queries: that were asked meanwhile.
        cost: wrong answers that its share brought, beyond those of the incumbent, as expected.
    """

    action: str
    seconds: float
    queries: int
    cost: float


def observed(number: int, version: str, loss: float, shadow: float | None = None) -> Observation:
    """Return the observation of a query that one version answered; `shadow`: the loss of the candidate as a shadow."""
    versions: tuple[VersionLoss, ...] = (VersionLoss(MODEL, version, loss),)
    if shadow is not None:
        versions = (*versions, VersionLoss(MODEL, CANDIDATE, shadow))
    return Observation(
        *(f"q{number}", "app", None, _DECISION, (loss,), loss, None, JoinStatus.JOINED, 0, 0), versions=versions
    )


def _draws(seed: int) -> Iterator[tuple[float, float]]:
    """Yield two uniform numbers for each query: who answers, and whether that is wrong."""
    random = np.random.default_rng(seed)
    while True:
        yield from map(tuple, random.random((_DRAWN, 2)).tolist())


def walk(plan: Candidate, errors: Errors, rate: float, delay_us: int, limit_us: int, seed: int) -> Way:
    """Carry a candidate on until it is over, has taken over, or the time is.

    Args:
        plan: of version 2 over version 1, since 0.
        errors: of both.
        rate: queries a second.
        delay_us: of the feedback.
        limit_us: the time.
        seed: of who answers, and what is wrong.
    """
    lifecycle = Lifecycle(_WINDOW_US)
    lifecycle.wish(KEY, plan)
    share, answered, look_us, draws = 0.0, 0, 0, _draws(seed)
    told: list[tuple[int, int, str, float]] = []  # a heap of feedback that is on its way
    for number in count():
        now_us = int(number * 1e6 / rate)
        who, how = next(draws)
        is_candidate = who < share
        answered += is_candidate
        is_wrong = how < (errors.candidate if is_candidate else errors.incumbent)
        heappush(told, (now_us + delay_us, number, CANDIDATE if is_candidate else INCUMBENT, float(is_wrong)))
        while told and told[0][0] <= now_us:
            at_us, told_number, version, loss = heappop(told)
            lifecycle.observe(observed(told_number, version, loss), at_us)
        if now_us >= look_us:
            look_us = now_us + _LOOK_US
            step = next(iter(lifecycle.steps(now_us)), None)  # there is one candidate
            if step is not None:
                lifecycle.past(step)
                share = step.share
            if step is not None and step.action in _ENDS:
                return _way(step, number, answered, errors)
        if now_us > limit_us:
            return Way("step", now_us / 1e6, number, answered * (errors.candidate - errors.incumbent))
    raise AssertionError("time ends")


def _way(step: Promotion, queries: int, answered: int, errors: Errors) -> Way:
    cost = answered * (errors.candidate - errors.incumbent)
    return Way(step.action, step.time_us / 1e6, queries, cost)


def queries_to_tell(share: float, errors: Errors, alpha: float, limit: int, seed: int) -> tuple[int, bool]:
    """Return after how many queries a canary's bounds tell which version is better, and whether that is the candidate.

    Args:
        share: of the queries that the candidate answers, all the time; 0 = a shadow, whose errors are its own.
        errors: of both.
        alpha: of the bounds.
        limit: queries; as many = the bounds told nothing.
        seed: as in `walk`.
    """
    fold, draws, looked = VersionEvidence(MODEL, CANDIDATE, INCUMBENT), _draws(seed), 0
    found = fold.evidence(alpha)
    for number in range(limit):
        who, how = next(draws)
        if not share:
            fold.take(observed(number, INCUMBENT, float(who < errors.incumbent), float(how < errors.candidate)))
        else:
            version, error = (CANDIDATE, errors.candidate) if who < share else (INCUMBENT, errors.incumbent)
            fold.take(observed(number, version, float(how < error)))
        if (not share or who < share) and (looked := looked + 1) % _LOOK_PAIRS == 0:
            found = fold.evidence(alpha)
            if found.lower > 0.0 or found.upper < 0.0:
                return number + 1, found.lower > 0.0
    return limit, False
