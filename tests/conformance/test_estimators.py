"""One list of laws for all off-policy estimators."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from policies.estimators.errors import EstimateError, TooFewError
from policies.estimators.estimate import Estimate
from policies.estimators.log import Log
from policies.estimators.registry import ESTIMATORS, estimate
from policies.estimators.reward_model import expected

MEANS = np.array([0.5, 0.4, 0.2])  # true loss of each arm
LOGGED = np.array([0.5, 0.3, 0.2])
TARGET = np.array([0.1, 0.2, 0.7])
TRUE = float(TARGET @ MEANS)
ROWS = 2_000
OF_BANDITS = [name for name in ESTIMATORS if name != "full_information"]


def bandit(seed: int, target: np.ndarray = TARGET, rows: int = ROWS) -> Log:
    """Return a log in which one arm was asked each time."""
    random = np.random.default_rng(seed)
    asked = random.choice(len(MEANS), rows, p=LOGGED)
    losses = np.full((rows, len(MEANS)), np.nan)
    losses[np.arange(rows), asked] = random.random(rows) < MEANS[asked]
    return Log(np.tile(LOGGED, (rows, 1)), np.tile(target, (rows, 1)), losses, expected(losses))


def ensemble(seed: int, rows: int = ROWS) -> Log:
    """Return a log in which all arms were asked."""
    losses = (np.random.default_rng(seed).random((rows, len(MEANS))) < MEANS).astype(np.float64)
    return Log(np.ones_like(losses), np.tile(TARGET, (rows, 1)), losses, expected(losses))


def one(log: Log, name: str, **options: float) -> Estimate:
    """Return the estimate, which is not refused."""
    found = estimate(log, [name], **options)[name]  # type: ignore[arg-type]
    assert isinstance(found, Estimate), found
    return found


@cache
def hundred() -> list[dict[str, Estimate | EstimateError]]:
    """Return all estimates of a hundred logs."""
    return [estimate(bandit(seed), OF_BANDITS) for seed in range(100)]


def of_hundred(name: str) -> list[Estimate]:
    """Return an estimator's estimates of a hundred logs."""
    return [each for found in hundred() if isinstance(each := found[name], Estimate)]


@pytest.mark.parametrize("name", OF_BANDITS)
def test_on_the_average_over_many_logs_it_is_the_true_value(name: str) -> None:
    """Within four standard errors of the average: what bias there is is small beside the noise of one log."""
    found = of_hundred(name)
    assert len(found) == 100
    values = np.array([each.value for each in found])
    assert abs(values.mean() - TRUE) < 4 * values.std(ddof=1) / 10


@pytest.mark.parametrize("name", OF_BANDITS)
def test_at_least_90_of_100_intervals_cover(name: str) -> None:
    """Seeded intervals of 95 %."""
    found = of_hundred(name)
    assert len(found) == 100
    assert sum(each.low <= TRUE <= each.high for each in found) >= 90


WRONG_MODELS = ("one for all contexts", "a constant")


