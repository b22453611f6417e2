"""Two versions of a model with scripted losses, and the promotion kernel on them, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from schemas.records import Candidate, Decision, JoinStatus, Observation, VersionLoss
from streams.promotion.lifecycle import Lifecycle
from streams.promotion.versions import VersionEvidence
from streams.testing.events import Events

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    arrivals_us = (int(number * 1e6 / rate) for number in count())
    return _Walk(plan, errors, delay_us, limit_us, seed).run(arrivals_us)


class _Walk:
    """A candidate on its way: queries come, their feedback follows, and the control role looks now and then."""

    def __init__(self, plan: Candidate, errors: Errors, delay_us: int, limit_us: int, seed: int) -> None:
        self._errors, self._delay_us, self._limit_us, self._draws = errors, delay_us, limit_us, _draws(seed)
        self._lifecycle, self._events = Lifecycle(_WINDOW_US), Events()
        self._lifecycle.wish(KEY, plan)
        self._share, self._answered, self._look_us = 0.0, 0, 0
        self._way: Way | None = None

    def run(self, arrivals_us: Iterator[int]) -> Way:
        """Return what becomes of it."""
        self._events.run(arrivals_us, self._ask)
        assert self._way is not None, "time ends"
        return self._way

    def _ask(self, now_us: int, number: int) -> None:
        who, how = next(self._draws)
        is_candidate = who < self._share
        self._answered += is_candidate
        is_wrong = how < (self._errors.candidate if is_candidate else self._errors.incumbent)
        told = observed(number, CANDIDATE if is_candidate else INCUMBENT, float(is_wrong))
        self._events.add(now_us + self._delay_us, self._tell, told)
        if now_us >= self._look_us:
            self._look_us = now_us + _LOOK_US
            self._events.add(now_us, self._look, number)
        if now_us > self._limit_us:
            self._events.add(now_us, self._end, Way("step", now_us / 1e6, number, self._cost))

    def _tell(self, now_us: int, observation: Observation) -> None:
        self._lifecycle.observe(observation, now_us)

    def _look(self, now_us: int, number: int) -> None:
        step = next(iter(self._lifecycle.steps(now_us)), None)  # there is one candidate
        if step is None:
            return
        self._lifecycle.past(step)
        self._share = step.share
        if step.action in _ENDS:
            self._end(now_us, Way(step.action, step.time_us / 1e6, number, self._cost))

    def _end(self, _now_us: int, way: Way) -> None:
        self._way = way
        self._events.stop()

    @property
    def _cost(self) -> float:
        return self._answered * (self._errors.candidate - self._errors.incumbent)


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
