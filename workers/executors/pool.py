"""Predicts in several child processes at once: each batch is divided among them, for models that keep Python's lock.

A child that hangs or dies fails its part of the batch; the next batch waits until it has been replaced.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

from policies.allowed_sizes import padded
from workers.executors.joining import joined
from workers.executors.thread import OffLoopExecutor, Timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.records import Input
    from workers.executors.process import ProcessExecutor


class PoolExecutor(OffLoopExecutor):
    """Children that each hold the model."""

    def __init__(
        self, children: Sequence[ProcessExecutor], now_us: Callable[[], int], sizes: tuple[int, ...] = ()
    ) -> None:
        """Nothing runs before `start`.

        Args:
            children: that share the batches.
            now_us: the clock that batches are timed by.
            sizes: of the batches that a child is given, rising; none = any.
        """
        self._children = children
        self._now_us = now_us
        self._sizes = sizes

    @property
    def ready(self) -> bool:
        """Whether every child has its model loaded."""
        return all(child.ready for child in self._children)

    async def start(self) -> None:
        """Load the model in every child that lacks it: in one child first, which may fail or time the model's forms.

        Raises:
            PackageError: it cannot be loaded.
        """
        first, *others = self._children
        await first.start()
        started = await asyncio.gather(*(child.start() for child in others), return_exceptions=True)
        for fault in started:
            if fault is not None:
                raise fault

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict one batch, in as many parts as there are children, or fewer that fill an allowed size."""
        started_us = self._now_us()
        edges = edges_of(len(inputs), len(self._children), self._sizes)
        parts = [inputs[start:end] for start, end in pairwise(edges)]
        asked = (child.run(part, patience_s) for child, part in zip(self._children, parts, strict=False))
        timed = await asyncio.gather(*asked)
        return Timed(joined([each.predicted for each in timed]), self._now_us() - started_us)

    async def stop(self) -> None:
        """Kill the children."""
        await asyncio.gather(*(child.stop() for child in self._children))


def edges_of(rows: int, children: int, sizes: tuple[int, ...]) -> list[int]:
    """Return where a batch is cut, 0 and its end included.

    Args:
        rows: of the batch, at least 1.
        children: among which it is divided.
        sizes: that parts are padded to, rising; none = any size, so that parts are of nearly equal size.
    """
    if not sizes:
        count = min(children, rows)
        return [rows * part // count for part in range(count + 1)]
    share = -(-rows // children)
    size = max(share, padded(share, sizes))
    return [*range(0, rows, size), rows]
