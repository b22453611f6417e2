"""Laws of how long a broker gathers records: never where few come; longer, the more come and the busier the loop is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.runtime.kafka.merging import (
    BUSY,
    FULL_BYTES,
    IDLE,
    IDLE_MS,
    LATE_S,
    LEAST_PER_S,
    LONGEST_MS,
    NONE,
    WINDOW_S,
    ArrivalRate,
    Strain,
    StrainGauge,
    merging,
)

RATES = st.floats(0.0, 1e7)
SIZES = st.floats(0.0, 1e9)
MOST_MS = st.integers(0, 50)


STRAINS = st.builds(Strain, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
PRESSED = Strain(LATE_S, BUSY)


@given(st.floats(0.0, LEAST_PER_S, exclude_max=True), SIZES, STRAINS, MOST_MS)
def test_a_record_never_waits_for_others_where_few_come(
    per_s: float, bytes_per_s: float, strain: Strain, most_ms: int
) -> None:
    """Below 1,000 a second."""
    assert merging(per_s, bytes_per_s, strain, most_ms) is NONE


@given(RATES, SIZES, STRAINS, MOST_MS)
def test_the_wait_has_its_bounds_and_asks_for_no_more_than_comes_in_it(
    per_s: float, bytes_per_s: float, strain: Strain, most_ms: int
) -> None:
    """A record for each millisecond at least comes while it lasts."""
    wait_ms, least_bytes = merging(per_s, bytes_per_s, strain, most_ms)
    assert 0 <= wait_ms <= min(most_ms, LONGEST_MS)
    assert wait_ms * LEAST_PER_S <= per_s
    assert 1 <= least_bytes <= max(1, min(FULL_BYTES, bytes_per_s * wait_ms / 1e3))


@given(RATES, RATES, SIZES, STRAINS, MOST_MS)
def test_with_more_records_it_is_never_shorter(
    one: float, other: float, bytes_per_s: float, strain: Strain, most_ms: int
) -> None:
    """The bytes of a record being what they are."""
    fewer, more = sorted((one, other))
    assert merging(fewer, bytes_per_s, strain, most_ms).wait_ms <= merging(more, bytes_per_s, strain, most_ms).wait_ms


@given(RATES, SIZES, STRAINS, STRAINS, MOST_MS)
def test_a_loop_that_is_later_or_busier_never_has_it_shorter(
    per_s: float, bytes_per_s: float, one: Strain, other: Strain, most_ms: int
) -> None:
    """Either is a reason, whatever the other is."""
    both = Strain(max(one.late_s, other.late_s), max(one.busy, other.busy))
    waits_ms = [merging(per_s, bytes_per_s, strain, most_ms).wait_ms for strain in (one, other, both)]
    assert waits_ms[2] == max(waits_ms)


@given(st.floats(LONGEST_MS * LEAST_PER_S, 1e7), SIZES, st.integers(LONGEST_MS, 50))
def test_an_idle_loop_waits_for_a_moment_and_a_pressed_one_for_as_long_as_may_be(
    per_s: float, bytes_per_s: float, most_ms: int
) -> None:
    """Late or busy, and half of it is half way."""
    waits_ms = {
        strain: merging(per_s, bytes_per_s, strain, most_ms).wait_ms
        for strain in (IDLE, Strain(LATE_S / 2, 0.0), Strain(0.0, BUSY / 2), Strain(LATE_S, 0.0), Strain(0.0, BUSY))
    }
    assert [*waits_ms.values()] == [IDLE_MS, 3, 3, LONGEST_MS, LONGEST_MS]


@given(st.integers(0, 3_000), st.floats(0.0, 1.0), st.integers(1, 400))
def test_what_is_taken_late_for_a_while_is_measured_as_it_is(late_us: int, busy: float, per_s: int) -> None:
    """So is the time at work, whatever else happens in it."""
    clock = Clock()
    gauge = StrainGauge(lambda: clock.now_s, lambda: clock.worked_s)
    for _ in range(400):
        gauge.came()
        clock.run(late_us / 1e6, busy)
        gauge.came()  # what comes before the first is taken comes with it
        gauge.taken()
        clock.run(1 / per_s, busy)
        gauge.taken()  # nothing is there
        strain = gauge.strain()
    assert abs(strain.late_s - late_us / 1e6) < 1e-8
    assert strain.busy == 0 if 400 * (1 / per_s + late_us / 1e6) < WINDOW_S else abs(strain.busy - busy) < 1e-6


@given(st.floats(0.01, 3_600.0))
def test_one_stall_makes_no_loop_late(stall_s: float) -> None:
    """However long it is."""
    clock = Clock()
    gauge = StrainGauge(lambda: clock.now_s, lambda: clock.worked_s)
    gauge.came()
    clock.run(stall_s, 0.0)
    gauge.taken()
    assert merging(1e6, 1e9, gauge.strain(), 50).wait_ms == IDLE_MS


class Clock:
    """A machine's clock, and the time that a thread has been at work."""

    now_s = worked_s = 0.0

    def run(self, seconds: float, busy: float) -> None:
        """Let time pass."""
        self.now_s += seconds
        self.worked_s += busy * seconds


@given(st.integers(1, 200), st.integers(1, 50), st.integers(1, 1_000), st.floats(0.0, 1e6))
def test_a_steady_rate_is_measured_as_it_is(polls_per_s: int, count: int, size: int, start_s: float) -> None:
    """However the polls and the windows lie."""
    rate = ArrivalRate()
    for number in range(4 * polls_per_s + 1):
        rate.add(count, count * size, start_s + number / polls_per_s)
    assert abs(rate.per_s - count * polls_per_s) <= 1e-6 * count * polls_per_s
    assert abs(rate.bytes_per_s - size * rate.per_s) <= 1e-6 * size * rate.per_s


@given(st.floats(1.0, 3_600.0), st.integers(1, 900))
def test_after_a_silence_no_record_waits(silence_s: float, count: int) -> None:
    """Whatever came before it."""
    rate = ArrivalRate()
    for number in range(10):
        rate.add(100_000, 1 << 20, number * WINDOW_S)
    assert merging(rate.per_s, rate.bytes_per_s, PRESSED, 3).wait_ms == 3
    rate.add(count, 100 * count, 9 * WINDOW_S + silence_s)
    assert merging(rate.per_s, rate.bytes_per_s, PRESSED, 3) is NONE
