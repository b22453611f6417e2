"""Sends a batch over a device in parts: a part is copied in while the one before it is computed.

    copy in  │ 1 │ 2 │ 3 │ 4 │
    compute      │ 1 │ 2 │ 3 │ 4 │
    copy out         │ 1 │ 2 │ 3 │ 4 │

A lane has one batch at a time with its model: its controller learns from how long that batch took, and a hung one is
known by its age. Two batches at once would break both. So the overlap is inside a batch, and nobody outside knows.

Parts cost launches, and small parts leave a device half empty. So the number of parts is the one that was fastest for
batches of about this size, one included. Nothing here needs a device or its library.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

SLOTS = 2  # host and device have as many buffers each: one is filled while the other one is in use
PARTS = (1, 2, 4)  # a copy that nothing hides is the first part's alone; with eight, an eighth instead of a quarter
# Rows of a part, at least. Below that a row's own work is not what a call costs. An estimate: no GPU was at hand.
LEAST_ROWS = 8
TRIALS = 3  # of each number of parts; the fastest one counts, as the first call of a shape is slower than the others


class Device(Protocol):
    """A device with `SLOTS` pairs of buffers. All but `result` and `settle` return before the work is done.

    A slot goes through `fill`, `copy_in`, `run`, `copy_out` and `result`, in this order.
    """

    def fill(self, slot: int, rows: NDArray[np.generic]) -> None:
        """Write rows (n, ...) into the slot's buffer of the host, from which the device can copy by itself."""
        ...

    def copy_in(self, slot: int) -> None:
        """Copy that buffer to the device, beside whatever is computed."""
        ...

    def run(self, slot: int) -> None:
        """Run the model when the copy has arrived."""
        ...

    def copy_out(self, slot: int) -> None:
        """Copy the answers back when they are there."""
        ...

    def result(self, slot: int) -> NDArray[np.generic]:
        """Wait for the answers (n, ...) and return them; they are the caller's."""
        ...

    def settle(self) -> None:
        """Wait until nothing is under way, after an error."""
        ...

    def record(self, slot: int, rows: int) -> str:
        """Record all launches for batches of so many rows, to be replayed as one; returns why not, empty = done."""
        ...


class Splits:
    """In how many parts batches go: each number is tried for each size, then the fastest one stays."""

    def __init__(self, least_rows: int = LEAST_ROWS) -> None:
        """Know nothing; no part will have fewer than `least_rows`."""
        self._least_rows = least_rows
        self._us: defaultdict[tuple[int, int], list[float]] = defaultdict(list)  # by class of sizes and parts: us a row

    def choices(self, rows: int) -> Sequence[int]:
        """Return the numbers of parts that batches of this class of sizes may have: those from 2^k to 2^(k+1) - 1."""
        smallest = 1 << (rows.bit_length() - 1)
        return [parts for parts in PARTS if parts == 1 or smallest // parts >= self._least_rows]

    def parts(self, rows: int) -> int:
        """Return in how many parts the next batch of so many rows goes."""
        choices, size = self.choices(rows), rows.bit_length()
        for parts in choices:
            if len(choices) > 1 and len(self._us[size, parts]) < TRIALS:
                return parts
        return min(choices, key=lambda parts: min(self._us[size, parts], default=0.0))

    def observe(self, rows: int, parts: int, took_us: float) -> None:
        """Learn from a batch."""
        known = self._us[rows.bit_length(), parts]
        if len(known) < TRIALS:
            known.append(took_us / rows)


class DevicePipeline:
    """Answers batches through a device."""

    def __init__(
        self,
        device: Device,
        least_rows: int = LEAST_ROWS,
        now_us: Callable[[], float] = lambda: time.perf_counter_ns() / 1e3,
    ) -> None:
        """Nothing is copied yet.

        Args:
            device: that runs the model.
            least_rows: of a part.
            now_us: the clock.
        """
        self._device = device
        self._splits = Splits(least_rows)
        self._now_us = now_us

    def answer(self, rows: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the answers to rows (n, ...), n at least 1, in their order."""
        parts, started_us = self._splits.parts(len(rows)), self._now_us()
        answers = self._through([rows[start:end] for start, end in spans(len(rows), parts)])
        self._splits.observe(len(rows), parts, self._now_us() - started_us)
        return answers[0] if len(answers) == 1 else np.concatenate(answers)

    def prepare(self, sizes: Iterable[int]) -> str:
        """Record the launches of all parts that batches of these sizes go in; returns why not, empty = done."""
        for slot, rows in self._shapes(sizes):
            if why := self._device.record(slot, rows):
                return why
        return ""

    def _shapes(self, sizes: Iterable[int]) -> list[tuple[int, int]]:
        """Return slot and rows of all parts, the largest first: what they need serves the smaller ones, too."""
        found = {
            (number % SLOTS, end - start)
            for rows in sizes
            for parts in self._splits.choices(rows)
            for number, (start, end) in enumerate(spans(rows, parts))
        }
        return sorted(found, key=lambda shape: (-shape[1], shape[0]))

    def _through(self, parts: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        device, answers = self._device, []
        try:
            for number, part in enumerate(parts):
                slot = number % SLOTS
                if number >= SLOTS:  # its buffers are free when the answers to its last part are here
                    answers.append(device.result(slot))
                device.fill(slot, part)
                device.copy_in(slot)
                device.run(slot)
                device.copy_out(slot)
            answers += [device.result(number % SLOTS) for number in range(len(answers), len(parts))]
        except BaseException:
            device.settle()  # the next batch must not overwrite what is being copied
            raise
        return answers


def spans(rows: int, parts: int) -> list[tuple[int, int]]:
    """Return start and end of parts that differ by one row at most, the larger ones first."""
    least, more = divmod(rows, parts)
    ends = [(number + 1) * least + min(number + 1, more) for number in range(parts)]
    return list(zip([0, *ends], ends, strict=False))
