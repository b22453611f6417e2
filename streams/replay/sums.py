"""Decoded outputs, computed again from what workers answered: the sum's output less those of the other rows.

A parity row's id names the rows of its group, so the log tells what each sum was made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from streams.operators.selection.coded.code import decoded, members_of, numbers_of
from streams.replay.held_records import HeldRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from schemas.records import ModelOutput

    # The partition and the outputs that workers have written for an id.
    Found: TypeAlias = Callable[[str], Sequence[tuple[int, ModelOutput]]]

_BYTES: Final = 16 << 20


class Sums:
    """The groups of a trace."""

    def __init__(self) -> None:
        self._groups: HeldRecords[tuple[int, str]] = HeldRecords(
            _BYTES
        )  # by the id of a member: where the sum's output is, its id

    def take(self, partition: int, row_ids: Iterable[str]) -> None:
        """Note the groups among the rows of a batch."""
        for row_id in row_ids:
            for _, member in members_of(row_id):
                self._groups.add(member, (partition, row_id), len(row_id))

    def decoded(self, ids: Iterable[str], partition: int, output: ModelOutput, rows: Found) -> Iterator[bytes]:
        """Yield what a query's missing output can be decoded as, once for each group that it was in and all came of.

        Args:
            ids: under which the query may have been asked.
            partition: of the query.
            output: that was decoded: of which model and version.
            rows: finds what workers have answered.
        """
        for row_id in ids:
            for place, sum_id in self._groups.get(row_id):
                sums = [numbers_of(row) for at, row in rows(sum_id) if at == place]
                others = [
                    self._own(member, output, rows) for member in members_of(sum_id) if member != (partition, row_id)
                ]
                known = [other for other in others if other is not None]
                if len(known) == len(others):
                    yield from (decoded(found, known).tobytes() for found in sums if found is not None)

    def _own(self, member: tuple[int, str], output: ModelOutput, rows: Found) -> NDArray[np.generic] | None:
        """Return what the model itself has answered to a row of the group."""
        partition, row_id = member
        found = [row for at, row in rows(row_id) if at == partition and row[:2] == output[:2]]
        return numbers_of(found[0]) if found else None
