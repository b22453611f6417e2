"""A process that holds pipelines and measures itself: one of many with a pipeline each, or one with all of them.

    python -m load.research.pretzel.pipeline_process WAY     then a command a line, JSON in and JSON out

WAY says how packages are loaded: `sklearn` (the estimator whole), `alone` (in stages, each with a store of its own), or
`shared` (in stages, with the process's store, as every process that runs models has it).
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from workers import manifest as manifests
from workers.packages.loading import load_package
from workers.packages.sealed import Opened
from workers.packages.variants import runtime_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from workers.runtimes.contract import Runtime

WAYS: Final = ("sklearn", "alone", "shared")
_ROUNDS = 20  # of the rows that are asked one by one


class Pipelines:
    """The loaded pipelines."""

    def __init__(self, way: str) -> None:
        self._way = way
        self._loaded: dict[str, Runtime] = {}
        self._rows: dict[str, Any] = {}
        self._asked = 0
        self._computed: list[float] = []

    def rows(self, files: Mapping[str, str]) -> None:
        """Read the rows of each family; texts are lines."""
        for family, file in files.items():
            path = Path(file)
            self._rows[family] = np.load(path) if path.suffix == ".npy" else path.read_text().splitlines()

    def load(self, folders: Sequence[str]) -> list[float]:
        """Load packages and ask each once; returns the milliseconds from nothing to the first answer."""
        taken = []
        for folder in folders:
            started, began = time.perf_counter(), time.thread_time()
            runtime = self._load(Path(folder))
            runtime.predict_batch(self._some(folder, 1))
            taken.append((time.perf_counter() - started) * 1e3)
            self._computed.append((time.thread_time() - began) * 1e3)
            self._loaded[folder] = runtime
        return taken

    def computed(self) -> list[float]:
        """Return the milliseconds of CPU time that each of these took."""
        return self._computed

    def _load(self, folder: Path) -> Runtime:
        if self._way == "alone":
            manifest = manifests.read(folder)
            module = runtime_module(manifest.runtime)
            found: Runtime = module.load_alone(manifest, Opened(folder, manifest))
            return found
        return load_package(folder, allow_pickle=True, digest=manifests.digest(folder)).runtime

    def warm_up(self, folders: Sequence[str]) -> None:
        """Load packages, ask each once, and let go of them: what every first one of its kind costs is over.

        The garbage collector looks no more at what is there by then, as in the process of a host's models.
        """
        for folder in folders:
            self._load(Path(folder)).predict_batch(self._some(folder, 1))
        gc.freeze()

    def _some(self, folder: str, count: int, start: int | None = None) -> Any:
        """Return rows of a pipeline's family, of which no two are equal; the same ones for the same start."""
        rows = self._rows[family_of(folder)]
        if start is None:
            self._asked, start = self._asked + count, self._asked
        places = [place % len(rows) for place in range(start, start + count)]
        if isinstance(rows, np.ndarray):
            return rows[places] + 1e-9 * np.arange(start, start + count)[:, None]
        return [f"{rows[place]} {number}" for number, place in enumerate(places, start)]

    def hot(self, folders: Sequence[str]) -> list[float]:
        """Return, for each pipeline, the median microseconds of a row, asked alone after two others.

        scikit-learn is asked itself, without the runtime around it.
        """
        found = []
        for folder in folders:
            runtime, times = self._loaded[folder], []
            estimator = getattr(runtime, "estimator", None)
            ask = runtime.predict_batch if estimator is None else estimator.predict
            for _ in range(_ROUNDS + 2):
                row = self._some(folder, 1)
                started = time.perf_counter()
                ask(row)
                times.append((time.perf_counter() - started) * 1e6)
            found.append(float(np.median(times[2:])))
        return found

    def work(self, seconds: float, seed: int) -> float:
        """Ask pipelines at random for one row after the other; returns rows a second."""
        random, folders, asked = np.random.default_rng(seed), [*self._loaded], 0
        order = random.integers(0, len(folders), 1 << 16).tolist()
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            folder = folders[order[asked % len(order)]]
            self._loaded[folder].predict_batch(self._some(folder, 1))
            asked += 1
        return asked / (time.perf_counter() - started)

    def together(self, folders: Sequence[str], rows: int) -> list[float]:
        """Ask several pipelines about the same batches in turn; returns the milliseconds of each."""
        times: list[list[float]] = [[] for _ in folders]
        for turn in range(_ROUNDS):
            for number, folder in enumerate(folders):
                batch = self._some(folder, rows, (turn + 1) << 30)
                started = time.perf_counter()
                self._loaded[folder].predict_batch(batch)
                times[number].append((time.perf_counter() - started) * 1e3)
        return [float(np.median(each)) for each in times]

    def answers(self, folder: str) -> list[Any]:
        """Return the answers to all rows, as they are in hexadecimal where they are floats."""
        found = self._loaded[folder].predict_batch(self._rows[family_of(folder)]).answers
        return [each.hex() if isinstance(each, float) else each for each in np.asarray(found).tolist()]

    def pss_mib(self) -> float:
        """Return this process's share of the memory that it uses."""
        return pss_mib(os.getpid())


def family_of(folder: str) -> str:
    """Return the family of a package, by the name of its folder."""
    return Path(folder).name.split("-")[0]


def pss_mib(pid: int) -> float:
    """Return the proportional set size of a process: pages that n processes share count for 1/n."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def main(way: str) -> None:
    """Obey line by line."""
    pipelines = Pipelines(way)
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        act: Callable[..., object] = getattr(pipelines, command)
        print(json.dumps(act(*arguments)), file=output, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
