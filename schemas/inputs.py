"""Converts a user's input row, label or features to the form that travels. Nothing here imports pandas.

array, list, Series, one row of a data frame ─▶ Tensor        mapping, row with texts ─▶ JSON text
string, bytes, Tensor ─▶ as they are                          mapping with arrays ─▶ NamedTensors
numpy number ─▶ number
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeGuard, cast

import numpy as np

from schemas.errors import SchemaError
from schemas.records import DTYPES, NamedTensors, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from schemas.avsc import Json
    from schemas.records import Input, Value

# 2 KB, which travel with the query, its answer and its observation.
MAX_FEATURES: Final = 256
# An answer and its observation have a number for each: 32 KB. A candidate takes 2 us with 8 features, 12 with 64.
MAX_CANDIDATES: Final = 4_096
# Of more than a few candidates all features together: 262 KB in a record, and 10 ms of selection's time.
_FEW_CANDIDATES, _MAX_NUMBERS = 256, 32_768
# Of an id of a candidate, in UTF-8: all of them travel with the answer, and once more where nothing is known of them.
MAX_ID_BYTES: Final = 128
# Whatever `as_input` takes.
Row: TypeAlias = "Input | NDArray[np.generic] | Sequence[object] | Mapping[str, object] | float | np.generic | Frame"
_MOST_LEVELS: Final = 16  # of lists in lists; arrays have no more
NUMBERS: Final = frozenset({int, float, bool})
_NOTHING: Final = object()
_WHOLE: Final = 2.0**53  # float64 holds all whole numbers up to this
_IDS = f"1 to {MAX_CANDIDATES} texts of at most {MAX_ID_BYTES} bytes that differ"
_WANTED = "an input is an array or list of numbers, a row of a data frame, a mapping, a string or bytes"


class Frame(Protocol):
    """What pandas' and polars' rows and columns have."""

    def to_numpy(self) -> NDArray[np.generic]:
        """Return the values as an array."""
        ...


class FrameRow(Protocol):
    """A row of a data frame, or a frame with one row."""

    def to_dict(self) -> Mapping[str, object]:
        """Return the values by column."""
        ...


def row_text(row: Mapping[str, object]) -> str:
    """Return a row, a value for each column, as a JSON text.

    NaN and NA become null, moments a text in ISO 8601. What cannot travel, such as a UUID, is left out with a warning:
    a model that reads the column refuses the row.

    Raises:
        SchemaError: nothing in it can travel.

    Examples:
        >>> row_text({"age": 41, "job": "nurse"})
        '{"age": 41, "job": "nurse"}'
    """
    cells = {str(name): _cell(value) for name, value in row.items()}
    strangers = [name for name, cell in cells.items() if cell is _NOTHING]
    for name in strangers:
        kind = type(row.get(name, name)).__name__
        if len(strangers) == len(cells):
            raise SchemaError(f"column {name}: numbers, booleans, texts, moments and None can travel, not {kind}")
        _warn_once(f"column {name} is left out of rows: {kind} cannot travel")
        del cells[name]
    return json.dumps(cells, ensure_ascii=False)


@lru_cache(1_024)
def _warn_once(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def _cell(value: object) -> Json | object:
    """Return a value as JSON has it; `_NOTHING` = it has none."""
    if type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if isinstance(value, date):  # of pandas, too
        return value.isoformat()
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else str(value)
    if isinstance(value, np.generic):
        value = (
            float(value) if isinstance(value, np.floating) else value.item() if value.dtype.kind in "biuU" else _NOTHING
        )
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return value if isinstance(value, (str, bool, int, float)) else _NOTHING


def as_features(values: Iterable[float]) -> tuple[float, ...]:
    """Return numbers as a query's features.

    Raises:
        SchemaError: They are not numbers, not finite, or more than a query may have.
    """
    try:
        features = tuple([_float(value) for value in values])
    except (TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"features: a list of numbers is needed; {error}") from error
    if len(features) > MAX_FEATURES:
        raise SchemaError(f"features: {len(features)} of them; a query may have {MAX_FEATURES}")
    if not all(map(math.isfinite, features)):
        raise SchemaError("features: one of them is not finite; leave such a query's features out, or put 0")
    return features


def _float(value: object) -> float:
    """Return a number as a float of the same value, if it is whole."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r:.40} is a text")
    found = float(value)  # type: ignore[arg-type] # raises TypeError
    if isinstance(value, (int, np.integer)) and int(found) != value:
        raise ValueError(f"float64 does not hold {value}")
    return found


def asked_about(given: Input, features: Sequence[float]) -> Input:
    """Return what models are asked about: the query's input, or its features if that is an empty row."""
    if isinstance(given, Tensor) and given.shape == (0,):
        return Tensor.of(np.array(features, np.float64))
    return given


