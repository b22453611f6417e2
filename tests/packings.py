"""Works that are drawn, and the fewest hosts that can do them, by trying everything."""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import TYPE_CHECKING

from policies.packing.work import BatchTimes, Share, Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

SIZES = (1, 2, 4, 8, 16, 32)


def drawn(random: np.random.Generator, models: int, partitions: int = 2) -> list[Work]:
    """Return works of some models: a call and a row cost something, objectives and rates differ."""
    return [_drawn(random, f"m{number}", int(random.integers(1, partitions + 1))) for number in range(models)]


def _drawn(random: np.random.Generator, model: str, partitions: int) -> Work:
    call_us, row_us = random.uniform(1_000, 20_000), random.uniform(100, 4_000)
    times = BatchTimes(SIZES, tuple(float(call_us + row_us * rows) for rows in SIZES))
    work = Work(model, 0.0, float(random.uniform(2.5, 20) * times.of(1)), times, int(random.integers(1, 5)))
    return Work(
        model,
        float(random.uniform(0.02, 0.9) * partitions * work.most_per_s),
        work.objective_us,
        times,
        work.bytes,
        partitions=partitions,
    )


def fewest(works: Sequence[Work], memory_bytes: int | None = None) -> int:
    """Return how few hosts can do everything, with every partition on any of them."""
    units = [(work, number) for work in works for number in range(work.partitions)]

    @cache
    def can(chosen: int) -> bool:
        return _can([unit for at, unit in enumerate(units) if chosen >> at & 1], memory_bytes)

    @cache
    def least(left: int) -> int:
        if not left:
            return 0
        first = left & -left
        return 1 + min(least(left ^ its) for its in _with(first, left) if can(its))

    return least((1 << len(units)) - 1)


def _with(first: int, left: int) -> Iterator[int]:
    """Yield every set of what is left that has the first one in it."""
    others = chosen = left ^ first
    while True:
        yield chosen | first
        if not chosen:
            return
        chosen = (chosen - 1) & others


def _can(units: Sequence[tuple[Work, int]], memory_bytes: int | None) -> bool:
    """Tell whether there is any cycle in which one host does these partitions in time."""
    works = {work.model: work for work, _ in units}
    shares = [Share(work, tuple(n for of, n in units if of is work)) for work in works.values()]
    if memory_bytes is not None and sum(work.bytes for work in works.values()) > memory_bytes:
        return False
    return any(_is_in_time(shares, duty_us) for duty_us in _duties(shares))


def _duties(shares: Sequence[Share]) -> Iterator[float]:
    """Yield every cycle at which one row more or less makes a difference, and those at which a share is just in time.

    Between two of them all batches stay as they are, so the longest of that stretch is as good as any.
    """
    for share in shares:
        longest_us = share.work.objective_us
        for rows in range(1, ceil(longest_us * share.per_s / 1e6) + 1):
            yield rows / share.per_s * 1e6
            yield longest_us - share.work.times.of(rows)


def _is_in_time(shares: Sequence[Share], duty_us: float) -> bool:
    took_us = [share.took_us(duty_us) for share in shares]
    slack_us = 1e-6
    return sum(took_us) <= duty_us + slack_us and all(
        duty_us + us <= share.work.objective_us + slack_us for us, share in zip(took_us, shares, strict=True)
    )
