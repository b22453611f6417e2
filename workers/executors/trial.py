"""Measures what a call of a model costs: loads packages one after the other and times batches of their examples.

    python -m workers.executors.trial THREADS SECONDS < [[FOLDER, DIGEST, [CODE, ...], KEYS, MODEL@VERSION], ...]
        {"1": 41.2, "16": 55.0, "128": 130.9}     a line a package, in their order: microseconds by rows of a batch
        {"fault": "..."}                          it cannot be loaded, or does not answer

It is a process of its own, so that nobody who serves waits for it. A model that crashes ends it, and so does one that
takes longer than SECONDS; its line is missing.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from schemas.records import Tensor
from workers.errors import OutputError, WorkerError, refusing
from workers.executors.predictor import blank, predictor
from workers.packages import warm_up
from workers.packages.loading import load_package, stored_examples
from workers.packages.sealed import sealed
from workers.packages.variants import EXAMPLES_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.records import Input
    from streams.operators.contract import Predicted
    from workers.manifest import Manifest

SIZES: Final = (1, 16, 128)
# The least of so many: another process that takes the core makes a call longer, never shorter.
_REPEATS: Final = 7
# A batch that takes this long is far too dear: larger ones are not tried.
_LONG_US: Final = 50_000.0


def main(threads: int, patience_s: float) -> None:
    """Measure what is named on standard input."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a model prints
    for folder, digest, code, keys, version in json.load(sys.stdin):
        faulthandler.dump_traceback_later(patience_s, exit=True)  # also if the model keeps Python's lock
        try:
            times = measured(folder, digest, threads, code=code, keys=keys, version=version)
            found: dict[str, float | str] = {str(rows): us for rows, us in times.items()}
        except (WorkerError, OSError, MemoryError) as error:
            found = {"fault": str(error) or type(error).__name__}
        print(json.dumps(found), file=output, flush=True)


def measured(
    folder: Path | str, digest: str, threads: int = 1, *, code: Sequence[str] = (), keys: str = "", version: str = ""
) -> dict[int, float]:
    """Return how long batches of a package take (us), by their rows: decoding and checking rows included.

    Arguments are those of `packages.loading.load_package`.

    Raises:
        WorkerError: it cannot be loaded, or does not answer.
    """
    with refusing("it cannot be tried", but=(WorkerError, OSError, MemoryError)):
        model = load_package(folder, digest=digest, threads=threads, code=code, keys=keys, version=version)
        return timed(predictor(replace(model, warm_up=())), examples(folder, model.manifest))


def timed(predict: Callable[[Sequence[Input]], Predicted], rows: Sequence[Input]) -> dict[int, float]:
    """Return how long batches of so many of these rows, in turn, take (us).

    Raises:
        OutputError: the model does not answer them.
    """
    found: dict[int, float] = {}
    for size in SIZES:
        batch = [rows[index % len(rows)] for index in range(size)]
        if (fault := predict(batch).fault) is not None:
            raise OutputError(fault)
        found[size] = min(_once_us(predict, batch) for _ in range(_REPEATS))
        if found[size] > _LONG_US:
            break
    return found


def examples(folder: Path | str, manifest: Manifest) -> list[Input]:
    """Return the example rows of a package, or those that it is warmed up on; a blank one where it has neither.

    Args:
        folder: the package.
        manifest: its manifest as it was verified; the one that lies there may be another by now.

    Raises:
        PackageError: a file is not the one that the manifest lists.
    """
    files = sealed(Path(folder), manifest)
    if EXAMPLES_FILE in manifest.files:
        return [Tensor.of(row) for row in stored_examples(manifest, files)]
    return [*warm_up.read(files)] or [blank(manifest.input)]


def _once_us(predict: Callable[[Sequence[Input]], Predicted], batch: Sequence[Input]) -> float:
    started_ns = time.perf_counter_ns()
    predict(batch)
    return (time.perf_counter_ns() - started_ns) / 1e3


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
