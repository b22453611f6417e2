"""Policies played offline: what the scenario counts, and that its page names every policy."""

from __future__ import annotations

import numpy as np
import pytest

from load.research.harness.offline import Played, Stream, play
from load.research.learning import policies
from load.results.results import Result
from policies.registry import POLICIES, parse

# Three queries of truth 1; the first model is always right, the second never, the third at first.
ROWS, LABELS = np.array([[1, 2, 1], [1, 2, 2], [1, 2, 2]]), np.array([1, 1, 1])


def test_a_fixed_model_s_error_is_its_own() -> None:
    """One model is asked, whatever the others say."""
    assert play(parse("single(arm=1)"), Stream(ROWS, LABELS), 1) == Played(error=1.0, asked=1.0)
    assert play(parse("single(arm=2)"), Stream(ROWS, LABELS), 1).error == pytest.approx(2 / 3)


def test_ensembles_ask_every_model_and_contexts_have_states_of_their_own() -> None:
    """A user whose model is another one's worst is learnt apart."""
    rows = np.array([[1, 2], [2, 1]] * 200)
    labels, users = np.ones(400, int), ("ann", "ben") * 200
    together, apart = (play(parse("exp4"), Stream(rows, labels, contexts), 1) for contexts in ((), users))
    assert together.asked == apart.asked == 2
    assert apart.error < 0.1 < together.error


def test_late_feedback_is_learnt_late() -> None:
    """Until then the policy asks as at first."""
    rows, labels = np.array([[2, 1]] * 100), np.ones(100, int)
    at_once, late = (play(parse("ucb1"), Stream(rows, labels, late=lateness), 1).error for lateness in (0, 90))
    assert at_once < 0.3
    assert late > 0.85


def test_baselines_are_those_of_hindsight_and_of_a_vote() -> None:
    """The first of equals wins a vote."""
    assert policies.baselines(Stream(ROWS, LABELS)) == {
        "best model": 0.0,
        "equal vote": pytest.approx(2 / 3),
        "one at random": pytest.approx(5 / 9),
    }


def test_the_page_names_every_policy() -> None:
    """One that is new has to say what it suits."""
    assert policies.SUITS.keys() == POLICIES.keys()
    names = [*policies.POLICIES, "best_model", "equal_vote", "one_at_random"]
    result = Result(policies.NAME, {f"steady_{name}": 0.5 for name in names}, {"runs": 3})
    page = policies.SCENARIO.written(result, {})
    assert "| `exp3` | 0.500 |" in page
    assert "nan" not in page
