"""Losses of answers against labels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.errors import LossError
from policies.losses import loss
from schemas.records import NamedTensors, Tensor, Value

PROBABILITIES = Tensor.of(np.array([0.2, 0.5, 0.3], np.float32))
CLASSES = ("cat", "dog", "7")


@pytest.mark.parametrize(
    ("kind", "answer", "label", "expected"),
    [
        ("zero_one", 3, 3, 0.0),
        ("zero_one", 3, 4, 1.0),
        ("zero_one", 3, 3.0, 0.0),
        ("zero_one", "a", "a", 0.0),
        ("zero_one", "a", "b", 1.0),
        ("absolute", 0.25, 0.5, 0.25),
        ("absolute", 2, 2.5, 0.5),
        ("absolute", 100.0, -100.0, 1.0),
        ("squared", 0.25, 0.75, 0.25),
        ("squared", 1e200, -1e200, 1.0),
        ("given", "anything", 0.3, 0.3),
        ("given", None, 1, 1.0),
    ],
)
def test_loss_of_labels_and_numbers(kind: str, answer: float | str, label: float | str, expected: float) -> None:
    """Each kind compares as its table says."""
    assert loss(kind, answer, label) == pytest.approx(expected)


def test_span_scales_differences() -> None:
    """A span of 10 makes a difference of 5 half a loss."""
    assert loss("absolute", 20.0, 25.0, span=10.0) == pytest.approx(0.5)
    assert loss("squared", 20.0, 25.0, span=10.0) == pytest.approx(0.25)


def test_log_loss_is_scaled_to_one() -> None:
    """Certainty costs nothing, a coin toss a twentieth, a confident error everything."""
    assert loss("log", "dog", "dog", PROBABILITIES, CLASSES) == pytest.approx(math.log(2) / math.log(1e6), rel=1e-6)
    certain = Tensor.of(np.array([1.0, 0.0]))
    assert loss("log", 0, 0, certain) == 0.0
    assert loss("log", 0, 1, certain) == 1.0


def test_log_loss_reads_scores_that_are_the_answer() -> None:
    """A model that answers with scores needs no others."""
    assert loss("log", PROBABILITIES, 1) == loss("log", 1, 1, PROBABILITIES)


def test_scores_are_right_when_their_largest_is_the_label() -> None:
    """Zero-one loss of scores compares their largest with the label's column."""
    assert loss("zero_one", PROBABILITIES, "dog", classes=CLASSES) == 0.0
    assert loss("zero_one", PROBABILITIES, "cat", classes=CLASSES) == 1.0
    assert loss("zero_one", PROBABILITIES, 1) == 0.0


def test_a_class_is_named_by_its_text() -> None:
    """Models of whole-number classes carry their names as text, so 7 and 7.0 name the class "7"."""
    for label in (7, 7.0, "7"):
        assert loss("log", "dog", label, PROBABILITIES, CLASSES) == loss("log", 2, 2, PROBABILITIES)


def test_a_label_that_no_class_has_costs_everything() -> None:
    """A class the model has never seen has probability zero."""
    assert loss("zero_one", PROBABILITIES, "bird", classes=CLASSES) == 1.0
    assert loss("log", "dog", "bird", PROBABILITIES, CLASSES) == 1.0
    assert loss("log", 1, 12, PROBABILITIES) == 1.0


