"""The loss of an answer, from 0 (right) to 1 (as wrong as can be).

    kind        answer              label               loss
    zero_one    label or scores     label               0 if the same, else 1
    absolute    number              number              min(1, |answer - label| / span)
    squared     number              number              min(1, ((answer - label) / span)^2)
    log         (probabilities)     label               min(1, -ln p(label) / ln 10^6)
    given       any                 the loss itself     the label

These are the losses that have a name alone. What mistakes cost beyond them, and in which unit, is said by a rule:
`policies.loss_rules`.

Of an answer of several tensors a label names some: the loss is the mean of theirs, and of a tensor the mean over its
numbers; `zero_one` costs 1 unless all of its numbers are right. A label without names is about the first tensor.

Labels are strict: text is compared with text and numbers with numbers. 3 and 3.0 are the same; "3" is not 3. A label
that names a column of scores is compared with the class names as text, because classes travel as text. Without classes
it is the column's index.
"""

from __future__ import annotations

from functools import partial
from math import isfinite, log, prod
from typing import TYPE_CHECKING, Final

import numpy as np

from policies.errors import LossError
from schemas.records import NamedTensors, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Value

    Floats = NDArray[np.float64]

# A probability below this costs the full loss of 1: one confident error may not outweigh everything else learnt, and
# bounded losses are what the policies are made for. At 1e-6 a coin toss (p = 0.5) costs 0.05.
SMALLEST_PROBABILITY: Final = 1e-6
# Scores of float32 models add up to 1 only so closely.
_SUM_TOLERANCE = 1e-3


def loss(
    kind: str,
    answer: Value | None,
    label: Value | None,
    scores: Tensor | None = None,
    classes: Sequence[str] = (),
    *,
    span: float = 1.0,
) -> float:
    """Return the loss of an answer in [0, 1].

    Args:
        kind: zero_one, absolute, squared, log or given.
        answer: What the model said.
        label: What was true; for `given` the loss.
        scores: One score a class where the model gives them; for `log` probabilities, shape (k,).
        classes: Name of each score's class.
        span: The difference between numbers that costs a full loss, positive.

    Raises:
        LossError: The label does not fit the answer or the kind, or there is no such kind.
    """
    if kind not in _KINDS:
        raise LossError(f"unknown loss {kind!r}; known: {', '.join(_KINDS)}")
    if isinstance(answer, NamedTensors) and kind != "given":
        if kind == "log":
            raise LossError("loss `log` needs the scores of one model, and the answer has several tensors")
        return of_tensors(answer, label, partial(_apart, kind, span))
    return _KINDS[kind](answer, label, scores, classes, span)


def of_tensors(answer: NamedTensors, label: Value | None, judge: Callable[[Floats, Floats], float]) -> float:
    """Return the mean of what the tensors cost that a label names.

    Args:
        answer: several tensors.
        label: what is true of some of them, or of the first.
        judge: returns the loss of a tensor's numbers, given those that are true.

    Raises:
        LossError: the label names none of them, or has another form.
    """
    given, told = answer.arrays(), _told(answer, label)
    losses = []
    for name, true in told.items():
        if name not in given or given[name].size != true.size or not np.isfinite(true).all():
            raise LossError(f"the label's {name!r:.40} is no finite tensor of the answer's form: {', '.join(given)}")
        losses.append(judge(given[name].astype(np.float64).ravel(), true.astype(np.float64).ravel()))
    return sum(losses) / len(losses)


def _apart(kind: str, span: float, given: Floats, true: Floats) -> float:
    apart = np.minimum(1.0, np.abs(given - true) / span)
    return float(apart.any() if kind == "zero_one" else (apart if kind == "absolute" else apart**2).mean())


def _told(answer: NamedTensors, label: Value | None) -> Mapping[str, NDArray[np.generic]]:
    """Return what a label says of the tensors of an answer, by name."""
    if isinstance(label, NamedTensors):
        return label.arrays()
    return {answer.dtype[0].name: label.numpy() if isinstance(label, Tensor) else np.array(number(label, "label"))}


