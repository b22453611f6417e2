"""What is made of answers of several tensors: passed through, refused where they would have to be combined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies import registry
from policies.errors import PolicyError
from policies.items import items_of, part_of
from policies.loss_rules import written
from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Application,
    Model,
    ModelPredictions,
    ModelQueries,
    NamedTensors,
    Outcome,
    Prediction,
    Query,
    Status,
    TensorForm,
)
from streams.operators.configuration import check_tensors
from streams.operators.contract import Effects, Emit, FetchStates, Record
from streams.operators.selection.kernel import Selection, SelectionSettings
from tests.unit.policies.test_weights import Plain

CODEC, NOW = Codec(), 1_700_000_000_000_000
FORMS = (TensorForm("boxes", "float32", (1, 4)), TensorForm("embedding", "float32", (8,)))
MODEL = Model("net", "1", "onnx", "p", "00", "tensors", "float32", (4,), outputs=FORMS)
PLAIN = Model("plain", "1", "onnx", "p", "00", "label", "float32", (4,))
JUDGED = {"outputs": {"each": {"boxes": "absolute", "size": "absolute"}}}
ANSWER = NamedTensors.named({"boxes": np.ones((1, 4), np.float32), "embedding": np.zeros(8, np.float32)})
ANOTHER = NamedTensors.named({"boxes": np.zeros((1, 4), np.float32), "embedding": np.zeros(8, np.float32)})


class AsksAll(Plain):
    """A policy of somebody's own that asks all models."""

    full_information = True


@pytest.mark.parametrize("policy", ["single", "exp3", "thompson", "ucb1", "epsilon_greedy"])
def test_a_policy_that_asks_one_model_may_ask_it(policy: str) -> None:
    """Its answer is given as it is."""
    application = Application("a", ("net", "plain"), policy)
    check_tensors(application, registry.policy_of(application), {"net": MODEL, "plain": PLAIN})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"policy": "exp4"}, "net answers several tensors, and exp4 makes one answer of several models'"),
        ({"policy": "cascade", "combine": "mean"}, "cascade makes one answer"),
        ({"policy": "ridge", "combine": "mean"}, "ridge makes one answer"),
        ({"policy": f"{__name__}:AsksAll", "combine": "mean"}, "AsksAll makes one answer"),
        ({"policy": "class_vote"}, "take a policy that asks one model"),
        ({"policy": "single", "coverage": 0.9}, "coverage is of one label or number"),
        ({"policy": "single", "loss": "log"}, "the loss `log` .* take `outputs`, with a loss of each"),
        ({"policy": "single", "loss": written(JUDGED).text}, "judges size, and net answers boxes, embedding"),
    ],
)
def test_what_would_have_to_combine_them_is_refused(fields: dict[str, Any], said: str) -> None:
    """When it is configured; over models without such answers it is fine."""
    application = Application("a", ("plain", "net"), **fields)
    with pytest.raises(PolicyError, match=said):
        check_tensors(application, registry.policy_of(application), {"net": MODEL, "plain": PLAIN})
    check_tensors(application, registry.policy_of(application), {"plain": PLAIN})


def answered(policy: str, *answers: NamedTensors, **fields: Any) -> Prediction:
    """Have a query answered by as many models, by the kernel."""
    models = [f"m{at}" for at, _ in enumerate(answers)]
    kernel = Selection(CODEC, SelectionSettings(partitions=4))
    kernel.on_partitions(dict.fromkeys(range(4), 0))
    application = Application("a", tuple(models), policy, **fields)
    kernel.on_records([Record(topics.APPLICATIONS, 0, 0, NOW, b"a", CODEC.encode(application))], NOW)
    for name in models:
        kernel.on_records(
            [Record(topics.MODELS, 0, 0, NOW, name.encode(), CODEC.encode(replace(MODEL, name=name)))], NOW
        )
    query = Record(topics.QUERIES, 0, 0, NOW, None, CODEC.encode(Query("q", "a", ANSWER)))
    effects = kernel.on_records([query], NOW)
    (wanted,) = [effect for effect in effects if isinstance(effect, FetchStates)]
    asked = [one for one in (*effects, *kernel.on_states(dict.fromkeys(wanted.keys), NOW)) if isinstance(one, Emit)]
    replies: Effects = []
    for emit in asked:
        given = CODEC.decode(ModelQueries, emit.value).inputs
        assert isinstance(given, NamedTensors)
        assert given.data == ANSWER.data
        model = topics.asked_model(emit.topic)
        column = answers[models.index(model)]
        rows = NamedTensors(column.dtype, (1,), column.data)
        ok, none = (Outcome.OK,), (0,)
        batch = CODEC.encode(ModelPredictions(model, "1", "w", ("q",), ok, rows, None, none, 1, 1, 1, 0))
        replies += kernel.on_records([Record(topics.MODEL_PREDICTIONS, 0, 0, NOW, None, batch)], NOW)
    (made,) = [one for one in replies if isinstance(one, Emit) and one.topic == topics.PREDICTIONS]
    return CODEC.decode(Prediction, made.value)


def test_the_answer_of_the_model_that_was_asked_passes_through() -> None:
    """To the byte, from the worker's column to the prediction."""
    made = answered("single", ANSWER)
    assert (made.answer, made.status, made.confidence) == (ANSWER, Status.COMPLETE, 1.0)
    assert made.outputs[0].answer == ANSWER


@pytest.mark.parametrize("fields", [{}, {"missing": "running_mean"}])
def test_an_ensemble_of_them_votes_by_equality(fields: dict[str, Any]) -> None:
    """It can come to that where a model is changed by force: no query is lost."""
    made = answered("exp4", ANSWER, ANOTHER, ANOTHER, **fields)
    assert made.answer == ANOTHER
    assert made.confidence == pytest.approx(2 / 3)


@pytest.mark.parametrize("combine", ["mean", "median"])
@pytest.mark.parametrize("policy", ["exp4", "class_vote"])
def test_an_ensemble_may_average_them(policy: str, combine: str) -> None:
    """Output by output, of the form that each model has."""
    application = Application("a", ("net", "plain"), policy, combine=combine)
    check_tensors(application, registry.policy_of(application), {"net": MODEL, "plain": PLAIN})
    made = answered(policy, ANSWER, ANOTHER, combine=combine)
    assert isinstance(made.answer, NamedTensors)
    assert made.answer.dtype == ANSWER.dtype
    assert made.answer.arrays()["boxes"].tolist() == [[0.5] * 4]


def test_a_later_stage_takes_them_whole_or_one_of_them() -> None:
    """As `detect` and `detect.embedding`."""
    (item,), is_list = items_of(ANSWER)
    assert not is_list
    assert part_of(item, "") == ANSWER
    embedding: Any = part_of(item, "embedding")
    assert (embedding.dtype, embedding.shape) == ("float32", (8,))