def as_candidates(given: Row | Sequence[str]) -> Tensor | tuple[str, ...]:
    """Return a query's candidates: ids as they are, or rows of features, an array or lists of numbers.

    Raises:
        SchemaError: There are none or too many; they are not rows of finite numbers, or not ids that differ.
        TypeError: They are neither numbers nor texts.
    """
    if isinstance(given, list | tuple) and any(isinstance(one, str) for one in given):
        ids = tuple(given)
        if not are_candidates(ids):
            named, times = Counter(one for one in ids if isinstance(one, str)).most_common(1)[0]
            raise SchemaError(
                f"candidates: ids are needed, {_IDS}" + (f": {named!r} is there {times} times" if times > 1 else "")
            )
        return cast("tuple[str, ...]", ids)
    rows = as_input(given)
    if not isinstance(rows, Tensor) or not are_candidates(rows):
        raise SchemaError(
            f"candidates: 1 to {MAX_CANDIDATES} rows of finite numbers are needed, one number a feature, of more than"
            f" {_FEW_CANDIDATES} rows {_MAX_NUMBERS} numbers at most, or a list of ids, {_IDS}"
        )
    return rows


def are_candidates(given: object) -> TypeGuard[Tensor | tuple[str, ...]]:
    """Tell whether these are rows or ids that can be ranked."""
    if isinstance(given, Tensor):
        if len(given.shape) != 2 or not 1 <= given.shape[0] <= MAX_CANDIDATES or not are_rankable(*given.shape):
            return False
        return 0 < given.shape[1] <= MAX_FEATURES and bool(np.isfinite(given.numpy()).all())
    if not isinstance(given, tuple) or not 1 <= len(given) <= MAX_CANDIDATES:
        return False
    return all(map(_is_id, given)) and len({*given}) == len(given)


def are_rankable(count: int, width: int) -> bool:
    """Tell whether so many candidates of so many features fit a record, and are ranked soon enough."""
    return count <= _FEW_CANDIDATES or count * width <= _MAX_NUMBERS


def _is_id(one: object) -> bool:
    return isinstance(one, str) and 0 < len(one) <= len(one.encode("utf-8", "surrogatepass")) <= MAX_ID_BYTES


def as_input(x: Row) -> Input:
    """Make one input row; numbers keep their type, which workers bring to the model's where nothing is lost by it.

    Raises:
        TypeError: it is not numbers, a row, a string or bytes.
    """
    if isinstance(x, (Tensor, NamedTensors, str, bytes)):
        return x
    if isinstance(x, Mapping):
        return named_tensors(x) if has_arrays(x) else _text(x)
    try:
        array = _array(x)
    except ValueError as error:  # lists of different lengths
        raise TypeError(f"{_WANTED}, not a {type(x).__name__} that is no array: {error}") from error
    if array.dtype.kind not in "biuf" and hasattr(x, "to_dict"):
        return _named(cast("FrameRow", x), array)
    if array.dtype.kind not in "biuf":
        of = {"U": "texts", "S": "bytes"}.get(array.dtype.kind, f"{array.dtype}s")
        raise TypeError(f"{_WANTED}, not a {type(x).__name__} of {of}")
    return _tensor(array)


def kinds(data: list[Any]) -> set[type]:
    """Return the types of what lists in lists hold; `list` is among them where these are deeper than arrays.

    numpy makes of texts an array in which all are as long as the longest: nobody asks it before this about what others
    have written.

    Examples:
        >>> kinds([[1, 2], [3, 4]]), kinds([])
        ({<class 'int'>}, set())
    """
    found = set(map(type, data))
    for _ in range(_MOST_LEVELS):
        if list not in found:
            break
        data = [leaf for one in data if type(one) is list for leaf in one]
        found = (found - {list}) | set(map(type, data))
    return found


def has_arrays(row: Mapping[str, object]) -> bool:
    """Tell whether these are tensors by name, not the values of a table's columns: one at least is an array."""
    return any(
        isinstance(value, list | tuple | np.ndarray | Tensor) or hasattr(value, "detach") for value in row.values()
    )


def has_fields(label: Mapping[str, object]) -> bool:
    """Tell whether these are fields of a JSON answer, not tensors by name: one at least is or holds no number."""
    held = [found for one in label.values() for found in (kinds(one) if isinstance(one, list) else {type(one)})]
    return any(issubclass(found, str | Mapping | type(None)) for found in held)


def label_text(label: Mapping[str, object]) -> str:
    """Return what is true of a JSON answer as a JSON text.

    Raises:
        TypeError: it holds what JSON has not.
    """
    try:
        return json.dumps(dict(label), ensure_ascii=False, allow_nan=False, default=_listed)
    except (ValueError, RecursionError) as error:
        raise TypeError(f"a label is a number, a text, a list of scores or what JSON holds ({error})") from error


