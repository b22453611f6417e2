"""Rows: one outcome each, and a bad one does not fail its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.records import Outcome, Tensor
from workers.inputs.rows import MAX_CULPRITS, predict_rows
from workers.inputs.validation import validate
from workers.manifest import Manifest, Signature
from workers.runtimes.contract import Outputs, scored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from workers.runtimes.contract import Rows

OK, INVALID, FAILED = Outcome.OK, Outcome.INVALID, Outcome.FAILED
FLOATS = Manifest("m", "1", "function", Signature("tensor", "float32", (2,)), "value")
TEXTS = Manifest("m", "1", "function", Signature("string"), "label")


class Model:
    """A runtime made of a function; remembers the size of each call."""

    def __init__(self, answer: Callable[[Rows], Outputs]) -> None:
        self.answer = answer
        self.calls: list[int] = []

    def predict_batch(self, rows: Rows) -> Outputs:
        """Answer with the function."""
        self.calls.append(len(rows))
        return self.answer(rows)


def row(*numbers: float, dtype: str = "float32") -> Tensor:
    """Make an input row."""
    return Tensor.of(np.array(numbers, dtype=dtype))


def sums(rows: Rows) -> Outputs:
    """Answer each row with its sum."""
    return Outputs(np.asarray(rows, dtype=np.float64).sum(axis=1))


def refusing(*bad: float) -> Model:
    """A model that raises on a batch with one of these numbers in it."""

    def answer(rows: Rows) -> Outputs:
        if np.isin(np.asarray(rows)[:, 0], bad).any():
            raise ValueError("no such number")
        return sums(rows)

    return Model(answer)


def test_good_rows_are_answered_with_one_call() -> None:
    """Rows that fit go to the model together."""
    model = Model(sums)
    predicted = predict_rows(model, FLOATS, [row(1, 2), row(3, 4)])
    assert predicted.outcomes == (OK, OK)
    assert np.asarray(predicted.answers).tolist() == [3.0, 7.0]
    assert model.calls == [2]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("text", "kind"),
        (b"bytes", "kind"),
        (row(1, 1e300, dtype="float64"), "dtype"),
        (row(1, 2**40 + 1, dtype="int64"), "dtype"),
        (row(1, 2, 3), "shape"),
        (Tensor("float32", (2,), b"\0" * 7), "shape"),
        (row(1, float("nan")), "number"),
        (row(float("inf"), 1), "number"),
        (row(1, -2e30), "number"),
    ],
)
def test_a_row_that_does_not_fit_is_invalid_and_its_neighbours_are_answered(bad: Tensor | str, reason: str) -> None:
    """Each way of not fitting the signature has its reason, and costs nobody else anything."""
    predicted = predict_rows(Model(sums), FLOATS, [row(1, 2), bad, row(3, 4)])
    assert predicted.outcomes == (OK, INVALID, OK)
    assert predicted.reasons == {1: reason}
    answers = np.asarray(predicted.answers)
    assert (answers[0], answers[2]) == (3.0, 7.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [3, 5_000])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 1e31])
def test_one_number_that_does_not_fit_is_found_among_any(number: float, width: int, dtype: str) -> None:
    """In small batches, whose sum of squares is looked at, and in large ones; numbers whose sum is too large do fit."""
    large = np.full((3, width), 9e29, dtype=dtype)
    signature = Signature("tensor", dtype, (width,))
    assert validate(signature, [Tensor.of(row) for row in large]).good == [0, 1, 2]
    large[1, -1] = number
    assert validate(signature, [Tensor.of(row) for row in large]).reasons == {1: "number"}


def test_nan_is_let_through_where_the_model_takes_it_but_infinity_is_not() -> None:
    """`allow_nan` is about missing values, not about overflow."""
    signature = Signature("tensor", "float32", (2,), allow_nan=True)
    checked = validate(signature, [row(1, float("nan")), row(1, float("inf"))])
    assert (checked.good, dict(checked.reasons)) == ([0], {1: "number"})


def test_stacked_rows_can_be_written_to() -> None:
    """Torch warns about, and some Cython code refuses, read-only buffers."""
    checked = validate(FLOATS.input, [row(1, 2)])
    assert isinstance(checked.rows, np.ndarray)
    assert checked.rows.flags.writeable


def test_strings_and_numbers_do_not_mix() -> None:
    """A model of texts refuses tensors."""
    model = Model(lambda rows: Outputs(tuple(str(text).upper() for text in rows)))
    predicted = predict_rows(model, TEXTS, ["a", row(1, 2), "b"])
    assert predicted.outcomes == (OK, INVALID, OK)
    assert predicted.answers == ("A", "", "B")


def test_an_empty_batch_is_never_sent() -> None:
    """With no row left the model is not asked."""
    model = Model(sums)
    assert predict_rows(model, FLOATS, []).outcomes == ()
    assert predict_rows(model, FLOATS, ["no", "no"]).outcomes == (INVALID, INVALID)
    assert model.calls == []


def test_a_culprit_is_found_by_halving_and_no_row_is_tried_too_often() -> None:
    """Row 5 of 16 raises: the others are answered, and no row is in more than log2(16) + 1 calls."""
    model = refusing(5.0)
    predicted = predict_rows(model, FLOATS, [row(i, 0) for i in range(16)])
    assert [i for i, outcome in enumerate(predicted.outcomes) if outcome is FAILED] == [5]
    assert np.asarray(predicted.answers).tolist() == [0.0 if i == 5 else float(i) for i in range(16)]
    assert predicted.fault == "ValueError: no such number"
    assert len(model.calls) == 9  # 16, then both halves of 16, 8, 4 and 2


def test_a_model_that_always_raises_is_not_asked_for_every_row() -> None:
    """A broken model costs a bounded number of calls, not two for each row."""

    def broken(rows: Rows) -> Outputs:
        raise RuntimeError("broken")

    model = Model(broken)
    predicted = predict_rows(model, FLOATS, [row(i, 0) for i in range(1024)])
    assert set(predicted.outcomes) == {FAILED}
    assert len(model.calls) < 4 * MAX_CULPRITS


def test_the_wrong_number_of_answers_fails_the_rows_that_cause_it() -> None:
    """A model that drops a row cannot be trusted about the others of that call; alone they are answered."""

    def dropping(rows: Rows) -> Outputs:
        numbers = np.asarray(rows)
        return sums(numbers[numbers[:, 0] != 2.0])

    predicted = predict_rows(Model(dropping), FLOATS, [row(i, 1) for i in range(4)])
    assert predicted.outcomes == (OK, OK, FAILED, OK)
    assert np.asarray(predicted.answers).tolist() == [1.0, 2.0, 0.0, 4.0]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_answers_that_are_not_finite_fail_their_row_alone(number: float) -> None:
    """NaN out of a model must not travel."""
    model = Model(lambda rows: Outputs(np.array([1.0, number, 3.0])))
    predicted = predict_rows(model, FLOATS, [row(0, 0)] * 3)
    assert predicted.outcomes == (OK, FAILED, OK)
    assert np.isfinite(np.asarray(predicted.answers)).all()


def test_scores_that_are_not_finite_fail_their_row_alone() -> None:
    """The same for one score of many."""
    scores = np.array([[0.5, 0.5], [float("nan"), 1.0]])
    predicted = predict_rows(Model(lambda rows: Outputs(np.array([0, 1]), scores)), FLOATS, [row(0, 0)] * 2)
    assert predicted.outcomes == (OK, FAILED)
    assert predicted.scores is not None
    assert predicted.scores.tolist() == [[0.5, 0.5], [0.0, 0.0]]


def test_parts_that_answer_in_another_form_fail() -> None:
    """A model that answers numbers for one half and texts for the other is no model."""

    def answer(rows: Rows) -> Outputs:
        numbers = np.asarray(rows)
        if len(numbers) > 1:
            raise ValueError("one at a time")
        return Outputs(("text",)) if numbers[0, 0] else sums(numbers)

    predicted = predict_rows(Model(answer), FLOATS, [row(0, 1), row(1, 1)])
    assert predicted.outcomes == (OK, FAILED)


def outcomes_of(bad: Sequence[float], count: int) -> tuple[NDArray[np.float64], tuple[Outcome, ...]]:
    """Predict rows 0..count-1 with a model that refuses some of them."""
    predicted = predict_rows(refusing(*bad), FLOATS, [row(i, 0) for i in range(count)])
    return np.asarray(predicted.answers, dtype=np.float64), predicted.outcomes


def test_several_culprits_are_each_found() -> None:
    """Halving goes on in both halves."""
    answers, outcomes = outcomes_of([0, 3, 4, 11], 12)
    assert [i for i, outcome in enumerate(outcomes) if outcome is FAILED] == [0, 3, 4, 11]
    assert answers[10] == 10.0


def test_no_attempt_sees_what_another_wrote_into_its_rows() -> None:
    """A model that overwrites its rows and then raises costs its neighbours nothing."""

    def overwriting(rows: Rows) -> Outputs:
        given = np.array(rows)
        np.asarray(rows)[:] = 7.0
        if (given < 0.0).any():
            raise ValueError("a negative number")
        return sums(given)

    predicted = predict_rows(Model(overwriting), FLOATS, [row(number, 0) for number in (1, 2, -3, 4, 5)])
    assert predicted.outcomes == (OK, OK, FAILED, OK, OK)
    assert np.asarray(predicted.answers).tolist() == [1.0, 2.0, 0.0, 4.0, 5.0]
    texts = [*"abxcd"]

    def taking(rows: Rows) -> Outputs:
        given = tuple(map(str, rows))
        rows.clear()  # type: ignore[union-attr] # a list
        if "x" in given:
            raise ValueError("an x")
        return Outputs(given)

    predicted = predict_rows(Model(taking), TEXTS, texts)
    assert predicted.answers == ("a", "b", "", "c", "d")


def test_an_array_of_scores_may_be_used_again_by_the_model() -> None:
    """The answers to a part of a batch are not those to the next part."""
    scores = np.zeros((8, 2), np.float32)

    def reusing(rows: Rows) -> Outputs:
        if (np.asarray(rows)[:, 0] < 0).any():
            raise ValueError("a negative number")
        scores[: len(rows), 1] = np.asarray(rows)[:, 0]
        return scored(scores[: len(rows)], ())

    predicted = predict_rows(Model(reusing), FLOATS, [row(number, 0) for number in (1, 2, -3, 4)])
    assert predicted.scores is not None
    assert predicted.scores[:, 1].tolist() == [1.0, 2.0, 0.0, 4.0]


@pytest.mark.parametrize("answers", [np.array([2**63], np.uint64), np.array([1j]), np.array([None], dtype=object)])
def test_answers_of_a_type_that_cannot_travel_fail_their_rows(answers: NDArray[np.generic]) -> None:
    """Whatever made them: none is wrapped or cut."""
    assert predict_rows(Model(lambda _: Outputs(answers)), TEXTS, ["a"]).outcomes == (FAILED,)
    scores = Outputs(np.array([0]), answers[:, None])
    assert predict_rows(Model(lambda _: scores), TEXTS, ["a"]).outcomes == (FAILED,)
