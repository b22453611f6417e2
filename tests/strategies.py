"""Hypothesis strategies for every record that travels."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from schemas import avsc, records, wire
from schemas.definitions import CURRENT, RECORDS, members
from schemas.records import DTYPES, ModelPredictions, ModelQueries, NamedTensors, Outcome, Tensor, TensorForm

TEXT = st.text(st.characters(codec="utf-8"), max_size=80)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70) | st.integers(2**48 - 2, 2**48 + 2)
INTS = st.integers(-(2**31), 2**31 - 1)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": INTS,
    "long": LONGS,
    "double": DOUBLES,
    "string": TEXT,
    "bytes": st.binary(max_size=100),
    "outcomes": st.lists(st.sampled_from(Outcome), max_size=5).map(tuple),
    "int32s": st.lists(INTS, max_size=5).map(tuple),
    "int64s": st.lists(LONGS, max_size=5).map(tuple),
}


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Draw a tensor whose bytes are anything of the right length."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3) | st.lists(st.just(1), max_size=8)))
    size = math.prod(shape) * wire.ITEM_BYTES[dtype]
    return Tensor(dtype, shape, draw(st.binary(min_size=size, max_size=size)))


@st.composite
def named_tensors(draw: st.DrawFn, rows: tuple[int, ...] | None = None) -> NamedTensors:
    """Draw named tensors, or so many rows of them, whose bytes are anything of the right length."""
    shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
    forms = st.builds(TensorForm, TEXT.filter(bool), st.sampled_from(DTYPES), shapes)
    dtype = tuple(draw(st.lists(forms, min_size=1, max_size=4, unique_by=lambda form: form.name)))
    shape = draw(st.just(()) | st.tuples(st.integers(0, 3))) if rows is None else rows
    size = math.prod(shape) * sum(math.prod(form.shape) * wire.ITEM_BYTES[form.dtype] for form in dtype)
    return NamedTensors(dtype, shape, draw(st.binary(min_size=size, max_size=size)))


def values(kind: avsc.Type) -> st.SearchStrategy[Any]:  # noqa: PLR0911  (a table: one line a type)
    """Return a strategy for every value a type has a place for."""
    match kind:
        case avsc.Primitive(name):
            return PRIMITIVES[name]
        case avsc.Enumeration():
            return st.sampled_from(members(kind))
        case avsc.Array(items):
            return st.lists(values(items), max_size=4).map(tuple) | st.lists(values(items), max_size=1).map(tuple)
        case avsc.Map(items):
            return st.dictionaries(TEXT, values(items), max_size=4)
        case avsc.Union(branches):
            return st.one_of([values(branch) for branch in branches])
        case avsc.AvroRecord(name="Tensor"):
            return tensors()
        case avsc.AvroRecord(name="NamedTensors"):
            return named_tensors()
        case avsc.AvroRecord(name, fields):
            return st.builds(getattr(records, name), **{field.name: values(field.type) for field in fields})


def batches() -> st.SearchStrategy[ModelPredictions]:
    """Return a strategy for model predictions whose columns agree."""
    return st.integers(0, 70).flatmap(
        lambda rows: st.builds(
            ModelPredictions,
            query_ids=st.just(tuple(f"q-{row}" for row in range(rows))),
            outcomes=st.lists(st.sampled_from(Outcome), min_size=rows, max_size=rows).map(tuple),
            answers=st.just(tuple("a" * rows)) | st.just(Tensor("int8", (rows,), bytes(rows))) | named_tensors((rows,)),
            scores=st.none() | st.just(Tensor("uint8", (rows, 2), bytes(2 * rows))),
            waited_us=st.lists(INTS, min_size=rows, max_size=rows).map(tuple),
            **dict.fromkeys(("predict_us", "batch_rows", "batch_cap", "queue_rows", "earliest_us", "latest_us"), INTS),
            messages=st.just(()) | st.lists(TEXT, min_size=rows, max_size=rows).map(tuple),
            steps=st.just(()) | st.lists(INTS, min_size=rows, max_size=rows).map(tuple),
            **dict.fromkeys(("model", "version", "worker", "released"), TEXT),
        )
    )


def asked() -> st.SearchStrategy[ModelQueries]:
    """Return a strategy for model queries whose columns agree."""
    return st.integers(0, 70).flatmap(
        lambda rows: st.builds(
            ModelQueries,
            query_ids=st.just(tuple(f"q-{row}" for row in range(rows))),
            reply_partition=INTS,
            due_us=st.lists(LONGS, min_size=rows, max_size=rows).map(tuple),
            inputs=st.just(Tensor("uint8", (rows, 2), bytes(2 * rows)))
            | st.lists(TEXT | st.binary(max_size=9), min_size=rows, max_size=rows).map(tuple),
            priorities=st.just(()) | st.lists(INTS, min_size=rows, max_size=rows).map(tuple),
            spare_us=LONGS,
            step=INTS,
        )
    )


BATCHES = {ModelPredictions: batches(), ModelQueries: asked()}
ANY_RECORD = st.one_of([
    BATCHES[record] if record in BATCHES else values(CURRENT[record.__name__].record) for record in RECORDS
])  # fmt: skip
