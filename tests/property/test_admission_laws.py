"""Laws of admission, whatever the load and however dear the rows."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.overload import BATCH_US, CAP, simulate


@settings(max_examples=15, deadline=None)
@given(st.floats(1.0, 5.0), st.integers(300, 1_200))
def test_goodput_never_collapses_whatever_the_overload(times: float, row_us: int) -> None:
    """At any overload of any such model goodput is at least 75 % of what its worker can do, the first second included.

    That costs a quarter of it where two batches take longer than a query has: what came before the first report.
    """
    capacity = CAP * 1e6 / (BATCH_US + CAP * row_us)
    assert simulate(times * capacity, is_admitting=True, seconds=5.0, row_us=row_us) >= 0.75 * capacity


@settings(max_examples=15, deadline=None)
@given(st.floats(0.05, 0.6), st.integers(300, 1_200))
def test_nothing_is_refused_below_the_capacity(times: float, row_us: int) -> None:
    """Well below the capacity every query is answered in time."""
    rate = times * CAP * 1e6 / (BATCH_US + CAP * row_us)
    good = simulate(rate, is_admitting=True, seconds=2.0, row_us=row_us)
    assert int(rate * 2.0) - round(good * 2.0) <= int(rate * 0.1) + 2  # the last ones are still on their way
