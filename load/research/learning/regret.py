"""Regret of our bandits beside those of river and MABWiser, which `regret_elsewhere.json` holds by seed.

`tests/unit/policies/regret_elsewhere.py` made that file, in an environment of its own.
"""

from __future__ import annotations

import json
from functools import cache
from math import sqrt
from pathlib import Path

import numpy as np

from policies.draw import pick
from policies.lessons import Lesson
from policies.registry import parse

MEANS = (0.5, 0.55, 0.6, 0.65, 0.7)  # reward of each arm
HORIZONS = (1_000, 20_000)
RUNS = 30
_ELSEWHERE = Path(__file__).with_name("regret_elsewhere.json")
# The same rule: rewards are 1 - losses; theirs mix in nothing.
POLICIES = {"ucb1": "ucb1(exploration=2)", "thompson": "thompson(gamma=0)"}


def regret(policy: str, horizon: int, seed: int) -> float:
    """Return what a policy has lost, in expectation, against always asking the best arm."""
    made, random = parse(POLICIES[policy]), np.random.default_rng(seed)
    arms = len(MEANS)
    losses = (random.random((horizon, arms)) >= MEANS).astype(float).tolist()
    draws, state, lost = random.random(horizon).tolist(), made.init(arms), 0.0
    for row, u in zip(losses, draws, strict=True):
        shares = made.propensities(state, arms)
        arm = pick(shares, u)
        seen = [row[arm] if at == arm else None for at in range(arms)]
        state = made.observe(state, arms, Lesson((arm,), shares, seen))
        lost += max(MEANS) - MEANS[arm]
    return lost


@cache
def _of_all_runs(policy: str, horizon: int) -> list[float]:
    return [regret(policy, horizon, seed) for seed in range(RUNS)]


def apart(policy: str, library: str, horizon: int) -> float:
    """Return how many standard errors our mean regret lies from a library's."""
    ours = _of_all_runs(policy, horizon)
    elsewhere = json.loads(_ELSEWHERE.read_text())
    assert (elsewhere["means"], elsewhere["horizons"]) == ([*MEANS], [*HORIZONS])
    theirs = [run[HORIZONS.index(horizon)] for run in elsewhere["regret"][f"{policy} {library}"]]
    error = sqrt(np.var(ours, ddof=1) / len(ours) + np.var(theirs, ddof=1) / len(theirs))
    return float(abs(np.mean(ours) - np.mean(theirs)) / error)
