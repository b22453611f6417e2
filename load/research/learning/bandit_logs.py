"""Logs of which the truth is known, drawn from a seed: how often intervals hold, and what estimates cost."""

from __future__ import annotations

from math import sqrt
from time import process_time
from typing import TYPE_CHECKING

import numpy as np

from policies.estimators.estimate import Estimate
from policies.estimators.log import Log
from policies.estimators.registry import ESTIMATORS, estimate
from policies.estimators.reward_model import expected
from policies.estimators.sequence import ConfidenceSequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policies.estimators.log import Floats

MEANS, LOGGED, TARGET = np.array([0.5, 0.4, 0.2]), np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.7])
TRUE = float(TARGET @ MEANS)
_ROWS = 2_000
_EVERY = 100  # observations between two looks
_ALPHA, _NORMAL_95 = 0.05, 1.959964


def bandit_log(seed: int, rows: int = _ROWS) -> Log:
    """Return a log of a policy that asks one of three models at random."""
    random = np.random.default_rng(seed)
    asked = random.choice(len(MEANS), rows, p=LOGGED)
    losses = np.full((rows, len(MEANS)), np.nan)
    losses[np.arange(rows), asked] = random.random(rows) < MEANS[asked]
    return Log(np.tile(LOGGED, (rows, 1)), np.tile(TARGET, (rows, 1)), losses, expected(losses))


def coverage(runs: int) -> dict[str, float]:
    """Return by estimator the share of seeded intervals of 95 % that hold."""
    held = dict.fromkeys([name for name in ESTIMATORS if name != "full_information"], 0)
    for seed in range(runs):
        for name, each in estimate(bandit_log(seed), held).items():
            held[name] += isinstance(each, Estimate) and each.low <= TRUE <= each.high
    return {name: count / runs for name, count in held.items()}


def always_right(runs: int, rows: int) -> tuple[float, float]:
    """Return the share of runs in which a confidence sequence holds at every look, and that of a naive interval."""
    sequences = naive = 0
    for seed in range(runs):
        log = bandit_log(seed, rows)
        sequences += all(low <= TRUE <= high for low, high in _looks(log))
        naive += all(low <= TRUE <= high for low, high in _naive(log.costs))
    return sequences / runs, naive / runs


def _looks(log: Log) -> Iterator[tuple[float, float]]:
    sequence = ConfidenceSequence(low=0.0)
    for start in range(0, len(log.weights), _EVERY):
        part = slice(start, start + _EVERY)
        sequence.weigh(log.weights[part], log.seen.losses[part])
        yield sequence.bounds(_ALPHA)


def _naive(costs: Floats) -> Iterator[tuple[float, float]]:
    """Yield mean +- 1.96 standard errors."""
    for end in range(_EVERY, len(costs) + 1, _EVERY):
        mean, half = float(costs[:end].mean()), _NORMAL_95 * float(costs[:end].std(ddof=1)) / sqrt(end)
        yield mean - half, mean + half


def seconds(rows: int, arms: int = 5) -> float:
    """Return the CPU time of all estimators with their intervals, and of a confidence sequence, for one log."""
    random = np.random.default_rng(0)
    logged, target = (0.9 * random.dirichlet(np.ones(arms), rows) + 0.1 / arms for _ in range(2))
    asked = (random.random((rows, 1)) > logged.cumsum(axis=1)).sum(axis=1).clip(max=arms - 1)
    losses = np.full((rows, arms), np.nan)
    losses[np.arange(rows), asked] = random.random(rows) < 0.3
    begun_s = process_time()
    log = Log(logged, target, losses, expected(losses))
    estimate(log)
    sequence = ConfidenceSequence(low=0.0)
    sequence.weigh(log.weights, log.seen.losses)
    sequence.bounds(_ALPHA)
    return process_time() - begun_s
