"""Whether the runtimes of one model agree, and which of them is the fastest.

What batching can win is a property of the runtime as much as of the model: a random forest on MNIST answers 63 rows/s
one by one under scikit-learn and 8,200 under ONNX Runtime, but 24,500 against 17,000 in batches of 1,024. So it is
measured, on rows of the package, by the worker that will run it.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from workers.runtimes.contract import Outputs, Runtime

SIZES = (1, 16, 128, 1_024)  # of the batches that are timed
TOLERANCE = 1e-5  # absolute below 1, relative above: what an answer may differ by from batch to batch, too
EXAMPLES, EXAMPLES_BYTES = 256, 1 << 20  # at most so many rows are kept in a package
_REPEATS = 5
_LONG_S = 0.2  # a batch that takes so long is neither repeated nor followed by a larger one


class Choice(NamedTuple):
    """Which runtime answers, and what a batch took under each: name -> batch size -> microseconds."""

    runtime: str
    batch_us: Mapping[str, Mapping[int, float]]

    def __str__(self) -> str:
        """Return one line for a log."""
        sizes = next(iter(self.batch_us.values()))
        heads = [f"{name} {' '.join(f'{us:.0f}' for us in times.values())}" for name, times in self.batch_us.items()]
        return f"{self.runtime} ({'; '.join(heads)} us for batches of {' '.join(map(str, sizes))})"

    def gauges(self, model: str) -> dict[str, float]:
        """Return what a worker reports: 1 for the runtime that answers, and the times of all."""
        found = {f"runtime{{model={model},runtime={self.runtime}}}": 1.0}
        for name, times in self.batch_us.items():
            found |= {f"measured_us{{model={model},rows={rows},runtime={name}}}": us for rows, us in times.items()}
        return found


def examples(sample: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return rows to compare and time by, (m, *shape): the sample's, then such as take each feature from any of them.

    The same sample always gives the same rows.
    """
    count = max(1, min(EXAMPLES, EXAMPLES_BYTES // max(1, sample[0].nbytes)))
    flat = sample[:count].reshape(len(sample[:count]), -1)
    picks = np.random.default_rng(0).integers(len(flat), size=(count - len(flat), flat.shape[1]))
    mixed = np.take_along_axis(flat, picks, axis=0)
    return np.concatenate([flat, mixed]).reshape(-1, *sample.shape[1:])


def difference(original: Outputs, converted: Outputs) -> float:
    """Return the largest difference between the numbers of two answers to the same rows; 0 where there are only labels.

    Raises:
        PackageError: a label differs, or a number by more than `TOLERANCE`.
    """
    first, second = np.asarray(original.answers), np.asarray(converted.answers)
    numbers = [] if first.dtype.kind != "f" else [(first, second)]
    if not numbers and not np.array_equal(first, second):
        differing = f"{np.count_nonzero(first != second)} of {len(first)}" if len(first) == len(second) else "all"
        raise PackageError(
            f"the converted model answers other labels ({differing} of the example rows): package it without conversion"
        )
    if original.scores is not None and converted.scores is not None:
        numbers.append((original.scores, converted.scores))
    return max((_apart(*pair) for pair in numbers), default=0.0)


def _apart(first: NDArray[np.generic], second: NDArray[np.generic]) -> float:
    a, b = first.astype(np.float64), second.astype(np.float64)
    apart = float(np.max(np.abs(a - b) / np.maximum(1.0, np.abs(a)))) if a.shape == b.shape else math.inf
    if not apart <= TOLERANCE:
        raise PackageError(
            f"the converted model's numbers differ by {apart:.2g}, more than {TOLERANCE:g}: "
            "package it without conversion"
        )
    return apart


def measure(runtimes: Mapping[str, Runtime], rows: NDArray[np.generic], sizes: Sequence[int] = SIZES) -> Choice:
    """Time batches under each runtime and choose the one whose times are shorter, as a geometric mean over the sizes.

    Args:
        runtimes: by name; of equals the first is chosen.
        rows: examples, repeated up to the size of a batch.
        sizes: of the batches, rising.
    """
    found: dict[str, dict[int, float]] = {name: {} for name in runtimes}
    for size in sizes:
        batch = np.resize(rows, (size, *rows.shape[1:]))
        for name, runtime in runtimes.items():
            found[name][size] = _best_us(runtime, batch)
        if max(times[size] for times in found.values()) > _LONG_S * 1e6:
            break
    fastest = min(found, key=lambda name: sum(map(math.log, found[name].values())))
    return Choice(fastest, found)


def _best_us(runtime: Runtime, batch: NDArray[np.generic]) -> float:
    """Return the shortest of a few calls in microseconds, at least 0.1: interruptions only ever add."""
    best = math.inf
    for _ in range(_REPEATS):
        started = time.perf_counter()
        runtime.predict_batch(batch)
        taken = time.perf_counter() - started
        best = min(best, taken)
        if taken > _LONG_S:
            break
    return max(best * 1e6, 0.1)
