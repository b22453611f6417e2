"""The rows that a package keeps to warm its model up: whoever loads it has them answered before it takes queries.

    packaging ─▶ rows given, or the sample ─▶ warm-up.avro ─▶ loading ─▶ `executors.predictor` replays them

The file is one record of model queries, encoded as it would travel. TensorFlow Serving keeps as many rows
(`tf_serving_warmup_requests`).
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.records import DENSE, ModelQueries, dense, dense_of
from workers.errors import PackageError
from workers.inputs.columns import Column
from workers.inputs.validation import validate
from workers.packages import samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from schemas.records import Input, NamedTensors, Tensor
    from workers.manifest import Signature
    from workers.runtimes.contract import Files, Rows
    from workers.runtimes.tables import PandasFrame

FILE: Final = "warm-up.avro"
MOST_ROWS: Final = 1_000
# Of all rows of a package: they lie in memory while the model is loaded.
MOST_BYTES: Final = 32 << 20
_FRAME_BYTES: Final = 64 << 10  # more than a record has beside its inputs: ids and due times of 1,000 rows


def inputs(signature: Signature, rows: Rows | PandasFrame) -> list[Input]:
    """Return rows as they are kept: the first ones, as many as a package may keep.

    Args:
        signature: of the model.
        rows: as in a sample; of tables also their JSON texts.

    Raises:
        PackageError: the model does not take these rows.
    """
    is_text = signature.kind == "table" and isinstance(rows, list | tuple) and all(isinstance(row, str) for row in rows)
    found: list[Input] = list(rows) if is_text else samples.inputs(samples.batch(rows))  # type: ignore[arg-type]
    kept = bounded(found)
    refused = validate(signature, kept).messages
    if refused and not signature.by_reference:
        row, why = next(iter(refused.items()))
        raise PackageError(f"row {row} of the rows to warm up with does not fit: the model {why}")
    return kept


def fitting(signature: Signature, rows: Sequence[Input]) -> list[Input]:
    """Return the rows that the model takes, of rows that were asked."""
    checked = validate(signature, rows)
    if isinstance(checked.rows, np.ndarray):
        return [dense_of(row) for row in checked.rows]
    return [rows[place] for place in checked.good]


def write(folder: Path, rows: Sequence[Input]) -> str:
    """Write rows into a package; returns the file's name."""
    column: Tensor | NamedTensors | tuple[str | bytes, ...]
    first = rows[0]
    if isinstance(first, DENSE):
        data = b"".join([row.data for row in rows if isinstance(row, DENSE)])
        column = dense(first.dtype, (len(rows), *first.shape), data)
    else:
        column = tuple([row for row in rows if isinstance(row, str | bytes)])
    nothing = (0,) * len(rows)
    (folder / FILE).write_bytes(_codec().encode(ModelQueries(("",) * len(rows), 0, nothing, column)))
    return FILE


def read(files: Files) -> tuple[Input, ...]:
    """Return the rows of a package; none if it keeps none.

    Raises:
        PackageError: the file holds no rows.
    """
    if FILE not in files:
        return ()
    try:
        queries = _codec().decode(ModelQueries, files[FILE])
        column = Column(queries.inputs)
        return tuple([column[place] for place in range(min(len(queries.query_ids), MOST_ROWS))])
    except (DecodeError, LookupError) as error:
        raise PackageError(f"{FILE} holds no rows: package the model again") from error


def bounded(rows: Iterable[Input]) -> list[Input]:
    """Return the first rows, as many as may be kept."""
    found, left = [], MOST_BYTES
    for row in islice(rows, MOST_ROWS):
        left -= len(row.data) if isinstance(row, DENSE) else len(row.encode()) if isinstance(row, str) else len(row)
        if left < 0:
            break
        found.append(row)
    return found


@cache
def _codec() -> Codec:
    return Codec(max_bytes=MOST_BYTES + _FRAME_BYTES)
