"""What a model's executions and its loading take, by what the last ones took.

Clockwork (OSDI'20) predicts an execution by the 99th percentile of the last 10 of the same model and batch size. Sizes
here are classes of rows, up to 1, 2, 4, 8 and so on: a batch of five rows counts as
one of eight, which it does not exceed.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from policies.clockwork import SAMPLES, p99
from schemas.records import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable

QUANTILE: Final = 0.99
# Of a model that was never run (us), as in Clockwork: its first rows run, and tell.
UNPROFILED_US: Final = 100
# Of a model that was never loaded (us): a process that has the runtime opens a small model within this.
UNLOADED_US: Final = 10_000
# Largest class: 2^12 = 4,096 rows, the largest cap of any batch controller.
CLASSES: Final = 13
# Executions whose errors are remembered for the figures.
_ERRORS: Final = 4_096


class Errors(NamedTuple):
    """Predicted beside actual times.

    Attributes:
        batches: that were predicted.
        under, over: of them took longer, or less time, than predicted.
        under_p99_us, over_p99_us: by how much, of the last few thousand.
    """

    batches: int
    under: int
    over: int
    under_p99_us: int
    over_p99_us: int


class PredictedTimes(NamedTuple):
    """Predicted beside actual times of one model's version, since it was loaded first.

    Attributes:
        batches: that were predicted.
        under, over: of them took longer, or less time, than predicted.
        predicted_us, took_us: what all of them were predicted to take, and took.
    """

    batches: int = 0
    under: int = 0
    over: int = 0
    predicted_us: int = 0
    took_us: int = 0

    def and_one(self, predicted_us: int, took_us: int) -> PredictedTimes:
        """Return these with one batch more."""
        return PredictedTimes(
            self.batches + 1,
            self.under + (took_us > predicted_us),
            self.over + (took_us < predicted_us),
            self.predicted_us + predicted_us,
            self.took_us + took_us,
        )


class _Executions:
    """What batches took, by class, what one of each class is reckoned to take (us), and how good that was."""

    __slots__ = ("by_class", "predicted", "samples")

    def __init__(self) -> None:
        self.samples: dict[int, deque[tuple[int, int]]] = {}  # what each took, and its rows
        self.by_class: tuple[int, ...] = (UNPROFILED_US,) * CLASSES
        self.predicted = PredictedTimes()


class Times:
    """The times of one model.

    Attributes:
        version: that was measured.
        bytes: in memory.
    """

    __slots__ = ("_executions", "_loads", "bytes", "version")

    def __init__(self, version: str = "") -> None:
        """Start with nothing measured."""
        self.version = version
        self.bytes = 0
        self._executions = _Executions()
        self._loads: deque[int] = deque(maxlen=SAMPLES)

    @property
    def by_class(self) -> tuple[int, ...]:
        """What a batch of each class is reckoned to take (us), from one row on; never empty."""
        return self._executions.by_class

    @property
    def predicted(self) -> PredictedTimes:
        """How well its batches were predicted; of models with one trunk, those of all of them."""
        return self._executions.predicted

    def judge(self, rows: int, took_us: int) -> int:
        """Compare what a batch took with what it was reckoned to take; returns by how much that was too short (us)."""
        predicted_us = self.by_class[class_of(rows)]
        self._executions.predicted = self._executions.predicted.and_one(predicted_us, took_us)
        return took_us - predicted_us

    def observe(self, rows: int, took_us: int) -> None:
        """Take what a batch took."""
        self._executions.samples.setdefault(class_of(rows), deque(maxlen=SAMPLES)).append((took_us, rows))
        self._executions.by_class = tuple(self._estimates())

    def share(self, other: Times) -> None:
        """Have executions in common with another from now on: what that one knows of them, or else this one."""
        if not other.is_known and self.is_known:
            other._executions = self._executions
        self._executions = other._executions

    def loaded(self, took_us: int) -> None:
        """Take what loading took."""
        self._loads.append(took_us)

    @property
    def is_known(self) -> bool:
        """Whether any batch was measured."""
        return bool(self._executions.samples)

    @property
    def load_us(self) -> int:
        """What loading takes; 0 = not known."""
        return p99(self._loads) if self._loads else 0

    def kept(self, model: str) -> Profile:
        """Return what survives a restart: of each class the most rows that were run, and what it takes."""
        samples = self._executions.samples
        classes = sorted(samples)
        sizes = tuple(max(rows for _, rows in samples[index]) for index in classes)
        times = tuple(self.by_class[index] for index in classes)
        return Profile(model, self.version, sizes, times, self.load_us, self.bytes)

    def _estimates(self) -> Iterable[int]:
        """Yield the estimate of each class; one never run takes no longer than in proportion to a smaller one."""
        samples = self._executions.samples
        known = {index: p99(took_us for took_us, _ in its) for index, its in samples.items()}
        smaller = -1
        for index in range(CLASSES):
            if index in known:
                smaller = index
                yield known[index]
            elif smaller >= 0:
                yield known[smaller] << index - smaller
            else:
                yield known[min(known)]


class Profiles:
    """The times of all models of a host, and how well they were predicted."""

    def __init__(self) -> None:
        """Start with nothing measured."""
        self._models: dict[str, Times] = {}
        self._batches = self._under = self._over = 0
        self._errors: deque[int] = deque(maxlen=_ERRORS)  # actual less predicted (us)

    def of(self, model: str) -> Times:
        """Return the times of a model."""
        found = self._models.get(model)
        if found is None:
            found = self._models[model] = Times()
        return found

    def observe(self, model: str, rows: int, took_us: int) -> None:
        """Take what a batch of `rows` took; beside it stands what was predicted. No rows say nothing."""
        if not rows:
            return
        times = self.of(model)
        if times.is_known:
            error_us = times.judge(rows, took_us)
            self._errors.append(error_us)
            self._batches += 1
            self._under += error_us > 0
            self._over += error_us < 0
        times.observe(rows, took_us)

    def loaded(self, model: str, took_us: int, size_bytes: int) -> None:
        """Take what loading a model took, and its size in memory."""
        times = self.of(model)
        times.loaded(took_us)
        times.bytes = size_bytes

    def estimate(self, model: str, rows: int) -> int:
        """Return what a batch of `rows` is reckoned to take (us)."""
        return self.of(model).by_class[class_of(rows)]

    def load_us(self, model: str) -> int:
        """Return what loading a model is reckoned to take (us)."""
        return self.of(model).load_us or UNLOADED_US

    def switched(self, model: str, version: str) -> None:
        """Forget the times of other versions of a model."""
        if self.of(model).version != version:
            self._models[model] = Times(version)

    def rename(self, model: str, name: str) -> None:
        """Let a model have another name."""
        if (times := self._models.pop(model, None)) is not None:
            self._models[name] = times

    def forget(self, model: str) -> None:
        """Forget a model."""
        self._models.pop(model, None)

    def share(self, model: str, trunk: str) -> None:
        """Let the executions of a model count as those of its trunk, of which it has a part in each."""
        self.of(model).share(self.of(trunk))

    def errors(self) -> Errors:
        """Return how well executions were predicted."""
        under = [error for error in self._errors if error > 0]
        over = [-error for error in self._errors if error < 0]
        p99s = (quantile(errors, QUANTILE) if errors else 0 for errors in (under, over))
        return Errors(self._batches, self._under, self._over, *p99s)

    def kept(self, model: str) -> Profile:
        """Return a model's profile, as it survives a restart."""
        return self.of(model).kept(model)

    def restore(self, kept: Profile) -> None:
        """Take a profile from before a restart; what was measured since then counts more."""
        if self.of(kept.model).is_known:
            return
        times = self._models[kept.model] = Times(kept.version)
        for rows, took_us in zip(kept.sizes, kept.p99_us, strict=True):
            times.observe(rows, took_us)
        if kept.load_us:
            self.loaded(kept.model, kept.load_us, kept.bytes)


def class_of(rows: int) -> int:
    """Return the class of a batch: the power of two that holds its rows."""
    return min((rows - 1).bit_length(), CLASSES - 1)


def quantile(values: Iterable[int], share: float) -> int:
    """Return the smallest of the values that so large a share does not exceed; there is at least one."""
    ordered = sorted(values)
    return ordered[ceil(share * len(ordered)) - 1]