def in_contexts(seed: int, model: str, rows: int = 2_000) -> tuple[Log, float]:
    """Return a log whose model of losses is wrong, and what is true: which arm is good depends on the context.

    Nine of ten decisions ask the first arm, so that the log says little of the others, and the target asks these.
    """
    random = np.random.default_rng(seed)
    contexts = random.integers(0, 4, rows)
    means = np.array([[0.1, 0.5, 0.6], [0.6, 0.1, 0.5], [0.5, 0.6, 0.1], [0.4, 0.3, 0.2]])[contexts]
    logged = np.array([[0.9, 0.05, 0.05], [0.7, 0.2, 0.1], [0.8, 0.1, 0.1], [0.6, 0.2, 0.2]])[contexts]
    target = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.1, 0.2, 0.7]])[contexts]
    arms = (random.random((rows, 1)) > logged.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    losses, at = np.full((rows, 3), np.nan), np.arange(rows)
    losses[at, arms] = random.random(rows) < means[at, arms]
    modelled = expected(losses) if model == WRONG_MODELS[0] else np.full_like(losses, 0.9)
    return Log(logged, target, losses, modelled), float((target * means).sum(axis=1).mean())


@cache
def wrongly_modelled(model: str) -> list[tuple[dict[str, Estimate | EstimateError], float]]:
    """Return all estimates of fifty such logs, each with what is true."""
    logs = [in_contexts(seed, model) for seed in range(50)]
    return [(estimate(log, OF_BANDITS), true) for log, true in logs]


@pytest.mark.parametrize("model", WRONG_MODELS)
@pytest.mark.parametrize("name", OF_BANDITS)
def test_intervals_cover_though_the_model_of_losses_is_wrong(name: str, model: str) -> None:
    """In 45 of 50 logs at least: a number that is wrong must not look exact."""
    held = [found[name] for found, _ in wrongly_modelled(model)]
    true = [true for _, true in wrongly_modelled(model)]
    assert all(isinstance(each, Estimate) for each in held)
    covers = [each.low <= it <= each.high for each, it in zip(held, true, strict=True) if isinstance(each, Estimate)]
    assert sum(covers) >= 45


def test_the_model_is_wrong_in_those_logs() -> None:
    """What it expects is off by more than four standard errors, so that the test before can see a wrong interval."""
    found, true = wrongly_modelled(WRONG_MODELS[0])[0]
    model = found["dm"]
    assert isinstance(model, Estimate)
    assert abs(model.value - true) > 4 * model.error


@pytest.mark.parametrize("name", OF_BANDITS)
def test_its_standard_error_is_how_much_it_differs_between_logs(name: str) -> None:
    """To a quarter."""
    found = of_hundred(name)
    assert len(found) == 100
    spread = np.std([each.value for each in found], ddof=1)
    assert np.mean([each.error for each in found]) == pytest.approx(spread, rel=0.25)


@pytest.mark.parametrize("name", OF_BANDITS)
def test_of_the_policy_that_served_it_is_the_mean_loss(name: str) -> None:
    """All weights are 1, so nothing is estimated; a model that has not seen a row errs by a little."""
    log = bandit(3, LOGGED)
    found = one(log, name)
    assert found.value == pytest.approx(float(np.nanmean(log.losses)), abs=1e-3)
    assert found.effective == pytest.approx(ROWS)
    assert found.largest == pytest.approx(1.0)


@pytest.mark.parametrize("name", OF_BANDITS)
def test_the_order_of_arms_does_not_matter(name: str) -> None:
    """Arms are columns, whichever way round."""
    log, order = bandit(4), [2, 0, 1]
    assert log.expected is not None
    turned = Log(log.logged[:, order], log.target[:, order], log.losses[:, order], log.expected[:, order])
    assert one(turned, name).value == pytest.approx(one(log, name).value, abs=1e-12)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_where_all_arms_were_asked_it_is_what_they_have_cost(name: str) -> None:
    """Every loss is known: each estimator is the mean of the target's losses, up to what the model had not seen."""
    log = ensemble(5)
    found = one(log, name)
    assert found.value == pytest.approx(float((log.target * log.losses).sum(axis=1).mean()), abs=2e-3)
    assert found.unsupported == 0.0


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_equal_logs_and_seeds_give_equal_estimates(name: str) -> None:
    """Nothing is drawn but from the seed."""
    assert one(ensemble(6), name) == one(ensemble(6), name)


@pytest.mark.parametrize("name", OF_BANDITS)
def test_it_refuses_a_log_that_says_too_little(name: str) -> None:
    """Below 200 effective samples, unless one insists."""
    log = bandit(7, rows=150)
    found = estimate(log, [name])[name]
    assert isinstance(found, TooFewError)
    assert found.effective < found.needed == 200
    assert one(log, name, least=0.0).rows == 150


@pytest.mark.parametrize("name", OF_BANDITS)
def test_it_says_what_the_log_cannot_know(name: str) -> None:
    """A share of the policy's decisions that the one that served never makes."""
    log = bandit(8)
    hidden = np.tile([0.0, 0.5, 0.5], (ROWS, 1))
    rows = np.isnan(log.losses[:, 0])  # decisions in which the first arm was not asked
    part = Log(hidden[rows], log.target[rows], log.losses[rows], expected(log.losses[rows]))
    assert one(part, name).unsupported == pytest.approx(TARGET[0])


def test_full_information_refuses_where_a_loss_is_not_known() -> None:
    """And says in how many decisions."""
    found = estimate(bandit(9), ["full_information"])["full_information"]
    assert isinstance(found, EstimateError)
    assert "2,000 of 2,000" in str(found)


@pytest.mark.parametrize("name", ["dm", "dr", "dr_os", "switch"])
def test_without_a_model_there_is_nothing_to_correct(name: str) -> None:
    """What needs a model says so."""
    found = estimate(replace(bandit(10), expected=None), [name])[name]
    assert isinstance(found, EstimateError)
    assert "reward_model" in str(found)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logged", np.zeros((1, 2))),
        ("logged", np.array([[1.5, 0.5]])),
        ("target", np.array([[0.5, 0.4]])),
        ("target", np.array([[np.nan, 1.0]])),
        ("losses", np.array([[1.5, np.nan]])),
        ("losses", np.empty((0, 2))),
        ("expected", np.zeros((2, 2))),
    ],
)
def test_arrays_that_are_no_log_are_refused(field: str, value: np.ndarray) -> None:
    """Shapes, ranges, and a loss of an arm that cannot have been asked."""
    right = Log(np.array([[0.5, 0.5]]), np.array([[0.5, 0.5]]), np.array([[1.0, np.nan]]))
    with pytest.raises(EstimateError):
        replace(right, **{field: value})