def _zero_one(answer: Value | None, label: Value | None, _: Tensor | None, classes: Sequence[str], __: float) -> float:
    if isinstance(answer, Tensor):
        return float(_column(label, answer, classes) != int(answer.numpy().argmax()))
    known = label_of(label)
    if answer is None or isinstance(answer, str) != isinstance(known, str):
        raise LossError(
            f"the label is {kind_of(label)}, the answer {kind_of(answer)}; send a label of the answer's type"
        )
    return float(answer != known)


def _absolute(answer: Value | None, label: Value | None, _: Tensor | None, __: Sequence[str], span: float) -> float:
    return min(1.0, abs(number(answer, "answer") - number(label, "label")) / span)


def _squared(answer: Value | None, label: Value | None, _: Tensor | None, __: Sequence[str], span: float) -> float:
    return min(1.0, abs(number(answer, "answer") - number(label, "label")) / span) ** 2


def _log(answer: Value | None, label: Value | None, scores: Tensor | None, classes: Sequence[str], _: float) -> float:
    given = answer if scores is None and isinstance(answer, Tensor) else scores
    if given is None:
        raise LossError("loss `log` needs a model that gives scores; use zero_one for labels alone")
    column = _column(label, given, classes)
    probabilities = given.numpy().astype(np.float64).ravel()
    if not (probabilities.min() >= 0.0 and abs(probabilities.sum() - 1.0) <= _SUM_TOLERANCE):
        raise LossError("the scores are not probabilities; end the model with a softmax, or use zero_one")
    probability = 0.0 if column is None else float(probabilities[column])
    return min(1.0, max(0.0, log(max(probability, SMALLEST_PROBABILITY)) / log(SMALLEST_PROBABILITY)))


def _given(_: Value | None, label: Value | None, __: Tensor | None, ___: Sequence[str], ____: float) -> float:
    value = number(label, "loss")
    if not 0.0 <= value <= 1.0:
        raise LossError(f"loss {value} is not in [0, 1]; scale it before sending")
    return value


_KINDS: Mapping[str, Callable[[Value | None, Value | None, Tensor | None, Sequence[str], float], float]] = {
    "zero_one": _zero_one,
    "absolute": _absolute,
    "squared": _squared,
    "log": _log,
    "given": _given,
}


LOSSES = tuple(_KINDS)


def number(value: Value | None, what: str) -> float:
    """Return a finite number.

    Raises:
        LossError: it is none.
    """
    if not isinstance(value, int | float) or not isfinite(value):
        raise LossError(f"the {what} is {kind_of(value)}, not a finite number")
    return float(value)


def kind_of(value: Value | None) -> str:
    """Say what a value is, and not which: messages go into dead letters and logs, which others may read."""
    if isinstance(value, int | float):
        return "a number" if isfinite(value) else "an infinite or undefined number"
    return "nothing" if value is None else "a text" if isinstance(value, str) else "a tensor or several"


def class_text(value: float | str) -> str:
    """Return a label as classes are named: as text."""
    if isinstance(value, str):
        return value
    return f"{value:.17g}" if isinstance(value, float) else str(int(value))  # a bool is 0 or 1


def label_of(value: Value | None) -> int | float | str:
    """Return a text or a finite number.

    Raises:
        LossError: it is neither.
    """
    if isinstance(value, str):
        return value
    return value if isinstance(value, int) else number(value, "label")


def _column(label: Value | None, scores: Tensor, classes: Sequence[str]) -> int | None:
    """Return the score's index that the label names; None if it names a class the model does not know."""
    known = label_of(label)
    width = prod(scores.shape)
    if width == 0:
        raise LossError("there are no scores; the model must give one for each class")
    if classes:
        text = class_text(known)
        if len(classes) != width:
            raise LossError(f"{width} scores for {len(classes)} classes; package the model with the classes it scores")
        return classes.index(text) if text in classes else None
    if isinstance(known, str):
        raise LossError("the label is a text, but the scores' classes have no names; package the model with classes")
    return int(known) if known == int(known) and 0 <= known < width else None
