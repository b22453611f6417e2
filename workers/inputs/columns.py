"""Inputs as they lie in the columns of records: a row stays a place in a column until it is needed on its own.

columns of records ─▶ (column, place), row by row ─▶ taken ─▶ Stacked: one column again, row after row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from schemas.records import dense

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from schemas.records import Element, Input, NamedTensors, Tensor


class Column:
    """The inputs of one record's rows.

    Attributes:
        form: what a row is made of, and its shape; None = texts or byte strings.
    """

    __slots__ = ("_inputs", "_row_bytes", "form")

    def __init__(self, inputs: Tensor | NamedTensors | tuple[str | bytes, ...]) -> None:
        self._inputs = inputs
        self._row_bytes = 0
        self.form: tuple[Element, tuple[int, ...]] | None = None
        if not isinstance(inputs, tuple):
            rows, *shape = inputs.shape
            self._row_bytes = len(inputs.data) // rows if rows else 0
            self.form = inputs.dtype, tuple(shape)

    def __getitem__(self, place: int) -> Input:
        if self.form is None:
            return self._inputs[place]  # type: ignore[index] # only tensors have a form
        return dense(*self.form, self.data(place, place + 1))

    def size(self, place: int) -> int:
        """Return about how many bytes a row takes."""
        return len(self._inputs[place]) if isinstance(self._inputs, tuple) else self._row_bytes

    def data(self, start: int, end: int) -> bytes:
        """Return the bytes of some rows, of a column that has a form."""
        assert not isinstance(self._inputs, tuple)
        return self._inputs.data[start * self._row_bytes : end * self._row_bytes]


@dataclass(frozen=True, slots=True)
class Stacked(Sequence["Input"]):
    """Rows of one form, one after the other: as good as a list of tensors, and nearly an array."""

    dtype: Element
    shape: tuple[int, ...]  # of a row
    data: bytes
    rows: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.rows

    @overload
    def __getitem__(self, place: int) -> Input: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Input]: ...
    def __getitem__(self, place: int | slice) -> Input | Sequence[Input]:
        """Return one row, or some."""
        size = len(self.data) // max(1, self.rows)
        if isinstance(place, slice):
            start, end, step = place.indices(self.rows)
            if step == 1 and start <= end:
                return Stacked(self.dtype, self.shape, self.data[start * size : end * size], end - start)
            return [self[each] for each in range(start, end, step)]
        if not -self.rows <= place < self.rows:
            raise IndexError(place)
        at = place % self.rows
        return dense(self.dtype, self.shape, self.data[at * size : (at + 1) * size])


def stacked(rows: Iterable[tuple[Column, int]]) -> Sequence[Input]:
    """Return the inputs of rows (column, place): in one piece if they have one form, with as few copies as possible.

    Rows that came in one record and are due in its order are one slice.
    """
    runs = list(_runs(rows))
    forms = {column.form for column, _, _ in runs}
    form = forms.pop() if len(forms) == 1 else None
    if form is None:
        return [column[place] for column, start, end in runs for place in range(start, end)]
    parts = [column.data(start, end) for column, start, end in runs]
    count = sum(end - start for _, start, end in runs)
    return Stacked(*form, b"".join(parts) if len(parts) > 1 else parts[0], count)


def _runs(rows: Iterable[tuple[Column, int]]) -> Iterator[tuple[Column, int, int]]:
    """Return runs of neighbouring rows of a column: column, first place, place behind the last."""
    column, start, end = None, 0, 0
    for its, place in rows:
        if its is column and place == end:
            end += 1
            continue
        if column is not None:
            yield column, start, end
        column, start, end = its, place, place + 1
    if column is not None:
        yield column, start, end
