"""Laws of named tensors: what is stacked is cut again, through selection, a worker's columns and its child process."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.inputs import as_input
from schemas.records import DTYPES, ModelPredictions, NamedTensors, Outcome, TensorForm, dense, dense_of, outputs_of
from schemas.rows import each_input
from streams.operators.contract import Predicted
from tests.strategies import named_tensors
from workers.executors import frames
from workers.inputs.columns import Column, stacked

# Booleans of other bytes than 0 and 1, which codecs carry as they are, are made 1 by numpy: by the oracle.
ROWS = (
    st.integers(1, 4)
    .flatmap(lambda count: named_tensors((count,)))
    .filter(lambda drawn: all(form.dtype != "bool" for form in drawn.dtype))
)


def column(rows: list[NamedTensors]) -> NamedTensors:
    """Stack rows of one form as selection does."""
    found = dense(rows[0].dtype, (len(rows),), b"".join([row.data for row in rows]))
    assert isinstance(found, NamedTensors)
    return found


def cut(given: NamedTensors) -> list[NamedTensors]:
    """Return the rows of a column, by numpy alone: this is the oracle."""
    arrays = given.arrays()
    return [NamedTensors.named({name: array[at] for name, array in arrays.items()}) for at in range(given.shape[0])]


@given(ROWS)
def test_rows_are_cut_and_stacked_again(given: NamedTensors) -> None:
    """One after the other, as a worker takes them, and all of them at once."""
    wanted, whole = cut(given), Column(given)
    assert [whole[at] for at in range(len(wanted))] == wanted
    assert column(wanted) == given
    again = stacked([(Column(column([row])), 0) for row in wanted])
    assert [*again] == wanted


@given(ROWS)
def test_answers_come_back_from_a_child_process_and_as_outputs(given: NamedTensors) -> None:
    """Bytes and forms are equal; each row is an output of its own."""
    count = given.shape[0]
    found = frames.unpack(frames.pack(Predicted((Outcome.OK,) * count, given.numpy())), count)
    assert not isinstance(found.answers, tuple)
    assert dense_of(found.answers) == given
    ids, zeros = tuple(map(str, range(count))), (0,) * count
    batch = ModelPredictions("m", "1", "w", ids, (Outcome.OK,) * count, given, None, zeros, 0, 0, 0, 0)
    assert [output.answer for output in outputs_of(batch)] == cut(given)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=9),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(1, 3), min_size=1, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 4),
)
def test_arrays_by_name_come_back(forms: dict[str, tuple[str, list[int]]], count: int) -> None:
    """As one row, and as rows of arrays whose first dimension they are."""
    arrays = {
        name: np.arange(count * math.prod(shape)).reshape(count, *shape).astype(dtype)
        for name, (dtype, shape) in forms.items()
    }
    rows = [*each_input(arrays)]
    assert len(rows) == count
    for at, row in enumerate(rows):
        assert row == as_input({name: array[at] for name, array in arrays.items()})
        assert isinstance(row, NamedTensors)
        for name, array in row.arrays().items():
            assert array.dtype == arrays[name].dtype
            np.testing.assert_array_equal(array, arrays[name][at])


@pytest.mark.parametrize(
    "dtype",
    [
        (),
        (TensorForm("", "int8"),),
        (TensorForm("a" * 129, "int8"),),
        (TensorForm("a", "int8"), TensorForm("a", "int8")),
        (TensorForm("a", "float16"),),
        (TensorForm("a", "int8", (-1,)),),
        (TensorForm("a", "int8", (0,)),),
        (TensorForm("a", "int8", (1,) * 9),),
        (TensorForm("a", "int8", (2**31 - 1, 2**31 - 1)),),
        tuple([TensorForm(str(at), "int8") for at in range(65)]),
    ],
)
def test_what_are_no_tensors_is_refused(dtype: tuple[TensorForm, ...]) -> None:
    """None, names that are none, too long or twice, types and shapes that no tensor has, too many."""
    with pytest.raises(ValueError, match=r"tensor|dtype|field|twice|occurs|size"):
        NamedTensors(dtype, (), b"")


@pytest.mark.parametrize(("shape", "data"), [((), b""), ((), b"ab"), ((2,), b"a"), ((-1,), b"")])
def test_data_of_another_size_is_refused(shape: tuple[int, ...], data: bytes) -> None:
    """Rows of other queries would shift by it."""
    with pytest.raises(ValueError, match="bytes of data"):
        NamedTensors((TensorForm("a", "int8"),), shape, data)