@pytest.mark.parametrize(
    ("kind", "answer", "label", "says"),
    [
        ("zero_one", "3", 3, "answer's type"),
        ("zero_one", 3, "3", "answer's type"),
        ("zero_one", 3, None, "not a finite number"),
        ("zero_one", None, 3, "answer's type"),
        ("zero_one", 3, PROBABILITIES, "not a finite number"),
        ("zero_one", PROBABILITIES, "dog", "package the model with classes"),
        ("absolute", "a", 1.0, "answer is a text"),
        ("absolute", 1.0, "a", "label is a text"),
        ("squared", 1.0, math.nan, "undefined number"),
        ("log", 3, 3, "gives scores"),
        ("log", Tensor.of(np.array([2.0, -1.0])), 0, "softmax"),
        ("log", Tensor.of(np.array([np.nan, 1.0])), 0, "softmax"),
        ("log", Tensor.of(np.array([], np.float32)), 0, "no scores"),
        ("given", 1, 1.5, "not in"),
        ("given", 1, "bad", "not a finite number"),
        ("hinge", 1, 1, "known: zero_one"),
    ],
)
def test_labels_that_do_not_fit_are_refused(kind: str, answer: object, label: object, says: str) -> None:
    """A label of the wrong type raises the one error and says what is wrong."""
    with pytest.raises(LossError, match=says):
        loss(kind, answer, label)  # type: ignore[arg-type]


def test_classes_must_fit_the_scores() -> None:
    """Three scores for two classes are a packaging error."""
    with pytest.raises(LossError, match="3 scores for 2 classes"):
        loss("log", 0, "cat", PROBABILITIES, CLASSES[:2])


@pytest.mark.parametrize("kind", ["zero_one", "absolute", "squared", "log", "given"])
@pytest.mark.parametrize(("answer", "label"), [(3, "card 4111"), ("card 4111", 3), ("card 4111", "card 4111")])
def test_what_is_said_of_a_label_holds_neither_label_nor_answer(kind: str, answer: object, label: object) -> None:
    """The message goes into a dead letter's header and into logs, which others may read than the label's."""
    said = ""
    try:
        loss(kind, answer, label)  # type: ignore[arg-type]
    except LossError as error:
        said = str(error)
    assert "4111" not in said


SEVERAL = NamedTensors.named({"size": np.array([1.0, 2.0]), "kind": np.array(3)})


def said(**label: object) -> NamedTensors:
    """Make a label that names tensors."""
    return NamedTensors.named({name: np.asarray(value) for name, value in label.items()})


@pytest.mark.parametrize(
    ("kind", "label", "expected"),
    [
        ("absolute", said(size=[1.0, 4.0]), 0.25),  # 0 and 2 apart, of a span of 4
        ("squared", said(size=[1.0, 4.0]), 0.125),
        ("absolute", said(size=[1.0, 99.0]), 0.5),  # a number costs 1 at most
        ("absolute", said(size=[1.0, 4.0], kind=3), 0.125),
        ("absolute", said(size=[[1.0], [2.0]]), 0.0),
        ("zero_one", said(kind=3), 0.0),
        ("zero_one", said(kind=4, size=[1.0, 2.0]), 0.5),
        ("zero_one", said(size=[1.0, 2.5]), 1.0),
        ("absolute", Tensor.of(np.array([1.0, 4.0])), 0.25),
        ("given", 0.3, 0.3),
    ],
)
def test_losses_of_several_tensors_are_those_that_the_label_names(kind: str, label: Value, expected: float) -> None:
    """Their mean, of each the mean over its numbers; a label without names is about the first."""
    assert loss(kind, SEVERAL, label, span=4.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "label", "message"),
    [
        ("absolute", said(weight=1), "'weight' is no finite tensor of the answer's form: size, kind"),
        ("absolute", said(size=1), "'size' is no finite"),
        ("absolute", said(kind=math.nan), "'kind' is no finite"),
        ("absolute", 3, "'size' is no finite"),
        ("zero_one", "a", "the label is a text, not a finite number"),
        ("absolute", None, "the label is nothing"),
        ("log", said(kind=3), "needs the scores of one model"),
    ],
)
def test_labels_that_do_not_fit_several_tensors_are_refused(kind: str, label: Value | None, message: str) -> None:
    """Other names, shapes, numbers that are none, texts."""
    with pytest.raises(LossError, match=message):
        loss(kind, SEVERAL, label)
