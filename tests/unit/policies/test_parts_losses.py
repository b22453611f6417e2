"""Losses of answers of several parts: named outputs, fields of JSON, embeddings; against closed forms and SciPy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cosine as distance

from policies.errors import LossError, PolicyError
from policies.loss_rules import rule, written
from schemas.inputs import as_label, named_tensors
from schemas.jsonable import feedback_from_json

if TYPE_CHECKING:
    from schemas.records import NamedTensors, Tensor, Value

RNG = np.random.default_rng(7)
EACH = {"boxes": {"absolute": True, "span": 4}, "label": "zero_one"}
VECTORS = st.lists(st.floats(-1e200, 1e200, allow_subnormal=False), min_size=3, max_size=3).map(as_label)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
TREES = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        LEAVES,
        lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=3), one, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


def judged(loss: object, answer: Value, label: Value) -> float:
    """Return the loss of an answer by a rule as a user writes it."""
    return rule(written(loss).text).loss(answer, label)


def tensors(**given: Any) -> NamedTensors:
    """Return several tensors."""
    return named_tensors(given)


def outputs(each: dict[str, Any], **weights: float) -> dict[str, Any]:
    """Return a rule for named outputs."""
    return {"outputs": {"each": each, "weights": weights}}


def test_named_outputs_cost_the_weighted_mean_of_their_own_losses() -> None:
    """The boxes are one of four off, and the label is wrong."""
    answer, label = tensors(boxes=[1.0, 2.0], label=3), tensors(boxes=[2.0, 3.0], label=4)
    assert judged(outputs(EACH), answer, label) == pytest.approx((0.25 + 1.0) / 2)
    assert judged(outputs(EACH, boxes=3), answer, label) == pytest.approx((3 * 0.25 + 1.0) / 4)
    assert judged(outputs(EACH), answer, answer) == 0.0


def test_what_the_label_does_not_tell_is_not_judged() -> None:
    """Its weight does not count either."""
    answer = tensors(boxes=[1.0, 2.0], label=3)
    assert judged(outputs(EACH, label=9), answer, tensors(boxes=[2.0, 3.0])) == 0.25


def test_members_of_a_json_answer_are_outputs_too() -> None:
    """Each by its own loss: numbers, texts, vectors, and objects by their fields."""
    each = {"n": {"absolute": True, "span": 10}, "who": "zero_one", "at": "fields", "v": "cosine"}
    label = as_label({"n": 5, "who": "Ann", "at": {"x": 1, "y": 2}, "v": [1, 0]})
    answer = json.dumps({"n": 7, "who": "Bob", "at": {"x": 1, "y": 3}, "v": [0, 1], "beside": 1})
    assert judged(outputs(each), answer, label) == pytest.approx((0.2 + 1.0 + 0.5 + 0.5) / 4)
    assert judged(outputs(each), str(label), label) == 0.0


def test_scores_among_the_outputs_are_judged_by_a_class() -> None:
    """By the largest, or by the probability of the class: `log` is of one output here."""
    answer = tensors(probs=[0.25, 0.5, 0.25], n=1)
    assert judged(outputs({"probs": "zero_one"}), answer, tensors(probs=1)) == 0.0
    assert judged(outputs({"probs": "log"}), answer, tensors(probs=0)) == pytest.approx(np.log(0.25) / np.log(1e-6))
    assert judged(outputs({"n": {"cost": {0: {1: 3}, 1: {0: 6}}}}), answer, tensors(n=0)) == 0.5


@pytest.mark.parametrize(
    "answer", ["no JSON", "[1]", '{"label": 3}', '{"boxes": "wide", "label": 3}', '{"boxes": null}']
)
def test_a_json_answer_without_what_is_told_has_it_wrong(answer: str) -> None:
    """Whatever a model writes, feedback on it is taken."""
    assert judged(outputs(EACH), answer, tensors(boxes=[2.0, 3.0])) == 1.0
    assert judged("fields", answer, '{"boxes": [2, 3]}') == 1.0


@pytest.mark.parametrize(
    ("loss", "answer", "label", "says"),
    [
        (outputs(EACH), tensors(boxes=[1.0, 2.0]), tensors(boxes=[1.0]), "not a finite number"),
        (outputs(EACH), tensors(boxes=[1.0, 2.0]), tensors(boxes=[1.0, 2.0, 3.0]), "of the answer's form"),
        (outputs(EACH), tensors(boxes=[1.0, 2.0]), tensors(label=1), "the answer has no output 'label'"),
        (outputs(EACH), tensors(boxes=[1.0, 2.0]), tensors(size=1), "not among those that `loss` names: boxes, label"),
        (outputs(EACH), '{"boxes": 1}', '{"boxes": "wide"}', "not a finite number"),
        (outputs({"k": {"cost": {"a": {"b": 1}, "b": {"a": 1}}}}), '{"k": "a"}', '{"k": "c"}', "none of the classes"),
        (outputs(EACH), '{"label": 3}', 3, "named outputs are needed"),
        (outputs(EACH), 3, tensors(label=3), "named outputs are needed"),
        ("fields", '{"a": 1}', "cat", "the text is no JSON"),
        ("fields", '{"a": 1}', 3, "fields are those of several tensors or of a JSON text"),
        ("fields", 3, '{"a": 1}', "fields are those of several tensors or of a JSON text"),
        ("fields", tensors(a=[1, 2]), tensors(a=[1, 2, 3]), "the label's 'a' is no tensor of the answer's form"),
        ("fields", '{"a": 1}', tensors(a=float("nan")), "the label's 'a' is not finite"),
        ({"fields": {"names": ["b"]}}, '{"a": 1}', '{"a": 1}', "none of the fields that `loss` names: b"),
        ("cosine", as_label([1.0, 2.0]), as_label([1.0, 2.0, 3.0]), "of the answer's form"),
        ("cosine", as_label([1.0, 2.0]), 3, "send a list of as many numbers as the answer has"),
        ("cosine", "up", as_label([1.0, 2.0]), "is of vectors"),
    ],
)
def test_labels_that_do_not_fit_are_refused(loss: object, answer: Value, label: Value, says: str) -> None:
    """The message says what is wanted."""
    with pytest.raises(LossError, match=says):
        judged(loss, answer, label)


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ({"outputs": EACH}, r"write \{each:"),
        (outputs({}), "names no output"),
        (outputs(EACH, size=2), "weights are of size"),
        (outputs(EACH, boxes=0), "no positive number"),
        (outputs({"a": "my_pkg.losses:cost"}), "let one function judge all outputs"),
        (outputs({"a": {"quantile": 0.9, "unit": "EUR"}}), "a has a unit"),
        (outputs({"a": 3}), "write a loss of its own"),
        ({"cosine": 3}, "write cosine: true"),
        ({"fields": {"tolerance": 2}}, "tolerance is 2"),
        ({"fields": {"names": "a"}}, "make it a list of texts"),
        ({"fields": True, "unit": "EUR"}, "without a unit"),
        ({"fields": True, "span": 3}, "it has no span"),
    ],
)
def test_what_is_no_rule_of_parts_is_refused(loss: object, says: str) -> None:
    """When it is written."""
    with pytest.raises(PolicyError, match=says):
        written(loss)


def test_fields_cost_the_share_that_differs() -> None:
    """Of those that the label tells: objects are walked through, a list is one field."""
    label = as_label({"total": 100, "at": {"x": 1.0, "y": None}, "tags": ["a", "b"]})
    answer = json.dumps({"total": 104, "at": {"x": 1.0, "y": None}, "tags": ["a"], "more": 1})
    assert judged("fields", answer, label) == 0.5
    assert judged({"fields": {"tolerance": 0.05}}, answer, label) == 0.25
    assert judged({"fields": {"names": ["at", "total"]}}, answer, label) == pytest.approx(1 / 3)


def test_whole_numbers_are_ids_and_types_count() -> None:
    """Two ids of ten digits differ; true is not 1, and a text no number."""
    for answer, label in (("1234567890", "1234567891"), ("true", "1"), ('"3"', "3"), ("null", "0"), ("[1]", "1")):
        assert judged("fields", f'{{"a": {answer}}}', f'{{"a": {label}}}') == 1.0
    assert judged("fields", '{"a": 0.1}', tensors(a=np.float32(0.1))) == 0.0


@given(TREES.filter(bool), TREES)
def test_fields_lie_in_the_unit_and_equal_answers_cost_nothing(label: dict[str, Any], answer: dict[str, Any]) -> None:
    """Whatever they hold."""
    told, said = json.dumps(label), json.dumps(answer)
    assert judged("fields", told, told) == 0.0
    assert 0.0 <= judged("fields", said, told) <= 1.0


@given(st.dictionaries(st.text(), LEAVES, min_size=1), st.data())
def test_each_field_that_is_put_right_makes_the_loss_smaller(label: dict[str, Any], data: st.DataObject) -> None:
    """By one share."""
    wrong = data.draw(st.lists(st.sampled_from(sorted(label)), unique=True, min_size=1))
    said = {name: (["other"] if name in wrong else value) for name, value in label.items()}
    better = {**said, wrong[0]: label[wrong[0]]}
    lost = [judged("fields", json.dumps(one), json.dumps(label)) for one in (said, better)]
    assert lost == pytest.approx([len(wrong) / len(label), (len(wrong) - 1) / len(label)])


@given(*[st.lists(st.floats(0, 1), min_size=2, max_size=2)] * 2, st.floats(1e-6, 1e300), st.floats(0, 1))
def test_outputs_are_monotone_in_each_part(
    answer: list[float], label: list[float], weight: float, nearer: float
) -> None:
    """A part that comes nearer never makes it larger, and the loss lies in [0, 1]."""
    loss = outputs({"a": "absolute", "b": "squared"}, a=weight)
    true = tensors(a=label[0], b=label[1])
    far = judged(loss, tensors(a=answer[0], b=answer[1]), true)
    near = judged(loss, tensors(a=label[0] + (answer[0] - label[0]) * nearer, b=answer[1]), true)
    assert 0.0 <= near <= far + 1e-12 <= 1.0 + 1e-12
    assert judged(loss, true, true) == 0.0


def test_the_cosine_is_that_of_scipy() -> None:
    """Halved, so that opposite vectors cost 1."""
    for _ in range(20):
        one, other = RNG.normal(0, 3, (2, 64))
        assert judged("cosine", as_label(one), as_label(other)) == pytest.approx(distance(one, other) / 2)
    one = np.array([3.0, 4.0])
    turned = [
        judged("cosine", as_label([np.cos(a), np.sin(a)]), as_label([1.0, 0.0])) for a in np.linspace(0, np.pi, 9)
    ]
    assert turned == sorted(turned)
    assert (turned[0], turned[-1]) == (0.0, 1.0)
    assert judged("cosine", tensors(e=one, n=1), tensors(e=-one)) == 1.0


@given(VECTORS, VECTORS)
def test_the_cosine_lies_in_the_unit_and_lengths_do_not_count(one: Tensor, other: Tensor) -> None:
    """Equal vectors cost exactly 0, those of zeros, too."""
    assert judged("cosine", one, one) == 0.0
    assert 0.0 <= judged("cosine", one, other) <= 1.0
    assert judged("cosine", one, as_label(one.numpy().astype(np.float64) / 2)) == pytest.approx(0.0, abs=1e-12)


def test_a_vector_that_is_not_finite_is_wrong() -> None:
    """And a label that is not is refused."""
    assert judged("cosine", as_label([float("inf"), 1.0]), as_label([1.0, 1.0])) == 1.0
    with pytest.raises(LossError, match="no finite tensor"):
        judged("cosine", as_label([1.0, 1.0]), as_label([float("nan"), 1.0]))


def test_fields_are_told_as_they_are() -> None:
    """A mapping with texts is a JSON text as a label; one of numbers alone is tensors, as ever."""
    assert as_label({"who": "Ann", "n": 3}) == '{"who": "Ann", "n": 3}'
    assert as_label({"n": 3, "at": [1.0]}) == tensors(n=3, at=[1.0])
    assert feedback_from_json({"query_id": "q", "label": {"who": "Ann"}}).label == '{"who": "Ann"}'
    array: dict[str, Any] = {"boxes": {"values": [1, 2], "dtype": "int64"}}
    assert feedback_from_json({"query_id": "q", "label": array}).label == tensors(boxes=np.array([1, 2]))
    assert as_label({"who": "Ann", "n": np.int64(3), "at": np.ones(2)}) == '{"who": "Ann", "n": 3, "at": [1.0, 1.0]}'
    for strange in (float("nan"), np.float32("nan"), object(), np.datetime64("2024-01-01")):
        with pytest.raises(TypeError, match=r"what JSON holds|a label holds"):
            as_label({"who": "Ann", "n": strange})
