"""The steps of the AIMD controller."""

from __future__ import annotations

import pytest

from policies.aimd import Aimd


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
    assert Aimd().observe(cap, rows, duration_us, 20_000) == expected


def test_settles_just_above_the_dead_band() -> None:
    """With 5 ms + 0.1 ms a row and 20 ms the cap stops at 131: 130 rows take exactly the objective less a tenth."""
    aimd, cap = Aimd(), 1
    for _ in range(200):
        cap = aimd.observe(cap, cap, 5_000 + 100 * cap, 20_000)
    assert cap == 131
