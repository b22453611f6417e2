"""When queries are meant to be sent: pure generators of intended offsets from the start, in microseconds.

Every generator is endless or bounded by its arguments. The same arguments give the same offsets. A sender records the
*intended* time. So a sender that falls behind shows up as latency, not as a lower rate.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streams.trace.stamps import read_stamps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_CHUNK = 1024  # gaps drawn at once: one numpy call costs as much as some tens of gaps


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How queries arrive, apart from how many.

    Attributes:
        name: as `named` takes it.
        at: offsets (us) for a rate (1/s) and a seed.
    """

    name: str
    at: Callable[[float, int], Iterator[int]]


def named(text: str) -> Arrivals:
    """Return the arrivals that a text names: `poisson`, `constant` or `trace:FILE` (see `read_stamps`).

    A trace is played faster or slower so that its mean rate is the one asked for, and ends where it ends.

    Raises:
        ValueError: it names none, or the trace cannot be played.
    """
    kind, _, path = text.partition(":")
    if text == "poisson":
        return POISSON
    if text == "constant":
        return Arrivals(text, lambda rate, _seed: constant(rate))
    if kind == "trace" and path:
        stamps_us = _recorded(Path(path))
        gaps_per_us = (len(stamps_us) - 1) / (stamps_us[-1] - stamps_us[0])
        return Arrivals(f"trace:{Path(path).name}", lambda rate, _seed: trace(stamps_us, rate / gaps_per_us / 1e6))
    raise ValueError(f"there are no arrivals {text!r}: write poisson, constant or trace:FILE")


def _recorded(path: Path) -> Sequence[int]:
    try:
        stamps_us = tuple(read_stamps(path))
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is no trace, a CSV file with ISO times in a column TIMESTAMP: {error!r}") from error
    if len(stamps_us) < 2 or any(a > b for a, b in itertools.pairwise(stamps_us)) or stamps_us[0] == stamps_us[-1]:
        raise ValueError(f"{path} is no trace: it needs two different times at least, the earliest first")
    return stamps_us


def constant(rate: float) -> Iterator[int]:
    """Yield offsets at `rate` a second, evenly spaced, without end; the first is 0."""
    _check_rate(rate)
    return (int(i * 1e6 / rate) for i in itertools.count())


def poisson(rate: float, seed: int) -> Iterator[int]:
    """Yield the arrivals of a Poisson process of `rate` a second, without end."""
    _check_rate(rate)
    return _poisson(rate, np.random.default_rng(seed))


POISSON = Arrivals("poisson", poisson)


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
