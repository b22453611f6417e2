"""The steps of the AIMD controller."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from policies.aimd import Aimd, Cap

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("cap", "rows", "duration_us", "expected"),
    [
        (1, 1, 1_000, 3),  # full and fast: two more
        (10, 9, 1_000, 10),  # not full: unchanged, however fast
        (10, 10, 17_999, 11),  # two more might take longer than the objective
        (100, 100, 17_999, 102),
        (10, 10, 18_000, 10),  # the dead band, both ends
        (10, 10, 20_000, 10),
        (10, 10, 20_001, 9),  # above the objective: nine tenths
        (10, 1, 20_001, 9),  # also where the take was not full
        (19, 19, 21_600, 17),  # rounded down
        (100, 100, 21_601, 81),  # far above it: twice
        (100, 100, 10_000, 102),
        (100, 100, 9_999, 111),  # far below it: by a ninth, where that is more than two
        (17, 17, 9_999, 19),
        (19, 19, 30_000, 15),
        (1, 1, 30_000, 1),  # never below one row
        (4095, 4095, 1_000, 4096),  # never above the maximum
        (4096, 4096, 1_000, 4096),
    ],
)
def test_one_step(cap: int, rows: int, duration_us: int, expected: int) -> None:
    """Each rule moves the cap as stated, under an objective of 20 ms."""
    assert Aimd().observe(Cap(cap), rows, duration_us, 20_000).rows == expected


def driven(batches: int, duration: Callable[[int], int], spread_us: int = 1) -> tuple[list[int], int]:
    """Run full batches under 20 ms, which take up to `spread_us` longer; return the caps, and how many were late."""
    random, aimd, state, caps, late = Random(3), Aimd(), Aimd().init(), [], 0
    for _ in range(batches):
        duration_us = duration(state.rows) + random.randrange(spread_us)
        caps.append(state.rows)
        late += duration_us > 20_000
        state = aimd.observe(state, state.rows, duration_us, 20_000)
    return caps, late


def test_an_even_model_gets_what_fits() -> None:
    """Of 5 ms and 0.1 ms a row 144 rows take 19.4 ms, and no batch was late for it."""
    caps, late = driven(3_000, lambda rows: 5_000 + 100 * rows)
    assert max(caps) == 144
    assert set(caps[200:]) == {144}
    assert late == 0


def test_the_last_row_that_fits_is_found() -> None:
    """9 rows take 19 ms and 10 all of the 20."""
    assert set(driven(3_000, lambda rows: 10_000 + 1_000 * rows)[0][200:]) == {10}


def test_an_uneven_model_stays_where_the_dead_band_begins() -> None:
    """Where batches take up to 2 ms longer, 130 rows take 18 to 20 ms: one in fifty is late."""
    caps, late = driven(3_000, lambda rows: 5_000 + 100 * rows, 2_000)
    assert 110 <= min(caps[200:]) <= max(caps) <= 132
    assert late <= 0.02 * len(caps)


@pytest.mark.parametrize(
    ("duration", "fits"),
    [(lambda rows: 10_600 + 1_050 * rows, 8), (lambda rows: 300 + 2_200 * rows, 8), (lambda rows: 15_000 * rows, 1)],
    ids=["inside the dead band", "below it", "one row"],
)
def test_a_row_more_that_is_too_slow_is_tried_ever_more_seldom(duration: Callable[[int], int], fits: int) -> None:
    """After 6 takes, then after 12, 24, 48, ..."""
    caps, late = driven(3_000, duration)
    tried = [place for place, rows in enumerate(caps) if rows == fits + 1]
    assert [after - before for before, after in pairwise(tried)][:7] == [13, 25, 49, 97, 193, 385, 769]
    assert set(caps[30:]) == {fits, fits + 1}
    assert late <= 10


def test_a_burst_of_late_takes_counts_once() -> None:
    """Of 1,000 rows three late takes leave 729; full takes that fit bring back the 900 of the first, then two rows."""
    aimd, state, caps = Aimd(), Cap(1_000), []
    for duration_us in (21_000, 21_000, 21_000, 15_000, 15_000, 15_000, 15_000):
        state = aimd.observe(state, state.rows, duration_us, 20_000)
        caps.append(state.rows)
    assert caps == [900, 810, 729, 810, 900, 902, 904]
