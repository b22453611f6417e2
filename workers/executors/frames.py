"""What a role and a process with its models say to each other: length-prefixed frames over two pipes.

    role ── (what, parts), pickled ──────────────────▶ child     a part: number, copy, and to load a `Package`, to
                                                                 predict rows, to unload nothing
    role ◀─ number, and why, `LoadedPackage`, results ─ child    in the order in which they are done

The child trusts the role. Its answers come without pickle: a model's process cannot run code in the role. A frame is
its length (4 bytes, big-endian) and that many bytes. Results are a head in JSON, by its own length, and the bytes of
their columns, whose types and shapes the head has: 25 us for a few rows, where NumPy's npz takes 1.4 ms.
"""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeAlias

import numpy as np

from schemas.records import Outcome, TensorForm, element, forms_of
from streams.operators.contract import Predicted
from workers.errors import OutputError, PackageError
from workers.inputs.references import References
from workers.packages.autotune import SIZES, Choice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workers.packages.disk_cache import DiskCache
    from workers.runtimes.contract import Answers

    _Columns: TypeAlias = tuple[
        tuple[Outcome, ...], Answers, NDArray[np.generic] | None, dict[int, str], str | None, dict[int, str]
    ]

HEADER = struct.Struct(">I")
NUMBER: Final = struct.Struct(">Q")
LOAD, BESIDE, UNLOAD, PREDICT = "load", "load beside", "unload", "predict"  # the second: another one is still loaded
_OUTCOMES = tuple(Outcome)
_LOADED = b"\0"  # no message begins with it


class Package(NamedTuple):
    """A package that is to be loaded, and how; see `workers.packages.loading.load_package`.

    With `sizes` the model is given batches of these sizes only; by `measured_sizes` its forms are timed.
    """

    folder: str
    digest: str | None = None
    threads: int = 1
    allow_pickle: bool = False
    code: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    measured_sizes: tuple[int, ...] = SIZES
    references: References = References()
    cache: DiskCache | None = None
    root: str = ""
    keys: str = ""
    version: str = ""


class LoadedPackage(NamedTuple):
    """What was chosen of a package's forms, what it takes in memory (bytes; 0 = unknown), how long it took (us)."""

    choice: Choice | None
    size_bytes: int
    took_us: int


def pack_loaded(choice: Choice | None, size_bytes: int, took_us: int) -> bytes:
    """Say that a model is loaded, what was chosen of its forms, its memory (0 = unknown), and how long it took."""
    return _LOADED + json.dumps([choice, size_bytes, took_us]).encode()


def unpack_loaded(frame: bytes) -> LoadedPackage:
    """Read what `pack_loaded` wrote.

    Raises:
        PackageError: it says instead why the model was not loaded.
    """
    if not frame.startswith(_LOADED):
        raise PackageError(frame.decode(errors="replace"))
    try:
        choice, size_bytes, took_us = json.loads(frame.removeprefix(_LOADED))
        return LoadedPackage(_choice(choice), int(size_bytes), int(took_us))
    except (ValueError, TypeError, AttributeError) as error:
        raise PackageError(f"the model's process does not say what it runs: {error}") from error


def pack(predicted: Predicted) -> bytes:
    """Write results without pickle."""
    texts = isinstance(predicted.answers, tuple)
    columns: dict[str, NDArray[np.generic]] = {
        "outcomes": np.array([_OUTCOMES.index(outcome) for outcome in predicted.outcomes], dtype=np.uint8),
        "answers": np.array(predicted.answers, dtype=np.str_) if texts else np.asarray(predicted.answers),
    }
    if predicted.scores is not None:
        columns["scores"] = predicted.scores
    forms = {name: (forms_of(column.dtype) or column.dtype.str, column.shape) for name, column in columns.items()}
    head = json.dumps([forms, _notes(predicted)]).encode()
    return b"".join((HEADER.pack(len(head)), head, *(column.tobytes() for column in columns.values())))


def unpack(frame: bytes, rows: int) -> Predicted:
    """Read the results of a batch of `rows`; the inverse of `pack`.

    Raises:
        OutputError: it does not hold these results.
    """
    try:
        predicted = _parse(frame)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise OutputError(f"the model's process sent no results: {error}") from error
    if any(column is not None and len(column) != rows for column in predicted[:3]):
        raise OutputError(f"the model's process did not send {rows} results")
    return Predicted(*predicted)


def _parse(frame: bytes) -> _Columns:
    (length,) = HEADER.unpack_from(frame)
    at = HEADER.size + length
    forms, (fault, reasons, messages) = json.loads(frame[HEADER.size : at])
    columns = {}
    for name, (kind, shape) in forms.items():
        column = _column(frame, at, kind, shape)
        columns[name] = column
        at += column.nbytes
    answers = columns["answers"]
    return (
        tuple(_OUTCOMES[index] for index in columns["outcomes"].tolist()),
        tuple(answers.tolist()) if answers.dtype.kind == "U" else answers,
        columns.get("scores"),
        {int(row): reason for row, reason in reasons},
        fault,
        {int(row): message for row, message in messages},
    )


def _column(frame: bytes, at: int, kind: str | list[Any], shape: list[int]) -> NDArray[np.generic]:
    """Return an array of numbers, texts or named tensors, as it lies in a frame."""
    if isinstance(kind, list):
        dtype = element(tuple([TensorForm(name, of, tuple(its)) for name, of, its in kind]))
    else:
        dtype = np.dtype(kind)
    if dtype.kind not in "biufUV" or not dtype.itemsize or any(type(side) is not int or side < 0 for side in shape):
        raise ValueError(f"a column is of type {kind} and shape {shape}")
    found: NDArray[np.generic] = np.frombuffer(frame, dtype, math.prod(shape), at)
    return found.reshape(shape)


def _choice(found: Any) -> Choice | None:
    """Return what was chosen, of what JSON has made of it.

    Raises:
        ValueError, TypeError, AttributeError: it is something else.
    """
    if found is None:
        return None
    spans, batch_us = found
    times = {name: {int(rows): float(us) for rows, us in of.items()} for name, of in batch_us.items()}
    return Choice(tuple((int(rows), str(name)) for rows, name in spans), times)


def _notes(predicted: Predicted) -> list[object]:
    return [predicted.fault, list(predicted.reasons.items()), list(predicted.messages.items())]


def read(stream: BinaryIO) -> bytes | None:
    """Read one frame; None at the end of the stream."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    body = stream.read(length)
    return body if len(body) == length else None


def write(stream: BinaryIO, body: bytes) -> None:
    """Write one frame at once."""
    stream.write(HEADER.pack(len(body)) + body)
    stream.flush()
