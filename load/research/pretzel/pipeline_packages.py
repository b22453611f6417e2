"""Packages of pipelines at several degrees of sharing, and the processes that hold them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from load.models.pipelines import FAMILIES, Operators
from load.research.pretzel.pipeline_process import pss_mib
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SHARINGS: Final = (100, 50, 0)  # per cent of the pipelines that have their family's common operators
HELD_OUT: Final = 400  # rows of a family, for answers and times
_MODULE: Final = "load.research.pretzel.pipeline_process"
_SAMPLE: Final = 8


class Packages:
    """Packages in a folder, made when they are first asked for.

    Args:
        folder: for them.
        seed: of all operators.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._common = {family: Operators(family, 1_000 * seed + place) for place, family in enumerate(FAMILIES)}

    def rows(self) -> dict[str, str]:
        """Write rows that nothing was fitted on; returns the files by family."""
        files = {}
        for family, operators in self._common.items():
            rows, path = operators.rows(HELD_OUT), self._folder / family
            if isinstance(rows, np.ndarray):
                np.save(path.with_suffix(".npy"), rows)
                files[family] = str(path.with_suffix(".npy"))
            else:
                path.with_suffix(".txt").write_text("\n".join(rows))
                files[family] = str(path.with_suffix(".txt"))
        return files

    def of(self, count: int, sharing: int, *, whole: bool = False) -> list[str]:
        """Return the folders of the first pipelines, by turns of each family.

        Args:
            count: of them.
            sharing: per cent that have the common operators.
            whole: as scikit-learn's estimators, not in steps.
        """
        return [str(self._one(number, is_common=is_common(number, sharing), whole=whole)) for number in range(count)]

    def _one(self, number: int, *, is_common: bool, whole: bool) -> Path:
        family = FAMILIES[number % len(FAMILIES)]
        form = "whole" if whole else "steps"
        folder = self._folder / f"{family}-{number}-{'common' if is_common else 'own'}-{form}"
        if folder.exists():
            return folder
        operators = self._common[family] if is_common else Operators(family, 1_000 * self._seed + 10 + number)
        pipeline = operators.pipeline(number)
        options: dict[str, Any] = {"convert": "none", "allow_pickle": True} if whole else {"convert": "stages"}
        package_sklearn(pipeline, folder, f"{family}-{number}", "1", operators.rows(_SAMPLE), **options)
        return folder


def is_common(number: int, sharing: int) -> bool:
    """Tell whether a pipeline has the common operators: that share of each family, spread evenly."""
    place = number // len(FAMILIES)
    return (place + 1) * sharing // 100 > place * sharing // 100


class Process:
    """A process of pipelines, which is asked line by line."""

    def __init__(self, way: str) -> None:
        self._child = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-m", _MODULE, way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    def tell(self, command: str, *arguments: object) -> None:
        """Ask, and do not wait."""
        assert self._child.stdin is not None, "it is a pipe"
        self._child.stdin.write(json.dumps([command, *arguments]) + "\n")
        self._child.stdin.flush()

    def hear(self) -> Any:
        """Wait for what it says.

        Raises:
            RuntimeError: it has ended.
        """
        assert self._child.stdout is not None, "it is a pipe"
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of pipelines has ended with {self._child.wait()}")
        return json.loads(line)

    def ask(self, command: str, *arguments: object) -> Any:
        """Ask, and wait."""
        self.tell(command, *arguments)
        return self.hear()

    def pss_mib(self) -> float:
        """Return its share of the memory that it uses."""
        return pss_mib(self._child.pid)

    def end(self) -> None:
        """End it."""
        self._child.kill()
        self._child.communicate()


@contextmanager
def processes(way: str, rows: dict[str, str], count: int = 1) -> Iterator[Sequence[Process]]:
    """Start processes that know the rows, and end them."""
    started: list[Process] = []
    try:
        for _ in range(count):
            started.append(Process(way))
            started[-1].ask("rows", rows)
        yield started
    finally:
        for process in started:
            process.end()
