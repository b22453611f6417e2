"""Whether the runtimes of one model agree, and which of them is the fastest, by the size of a batch.

The gain by batching depends on the runtime as much as on the model. Asked one by one, a random forest on MNIST answers
63 rows/s under scikit-learn and 8,200 under ONNX Runtime. In batches of 1,024 it answers 24,500 against 17,000. So the
worker that will run the model measures it, on rows of the package.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workers.errors import PackageError
from workers.runtimes.contract import own

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from workers.runtimes.contract import Outputs, Rows, Runtime

SIZES = (1, 16, 128, 1_024)  # of the batches that are timed
TOLERANCE = 1e-5  # absolute below 1, relative above; answers may differ by this from batch to batch, too
EXAMPLES, EXAMPLES_BYTES = 256, 1 << 20  # at most so many rows are kept in a package
_BATCH_BYTES = 64 << 20  # larger batches are not timed
_REPEATS = 5
_VISIBLY = 0.9  # share of another runtime's time
_LONG_S = 0.2  # a batch that takes this long is neither repeated nor followed by a larger one


class Choice(NamedTuple):
    """Which runtime answers batches of which size, and how long a batch took under each.

    Attributes:
        spans: the fewest rows of a batch, rising from 1, and the runtime that answers such and larger ones.
        batch_us: name -> batch size -> microseconds.
    """

    spans: tuple[tuple[int, str], ...]
    batch_us: Mapping[str, Mapping[int, float]]

    def __str__(self) -> str:
        """Return one line for a log."""
        sizes = next(iter(self.batch_us.values()))
        heads = [f"{name} {' '.join(f'{us:.0f}' for us in times.values())}" for name, times in self.batch_us.items()]
        first, *others = self.spans
        answers = ", ".join([first[1], *(f"{name} from {rows} rows" for rows, name in others)])
        return f"{answers} ({'; '.join(heads)} us for batches of {' '.join(map(str, sizes))})"

    def gauges(self, model: str) -> dict[str, float]:
        """Return the figures to report: from how many rows on a runtime answers, and the times of all."""
        found = {f"runtime{{model={model},runtime={name}}}": float(rows) for rows, name in reversed(self.spans)}
        for name, times in self.batch_us.items():
            found |= {f"measured_us{{model={model},rows={rows},runtime={name}}}": us for rows, us in times.items()}
        return found


class BySize:
    """Several forms of one model as one runtime: each batch goes to the one that is the fastest at its size.

    Attributes:
        leaves_lock: all of them compute without Python's lock.
        waits: one of them waits for a device most of its time.
    """

    def __init__(self, choice: Choice, runtimes: Mapping[str, Runtime]) -> None:
        """Hold those that the choice names, and no others."""
        self._starts = [rows for rows, _ in choice.spans]
        self._runtimes = [runtimes[name] for _, name in choice.spans]
        self.leaves_lock = all(getattr(each, "leaves_lock", False) for each in self._runtimes)
        self.waits = any(getattr(each, "waits", False) for each in self._runtimes)

    def predict_batch(self, rows: Rows) -> Outputs:
        """Answer a batch."""
        return self._runtimes[bisect_right(self._starts, len(rows)) - 1].predict_batch(rows)


def examples(sample: NDArray[np.generic], *, allow_nan: bool = False) -> NDArray[np.generic]:
    """Return rows to compare and time by, (m, *shape): the sample's, then mixed ones with features from any of these.

    The same sample always gives the same rows.

    Args:
        sample: a batch.
        allow_nan: rows may hold NaN: so does one feature of every other row that is mixed.
    """
    count = max(1, min(EXAMPLES, EXAMPLES_BYTES // max(1, sample[0].nbytes)))
    flat = sample[:count].reshape(len(sample[:count]), -1)
    picks = np.random.default_rng(0).integers(len(flat), size=(count - len(flat), flat.shape[1]))
    mixed = np.take_along_axis(flat, picks, axis=0)
    if allow_nan and mixed.dtype.kind == "f":
        np.put_along_axis(mixed[::2], picks[::2, :1] % mixed.shape[1], np.nan, axis=1)
    return np.concatenate([flat, mixed]).reshape(-1, *sample.shape[1:])


def difference(original: Outputs, converted: Outputs) -> float:
    """Return the largest difference between the numbers of two answers to the same rows; 0 if there are only labels.

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
    """Time batches under each runtime and choose by their times.

    Args:
        runtimes: by name; of equals the first is chosen.
        rows: examples, repeated up to the size of a batch.
        sizes: of the batches, rising.
    """
    found: dict[str, dict[int, float]] = {name: {} for name in runtimes}
    for size in sizes:
        if size > sizes[0] and size * rows[0].nbytes > _BATCH_BYTES:
            break
        batch = np.resize(rows, (size, *rows.shape[1:]))
        for name, runtime in runtimes.items():
            found[name][size] = _best_us(runtime, batch)
        if max(times[size] for times in found.values()) > _LONG_S * 1e6:
            break
    return Choice(spans_of(found), found)


def spans_of(batch_us: Mapping[str, Mapping[int, float]]) -> tuple[tuple[int, str], ...]:
    """Choose a runtime for every size: the one that is fastest over all, others only where they win visibly.

    "Over all" means by the geometric mean of the times. "Visibly" means by a tenth, because every form that is kept
    takes memory. Between two measured sizes, the crossing of the lines between their times says from how many rows on
    the second is faster.

    Args:
        batch_us: name -> batch size, rising, the same of each -> microseconds.

    Returns:
        The fewest rows, from 1, and the runtime from there on.

    Examples:
        >>> spans_of({"onnx": {1: 40.0, 16: 500.0}, "trees": {1: 160.0, 16: 300.0}})
        ((1, 'onnx'), (7, 'trees'))
    """
    overall = min(batch_us, key=lambda name: sum(map(math.log, batch_us[name].values())))
    spans: list[tuple[int, str]] = []
    before = 0
    for size in batch_us[overall]:
        fastest = min(batch_us, key=lambda name: batch_us[name][size])
        name = fastest if batch_us[fastest][size] < _VISIBLY * batch_us[overall][size] else overall
        if not spans:
            spans.append((1, name))
        elif name != spans[-1][1]:
            spans.append((_crossing(batch_us[spans[-1][1]], batch_us[name], before, size), name))
        before = size
    return tuple(spans)


def _crossing(first: Mapping[int, float], second: Mapping[int, float], below: int, above: int) -> int:
    """Return from how many rows on the second is used, above `below` up to `above`: where the lines cross."""
    lost_us = max(0.0, second[below] - first[below])
    won_us = max(0.0, first[above] - second[above])  # it may lose here, if it was chosen as the fastest over all
    if lost_us == 0.0:
        return below + 1
    return below + max(1, math.ceil((above - below) * lost_us / (lost_us + won_us)))


def _best_us(runtime: Runtime, batch: NDArray[np.generic]) -> float:
    """Return the shortest of a few calls in microseconds, at least 0.1: interruptions only ever add."""
    best = math.inf
    for _ in range(_REPEATS):
        rows = own(batch)
        started = time.perf_counter()
        runtime.predict_batch(rows)
        taken = time.perf_counter() - started
        best = min(best, taken)
        if taken > _LONG_S:
            break
    return max(best * 1e6, 0.1)
