"""A batch in parts over a device: the order of its events, whose buffers they use, and how much time they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.runtimes.pipeline import LEAST_ROWS, PARTS, SLOTS, TRIALS, DevicePipeline, Splits, spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

COPY_US, COMPUTE_US, LAUNCH_US = 10, 10, 50  # of a row, of a row, of a part


@dataclass
class Engines:
    """A device in virtual time: one engine copies, the other one computes, and the host only waits for results.

    A model doubles its rows. To overwrite a buffer that is in use is an error.
    """

    copy_us: int = COPY_US
    now_us: int = 0
    copying_until_us: int = 0
    computing_until_us: int = 0
    fails_at: int = -1  # the number of the run that raises, once
    refuses: str = ""
    events: list[str] = field(default_factory=list)
    recorded: list[tuple[int, int]] = field(default_factory=list)
    settled: int = 0
    _held: dict[int, NDArray[Any]] = field(default_factory=dict)
    _done_us: dict[int, int] = field(default_factory=dict)

    def fill(self, slot: int, rows: NDArray[Any]) -> None:
        """Hold the rows."""
        assert slot not in self._held, f"slot {slot} is still in use"
        self._held[slot] = rows.copy()
        self.events.append(f"fill {slot}")

    def copy_in(self, slot: int) -> None:
        """Occupy the copying engine."""
        started = max(self.now_us, self.copying_until_us)
        self.copying_until_us = self._done_us[slot] = started + self.copy_us * len(self._held[slot])
        self.events.append(f"in {slot}")

    def run(self, slot: int) -> None:
        """Occupy the computing engine, once the rows are there."""
        if sum(event.startswith("run") for event in self.events) == self.fails_at:
            self.fails_at = -1
            raise ValueError("out of memory")
        started = max(self._done_us[slot], self.computing_until_us)
        self.computing_until_us = self._done_us[slot] = started + LAUNCH_US + COMPUTE_US * len(self._held[slot])
        self.events.append(f"run {slot}")

    def copy_out(self, slot: int) -> None:
        """Take no time: answers are small."""
        self.events.append(f"out {slot}")

    def result(self, slot: int) -> NDArray[Any]:
        """Wait."""
        self.now_us = max(self.now_us, self._done_us.pop(slot))
        self.events.append(f"result {slot}")
        return 2 * self._held.pop(slot)

    def settle(self) -> None:
        """Forget what was under way."""
        self._held.clear()
        self._done_us.clear()
        self.settled += 1

    def record(self, slot: int, rows: int) -> str:
        """Note the size, or refuse."""
        if self.refuses and self.recorded:
            return self.refuses
        self.recorded.append((slot, rows))
        return ""


def pipeline(engines: Engines, least_rows: int = 2) -> DevicePipeline:
    """Return a pipeline that reads the device's own clock."""
    return DevicePipeline(engines, least_rows, lambda: engines.now_us)


def batch(rows: int) -> NDArray[np.float64]:
    """Return different rows."""
    return np.arange(2.0 * rows).reshape(rows, 2)


def tried(engines: Engines, rows: int) -> DevicePipeline:
    """Return a pipeline that has tried all numbers of parts for this size."""
    found = pipeline(engines)
    for _ in range(TRIALS * len(PARTS)):
        found.answer(batch(rows))
    engines.events.clear()
    return found


@given(rows=st.integers(1, 400), batches=st.integers(1, 12), least_rows=st.integers(1, 9))
def test_every_row_has_its_own_answer_in_order(rows: int, batches: int, least_rows: int) -> None:
    """However many parts are tried; the fake device refuses a buffer that is still in use."""
    found = pipeline(Engines(), least_rows)
    for _ in range(batches):
        assert np.array_equal(found.answer(batch(rows)), 2 * batch(rows))


@given(rows=st.integers(1, 10_000), parts=st.integers(1, 9))
def test_parts_follow_each_other_and_differ_by_a_row(rows: int, parts: int) -> None:
    """They cover the batch."""
    found = spans(rows, parts)
    lengths = [end - start for start, end in found]
    assert (found[0][0], found[-1][1], len(found)) == (0, rows, parts)
    assert all(one[1] == other[0] for one, other in pairwise(found))
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


