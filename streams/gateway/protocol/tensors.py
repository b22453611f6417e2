"""Tensors of Open Inference v2: their types, JSON data and raw bytes.

datatype + shape + data (JSON list, flat or nested) ─▶ array ─▶ rows, one Tensor or text each
datatype + shape + bytes (little-endian; BYTES: length before each) ─▶ the same
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from schemas.inputs import NUMBERS, kinds
from schemas.records import Tensor
from streams.gateway.protocol.values import RequestRefusedError, few, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Input
    from streams.gateway.protocol.values import InputForm

Array: TypeAlias = "NDArray[np.generic]"
TYPES: Final[Mapping[str, str]] = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64",
}  # fmt: skip
NAMES: Final[Mapping[str, str]] = {name: datatype for datatype, name in TYPES.items()}
# numpy takes 5 us to tell the name of a type.
_DTYPES: Final = {datatype: np.dtype(name) for datatype, name in TYPES.items()}
_CALLED: Final = {dtype: dtype.name for dtype in _DTYPES.values()}
BYTES: Final = "BYTES"
_MOST_DIMENSIONS: Final = 16
_LENGTH: Final = struct.Struct("<I")


def shape_of(given: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Return a tensor's shape; its first dimension counts rows.

    Raises:
        RequestRefusedError: it is no shape.
    """
    shape = given.get("shape")
    if not isinstance(shape, list) or not 0 < len(shape) <= _MOST_DIMENSIONS:
        raise RequestRefusedError(400, f"input {name}: shape is a list of whole numbers such as [1, 4], its rows first")
    if not all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**31 for size in shape):
        raise RequestRefusedError(400, f"input {name}: shape is a list of whole numbers, none above 2 ** 31")
    return tuple(shape)


def of_json(name: str, datatype: str, shape: tuple[int, ...], data: object) -> Array | list[str | bytes]:
    """Return an array of this shape, or texts in order.

    Raises:
        RequestRefusedError: the data do not fit type and shape.
    """
    if not isinstance(data, list):
        raise RequestRefusedError(
            400, f"input {name}: data is a list, or binary_data_size tells the bytes behind the JSON"
        )
    if datatype == BYTES:
        flat = _flat(data)
        if len(flat) != math.prod(shape) or not all(isinstance(one, str) for one in flat):
            raise RequestRefusedError(400, f"input {name}: {math.prod(shape)} texts are needed for shape {list(shape)}")
        return flat
    dtype = _numpy(name, datatype)
    found_kinds = kinds(data)
    if datatype == "BOOL" and not found_kinds <= {bool}:
        raise RequestRefusedError(400, f"input {name}: BOOL is true or false")
    if not found_kinds <= NUMBERS:
        raise RequestRefusedError(400, f"input {name}: data of {datatype} are numbers")
    try:
        array = np.asarray(data)
        with np.errstate(all="ignore"):  # what becomes infinite is refused by the models
            found = array.astype(dtype)
        if dtype.kind in "iu" and not (found == array).all():
            raise RequestRefusedError(400, f"input {name}: {datatype} does not hold some of the numbers")
        return found.reshape(shape)
    except (ValueError, OverflowError, TypeError) as error:
        raise RequestRefusedError(400, f"input {name}: data do not fit shape {list(shape)}: {error}") from error


def of_bytes(name: str, datatype: str, shape: tuple[int, ...], data: bytes) -> Array | list[str | bytes]:
    """Return an array of this shape, or texts in order, of raw bytes.

    Raises:
        RequestRefusedError: there are more or fewer than shape and type need.
    """
    if datatype == BYTES:
        return _texts(name, math.prod(shape), data)
    dtype = _numpy(name, datatype)
    needed = math.prod(shape) * dtype.itemsize
    if len(data) != needed:
        raise RequestRefusedError(400, f"input {name}: {datatype}{list(shape)} takes {needed} bytes, not {len(data)}")
    return np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)


