"""Makes `load/research/learning/regret_elsewhere.json`: the regret of the bandits of river and MABWiser, by seed.

Run it by hand in an environment of its own, with Python 3.10:

    pip install numpy==1.23.5 river==0.21.2 mabwiser==2.7.4
    python tests/unit/policies/regret_elsewhere.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from mabwiser.mab import MAB, LearningPolicy
from river import bandit, proba, stats

if TYPE_CHECKING:
    from collections.abc import Callable

MEANS = (0.5, 0.55, 0.6, 0.65, 0.7)
HORIZONS, SEEDS = (1_000, 20_000), 30
OUT = Path(__file__).parents[3] / "load/research/learning/regret_elsewhere.json"


def rewards(seed: int) -> np.ndarray:
    """Return what each arm would give: (queries, arms)."""
    return (np.random.default_rng(seed).random((HORIZONS[-1], len(MEANS))) < MEANS).astype(float)


def regret(asked: list[int]) -> list[float]:
    """Return the expected regret of what was asked, up to each horizon."""
    return [round(sum(max(MEANS) - MEANS[arm] for arm in asked[:horizon]), 6) for horizon in HORIZONS]


def river(made: Callable[[int], bandit.base.Policy], seed: int) -> list[float]:
    """Play one of river's."""
    random.seed(seed)
    policy, given, asked = made(seed), rewards(seed), []
    for row in given:
        arm = policy.pull(range(len(MEANS)))
        policy.update(arm, int(row[arm]))
        asked.append(arm)
    return regret(asked)


def mabwiser(made: LearningPolicy, seed: int) -> list[float]:
    """Play one of MABWiser's; it wants each arm seen once first."""
    policy, given = MAB(list(range(len(MEANS))), made, seed=seed), rewards(seed)
    asked = list(range(len(MEANS)))
    policy.fit(asked, [int(given[row, row]) for row in asked])
    for row in given[len(asked) :]:
        arm = policy.predict()
        policy.partial_fit([arm], [int(row[arm])])
        asked.append(arm)
    return regret(asked)


POLICIES: dict[str, Callable[[int], list[float]]] = {
    "ucb1 river": lambda seed: river(lambda s: bandit.UCB(delta=1, reward_obj=stats.Mean(), seed=s), seed),
    "thompson river": lambda seed: river(lambda s: bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=s), seed),
    "ucb1 mabwiser": lambda seed: mabwiser(LearningPolicy.UCB1(alpha=1.0), seed),
    "thompson mabwiser": lambda seed: mabwiser(LearningPolicy.ThompsonSampling(), seed),
}


def main() -> None:
    """Play all."""
    found = {name: [play(seed) for seed in range(SEEDS)] for name, play in POLICIES.items()}
    report = {"means": MEANS, "horizons": HORIZONS, "regret": found}
    OUT.write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
