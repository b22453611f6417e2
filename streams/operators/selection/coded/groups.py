"""Groups of rows that are coded together, from the first row until they are of no more use.

    row, row ─join─▶ full ─▶ parity row ──▶ k - 1 outputs and the parity model's ─▶ the last row is late ─▶ decoded
       │                                      └─▶ all outputs                              │
       └─ not full in time ─▶ over                 └─▶ over                a row's deadline ─▶ decoded, or over

A row is decoded if it is later than 19 of 20 of its model's rows are, at the latest when its deadline comes. A group
that has not filled in a quarter of its first row's time is given up: a sum of fewer rows is no input that the parity
model was trained on. No group holds a row without an output beyond that row's deadline.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count
from math import inf
from sys import maxsize
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from streams.operators.selection.coded.code import Code, CodedRow, ParityRow, Reconstructed, decoded, parity_id
from streams.operators.selection.latencies import QUANTILE, RunningQuantile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

FILL_SHARE: Final = 0.25  # of the time that the first row of a group has
GROUP_BYTES: Final = 2_048  # of a group beside its numbers and ids
ID: Final = 256  # characters: rows with longer ids are not coded, as a parity row's id holds all of them
BOUND_BYTES: Final = 1 << 24
_TICK_US: Final = 1_000  # deadlines are kept by the millisecond
_FEW: Final = 64
_FIRST: Final = 2.0  # the first guess, in times that the first row took
_NOTHING: Final[NDArray[np.float64]] = np.zeros(0)
_NONE: Final = (None, 0)


class CodedSource(NamedTuple):
    """What answered, and the partition to which."""

    model: str
    version: str
    partition: int


# Model, partition that its output returns to, id.
_Key: TypeAlias = tuple[str, int, str]


@dataclass(slots=True, eq=False)
class _CodedGroup:
    """Rows whose sum is asked, and what has come of them."""

    code: Code
    serial: int
    fill_until_us: int
    total: NDArray[np.float64]  # of the inputs, until it is asked
    rows: list[CodedRow] = field(default_factory=list)
    outputs: dict[int, NDArray[np.generic]] = field(default_factory=dict)  # by place
    parity: NDArray[np.generic] | None = None
    bytes: int = 0
    at_us: int = 0  # when it is looked at again

    @property
    def is_full(self) -> bool:
        return len(self.rows) == self.code.k

    @property
    def missing(self) -> int | None:
        """The place of the row that can be decoded; None if none can be."""
        if self.parity is None or len(self.outputs) != self.code.k - 1:
            return None
        return next(place for place in range(self.code.k) if place not in self.outputs)

    @property
    def until_us(self) -> int:
        """When the time of a row without an output is over."""
        times = (_tick(row.until_us) for place, row in enumerate(self.rows) if place not in self.outputs)
        return min(times, default=maxsize)


class Groups:
    """All groups of a process. Every time is an argument, in microseconds.

    Args:
        bound_bytes: that the groups may take; beyond it rows are not coded.

    Attributes:
        bytes: that they take.
        unfilled: rows of groups that did not fill.
    """

    __slots__ = (
        "_bound",
        "_due",
        "_filling",
        "_groups",
        "_late_us",
        "_parities",
        "_rows",
        "_serial",
        "bytes",
        "unfilled",
    )

    def __init__(self, bound_bytes: int = BOUND_BYTES) -> None:
        self._bound = bound_bytes
        self._groups: dict[int, _CodedGroup] = {}
        self._filling: dict[Code, _CodedGroup] = {}
        self._rows: dict[_Key, tuple[_CodedGroup, int]] = {}
        self._parities: dict[_Key, _CodedGroup] = {}
        self._due: list[tuple[int, int]] = []  # a heap: when to look at which group again
        self._late_us: dict[str, RunningQuantile] = {}  # by model
        self._serial = count()
        self.bytes = self.unfilled = 0

    def __len__(self) -> int:
        return len(self._groups)

    def held(self) -> Iterator[CodedRow]:
        """Yield the rows without an output."""
        return (group.rows[place] for group, place in self._rows.values() if place not in group.outputs)

    def takes(self, model: str, partition: int, row_id: str) -> bool:
        """Tell whether a row can join a group: there is room, and no other one has its id."""
        return self.bytes < self._bound and len(row_id) <= ID and (model, partition, row_id) not in self._rows

    def is_parity(self, model: str, partition: int, row_id: str) -> bool:
        """Tell whether a group waits for this row of a parity model."""
        return (model, partition, row_id) in self._parities

    def late_us(self, model: str) -> float:
        """Return after how long a row of a model is late (us); infinite before its first output."""
        known = self._late_us.get(model)
        return inf if known is None else known.value

    def join(self, code: Code, row: CodedRow, values: NDArray[np.generic]) -> ParityRow | None:
        """Take a row into the group that fills; return what the parity model is asked once it is full.

        Args:
            code: of its model.
            row: that is asked; see `takes`.
            values: its input, of the code's shape.
        """
        group = self._filling.get(code) or self._begin(code, row)
        with np.errstate(over="ignore", invalid="ignore"):
            group.total += values.astype(np.float64)
        self._rows[code.model, row.partition, row.row_id] = group, len(group.rows)
        group.rows.append(row)
        self._take(group, 4 * len(row.row_id))
        asked = self._closed(group) if group.is_full else None
        self._look(group)
        return asked

    def _begin(self, code: Code, row: CodedRow) -> _CodedGroup:
        until_us = row.asked_us + int((row.until_us - row.asked_us) * FILL_SHARE)
        group = _CodedGroup(code, next(self._serial), until_us, np.zeros(code.shape))
        self._groups[group.serial] = self._filling[code] = group
        self._take(group, GROUP_BYTES + group.total.nbytes)
        return group

    def _closed(self, group: _CodedGroup) -> ParityRow:
        code, row_id, partition = group.code, parity_id(group.rows), group.rows[0].partition
        del self._filling[code]
        self._parities[code.parity, partition, row_id] = group
        with np.errstate(over="ignore"):
            total = group.total.astype(code.dtype)
        self._take(group, -group.total.nbytes)
        group.total = _NOTHING
        return ParityRow(code, row_id, partition, max(row.due_us for row in group.rows), total)

    def on_output(
        self, source: CodedSource, row_id: str, output: NDArray[np.generic] | None, now_us: int
    ) -> Reconstructed | None:
        """Take what a coded model has answered; return a row that can be decoded now.

        Args:
            source: of the output; the group is over if it is another version than the code's.
            row_id: of the row.
            output: None = there is none that can be used, and the group is over.
            now_us: the time.
        """
        model, version, partition = source
        group, place = self._rows.get((model, partition, row_id), _NONE)
        if group is None or place in group.outputs:
            return None
        self._came(model, now_us - group.rows[place].asked_us)
        if output is None or version != group.code.version or not _is_alike(group, output):
            self._end(group)
            return None
        group.outputs[place] = output
        self._take(group, output.nbytes)
        if len(group.outputs) == group.code.k:
            self._end(group)
            return None
        return self._next(group, now_us)

    def on_parity(
        self, source: CodedSource, row_id: str, output: NDArray[np.generic] | None, now_us: int
    ) -> Reconstructed | None:
        """Take what a parity model has answered; arguments and result as of `on_output`."""
        model, version, partition = source
        group = self._parities.get((model, partition, row_id))
        if group is None or group.parity is not None:
            return None
        if output is None or version != group.code.parity_version or not _is_alike(group, output):
            self._end(group)
            return None
        group.parity = output
        self._take(group, output.nbytes)
        return self._next(group, now_us)

    def on_expired(self, model: str, partition: int, row_id: str) -> Reconstructed | None:
        """Return a row that its worker has given up, if it can be decoded now; its group is over."""
        group, place = self._rows.get((model, partition, row_id), _NONE)
        if group is None:
            return None
        if group.missing == place:
            return self._decoded(group, place)
        self._end(group)
        return None

    def on_timer(self, now_us: int) -> Iterator[Reconstructed]:
        """Yield the rows that are decoded now; give up groups that have not filled, or whose rows' time is over."""
        while self._due and self._due[0][0] <= now_us:
            at_us, serial = heapq.heappop(self._due)
            group = self._groups.get(serial)
            if group is None or group.at_us != at_us:
                continue
            if not group.is_full:
                self.unfilled += len(group.rows)
                self._end(group)
                continue
            found = self._next(group, now_us)
            if found is not None:
                yield found
            elif group.until_us <= now_us:
                self._end(group)

    def next_due(self) -> int | None:
        """Return when to look at the groups again (us)."""
        due = self._due
        while due and ((group := self._groups.get(due[0][1])) is None or group.at_us != due[0][0]):
            heapq.heappop(due)
        return due[0][0] if due else None

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the groups with a row of these partitions."""
        for group in [*self._groups.values()]:
            if any(row.partition in partitions for row in group.rows):
                self._end(group)

    def _next(self, group: _CodedGroup, now_us: int) -> Reconstructed | None:
        """Return the row that is decoded now; otherwise it is looked at again when it is to be."""
        place = group.missing
        if place is not None and self._decoded_us(group, place) <= now_us:
            row = group.rows[place]
            # It takes longer than this, and nobody knows how long.
            self._came(group.code.model, max(now_us - row.asked_us, self.late_us(group.code.model) + 1))
            return self._decoded(group, place)
        self._look(group)
        return None

    def _decoded(self, group: _CodedGroup, place: int) -> Reconstructed:
        parity, row = group.parity, group.rows[place]
        assert parity is not None
        others = [group.outputs[other] for other in range(group.code.k) if other != place]
        self._end(group)
        return Reconstructed(group.code, row.partition, row.row_id, decoded(parity, others))

    def _decoded_us(self, group: _CodedGroup, place: int) -> int:
        row = group.rows[place]
        late_us = self.late_us(group.code.model)
        until_us = _tick(row.until_us)
        return until_us if late_us == inf else min(row.asked_us + int(late_us), until_us)

    def _came(self, model: str, took_us: float) -> None:
        known = self._late_us.get(model)
        if known is None:
            known = self._late_us[model] = RunningQuantile(QUANTILE, max(1.0, _FIRST * took_us))
        known.add(took_us)

    def _look(self, group: _CodedGroup) -> None:
        """Note when to look at a group again."""
        place = group.missing
        at_us = group.until_us if group.is_full else min(group.until_us, group.fill_until_us)
        if place is not None:
            at_us = min(at_us, self._decoded_us(group, place))
        if at_us != group.at_us:
            group.at_us = at_us
            heapq.heappush(self._due, (at_us, group.serial))
            if len(self._due) > 4 * len(self._groups) + _FEW:  # most belong to groups that are over
                self._due = [(one.at_us, one.serial) for one in self._groups.values()]
                heapq.heapify(self._due)

    def _end(self, group: _CodedGroup) -> None:
        del self._groups[group.serial]
        self.bytes -= group.bytes
        for row in group.rows:
            del self._rows[group.code.model, row.partition, row.row_id]
        if group.is_full:
            del self._parities[group.code.parity, group.rows[0].partition, parity_id(group.rows)]
        else:
            del self._filling[group.code]

    def _take(self, group: _CodedGroup, size: int) -> None:
        group.bytes += size
        self.bytes += size


def _is_alike(group: _CodedGroup, output: NDArray[np.generic]) -> bool:
    """Tell whether an output has the shape of those that have come."""
    known = group.parity if group.parity is not None else next(iter(group.outputs.values()), None)
    return known is None or known.shape == output.shape


def _tick(time_us: int) -> int:
    return time_us // _TICK_US * _TICK_US
