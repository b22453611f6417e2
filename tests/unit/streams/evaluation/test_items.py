"""Decisions among items, judged by the logged probability that each was the answer."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from deploy.evaluation import words
from policies import registry
from policies.estimators.estimate import Estimate
from schemas.records import Decision, JoinStatus, Observation, Ranked, Tensor
from streams.evaluation.candidate import candidate
from streams.evaluation.errors import EvaluationError
from streams.evaluation.evaluation import evaluate
from streams.evaluation.history import KnownApplication
from streams.evaluation.items import are_of_items, as_arms

if TYPE_CHECKING:
    from streams.evaluation.evaluation import Evaluation

ITEMS, STEP_US = 3, 1_000_000
SPEC = registry.spec(registry.create("two_speed", {"features": 1, "items": ITEMS, "gamma": 1.0}))
LOSSES = (0.8, 0.2, 0.5)  # of each item
COLD = Tensor.of(np.zeros(ITEMS))


def seen(number: int, item: int, loss: float | None, ranked: Ranked | None = None, **more: object) -> Observation:
    """Return a decision that drew an item evenly, of all or of some."""
    count = ITEMS if ranked is None else len(ranked.ids)
    known = count if ranked is None else sum(one >= 0 for one in ranked.items)
    shares = [1.0 / known] * count
    for place, one in enumerate(() if ranked is None else ranked.items):
        shares[place] *= one >= 0
    at_us = number * STEP_US
    return Observation(
        f"q{number}",
        "ads",
        None,
        Decision((0,), number, "ads", SPEC, ("cold",), (1.0,), (0.5,)),
        (loss,),
        loss,
        None,
        JoinStatus.JOINED,
        at_us,
        at_us + STEP_US // 2,
        answers=(item,),
        scores=(COLD,),
        first=tuple(shares),
        ranked=ranked,
        **more,  # type: ignore[arg-type]
    )


def log(count: int, *, is_ranked: bool = False) -> tuple[Observation, ...]:
    """Return decisions of a policy that draws evenly; of those with candidates one is known to nobody."""
    random, found = Random(7), []
    for number in range(count):
        items = tuple(random.sample(range(ITEMS), 2)) if is_ranked else tuple(range(ITEMS))
        item = random.choice(items)
        ranked = Ranked(("a", "x", "b"), 0, (items[0], -1, items[1])) if is_ranked else None
        found.append(seen(number, item, float(random.random() < LOSSES[item]), ranked))
    return tuple(found)


def judged(observations: tuple[Observation, ...], policy: str, **more: bool) -> Evaluation:
    """Judge a policy by observations whose windows ended long ago."""
    return evaluate(KnownApplication("ads", observations, {}, 10**13, 60.0), candidate(policy), 60.0, **more)


def test_always_one_item_costs_what_it_costs() -> None:
    """An even draw weighs all alike: what is estimated is the mean of those that took it."""
    observations = log(900)
    assert are_of_items(observations)
    for item in range(ITEMS):
        costs = [one.loss for one in observations if one.answers == (item,) and one.loss is not None]
        found = judged(observations, f"always:{item}").estimates["snipw"]
        assert isinstance(found, Estimate)
        assert found.value == pytest.approx(sum(costs) / len(costs))


def test_a_policy_that_learns_is_worth_more_than_an_even_draw() -> None:
    """It is fed with the log as it would have been: soon it takes the item that costs least."""
    found = judged(log(2_000), f"two_speed:features=1,items={ITEMS}")
    each = found.estimates["snipw"]
    assert isinstance(each, Estimate)
    assert each.value < 0.3 < found.served.mean
    assert "worth promoting" in found.recommendation
    assert found.unsupported == 0.0


def test_among_candidates_the_better_one_is_taken_and_what_nobody_knows_is_not() -> None:
    """Whatever their places are, items stay what they are: the best of two costs a third of 0.2, 0.2 and 0.5."""
    found = judged(log(3_000, is_ranked=True), f"two_speed:features=1,items={ITEMS}")
    each = found.estimates["snipw"]
    assert isinstance(each, Estimate)
    assert each.value == pytest.approx(0.3, abs=0.05)
    assert found.unsupported == 0.0


def test_the_policy_that_decided_is_expected_to_do_what_it_did() -> None:
    """Its probabilities are those that were logged: all weights are 1."""
    found = judged(log(300), SPEC)
    assert found.candidate.mean == pytest.approx(found.served.mean)
    assert found.effective == pytest.approx(300)


@pytest.mark.parametrize(
    "broken",
    [
        {"answers": (None,)},
        {"answers": None},
        {"answers": (7,)},
        {"first": ()},
        {"ranked": Ranked(("a",), 0, (9,))},
        {"ranked": Ranked(("a", "b"), 0, (1, 9))},
        {"ranked": Ranked(("a", "b"), 0, (1, 1))},
    ],
)
def test_a_decision_that_answered_no_item_tells_nothing(broken: dict[str, object]) -> None:
    """A default answer, or what somebody wrote into the log."""
    honest = seen(1, 1, 0.5)
    assert as_arms(honest) is not None
    assert as_arms(honest._replace(**broken)) is None  # type: ignore[arg-type]


def test_other_items_and_other_policies_are_refused_with_what_to_do() -> None:
    """They would read one item's weights as another's."""
    with pytest.raises(EvaluationError, match="chooses among 4 items, and the log's decisions among 3: set items"):
        judged(log(30), "two_speed:features=1,items=4")
    with pytest.raises(EvaluationError, match="no decision could have taken 3; there are: 0, 1, 2"):
        judged(log(30), "always:3")
    with pytest.raises(EvaluationError, match="what the models computed"):
        judged(tuple(one._replace(scores=None) for one in log(30)), f"two_speed:features=1,items={ITEMS}")


def test_decisions_by_imputed_features_are_counted_and_left_out_if_that_is_wished() -> None:
    """So one can tell what is true of real features alone."""
    mixed = tuple(one._replace(imputed=("users",) if at % 4 == 0 else ()) for at, one in enumerate(log(400)))
    found = judged(mixed, "always:1")
    assert (found.imputed, found.left_out["features imputed"], found.decisions) == ({"users": 100}, 0, 400)
    assert any("features imputed: users in 25.0%" in line for line in words.story(found))
    real = judged(mixed, "always:1", is_known_alone=True)
    assert (real.imputed, real.left_out["features imputed"], real.decisions) == ({}, 100, 300)
    assert any("not judged: 100 (features imputed)" in line for line in words.story(real))
