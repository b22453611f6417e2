"""What drift and late feedback do to policies, and what the logged propensity is worth."""

from __future__ import annotations

import pytest

from policies.contract import Situation
from policies.discounted_ucb import DiscountedUcb
from policies.draw import pick, uniform
from policies.exp3 import Exp3
from policies.lessons import Lesson
from policies.linear_thompson import LinearThompson

DECISIONS = 200
LOGGED = (0.5, 0.5)  # all decisions were made from the first state


def estimated(first: int, *, recomputed: bool) -> list[float]:
    """Return each arm's estimated loss a decision, both arms' true one being 0.5; one arm's feedback comes first."""
    policy = Exp3(share=0.0)
    state, totals = policy.init(2), [0.0, 0.0]
    for arm in [first] * (DECISIONS // 2) + [1 - first] * (DECISIONS // 2):
        propensities = policy.propensities(state, 2) if recomputed else LOGGED
        totals[arm] += 0.5 / propensities[arm]
        state = policy.observe(state, 2, Lesson((arm,), propensities, (0.5, 0.5)))
    return [total / DECISIONS for total in totals]


def test_logged_propensities_estimate_losses_exactly_in_any_order() -> None:
    """Late feedback divided by what was logged with the decision gives the true loss of both arms."""
    assert estimated(0, recomputed=False) == estimated(1, recomputed=False) == pytest.approx([0.5, 0.5])


def test_recomputed_propensities_cost_a_multiple_and_depend_on_the_order() -> None:
    """Divided by the probability at update time, the arm whose feedback comes first seems 14 times as bad (7.2)."""
    early, late = estimated(0, recomputed=True)
    assert early > 10 * 0.5
    assert early > 1.5 * late
    assert estimated(1, recomputed=True) == pytest.approx([late, early])


def loss_of_the_first_arm(*, recomputed: bool) -> float:
    """Estimate from the log of a learning policy what always asking the first arm would cost; in truth 0.5.

    Queries come in batches that are decided from one state; then their feedback follows, one by one.
    """
    policy, steps, batch = LinearThompson(features=1, gamma=0.05), 1_200, 400
    state, total = policy.init(2), 0.0
    for start in range(0, steps, batch):
        ask, decided = policy.propensities_in(state, 2), []
        for step in range(start, start + batch):
            features = (uniform(str(step), "feature") - 0.5,)
            shares = ask(Situation(features))
            decided.append((step, features, shares, pick(shares, uniform(str(step)))))
        for step, features, logged, arm in decided:
            shares = policy.propensities_in(state, 2)(Situation(features)) if recomputed else logged
            loss = float(uniform(str(step), "loss") < (0.5, 0.3)[arm])
            total += loss / shares[0] if arm == 0 else 0.0
            state = policy.observe(state, 2, Lesson((arm,), shares, (loss, loss), features))
    return total / steps


def test_what_a_log_says_about_another_policy_is_true_with_logged_propensities_alone() -> None:
    """Of a model that costs .5 it says .48; with those at the time of the feedback 2.47, where no loss exceeds 1."""
    assert loss_of_the_first_arm(recomputed=False) == pytest.approx(0.5, abs=0.1)
    assert loss_of_the_first_arm(recomputed=True) > 1.0


def test_discounted_ucb_leaves_a_model_that_breaks_and_returns_when_it_is_repaired() -> None:
    """Of 3,000 queries the best model fails in the middle third; each third ends with the better one."""
    policy = DiscountedUcb()
    state, asked = policy.init(2), list[int]()
    for step in range(3_000):
        (arm,) = policy.select(state, 2, 0.0)
        losses = (0.9 if 1_000 <= step < 2_000 else 0.1, 0.5)
        state = policy.observe(state, 2, Lesson((arm,), (1.0, 1.0), losses))
        asked.append(arm)
    shares = [asked[end - 500 : end].count(arm) / 500 for end, arm in ((1_000, 0), (2_000, 1), (3_000, 0))]
    assert min(shares) > 0.8
