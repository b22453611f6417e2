"""What a runtime is: loaded once, then asked for whole batches.

A runtime module (`workers/runtimes/<name>.py`) has one function `load`, as `RuntimeModule` says. The answer for a row
may not depend on the rows beside it: labels equal, scores and values within 1e-5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from schemas.records import DTYPES, TensorForm, element
from workers.errors import OutputError, PackageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from workers.manifest import Manifest

# A batch that has been validated and stacked: (n, *shape) for tensors, n records with a field each where they have
# names (`by_name`), else n strings or n byte strings, or of a table n tuples of values, in the order of its columns.
Rows: TypeAlias = "NDArray[np.generic] | Sequence[str] | Sequence[bytes] | Sequence[tuple[object, ...]]"
# The files of a package by name: they have been verified, and a runtime reads no others.
Files: TypeAlias = "Mapping[str, bytes]"
# One answer a row: (n,) integer labels, float64 values or records with a field for each tensor, or n string labels.
Answers: TypeAlias = "NDArray[np.generic] | tuple[str, ...]"
# What a trunk gives for n rows: an array or a tensor, which has a length and takes slices and lists of places.
Middle: TypeAlias = Any
FEW: Final = 32  # classes: of so many the scores travel unasked, in 256 bytes
_FIRST_BEYOND: Final = 2.0**63  # the first number that int64 does not hold


@dataclass(frozen=True, slots=True)
class Outputs:
    """The answers to one batch, row by row; `scores` is (n, k), one a class, where the model gives scores."""

    answers: Answers
    scores: NDArray[np.generic] | None = None


class Runtime(Protocol):
    """A loaded model.

    It may have two attributes that say where it runs best. `leaves_lock` is true if it computes without Python's lock.
    `waits` is true if it waits for a device most of its time. Without them it counts as keeping the lock.

    It may have a method `prepare(sizes)`. Where the settings allow some sizes of batches only, that is called with
    them, rising, before the first batch.

    It may have a `trunk`, which other models of its process can share (see `trunks`), and then a `head`: a runtime of
    its own that is asked about what the trunk gives. The two give the answers of the whole within 1e-5.
    """

    def predict_batch(self, rows: Rows) -> Outputs:
        """Answer every row of a batch of at least one; any exception means that no row was answered."""
        ...


class TrunkRuntime(Protocol):
    """A loaded trunk.

    Attributes:
        digest: equal ones do for each other.
    """

    digest: str

    def run(self, rows: Rows) -> Middle:
        """Return what the heads are asked about, for each row of a batch of at least one."""
        ...

    def split(self, middle: Middle) -> Sequence[Middle]:
        """Return it row by row; each keeps no more memory than its own."""
        ...

    def joined(self, parts: Sequence[Middle]) -> Middle:
        """Put rows together again."""
        ...


class RuntimeModule(Protocol):
    """What the registry expects of a runtime's module.

    It may have a constant `READS_WHAT_IT_LACKS`. If that is true, a file is read and verified when `load` asks for it.
    Otherwise all files have been before.
    """

    def load(self, manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> Runtime:
        """Load the model from the verified files of a package, by name; it may read no others."""
        ...


def own(rows: Any) -> Any:
    """Return a copy of rows for one call: a model may write into what it is given."""
    if isinstance(rows, list | tuple):
        return list(rows)
    return rows.clone() if hasattr(rows, "clone") else rows.copy()  # a tensor; an array or a data frame


def part(files: Files, name: str) -> bytes:
    """Return one file.

    Raises:
        PackageError: the manifest does not list it.
    """
    if name not in files:
        raise PackageError(f"the package lists no {name}: package the model again")
    return files[name]


def labels(raw: object) -> Answers:
    """Bring n labels into the form that travels: int64 (n,), or a tuple of strings.

    Raises:
        OutputError: labels are neither all whole numbers of 64 bits nor all strings.
    """
    array = raw if isinstance(raw, list | tuple) else _array(raw)
    if isinstance(array, list | tuple) or (array.ndim == 1 and array.dtype.kind in "OUT"):
        return _one_by_one([*array] if isinstance(array, list | tuple) else array.tolist())
    if array.ndim != 1 or array.dtype.kind not in "iubf":
        hint = "" if array.ndim != 2 else "; give one dimension" if array.shape[1] == 1 else SEVERAL
        if array.ndim == 2 and array.shape[1] > 1 and array.dtype.kind == "f":
            hint = "; of one score a class the output is `scores`"
        raise OutputError(
            f"labels must be n whole numbers or n strings, not {array.dtype} of shape {array.shape}{hint}"
        )
    if array.dtype.kind == "f":  # estimators fitted on 0.0 and 1.0 answer floats
        wide = array.astype(np.float64)  # NaN is not below anything
        fits = (wide >= -_FIRST_BEYOND) & (wide < _FIRST_BEYOND) & (array == np.trunc(array))
    else:
        fits = array <= int(_FIRST_BEYOND) - 1
    if not fits.all():
        raise _no_label(array[int(fits.argmin())])
    return array.astype(np.int64)


def _array(raw: object) -> NDArray[Any]:
    """Return answers as an array; what a mask hides is no answer."""
    if isinstance(raw, np.ma.MaskedArray) and np.ma.is_masked(raw):
        raise OutputError("some answers are masked: fill them")
    return np.asarray(raw)


def _one_by_one(found: Sequence[object]) -> Answers:
    """Bring labels of Python into that form: their array would make texts of numbers, and floats of large ones."""
    if all(isinstance(label, str) for label in found):
        return tuple([str(label) for label in found])
    numbers: list[int] = []
    for each in found:
        label: object = each.item() if isinstance(each, np.generic) else each
        if isinstance(label, str):
            raise OutputError("labels must be n whole numbers or n strings, not both")
        if not isinstance(label, int | float) or not -_FIRST_BEYOND <= label < _FIRST_BEYOND or label != int(label):
            raise _no_label(label)  # NaN is not below anything
        numbers.append(int(label))
    return np.array(numbers, np.int64)


def _no_label(label: object) -> OutputError:
    hint = "; of numbers such as a regressor's the output is `value`" if isinstance(label, float | np.floating) else ""
    shown = "a list" if isinstance(label, list) else f"{label!s:.40} ({type(label).__name__})"
    return OutputError(f"labels must be n whole numbers of 64 bits or n strings, not {shown}{hint}")


def values(raw: object) -> Outputs:
    """Bring n numbers into the form that travels: float64 (n,); (n, 1) is taken as (n,).

    Raises:
        OutputError: not one number for each row, or a whole one that float64 does not hold.
    """
    array = _array(raw)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iubf":
        several = array.ndim > 1 and array.dtype.kind in "iubf"
        raise OutputError(f"values must be n numbers, not {array.dtype} of shape {array.shape}{SEVERAL * several}")
    return Outputs(_floats(array, "values"))


SEVERAL: Final = ": a model answers one label or number a row; with output='tensors' it answers several numbers"


def _floats(array: NDArray[np.generic], what: str) -> NDArray[np.float64]:
    """Return numbers as float64; floats may be rounded, whole numbers stay equal."""
    found = array.astype(np.float64)
    if array.dtype.kind in "iu" and array.dtype.itemsize > 4:
        with np.errstate(invalid="ignore"):
            fits = (found < float(np.iinfo(array.dtype.name).max)) & (found.astype(array.dtype) == array)
        if not fits.all():
            raise OutputError(f"{what} travel as float64, which does not hold {array[~fits].flat[0]}: answer labels")
    return found


def by_name(rows: Any) -> Any:
    """Return a batch of named tensors as one array `(n, *shape)` for each, and any other batch as it is."""
    names = rows.dtype.names if isinstance(rows, np.ndarray) else None
    return rows if names is None else {name: np.array(rows[name], order="C") for name in names}


def forms_answered(raw: object, names: Sequence[str], count: int) -> tuple[TensorForm, ...]:
    """Return what the answers to n rows are made of; see `tensors`.

    Args:
        raw: what a model answers.
        names: of those that count; none = all of them, called as the model does, or `answer` where it is one alone.
        count: n.

    Raises:
        OutputError: one has not a number or an array of numbers for each row.
    """
    forms = []
    for name, array in _arrays(raw, names or _own_names(raw)).items():
        dtype = {"float16": "float32"}.get(array.dtype.name, array.dtype.name)
        if array.shape[:1] != (count,) or dtype not in DTYPES:
            raise OutputError(f"{name} has to be numbers, {count} rows of them, not {array.dtype} of {array.shape}")
        forms.append(TensorForm(name, dtype, array.shape[1:]))
    return tuple(forms)


def _own_names(raw: object) -> Sequence[str]:
    if isinstance(raw, Mapping):
        return [*map(str, raw)]
    return [f"output_{at}" for at in range(len(raw))] if isinstance(raw, list | tuple) else ["answer"]


def tensors(raw: object, forms: Sequence[TensorForm], count: int) -> Outputs:
    """Bring several tensors into the form that travels: n records with a field for each.

    Args:
        raw: arrays by name, or in the order of the forms; one array (n, ...) of one form, or (n, k) of k numbers.
        forms: of one row.
        count: n.

    Raises:
        OutputError: there are others, or one is not `(n, *shape)` of the numbers that its form says.
    """
    found = _arrays(raw, [form.name for form in forms])
    records = np.empty(count, element(tuple(forms)))
    for name, dtype, shape in forms:
        array = found[name]
        if array.shape != (count, *shape) or not np.can_cast(array.dtype, dtype, "same_kind"):
            raise OutputError(f"{name} must be {dtype} of shape {(count, *shape)}, not {array.dtype} {array.shape}")
        records[name] = array
    return Outputs(records)


def _arrays(raw: object, names: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    parts: Any
    if isinstance(raw, Mapping):
        parts = [raw[name] for name in names if name in raw]
    elif isinstance(raw, list | tuple):
        parts = raw
    else:
        parts = [raw] if len(names) == 1 else np.atleast_1d(_array(raw)).T
    if len(parts) != len(names):
        raise OutputError(f"the model must answer the tensors {', '.join(names)}, and these are others: {_said(raw)}")
    return dict(zip(names, map(_array, parts), strict=True))


def _said(raw: object) -> str:
    return ", ".join(map(str, raw)) if isinstance(raw, Mapping) else f"a {type(raw).__name__}"


def scored(raw: object, classes: tuple[int | str, ...], *, keep: bool = True) -> Outputs:
    """Answer the class of the highest score, the first of equals; `raw` is (n, k) with k classes.

    Args:
        raw: one score a class.
        classes: the label of each column; empty = the column's index. Only a single one allows a single column.
        keep: give the scores besides the labels.

    Raises:
        OutputError: not one score for each row and class, or a single column, whose highest is always the first.
    """
    scores = _array(raw)
    is_named = keep and len(classes) == 1  # a number that a policy takes as a feature
    if scores.dtype.kind in "iubf" and (scores.ndim == 1 or (scores.shape[1:] == (1,) and not is_named)):
        raise OutputError(
            f"one number a row, {scores.shape}, is no score of several classes: package it with output='value', or"
            " answer the scores of both classes, (n, 2); as a feature for a policy, give its one name in classes"
        )
    if scores.ndim != 2 or scores.dtype.kind not in "iubf" or (classes and scores.shape[1] != len(classes)):
        wanted = f"(n, {len(classes)})" if classes else "(n, k)"
        raise OutputError(f"scores must be numbers of shape {wanted}, not {scores.dtype} of shape {scores.shape}")
    best = scores.argmax(axis=1)
    answers = labels(np.asarray(classes)[best]) if classes else best.astype(np.int64)
    if not keep:
        return Outputs(answers)
    is_short = scores.dtype.itemsize <= (4 if scores.dtype.kind == "f" else 2)  # float32 holds whole numbers of 16 bits
    # Always a copy: a model may answer the next batch in the same array.
    return Outputs(answers, scores.astype(np.float32) if is_short else _floats(scores, "scores"))
