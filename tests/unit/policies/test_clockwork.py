"""The controller `clockwork`: sizes by the last ten batches of each, and what a pause or a slower model does."""

from __future__ import annotations

import pytest

from policies.clockwork import SIZES, CapProfile, Clockwork, Size, reckoned
from policies.errors import PolicyError

OBJECTIVE_US = 20_000


def test_sizes_step_by_an_eighth_of_the_double() -> None:
    """Each whole number up to 16, and 4,096 rows are among them."""
    assert SIZES[:18] == (*range(1, 17), 18, 20)
    assert list(SIZES) == sorted(set(SIZES))
    assert 4_096 in SIZES


def test_a_size_never_run_lies_on_the_line_through_its_neighbours() -> None:
    """Which does not fall: more rows take no less."""
    sizes = (Size(2, (4_000, 3_000), 1), Size(4, (6_000,), 2))
    assert reckoned(sizes, 2) == 4_000
    assert reckoned(sizes, 3) == 5_000
    assert reckoned(sizes, 8) == 10_000
    assert reckoned((Size(2, (4_000,), 1), Size(4, (3_000,), 2)), 8) == 4_000


def test_the_slowest_of_the_last_ten_counts() -> None:
    """A size whose slowest batch is too slow by the line is not taken; eleven batches later it is."""
    clockwork, sizes = Clockwork(), (Size(8, (10_000,), 1), Size(9, (19_000, *[11_000] * 9), 10))
    state = CapProfile(9, sizes, 10)
    assert clockwork.cap(clockwork.observe(state._replace(sizes=(sizes[0], sizes[1])), 9, 11_000, OBJECTIVE_US)) == 11
    slow = state._replace(sizes=(sizes[0], Size(9, (11_000, 19_000), 10)))
    assert clockwork.cap(clockwork.observe(slow, 9, 11_000, OBJECTIVE_US)) == 9


def test_one_late_batch_costs_a_step_and_two_in_a_row_halve_the_cap() -> None:
    """After two nothing that was measured before counts."""
    clockwork, state = Clockwork(), CapProfile(128, (Size(112, (16_000,), 1), Size(128, (17_800,), 2)), 2)
    once = clockwork.observe(state, 128, 500_000, OBJECTIVE_US)
    assert clockwork.cap(once) == 120
    assert clockwork.cap(clockwork.observe(once, 120, 17_000, OBJECTIVE_US)) == 144
    twice = clockwork.observe(once, 120, 500_000, OBJECTIVE_US)
    assert clockwork.cap(twice) == 60
    assert twice.sizes == ()


def test_parameters_are_checked() -> None:
    """With the name of the controller in the message."""
    with pytest.raises(PolicyError, match="clockwork: max_rows is 0"):
        Clockwork(max_rows=0)
    assert Clockwork(max_rows=3).cap(Clockwork(max_rows=3).observe(CapProfile(3), 3, 1_000, OBJECTIVE_US)) == 3
