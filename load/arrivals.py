"""When queries are meant to be sent: pure generators of intended offsets from the start, in microseconds.

Every generator is endless or bounded by its arguments and the same arguments give the same offsets. Whoever sends by
them records the *intended* time, so that a sender that falls behind shows up as latency and not as a lower rate.
"""

from __future__ import annotations

import csv
import itertools
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_CHUNK = 1024  # gaps drawn at once: one numpy call costs as much as some tens of gaps


def constant(rate: float) -> Iterator[int]:
    """Yield offsets at `rate` a second, evenly spaced, for ever; the first is 0."""
    _check_rate(rate)
    return (int(i * 1e6 / rate) for i in itertools.count())


def poisson(rate: float, seed: int) -> Iterator[int]:
    """Yield the arrivals of a Poisson process of `rate` a second, for ever."""
    _check_rate(rate)
    return _poisson(rate, np.random.default_rng(seed))


def trace(stamps_us: Iterable[int], factor: float) -> Iterator[int]:
    """Yield a recorded trace with its time divided by `factor`: nothing is resampled, gaps keep their proportions.

    Args:
        stamps_us: non-decreasing times in microseconds; the first becomes offset 0.
        factor: how many times faster than recorded.
    """
    _check_rate(factor)
    return _trace(iter(stamps_us), factor)


def until(offsets_us: Iterable[int], seconds: float) -> Iterator[int]:
    """Yield the offsets that lie before `seconds`."""
    end_us = int(seconds * 1e6)
    return itertools.takewhile(lambda offset_us: offset_us < end_us, offsets_us)


def read_stamps(path: Path, column: str = "TIMESTAMP") -> Iterator[int]:
    """Yield the times (us) of a CSV trace whose `column` holds ISO timestamps, as Azure's LLM traces do."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield int(datetime.fromisoformat(row[column]).timestamp() * 1e6)


def _poisson(rate: float, random: np.random.Generator) -> Iterator[int]:
    start_us = 0.0
    while True:
        times_us = start_us + np.cumsum(random.exponential(1e6 / rate, _CHUNK))
        start_us = float(times_us[-1])
        yield from times_us.astype(np.int64).tolist()


def _trace(stamps_us: Iterator[int], factor: float) -> Iterator[int]:
    first_us = next(stamps_us, None)
    if first_us is None:
        return
    yield 0
    last_us = 0
    for stamp_us in stamps_us:
        offset_us = int((stamp_us - first_us) / factor)
        if offset_us < last_us:
            raise ValueError(f"a trace must not run backwards: {offset_us} us comes after {last_us} us; sort it first")
        last_us = offset_us
        yield offset_us


def _check_rate(rate: float) -> None:
    if not rate > 0:
        raise ValueError(f"a rate or a factor must be above 0, not {rate}")
