"""Estimates worked out by hand, and published ones."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import numpy as np
import pytest

from load.errors import MissingDataError
from load.research.learning.open_bandit import open_bandit
from policies.estimators.delays import delays
from policies.estimators.doubly_robust import dr_os, switch
from policies.estimators.estimate import ratio
from policies.estimators.importance import clipped
from policies.estimators.log import Log, effective
from policies.estimators.registry import Estimate, estimate
from policies.estimators.reward_model import expected
from policies.estimators.tuning import tuned

HERE = Path(__file__).parent

TWO = Log(
    logged=np.array([[0.5, 0.5], [0.25, 0.75], [0.5, 0.5]]),
    target=np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
    losses=np.array([[1.0, np.nan], [0.5, np.nan], [0.25, np.nan]]),
    expected=np.array([[0.6, 0.3], [0.6, 0.3], [0.6, 0.3]]),
)


def value(name: str, log: Log = TWO) -> float:
    """Return an estimate, however little the log says."""
    found = estimate(log, [name], least=0.0)[name]
    assert isinstance(found, Estimate)
    return found.value


def test_weighed_estimates_by_hand() -> None:
    """Weights are 2, 4 and 0; weighed losses 2, 2 and 0."""
    assert value("ipw") == pytest.approx(4 / 3)
    assert value("snipw") == pytest.approx(4 / 6)
    assert ratio(clipped(TWO, 2.0))[0] == pytest.approx((2 * 1.0 + 2 * 0.5 + 0) / 3)
    assert effective(TWO.weights) == pytest.approx(36 / 20)


def test_doubly_robust_estimates_by_hand() -> None:
    """The model expects 0.6, 0.6 and 0.3 of the target; residuals are 0.4, -0.1 and -0.35."""
    assert value("dm") == pytest.approx(1.5 / 3)
    assert value("dr") == pytest.approx((1.5 + 2 * 0.4 - 4 * 0.1) / 3)
    assert ratio(switch(TWO, 3.0))[0] == pytest.approx((1.5 + 2 * 0.4) / 3)
    assert ratio(dr_os(TWO, 4.0))[0] == pytest.approx((1.5 + 8 / 8 * 0.4 - 16 / 20 * 0.1) / 3)


def test_the_ends_of_shrinkage_are_the_model_and_doubly_robust() -> None:
    """Lambda 0 leaves the model, an infinite one all weights; so do bounds on switch."""
    assert ratio(dr_os(TWO, 0.0))[0] == pytest.approx(value("dm"))
    assert ratio(dr_os(TWO, inf))[0] == pytest.approx(value("dr"))
    assert ratio(switch(TWO, inf))[0] == pytest.approx(value("dr"))


def test_a_parameter_is_chosen_as_small_as_its_bias_does_not_show() -> None:
    """Where weights are equal nothing is lost by the smallest bound; where large ones matter, they are kept."""
    equal = Log(np.full((1000, 2), 0.5), np.tile([0.5, 0.5], (1000, 1)), np.tile([1.0, np.nan], (1000, 1)))
    assert tuned(lambda bound: clipped(equal, bound))[0] == 1.0
    rare = np.arange(4000) % 20 == 0
    losses = np.where(rare[:, None], [1.0, np.nan], [np.nan, 0.0])
    sure = Log(np.tile([0.05, 0.95], (4000, 1)), np.tile([1.0, 0.0], (4000, 1)), losses)
    assert tuned(lambda bound: clipped(sure, bound))[0] == 30.0


def test_the_model_has_not_seen_the_row_that_it_expects() -> None:
    """A loss of its own changes nothing at a row."""
    losses = np.array([[1.0], [0.0], [0.0], [0.0], [0.0], [0.0]])
    assert expected(losses)[:, 0] == pytest.approx([0.0, 0.25, 0.25, 0.0, 0.25, 0.25])


def test_the_model_knows_contexts_and_features() -> None:
    """An arm that is right in one context alone, and one whose loss follows a number."""
    contexts = np.arange(6000) // 3 % 2
    losses = np.where(contexts == 0, 0.0, 1.0)[:, None]
    found = expected(losses, contexts=contexts)[:, 0]
    assert found[contexts == 0].max() < 0.01
    assert found[contexts == 1].min() > 0.99
    number = np.linspace(0.0, 1.0, 6000)[:, None]
    assert expected(number * 0.5, features=number)[:, 0] == pytest.approx(number[:, 0] * 0.5, abs=0.01)


def test_open_bandit_gives_the_published_values() -> None:
    """BernoulliTS judged by the log of the uniform policy, campaign "all", small version: 10,000 impressions."""
    try:
        log = open_bandit()
    except MissingDataError as error:
        pytest.skip(str(error))
    assert value("ipw", log) == pytest.approx(0.00455288, abs=1e-8)
    assert value("snipw", log) == pytest.approx(0.00477583, abs=1e-8)


def test_estimates_are_those_of_obp() -> None:
    """On one run of its example on digits, with the same expected rewards; `digits_by_obp.py` made both files."""
    reported = json.loads((HERE / "digits_by_obp.json").read_text())
    with np.load(HERE / "digits_run.npz") as run:
        asked, rows = run["action"], np.arange(len(run["action"]))
        target = np.full((len(rows), 10), 0.01)
        target[rows, run["chosen"]] = 0.91
        rewards, logged = np.full(target.shape, np.nan), np.full(target.shape, 0.5)
        rewards[rows, asked], logged[rows, asked] = run["reward"], run["pscore"]
        log = Log(logged, target, rewards, run["expected"])
    for name in ("dm", "ipw", "snipw", "dr"):
        assert value(name, log) == pytest.approx(reported["first_run"][name], abs=1e-9)
    assert ratio(switch(log, 10.0))[0] == pytest.approx(reported["first_run"]["switch"], abs=1e-9)
    assert ratio(dr_os(log, 100.0))[0] == pytest.approx(reported["first_run"]["dr_os"], abs=1e-9)


def test_a_delay_that_has_not_ended_says_that_it_is_longer() -> None:
    """Of four predictions one has its feedback after 1 s, one after 3 s; one waits for 2 s, one has none in 10 s."""
    found = delays(np.array([1.0, 3.0]), np.array([10.0]), np.array([2.0]))
    assert found.times_s == pytest.approx([1.0, 3.0])
    assert found.come == pytest.approx([0.25, 1 - 0.75 * 0.5])
    assert (found.by(0.5), found.by(1.0), found.quantile(0.5), found.quantile(0.9)) == (0.0, 0.25, 3.0, None)
    assert found.waiting == 1
    assert found.expected == pytest.approx((0.625 - 0.25) / 0.75)


def test_without_any_feedback_nothing_is_expected() -> None:
    """Of predictions that all wait."""
    found = delays(np.array([]), np.array([]), np.array([1.0, 2.0]))
    assert (found.by(9.0), found.quantile(0.1), found.waiting, found.expected) == (0.0, None, 2, 0.0)
