"""How much of a worker's batch is the model itself.

Batches that are not quick run in a thread of the model's own, whose CPU time is known as one sum. Its parts are taken
from the same code on the same package, here and afterwards, with batches of the size that the worker had.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from workers.inputs.rows import predict_rows
from workers.inputs.validation import validate
from workers.packages.loading import load_package

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from schemas.records import Input

_ROUNDS = 200


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
