"""A trail as text, so that what is usual outlives the process: bins, and counts by the hour."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streams.control.drift.bins import BINS, Bins, ColumnBins
from streams.control.drift.columns import DriftColumn, worded
from streams.control.drift.shares import MOST_COLUMNS
from streams.control.drift.tally import HOURS
from streams.control.drift.trail import DriftTrail

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNPACKED: Final = 4 << 20  # bytes: a week of 48 columns has a tenth of it


def packed(trail: DriftTrail) -> str:
    """Return what is usual as text; columns without bins are begun anew."""
    known = [(column, place, bins) for column, place, bins in trail.columns() if bins is not None]
    places = [place for _, place, _ in known]
    said = {
        "columns": [(*column, bins.edges, bins.words, bins.middle) for column, _, bins in known],
        "hours": [counts[places].ravel().tolist() for counts in trail.usual()],
    }
    return base64.b64encode(zlib.compress(json.dumps(said, separators=(",", ":")).encode())).decode()


def unpacked(text: str) -> DriftTrail:
    """Return the trail of a text.

    Raises:
        ValueError: the text is none.
    """
    try:
        said: dict[str, Any] = json.loads(zlib.decompressobj().decompress(base64.b64decode(text), _UNPACKED))
        columns = [_column(*each) for each in said["columns"]][:MOST_COLUMNS]
        hours = [np.array(counts, np.int64).reshape(len(columns), BINS) for counts in said["hours"][-HOURS:]]
    except (binascii.Error, zlib.error, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"no trail of columns: {error}") from error
    return DriftTrail.begun(columns, [np.pad(counts, ((0, MOST_COLUMNS - len(columns)), (0, 0))) for counts in hours])


def _column(
    model: str, name: str, edges: Sequence[float], words: Sequence[str], middle: float | None
) -> tuple[DriftColumn, ColumnBins]:
    bins = Bins(tuple([float(edge) for edge in edges]), tuple([worded(word) for word in words]), middle)
    return DriftColumn(worded(model), worded(name)), ColumnBins(bins=bins)