def weighed(parts: np.ndarray) -> tuple[Log, np.ndarray, np.ndarray]:
    """Return a log in which each of six cases comes as often as it is likely, with losses and what each case counts.

    Two contexts and three arms, asked in tenths; each third of the log is all of it.
    """
    losses = np.array([[0.2, 0.5, 0.9], [0.7, 0.4, 0.1]])
    tenths = np.array([[6, 3, 1], [2, 2, 6]])
    rows = [(context, arm) for context in range(2) for arm in range(3) for _ in range(300 * tenths[context, arm])]
    contexts, arms = (np.array(each) for each in zip(*rows, strict=True))
    known = np.full((len(rows), 3), np.nan)
    known[np.arange(len(rows)), arms] = losses[contexts, arms]
    target, counted = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]]), parts[contexts, arms]
    model = expected(known, contexts, parts=counted)
    return Log(tenths[contexts] / 10, target[contexts], known, model, counted), losses, target


@pytest.mark.parametrize("name", ["ipw", "snipw", "clipped", "dr"])
def test_with_weights_it_is_the_sum_of_weight_times_loss_over_that_of_weights(name: str) -> None:
    """By enumeration, where weights depend on what was asked about alone: 1 in one context, a quarter in the other."""
    parts = np.array([[1.0, 1.0, 1.0], [0.25, 0.25, 0.25]])
    log, losses, target = weighed(parts)
    assert one(log, name, least=0.0).value == pytest.approx(float((parts * target * losses).sum() / 1.25), abs=1e-9)


@pytest.mark.parametrize("name", ["replay", "dr_os", "switch", "dm"])
def test_with_weights_it_is_near_that_where_it_draws_or_trusts_a_model(name: str) -> None:
    """Within four of its own standard errors, or a fiftieth: a model draws contexts towards the mean of all."""
    parts = np.array([[1.0, 1.0, 1.0], [0.25, 0.25, 0.25]])
    log, losses, target = weighed(parts)
    found = one(log, name, least=0.0)
    assert abs(found.value - float((parts * target * losses).sum() / 1.25)) < max(0.02, 4 * found.error)


def test_weights_that_depend_on_the_arm_are_the_targets_own_where_it_normalises_itself() -> None:
    """By enumeration: what the target asks more often counts more often, in losses and in weights."""
    parts = np.array([[1.0, 0.5, 0.1], [0.2, 1.0, 0.4]])
    log, losses, target = weighed(parts)
    true = float((parts * target * losses).sum() / (parts * target).sum())
    assert one(log, "snipw", least=0.0).value == pytest.approx(true, abs=1e-9)


def test_where_all_arms_were_asked_weights_count_in_what_they_have_cost() -> None:
    """Nothing is estimated."""
    log = ensemble(11)
    parts = np.where(np.arange(ROWS) % 3 == 0, 1.0, 0.1)
    costs = (log.target * log.losses).sum(axis=1)
    found = one(replace(log, parts=parts), "full_information", least=0.0)
    assert found.value == pytest.approx(float(parts @ costs / parts.sum()), abs=1e-12)


def test_the_error_of_a_weighted_mean_is_how_much_it_differs_between_logs() -> None:
    """A tenth of the decisions counts ten times as much: the error is larger than that of all alike, to a quarter."""
    parts = np.where(np.arange(ROWS) % 10 == 0, 1.0, 0.1)
    found = [one(replace(bandit(seed), parts=parts), "snipw", least=0.0) for seed in range(60)]
    spread = np.std([each.value for each in found], ddof=1)
    assert np.mean([each.error for each in found]) == pytest.approx(spread, rel=0.25)
    assert sum(each.low <= TRUE <= each.high for each in found) >= 52


@pytest.mark.parametrize("parts", [np.zeros(1), np.ones(2), np.array([1.5])])
def test_a_decision_counts_a_part_of_one(parts: np.ndarray) -> None:
    """Neither nothing nor more, and each has its own."""
    right = Log(np.array([[0.5, 0.5]]), np.array([[0.5, 0.5]]), np.array([[1.0, np.nan]]))
    with pytest.raises(EstimateError):
        replace(right, parts=parts)