def rows_of(name: str, found: Array | list[str | bytes], shape: tuple[int, ...]) -> tuple[Input, ...]:
    """Return one input a row.

    Raises:
        RequestRefusedError: there are none or too many, or a row has several texts.
    """
    count = few(shape[0])
    if isinstance(found, list):
        if len(found) != count:
            raise RequestRefusedError(400, f"input {name}: a row has one text; name columns as inputs of their own")
        return tuple(found)
    return split(travelling(found))


def travelling(found: Array) -> Array:
    """Return an array of a type that travels: halves do not."""
    return found.astype(np.float32) if found.dtype == _DTYPES["FP16"] else found


def split(array: Array) -> tuple[Tensor, ...]:
    """Return one tensor for each row of an array that has any."""
    data, size = array.tobytes(), array.nbytes // len(array)
    dtype, form = _CALLED.get(array.dtype) or array.dtype.name, array.shape[1:]
    return tuple([Tensor(dtype, form, data[at * size : (at + 1) * size]) for at in range(len(array))])


def check(rows: Sequence[Input], takes: InputForm | None, what: str) -> None:
    """Return if rows have the form that an application takes; a text may be the address of one.

    Raises:
        RequestRefusedError: one has another form.
    """
    if takes is None or not isinstance(takes.dtype, str):
        return
    for shape in {row.shape for row in rows if isinstance(row, Tensor)}:
        check_form(shape, takes.dtype, takes.shape, what)


def check_form(shape: tuple[int, ...], dtype: str, wanted: tuple[int, ...], what: str) -> None:
    """Return if a row has a shape, but for dimensions of 1: they change neither the numbers nor their order.

    Raises:
        RequestRefusedError: it has another one.
    """
    if [size for size in shape if size != 1] != [size for size in wanted if size != 1]:
        taken = f"{NAMES[dtype]}{[-1, *wanted]}"
        raise RequestRefusedError(
            400, f"{what}: {taken} is taken, with a row a query; a row is {list(shape) or 'one value'}"
        )


def to_bytes(datatype: str, values: Sequence[Any] | NDArray[np.generic]) -> bytes:
    """Return the raw bytes of an output."""
    if datatype != BYTES:
        return np.array(values, np.dtype(TYPES[datatype]).newbyteorder("<")).tobytes()
    encoded = [one.encode() for one in values]
    return b"".join([part for one in encoded for part in (_LENGTH.pack(len(one)), one)])


def _numpy(name: str, datatype: str) -> np.dtype[Any]:
    dtype = _DTYPES.get(datatype)
    if dtype is None:
        raise RequestRefusedError(
            400, f"input {name}: datatype {shown(datatype)} is not one of {', '.join(TYPES)}, {BYTES}"
        )
    return dtype


def _flat(data: list[Any]) -> list[Any]:
    """Return the leaves of nested lists in order; lists in more levels than a shape has stay as they are."""
    for _ in range(_MOST_DIMENSIONS):
        if not any(isinstance(one, list) for one in data):
            break
        data = [leaf for one in data for leaf in (one if isinstance(one, list) else [one])]
    return data


def _texts(name: str, count: int, data: bytes) -> list[str | bytes]:
    """Return texts, each with its length before it; what is no UTF-8 stays bytes."""
    found: list[str | bytes] = []
    at = 0
    while at < len(data) and len(found) <= count:
        end = at + 4 + (_LENGTH.unpack_from(data, at)[0] if at + 4 <= len(data) else len(data))
        if end > len(data):
            raise RequestRefusedError(400, f"input {name}: BYTES end within an element")
        one = data[at + 4 : end]
        try:
            found.append(one.decode())
        except UnicodeDecodeError:
            found.append(one)
        at = end
    if len(found) != count or at != len(data):
        raise RequestRefusedError(400, f"input {name}: {count} elements of BYTES are needed")
    return found
