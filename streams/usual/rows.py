"""What the rows of a package were like, and what its model answered: bins and counts, which travel with the model.

Every second row makes the bins and is counted no more, as with columns that begin with a query.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from streams.usual.bins import BINS, FIRST, Bins, bins_of
from streams.usual.columns import MOST_OF_ARRAY, worded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streams.usual.columns import Reading

    # Name, edges, words, middle and counts of a column, as JSON has them.
    ColumnDocument: TypeAlias = tuple[str, Sequence[float], Sequence[str], float | None, Sequence[int]]
    UsualDocument: TypeAlias = Mapping[str, Sequence[ColumnDocument]]

FEWEST: Final = 100  # rows: fewer say little
MOST: Final = 1_000  # of them count, spread over all
INPUTS, ANSWERS = "inputs", "answers"


class UsualColumn(NamedTuple):
    """A column of a package's rows."""

    bins: Bins
    counts: tuple[int, ...]  # by bin


class UsualRows(NamedTuple):
    """The columns of a package's rows, and of its model's answers to them, by name."""

    inputs: Mapping[str, UsualColumn] = {}
    answers: Mapping[str, UsualColumn] = {}


def usual_of(rows: Sequence[Mapping[str, Reading]]) -> list[ColumnDocument]:
    """Return bins and counts of rows; none of fewer rows than say anything."""
    if len(rows) < FEWEST:
        return []
    spread = [rows[place * len(rows) // MOST] for place in range(MOST)] if len(rows) > MOST else rows
    return [
        _column(name, [row.get(name) for row in spread])
        for name in islice(dict.fromkeys(name for row in spread for name in row), MOST_OF_ARRAY)
    ]


def written(document: UsualDocument | None) -> str:
    """Return what a package says of its rows as a text; empty = nothing."""
    return json.dumps(document, separators=(",", ":")) if document else ""


def read(text: str) -> UsualRows:
    """Return the columns of a text.

    Raises:
        ValueError: it has none.
    """
    try:
        document: dict[str, Any] = json.loads(text)
        return UsualRows(*(dict(map(_read, document[kind])) for kind in UsualRows._fields))
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no columns of rows: {error!r}") from error


def bins_as(edges: Sequence[float], words: Sequence[str], middle: float | None) -> Bins:
    """Return bins as they were written."""
    return Bins(
        tuple([float(edge) for edge in edges]), tuple([worded(word) for word in words]), middle and float(middle)
    )


def _column(name: str, values: Sequence[Reading]) -> ColumnDocument:
    bins = bins_of(values[::2][:FIRST])
    counts = [0] * BINS
    for value in values[1::2]:
        counts[bins.place(value)] += 1
    return name, bins.edges, bins.words, bins.middle, counts


def _read(column: ColumnDocument) -> tuple[str, UsualColumn]:
    name, edges, words, middle, counts = column
    if len(counts) != BINS or not all(type(count) is int and 0 <= count <= MOST for count in counts):
        raise ValueError("no counts of bins")
    return worded(name), UsualColumn(bins_as(edges, words, middle), tuple(counts))
