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
        (10, 10, 17_999, 12),
        (10, 10, 18_000, 10),  # the dead band, both ends
        (10, 10, 20_000, 10),
        (10, 10, 20_001, 9),  # above the objective: nine tenths
        (10, 1, 20_001, 9),  # also where the take was not full
        (19, 19, 23_000, 17),  # rounded down
        (100, 100, 23_001, 81),  # far above it: twice
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


def driven(batches: int, duration: Callable[[int], int]) -> list[int]:
    """Run full batches under 20 ms; return the caps."""
    aimd, state, caps = Aimd(), Aimd().init(), []
    for _ in range(batches):
        caps.append(state.rows)
        state = aimd.observe(state, state.rows, duration(state.rows), 20_000)
    return caps


def uneven(batches: int, spread_us: int, duration: Callable[[int], int]) -> list[int]:
    """As `driven`, with a model whose batches take up to so much longer than they should, drawn at random."""
    random, aimd, state, caps = Random(3), Aimd(), Aimd().init(), []
    for _ in range(batches):
        caps.append(state.rows)
        state = aimd.observe(state, state.rows, duration(state.rows) + random.randrange(spread_us), 20_000)
    return caps


def test_an_even_model_gets_what_fits() -> None:
    """Of 5 ms and 0.1 ms a row 144 rows take 19.4 ms, and no batch was late for it."""
    caps = driven(3_000, lambda rows: 5_000 + 100 * rows)
    assert max(caps) == 144
    assert set(caps[200:]) == {144}


def test_the_last_row_that_fits_is_found() -> None:
    """9 rows take 19 ms and 10 all of the 20."""
    assert set(driven(3_000, lambda rows: 10_000 + 1_000 * rows)[200:]) == {10}


def test_an_uneven_model_stays_where_the_dead_band_begins() -> None:
    """Where batches take up to 2 ms longer, 130 rows take 18 to 20 ms: fewer than one in a hundred is late."""
    caps = uneven(3_000, 2_000, lambda rows: 5_000 + 100 * rows)[200:]
    late = sum(5_000 + 100 * rows + 2_000 > 20_000 for rows in caps) / len(caps)
    assert 110 <= min(caps) <= max(caps) <= 131
    assert late <= 0.5  # of those that could be, by the longest that they may take


def test_a_row_more_that_is_too_slow_is_tried_ever_more_seldom() -> None:
    """8 rows take 19 ms and 9 take 20.05: after 6 takes, then after 12, 24, 48, ..."""
    caps = driven(3_000, lambda rows: 10_600 + 1_050 * rows)
    tried = [place for place, rows in enumerate(caps) if rows == 9]
    assert [after - before for before, after in pairwise(tried)][1:8] == [13, 25, 49, 97, 193, 385, 769]
    assert set(caps[10:]) == {8, 9}


def test_the_second_take_far_above_the_objective_counts_by_as_much() -> None:
    """The first may have been a pause: 100 rows become 81; the second, twice the objective, makes 40 of them."""
    aimd = Aimd()
    paused = aimd.observe(Cap(100), 100, 40_000, 20_000)
    assert paused.rows == 81
    assert aimd.observe(paused, 81, 40_000, 20_000).rows == 40
    assert aimd.observe(aimd.observe(paused, 81, 19_000, 20_000), 81, 40_000, 20_000).rows == 65
