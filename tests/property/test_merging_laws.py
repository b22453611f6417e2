"""Laws of how long a broker gathers records: never where few come, never for long, and the more come the longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.runtime.kafka.merging import FULL_BYTES, LEAST_PER_S, NONE, WINDOW_S, ArrivalRate, merging

RATES = st.floats(0.0, 1e7)
SIZES = st.floats(0.0, 1e9)
MOST_MS = st.integers(0, 50)


@given(st.floats(0.0, LEAST_PER_S, exclude_max=True), SIZES, MOST_MS)
def test_a_record_never_waits_for_others_where_few_come(per_s: float, bytes_per_s: float, most_ms: int) -> None:
    """Below 1,000 a second."""
    assert merging(per_s, bytes_per_s, most_ms) is NONE


@given(RATES, SIZES, MOST_MS)
def test_the_wait_has_its_bound_and_asks_for_no_more_than_comes_in_it(
    per_s: float, bytes_per_s: float, most_ms: int
) -> None:
    """A record for each millisecond at least comes while it lasts."""
    wait_ms, least_bytes = merging(per_s, bytes_per_s, most_ms)
    assert 0 <= wait_ms <= most_ms
    assert wait_ms * LEAST_PER_S <= per_s
    assert 1 <= least_bytes <= max(1, min(FULL_BYTES, bytes_per_s * wait_ms / 1e3))


@given(RATES, RATES, SIZES, MOST_MS)
def test_with_more_records_it_is_never_shorter(one: float, other: float, bytes_per_s: float, most_ms: int) -> None:
    """The bytes of a record being what they are."""
    fewer, more = sorted((one, other))
    assert merging(fewer, bytes_per_s, most_ms).wait_ms <= merging(more, bytes_per_s, most_ms).wait_ms


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
    assert merging(rate.per_s, rate.bytes_per_s, 3).wait_ms == 3
    rate.add(count, 100 * count, 9 * WINDOW_S + silence_s)
    assert merging(rate.per_s, rate.bytes_per_s, 3) is NONE
