"""Reads the samples of one process in a window of time, and measures how much of a batch is the model itself."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from load.research.account.steps import OTHER, PREDICT, STACK, step_of
from streams.runtime.process.cpu_profiler import THREADS
from workers.inputs.rows import predict_rows
from workers.inputs.validation import validate
from workers.packages.loading import load_package

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from schemas.records import Input

_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time, us since the epoch."""

    start_us: int
    end_us: int

    def __contains__(self, time_us: int) -> bool:
        """Tell whether a time lies in it."""
        return self.start_us <= time_us < self.end_us


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of one process in one window.

    Attributes:
        steps: by step.
        unknown: by innermost function, where no step is known.
        samples: how many there were: the share p of a step is known to about sqrt(p / samples).
    """

    steps: Mapping[str, float]
    unknown: Mapping[str, float]
    samples: int

    @property
    def cpu_s(self) -> float:
        """All steps together."""
        return sum(self.steps.values())


@dataclass(frozen=True, slots=True)
class Profile:
    """Samples as `streams.runtime.process.cpu_profiler` writes them."""

    stacks: tuple[tuple[str, ...], ...]
    samples: tuple[tuple[int, int, int], ...]  # time (us), number of the stack, CPU time (ns)

    @classmethod
    def read(cls, path: Path) -> Profile:
        """Read a process's samples.

        Raises:
            FileNotFoundError: it wrote none: it was killed, or nobody asked for them.
        """
        content = json.loads(path.read_text())
        return cls(tuple(map(tuple, content["stacks"])), tuple(map(tuple, content["samples"])))


def spent_by(profile: Profile, window: Window, model_share: float | None = None) -> Spent:
    """Add up what a process did in a window.

    Args:
        profile: its samples.
        window: which.
        model_share: of a worker: how much of its model's thread is the model; None = the process has no such thread.
    """
    names = [OTHER if stack == (THREADS,) and model_share is None else step_of(stack) for stack in profile.stacks]
    steps: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    count = threads_ns = 0
    for time_us, number, used_ns in profile.samples:
        if time_us in window:
            count += 1
            steps[names[number]] += used_ns
            if names[number] == OTHER:
                unknown[profile.stacks[number][0]] += used_ns
            threads_ns += used_ns * (profile.stacks[number] == (THREADS,))
    seconds = _seconds(steps)
    if model_share is not None and threads_ns:
        stacking_s = threads_ns / 1e9 * (1 - model_share)
        seconds |= {STACK: seconds.get(STACK, 0.0) + stacking_s, PREDICT: seconds[PREDICT] - stacking_s}
    return Spent(seconds, _seconds(unknown), count)


def _seconds(spent_ns: Mapping[str, int]) -> dict[str, float]:
    return {name: used_ns / 1e9 for name, used_ns in spent_ns.items()}


def model_share(folder: Path, inputs: Sequence[Input], rows: int) -> float:
    """Return the share of the model in what a batch costs, in (0, 1].

    Args:
        folder: the package.
        inputs: fitting rows, repeated as need be.
        rows: of a batch, at least 1.
    """
    model = load_package(folder)
    batch = list(itertools.islice(itertools.cycle(inputs), rows))
    stacked = validate(model.manifest.input, batch).rows
    alone_s = _cpu_s(lambda: model.runtime.predict_batch(stacked))
    return min(1.0, alone_s / _cpu_s(lambda: predict_rows(model.runtime, model.manifest, batch)))


def _cpu_s(call: Callable[[], object]) -> float:
    """Return the CPU time of one call, the first of which is not counted."""
    call()
    started_s = time.thread_time()
    for _ in range(_ROUNDS):
        call()
    return (time.thread_time() - started_s) / _ROUNDS
