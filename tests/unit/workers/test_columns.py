"""Rows as places in columns: one piece again where they can be, each for itself where not."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from schemas.records import Tensor
from workers.inputs.columns import Column, Stacked, stacked
from workers.inputs.validation import validate
from workers.manifest import Signature


def tensor(*rows: tuple[int, ...], dtype: str = "int16") -> Tensor:
    """Make a column of rows."""
    return Tensor.of(np.array(rows, dtype=dtype))


def test_a_row_is_what_was_put_into_the_column() -> None:
    """Of a tensor its own shape and bytes, of texts and bytes the value."""
    assert Column(tensor((1, 2), (3, 4)))[1] == Tensor.of(np.array([3, 4], dtype=np.int16))
    assert Column(("text", b"bytes"))[1] == b"bytes"
    assert Column(Tensor("float32", (2, 0), b""))[1] == Tensor("float32", (0,), b"")


def test_rows_of_one_form_are_one_piece_in_the_order_asked_for() -> None:
    """Whichever columns they come from, and whether they follow each other there or not."""
    one, other = Column(tensor((1, 2), (3, 4), (5, 6))), Column(tensor((7, 8)))
    found = stacked([(one, 1), (one, 2), (other, 0), (one, 0)])
    assert isinstance(found, Stacked)
    assert [row.numpy().tolist() for row in found if isinstance(row, Tensor)] == [[3, 4], [5, 6], [7, 8], [1, 2]]
    assert list(found) == [one[1], one[2], other[0], one[0]]


def test_rows_of_several_forms_stay_by_themselves() -> None:
    """Each is checked against the model's signature as it is."""
    one, other = Column(tensor((1, 2))), Column(tensor((1, 2, 3)))
    assert stacked([(one, 0), (other, 0)]) == [one[0], other[0]]
    texts = Column(("a", "b"))
    assert stacked([(texts, 1), (texts, 0)]) == ["b", "a"]


def test_a_stack_is_a_sequence_like_any_other() -> None:
    """Length, places from either end, slices, an end, and a copy in another process."""
    found = stacked((Column(tensor((1,), (2,), (3,))), place) for place in range(3))
    assert (len(found), found[-1], list(found[1:]), list(found[2:1])) == (3, found[2], [found[1], found[2]], [])
    assert list(found[::2]) == [found[0], found[2]]
    assert list(pickle.loads(pickle.dumps(found))) == list(found)
    with pytest.raises(IndexError):
        found[3]


def test_a_stack_is_validated_as_its_rows_are() -> None:
    """Good ones become one writable array; what does not fit has the same reason either way."""
    signature = Signature("tensor", "float32", (2,))
    good = stacked((Column(tensor((1, 2), (3, 4), dtype="float32")), place) for place in range(2))
    checked = validate(signature, good)
    assert isinstance(checked.rows, np.ndarray)
    assert (checked.rows.tolist(), checked.good, checked.rows.flags.writeable) == ([[1, 2], [3, 4]], [0, 1], True)
    bad = stacked((Column(tensor((1, 1e300), dtype="float64")), place) for place in range(1))
    assert validate(signature, bad).reasons == validate(signature, list(bad)).reasons == {0: "dtype"}