def _listed(value: object) -> object:
    """Return a number or array of numpy's as JSON has it."""
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biuf":
        return value.tolist()
    raise TypeError(f"a label holds texts, numbers, lists and objects, not {type(value).__name__}")


def named_tensors(row: Mapping[str, object], rows: tuple[int, ...] = ()) -> NamedTensors:
    """Make named tensors of arrays, lists or numbers by name; `rows` are the first dimensions of all of them.

    Raises:
        TypeError: one holds more than numbers, or has not as many rows.
    """
    try:
        arrays = {str(name): _travelling(_numbers(name, value)) for name, value in row.items()}
        if any(array.shape[: len(rows)] != rows for array in arrays.values()):
            raise TypeError(f"named tensors have as many rows each, and here some have not {rows[0]}")
        return NamedTensors.named(arrays, rows)
    except ValueError as error:  # lists of different lengths, no numbers, no name
        raise TypeError(str(error)) from error


def _numbers(name: str, value: object) -> NDArray[np.generic]:
    if isinstance(value, list) and {str, bytes} & kinds(value):
        raise TypeError(f"tensor {name}: numbers are needed, not texts")
    found = value.numpy() if isinstance(value, Tensor) else _array(value)
    if found.dtype.kind not in "biuf":
        raise TypeError(f"tensor {name}: numbers are needed beside the other tensors, not {found.dtype}")
    return found


def as_label(value: object) -> Value:
    """Make a label: a number or text, numpy's too, also as the only one of a list or array; a list of scores.

    Of an answer of several tensors it is a mapping of the names of some to what is true of them; of a JSON answer a
    mapping that holds texts, nothing or further mappings, which becomes a JSON text.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, np.generic) and value.dtype.kind in "biuU":
        value = value.item()
    if isinstance(value, (Tensor, NamedTensors, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return label_text(value) if has_fields(value) else named_tensors(value)
    array = _array(value)
    if array.size == 1 and array.dtype.kind in "biufUO" and array.flat[0] is not value:
        return as_label(array.flat[0])
    if array.dtype.kind not in "biuf" or not array.size:
        raise TypeError(f"a label is a number, a text or a list of scores, not {type(value).__name__}: {value!r:.80}")
    return _tensor(array)


def _array(x: object) -> NDArray[np.generic]:
    """Return numbers as an array.

    Raises:
        ValueError: lists have different lengths.
        TypeError: floats beside a large whole number would change it.
    """
    given: object = x.to_numpy() if hasattr(x, "to_numpy") else _of_torch(x) if hasattr(x, "detach") else x
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise TypeError("some of the numbers are masked: fill them, with NaN where the model takes it")
    array: NDArray[np.generic] = np.asarray(given)
    if isinstance(given, np.ndarray) and given.dtype.kind != "O":
        return array
    if array.dtype.kind == "f" and array.size and not (np.abs(array) < _WHOLE).all():
        for one, found in zip(np.asarray(given, object).flat, array.flat, strict=True):
            if isinstance(one, (int, np.integer)) and int(found) != one:
                raise TypeError(f"beside floats, {one} becomes {found:.0f}: give whole numbers alone")
    return array


def _of_torch(x: Any) -> object:
    """Return a tensor of torch as an array, also one that learns, lies on a device or has a type numpy has not."""
    there = x.detach().cpu()
    return (there.float() if str(there.dtype) == "torch.bfloat16" else there).numpy()


def _tensor(array: NDArray[np.generic]) -> Tensor:
    return Tensor.of(_travelling(array))


def _travelling(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return an array in the machine's order of bytes and a type that travels: halves and long doubles do not."""
    if array.dtype.name not in DTYPES:
        array = array.astype(np.float32 if array.dtype.itemsize < np.float64().itemsize else np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _named(x: FrameRow, array: NDArray[np.generic]) -> Input:
    """Make a row with texts, or of numbers that pandas keeps as objects: one number a column, or a value by name."""
    values = array.ravel().tolist()
    if array.dtype.kind == "O" and all(isinstance(value, (int, float)) for value in values):
        return _tensor(_array(values).reshape(array.shape))
    found = x.to_dict()
    if array.ndim > 1:
        if len(array) != 1:
            raise TypeError(f"an input is one row of a data frame, not {len(array)}; take frame.iloc[0]")
        found = {name: next(iter(cast("Mapping[object, object]", column).values())) for name, column in found.items()}
    return _text(found)


def _text(row: Mapping[str, object]) -> str:
    """Write a row as the JSON text that a model of a data frame's columns takes."""
    try:
        return row_text(row)
    except SchemaError as error:
        raise TypeError(f"{_WANTED}: {error}") from error