def test_the_next_part_is_copied_while_one_is_computed() -> None:
    """Both halves are on their way before the first answer is waited for."""
    engines = Engines()
    found = pipeline(engines)
    for _ in range(TRIALS + 1):
        engines.events.clear()
        found.answer(batch(4))
    first, second = (["fill 0", "in 0", "run 0", "out 0"], ["fill 1", "in 1", "run 1", "out 1"])
    assert engines.events == [*first, *second, "result 0", "result 1"]


def test_slots_take_turns_and_are_filled_again_when_their_answers_are_here() -> None:
    """Of four parts the third waits for the first one's answers, while the second is computed."""
    engines = Engines()
    tried(engines, 80).answer(batch(80))
    order = [event for event in engines.events if event.startswith(("fill", "result"))]
    assert order == [
        *("fill 0", "fill 1", "result 0", "fill 0"),
        *("result 1", "fill 1", "result 0", "result 1"),
    ]


def test_halves_take_less_time_than_a_whole() -> None:
    """A batch that is copied as long as it is computed: 1,650 us whole, 1,300 in halves, 1,200 in quarters."""
    engines = Engines()
    found, took_us = pipeline(engines), []
    for _ in range(TRIALS * len(PARTS) + 1):
        started_us = engines.now_us
        found.answer(batch(80))
        took_us.append(engines.now_us - started_us)
    assert took_us == [*[1650] * TRIALS, *[1300] * TRIALS, *[1200] * TRIALS, 1200]


def test_a_batch_stays_whole_where_there_is_nothing_to_hide() -> None:
    """If copies cost nothing, parts only add launches."""
    engines = Engines(copy_us=0)
    tried(engines, 80).answer(batch(80))
    assert engines.events.count("fill 0") == 1


def test_each_class_of_sizes_has_its_own_number_of_parts() -> None:
    """And small batches are never divided."""
    splits = Splits()
    assert list(splits.choices(2 * LEAST_ROWS - 1)) == [1]
    assert list(splits.choices(2 * LEAST_ROWS)) == [1, 2]
    for rows, fastest in ((16, 1), (64, 4)):
        for _ in range(TRIALS * len(PARTS)):
            parts = splits.parts(rows)
            splits.observe(rows, parts, 100.0 if parts == fastest else 200.0)
    assert (splits.parts(17), splits.parts(100)) == (1, 4)


def test_an_outlier_does_not_decide() -> None:
    """The first call of a shape is far slower than the others."""
    splits = Splits(1)
    for took_us in (9_000.0, 300.0, 310.0, 8_000.0, 200.0, 210.0):
        splits.observe(2, splits.parts(2), took_us)
    assert splits.parts(2) == 2


def test_after_an_error_nothing_is_under_way() -> None:
    """The second half raises: the first one's copy may still run, and the next batch needs its buffer."""
    engines = Engines()
    found = pipeline(engines)
    for _ in range(TRIALS):
        found.answer(batch(4))
    engines.fails_at = TRIALS + 1
    with pytest.raises(ValueError, match="out of memory"):
        found.answer(batch(4))
    assert engines.settled == 1
    assert np.array_equal(found.answer(batch(4)), 2 * batch(4))


def test_all_parts_of_allowed_sizes_are_recorded_the_largest_first() -> None:
    """A batch of 8 may go whole, in halves over both slots, or in quarters."""
    engines = Engines()
    assert pipeline(engines).prepare((1, 8)) == ""
    assert engines.recorded == [(0, 8), (0, 4), (1, 4), (0, 2), (1, 2), (0, 1)]


def test_a_device_that_cannot_record_is_asked_once() -> None:
    """What failed for one size is not tried for each of them."""
    engines = Engines(refuses="it branches on its rows")
    assert pipeline(engines).prepare((1, 8)) == "it branches on its rows"
    assert len(engines.recorded) == 1
    assert SLOTS == 2
