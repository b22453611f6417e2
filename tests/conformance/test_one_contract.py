"""The contract for policies of one's own is the one for those that ship.

Each that ships is named by the path of its class, as somebody's own is. In the same loop it decides, answers and learns
bit for bit as it does under its name.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from policies import outside, registry
from policies.contract import is_answering, is_choosing, is_contextual
from policies.registry import POLICIES
from schemas.records import Tensor
from streams.operators.learn.fold import fold
from tests.loops import Loop, Row, Sure, digits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from schemas.records import Decision, Prediction

QUERIES = 120
ITEMS = 3
MODELS = ("cheap", "fair", "dear")


@pytest.fixture(autouse=True)
def anything_may_be_named() -> Iterator[None]:
    """No setting says which code policies may come from."""
    outside.allow(None)
    yield
    registry.parse.cache_clear()


def parameters_of(name: str) -> dict[str, Any]:
    """Return parameters with which a policy has something to go by."""
    made = registry.create(name)
    if is_choosing(made):
        return {"features": 2, "items": ITEMS}
    if is_answering(made) or (is_contextual(made) and made.uses == "features"):
        return {"features": 2}
    return {"explore": 0.3} if name == "cascade" else {}


def computed(arm: int, row: Row, count: int) -> Tensor:
    """Return numbers that a model computes of a query."""
    drawn = Random(f"{arm}/{row.query_id}")
    return Tensor.of(np.array([drawn.gauss(0.0, 1.0) for _ in range(count)], np.float32))


def models_for(name: str) -> Mapping[str, Callable[[Row], Any]]:
    """Return models that answer what the policy takes: labels with scores, features, or numbers for items."""
    made = registry.create(name)
    if is_answering(made):
        count = ITEMS if is_choosing(made) else 2
        return {model: lambda row, arm=arm: computed(arm, row, count) for arm, model in enumerate(MODELS)}

    def answer(row: Row, arm: int) -> Sure:
        drawn = Random(f"{arm}/{row.query_id}")
        is_right = drawn.random() < 0.5 + 0.2 * arm
        return Sure(7 if is_right else drawn.randrange(3), 0.5 + 0.5 * drawn.random())

    return {model: lambda row, arm=arm: answer(row, arm) for arm, model in enumerate(MODELS)}


def candidates_of(name: str, number: int) -> dict[str, Any]:
    """Return candidates for some of the queries to a policy that ranks."""
    made = registry.create(name)
    if not is_answering(made) or number % 3:
        return {}
    if is_choosing(made):
        return {"candidates": ("0", "2"), "top": 2}
    rows = np.array([[0.1 * number, 1.0], [1.0, -0.5], [0.3, 0.2]])
    return {"candidates": Tensor.of(rows), "top": 2}


def loss_for(name: str) -> dict[str, Any]:
    """Return the loss: of numbers where the state answers with one."""
    made = registry.create(name)
    return {"loss": "absolute", "span": 10.0} if is_answering(made) and not is_choosing(made) else {}


def played(name: str, policy: str, parameters: Mapping[str, Any]) -> Loop:
    """Play a loop of queries with features, some with candidates, and feedback."""
    loop = Loop(
        models_for(name), digits(models=MODELS, loss="absolute", span=10.0, **registry.recorded(policy, parameters))
    )
    if not is_answering(registry.create(name)):
        loop.configure(digits(models=MODELS, **registry.recorded(policy, parameters)))
    random = Random(name)
    for number in range(QUERIES):
        features = (random.gauss(0.0, 1.0), random.gauss(0.0, 1.0))
        loop.query(f"{number}", features=features, **candidates_of(name, number))
        loop.driver.run(seconds=0.05)
        loop.feedback(f"{number}", label=7 if number % 5 else 2)
        loop.driver.run(seconds=0.05)
    return loop


def decided(decision: Decision | None) -> Any:
    """Return what was decided, without the policy's name."""
    return None if decision is None else decision._replace(policy="")


def said(prediction: Prediction) -> Any:
    """Return all that a prediction says, without the policy's name."""
    return prediction._replace(decision=decided(prediction.decision))


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_by_its_path_does_what_it_does_by_its_name(name: str) -> None:
    """Decisions with their probabilities, questions asked again, answers, confidences, and what was learnt."""
    parameters, made = parameters_of(name), POLICIES[name]
    path = f"{made.__module__}:{made.__qualname__}"
    ours, own = played(name, name, parameters), played(name, path, parameters)
    assert json.loads(own.application.options or "{}") == parameters
    assert [said(each) for each in own.predictions()] == [said(each) for each in ours.predictions()]
    assert len(own.predictions()) == QUERIES
    assert {prediction.reason for prediction in own.predictions()} <= {None}
    learnt = [
        {state: (found.values, found.version) for state, found in fold(loop.observations(), 130_000_000).items()}
        for loop in (ours, own)
    ]
    assert learnt[0] == learnt[1]
    assert sum(version for _, version in learnt[0].values()) > 0
