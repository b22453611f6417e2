"""Observations of a policy that serves models whose mean losses are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies import registry
from policies.draw import pick
from schemas.records import Decision, JoinStatus, Observation, PolicyState
from tests.lessons import apply

if TYPE_CHECKING:
    from collections.abc import Sequence

ARMS = ("good", "fair", "bad")
MEANS = (0.1, 0.3, 0.6)
STEP_US = 1_000_000


def observation(number: int, arm: int, losses: Sequence[float | None], shares: tuple[float, ...]) -> Observation:
    """Return one observation, a second after the one before, with feedback half a second later."""
    at = number * STEP_US
    decision = Decision((arm,), number, "shop", "exp3()", ARMS, shares)
    return Observation(
        f"q-{number}",
        "shop",
        None,
        decision,
        tuple(losses),
        losses[arm],
        None,
        JoinStatus.JOINED,
        at,
        at + STEP_US // 2,
    )


def served(policy: str, count: int, seed: int = 0) -> tuple[Observation, ...]:
    """Let a policy serve models whose mean losses are known, and learn at once."""
    random, chosen_by = np.random.default_rng(seed), registry.parse(policy)
    state: PolicyState | None = None
    found = []
    for number in range(count):
        values = chosen_by.init(3) if state is None else state.values
        shares = chosen_by.propensities(values, 3)
        arm = pick(shares, random.random())
        losses = [float(random.random() < MEANS[arm]) if at == arm else None for at in range(3)]
        seen = observation(number, arm, losses, shares)
        seen = seen._replace(decision=seen.decision._replace(policy=registry.spec(chosen_by)))
        state = apply(state, seen)
        found.append(seen)
    return tuple(found)
