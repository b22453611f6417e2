"""The scenario `costs`: its figures are those of NumPy, and the cheaper policy is found."""

from __future__ import annotations

import numpy as np
import pytest

from load.models.fraud import FRAUD, OK, Payments, payments
from load.scenarios.learning import costs
from load.scenarios.learning.payment_loop import served


def test_learning_what_mistakes_cost_is_cheaper_with_more_of_them() -> None:
    """In 1,500 payments already; by errors the wary model is not promoted."""
    found = costs.measured(1_500, seed=3).figures
    for policy in costs.POLICIES:
        assert found[f"{policy}_cost_cost"] < found[f"{policy}_zero_one_cost"]
        assert found[f"{policy}_cost_error"] > found[f"{policy}_zero_one_error"]
    assert found["not_as_charged"] == 0
    assert found["zero_one_promotion_gain"] < 0.0


def test_what_is_charged_is_what_the_matrix_says_of_what_was_answered() -> None:
    """Of every payment; a charge that is another one is counted."""
    data = payments(60, 1)
    found = served(data, "exp3", costs.LOSSES["cost"], 1)
    assert len(found.answers) == len(found.charged) == 60
    assert costs._differs(data, found.charged) == 0
    number, (answer, cost) = next(iter(found.charged.items()))
    assert costs._differs(data, {**found.charged, number: (answer, cost + 1.0)}) == 1


def test_costs_of_a_thousand_are_means() -> None:
    """A miss, an alarm and two right answers."""
    data = Payments((FRAUD, OK, OK, FRAUD), {})
    assert costs._cost(data, (OK, FRAUD, OK, FRAUD)) == pytest.approx(41 / 4 * 1_000)
    assert costs._error(data, (OK, FRAUD, OK, FRAUD)) == 0.5


def test_who_is_right_most_often_misses_most_frauds() -> None:
    """Else the scenario would show nothing."""
    data = payments(4_000, 2)
    told = np.array(data.labels)
    errors = {name: float((np.array(said) != told).mean()) for name, said in data.answers.items()}
    missed = {name: float((np.array(said)[told == FRAUD] == OK).mean()) for name, said in data.answers.items()}
    assert max(errors["plain"], errors["forest"]) < errors["wary"] / 2
    assert min(missed["plain"], missed["forest"]) > 3 * missed["wary"]
