"""The rows that a version is tried on before it answers: the last ones of its model. The answers are discarded.

batches ─▶ answered ─▶ it must answer one of them, too
recall  ─▶ asked    ─▶ before this start, where the worker has answered few itself; these warm it up and prove nothing,
                       as no version may ever have answered them
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from schemas.errors import DecodeError
from schemas.records import ModelQueries, Outcome
from workers.inputs.columns import Column
from workers.settings import WARM_UP_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.codec import Codec
    from schemas.records import Input
    from streams.operators.contract import Record


class Trial(NamedTuple):
    """Rows to try a version on: those that the present one answered, and those that the model was asked."""

    answered: Sequence[Input] = ()
    asked: Sequence[Input] = ()


class Last:
    """The last rows of batches, at most so many; the rows are made when they are read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: deque[tuple[Sequence[Input] | Column, int, int]] = deque()  # and the first and the end of its rows
        self._count = 0

    def __len__(self) -> int:
        return min(self._most, self._count)

    def add(self, source: Sequence[Input] | Column, rows: int) -> None:
        """Remember a batch of so many rows, at least one."""
        start = max(0, rows - self._most)
        self._parts.append((source, start, rows))
        self._count += rows - start
        while self._count - (self._parts[0][2] - self._parts[0][1]) >= self._most:
            _, start, end = self._parts.popleft()
            self._count -= end - start

    def rows(self) -> tuple[Input, ...]:
        """Return them, oldest first."""
        return tuple(source[place] for source, start, end in self._parts for place in range(start, end))[-self._most :]

    def clear(self) -> None:
        """Forget them."""
        self._parts.clear()
        self._count = 0


class RecentRows:
    """The last rows of a model: those that were answered, those that were asked, and what was asked before.

    Attributes:
        is_recalled: whether the rows asked before this start are known.
    """

    def __init__(self, most: int = WARM_UP_ROWS, *, recalls: bool = False) -> None:
        """Keep so many; `recalls` if `recall` will be called with the rows asked before."""
        self.is_recalled = not recalls
        self._most = most
        self._answered, self._asked = Last(most), Last(most)
        self._recalled: tuple[Input, ...] = ()
        self._tried: set[str] = set()

    def recall(self, rows: Sequence[Input]) -> None:
        """Take the rows that the model was asked last before this worker started."""
        self._recalled = tuple(rows)
        self.is_recalled = True

    def ask(self, column: Column, rows: int) -> None:
        """Remember asked rows, at least one, while the worker has answered few."""
        if len(self._answered) < self._most:
            self._asked.add(column, rows)

    def note(self, rows: Sequence[Input], outcomes: Sequence[Outcome]) -> None:
        """Remember rows, those that the served version has answered: another one may be held to them."""
        if outcomes.count(Outcome.OK) < len(rows):  # almost never
            rows = [row for row, came in zip(rows, outcomes, strict=True) if came is Outcome.OK]
        if rows:
            self._answered.add(rows[-self._most :], min(len(rows), self._most))

    def note_all(self, column: Column, rows: int) -> None:
        """Remember rows, at least one, all of which the served version has answered."""
        self._answered.add(column, rows)

    def trial(self, version: str) -> Trial:
        """Return the rows to try a version on.

        On a retry these are answered rows alone, because the version may have hung on a row that no version answered.
        """
        if len(self._answered) >= self._most or version in self._tried:
            return Trial(self._answered.rows())
        self._tried.add(version)
        return Trial(self._answered.rows(), self._recalled)

    def rows(self) -> Sequence[Input]:
        """Return the last rows, for reading only: the answered ones and, if they are few, the asked ones."""
        answered = self._answered.rows()
        return answered if len(answered) >= self._most else (*self._recalled, *self._asked.rows(), *answered)

    def clear(self) -> None:
        """Forget the answered rows: another version answers from now on."""
        self._answered.clear()
        self._tried.clear()


def asked_in(records: Sequence[Record], codec: Codec, most: int = WARM_UP_ROWS) -> Sequence[Input]:
    """Return the last rows of model queries, so many, oldest first; of records that cannot be read there are none."""
    rows: list[Input] = []
    for record in reversed(records):
        try:
            queries = codec.decode(ModelQueries, record.value)
        except DecodeError:
            continue
        column = Column(queries.inputs)
        rows += [column[place] for place in reversed(range(len(queries.query_ids)))]
        if len(rows) >= most:
            break
    return tuple(reversed(rows[:most]))
