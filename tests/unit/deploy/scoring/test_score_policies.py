"""Rows decided many at a time have the answers that the kernel of selection gives them one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from deploy.config.settings import Settings
from deploy.scoring.askers import OneVersion, PolicyAsker
from deploy.scoring.inputs import AskedRows
from deploy.scoring.kernel import KernelAsker
from deploy.scoring.models import PackagedModels
from deploy.state.packages import model_record
from policies import calibration, registry
from policies.draw import uniform, version
from policies.lessons import Lesson
from schemas.codec import Codec
from schemas.records import Application, PolicyState, Tensor
from streams.operators.configuration import Configuration
from streams.operators.contract import Record, StateKey
from tests.toys import parity
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAMPLE = np.ones((2, 2), np.float32)
NUMBERS = np.random.default_rng(0).integers(0, 9, (400, 2)).astype(np.float32)
NOW_US = 1_000_000_000_000


class Held:
    """Policy states in memory."""

    def __init__(self, states: Mapping[str, PolicyState]) -> None:
        self.states = states

    def read(self, keys: Sequence[StateKey]) -> dict[StateKey, PolicyState | None]:
        """Return states by key."""
        return {key: self.states.get(key.name) for key in keys}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> PackagedModels:
    """Return three models: one of two versions, one that fails where numbers are large."""
    folder = tmp_path_factory.mktemp("packages")
    toys = {("right", "1"): "parity", ("wrong", "1"): "contrary", ("wrong", "2"): "parity", ("sure", "1"): "boast"}
    known = {}
    for (name, number), toy in toys.items():
        output = "scores" if toy == "boast" else "label"
        package_function(f"tests.toys:{toy}", folder / f"{name}{number}", name, number, SAMPLE, output=output)
        known[f"{name}@{number}"] = model_record(folder / f"{name}{number}")
    serving = {name: known[f"{name}@1"] for name in ("right", "wrong", "sure")}
    return PackagedModels(Settings(), serving, known)


def asked(contexts: Sequence[str] | None = None, rows: int = 400) -> AskedRows:
    """Return rows of two numbers; one of them is of another width."""
    inputs: list[Any] = [Tensor.of(row) for row in NUMBERS[:rows]]
    inputs[7] = Tensor.of(np.ones(5, np.float32))
    return AskedRows([f"q{number}" for number in range(rows)], inputs, contexts, None, {})


def state(policy: str, arms: Sequence[str], lessons: int = 60, *, sure: bool = False) -> PolicyState:
    """Return what a policy has learnt of arms of which the first is the best."""
    made = registry.parse(policy)
    values = made.init(len(arms))
    for number in range(lessons):
        arm = number % len(arms)
        shares = made.propensities(values, len(arms))
        losses = tuple([0.2 * arm if place == arm else None for place in range(len(arms))])
        values = made.observe(values, len(arms), Lesson((arm,), shares, losses))
    known: tuple[float, ...] = ()
    for number in range(50 if sure else 0):
        known = calibration.observed(known, len(arms), len(arms) - 1, 0.99, float(number % 2))
    return PolicyState(registry.spec(made), tuple(arms), lessons, values, confidences=known)


def both(models: PackagedModels, application: Application, held: Held, rows: AskedRows) -> tuple[Any, Any]:
    """Return the answers of the quick way, and those of the kernel."""
    codec = Codec()
    configuration = Configuration(codec)
    record = Record("applications", 0, 0, 0, application.name.encode(), codec.encode(application))
    configuration.on_record(record)
    quick = PolicyAsker(models, configuration.applications[application.name], 4, held, NOW_US)
    slow = KernelAsker(codec, models, application, 4, held, NOW_US)
    return quick.answers(rows), slow.answers(rows)


@pytest.mark.parametrize("policy", ["single", "epsilon_greedy", "ucb1", "thompson", "exp3"])
def test_policies_that_ask_one_model(models: PackagedModels, policy: str) -> None:
    """Answers, confidences, reasons, models, probabilities: all is as the kernel says."""
    arms = ("right", "wrong", "sure")
    application = Application("digits", arms, policy, default_output=-1, confidence_floor=0.7)
    held = Held({"digits": state(policy, arms, sure=True)})
    quick, slow = both(models, application, held, asked())
    for name in quick._fields:
        if name == "confidence":
            assert quick.confidence == pytest.approx(slow.confidence, abs=1e-12)
        else:
            assert getattr(quick, name) == getattr(slow, name), name
    assert quick.reason[7] == "invalid_input"
    assert policy in {"single", "ucb1"} or len({*quick.model}) > 1


def test_the_draw_is_that_of_the_ids(models: PackagedModels) -> None:
    """A uniform draw by each id, passed through the shares: worked out here by hand."""
    application = Application("digits", ("right", "wrong"), "exp3")
    held = Held({"digits": state("exp3", ("right", "wrong"))})
    quick, _ = both(models, application, held, asked())
    shares = registry.parse("exp3").propensities(held.states["digits"].values, 2)
    expected = ["right" if uniform(f"q{number}") < shares[0] else "wrong" for number in range(400)]
    assert quick.model == expected
    assert quick.propensity == [shares[name == "wrong"] for name in expected]


def test_contexts_have_their_own_states(models: PackagedModels) -> None:
    """And those that are new start from what all have taught."""
    arms = ("right", "wrong")
    application = Application("digits", arms, "thompson", per_context=True)
    held = Held({"digits": state("thompson", arms), "digits/ann": state("thompson", arms[::-1])})
    rows = asked([("ann", "bob", "eve")[number % 3] for number in range(400)])
    quick, slow = both(models, application, held, rows)
    assert (quick.model, quick.propensity) == (slow.model, slow.propensity)
    assert quick.state_version[:2] == [60, 0]


def test_canaries_answer_their_share(models: PackagedModels) -> None:
    """By the query's own draw, and a label by what it stands for."""
    serving = {**models.serving, "wrong": replace(models.serving["wrong"], shares={"2": 0.3}, labels={"best": "2"})}
    known = {key: replace(record) for key, record in models._known.items()}
    drawing = PackagedModels(Settings(), serving, known)
    quick, slow = both(drawing, Application("digits", ("wrong",), "single"), Held({}), asked())
    assert quick.version == slow.version == [version(f"q{n}", {"2": 0.3}) or "1" for n in range(400)]
    named = OneVersion(drawing, "wrong", "best").answers(asked())
    assert {*named.version} == {"2"}
    rows = [row for row in range(400) if row != 7]
    assert [named.answer[row] for row in rows] == parity(NUMBERS)[rows].tolist()


def test_ensembles_go_through_the_kernel(models: PackagedModels) -> None:
    """All models are asked, the weights of the state decide; ids that come twice are rows of their own."""
    arms = ("right", "wrong", "sure")
    application = Application("digits", arms, "exp4", default_output=-1)
    weights = (0.6, 0.25, 0.15)
    held = Held({"digits": PolicyState(registry.spec(registry.parse("exp4")), arms, 9, tuple(np.log(weights)))})
    rows = asked(rows=40)
    rows = rows._replace(ids=["same"] * 3 + [*rows.ids[3:]])
    found = KernelAsker(Codec(), models, application, 4, held, NOW_US).answers(rows)
    expected = parity(NUMBERS[:40]).tolist()
    assert [found.answer[row] for row in range(40) if row != 7] == [expected[row] for row in range(40) if row != 7]
    assert {*found.model} == {"right,wrong,sure"}
    assert found.reason[7] == "invalid_input"
