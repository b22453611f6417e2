"""The steps of arrays (n, f): scikit-learn's operations, in its order, its dtypes and its layout in memory.

So the numbers are the same to the bit in the same batch. What scikit-learn checks before each of them is left out: rows
have been checked when they came.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from workers.errors import PackageError
from workers.runtimes.linear import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from workers.runtimes.stages.steps import FittedStep

_KEPT_BYTES = 1 << 20  # larger buffers are made anew for each batch


class Buffers(threading.local):
    """Buffers for the results of steps, for all models that one thread runs."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[int, int], NDArray[np.float64]] = {}

    def take(self, place: int, rows: int, columns: int) -> NDArray[np.float64]:
        """Return an array (rows, columns) for the result of a step; it is the caller's until that place is taken again.

        Args:
            place: of the step in its plan.
            rows: of the batch.
            columns: of the result.
        """
        found = self._arrays.get((place, columns))
        if found is None or len(found) < rows:
            found = np.empty((1 << (rows - 1).bit_length(), columns))
            if found.nbytes <= _KEPT_BYTES:
                self._arrays[place, columns] = found
        return found[:rows]


class Operation(Protocol):
    """A step of arrays."""

    def columns(self, given: int) -> int:
        """Return how many columns it makes of so many.

        Raises:
            PackageError: it does not take so many.
        """
        ...

    def run(self, rows: NDArray[np.generic], out: NDArray[np.float64] | None) -> NDArray[np.generic]:
        """Return its result for a batch, in `out` if that is given and can be used."""
        ...


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Scaling:
    """Scales each column."""

    operations: Sequence[tuple[str, NDArray[np.generic]]]

    @classmethod
    def of(cls, step: FittedStep) -> Scaling:
        """Read the step.

        Raises:
            PackageError: it is not such a step.
        """
        found = [(name.partition("_")[2], operand) for name, operand in step.arrays.items()]
        if unknown := {name for name, _ in found}.difference(OPERATIONS):
            raise PackageError(f"unknown: {', '.join(unknown)}")
        return cls(found)

    def columns(self, given: int) -> int:
        """Return how many columns it makes of so many."""
        if any(operand.shape != ((2,) if name == "clip" else (given,)) for name, operand in self.operations):
            raise PackageError(f"a scaler does not take {given} columns")
        return given

    def run(self, rows: NDArray[np.generic], out: NDArray[np.float64] | None) -> NDArray[np.generic]:
        """Return its result for a batch."""
        scaled = rows.astype(np.float64) if out is None else out
        if out is not None:
            np.copyto(out, rows)
        for name, operand in self.operations:
            if name == "clip":
                np.clip(scaled, operand[0], operand[1], out=scaled)
            else:
                getattr(np, name)(scaled, operand, out=scaled)
        return scaled


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Projecting:
    """Projects onto components, as PCA does."""

    components: NDArray[np.float64]  # (k, f)
    offset: NDArray[np.float64]  # (1, k)
    scale: NDArray[np.float64] | None  # (k,)

    @classmethod
    def of(cls, step: FittedStep) -> Projecting:
        """Read the step."""
        components, mean = _floats(step, "components"), _floats(step, "mean")
        scale = _floats(step, "scale") if "scale" in step.arrays else None
        return cls(components, mean.reshape(1, -1) @ components.T, scale)

    def columns(self, given: int) -> int:
        """Return how many columns it makes of so many."""
        return _fitting(self.components, given)

    def run(self, rows: NDArray[np.generic], out: NDArray[np.float64] | None) -> NDArray[np.generic]:
        """Return its result for a batch."""
        found: NDArray[np.float64] = np.matmul(rows, self.components.T, out=out)
        found -= self.offset
        if self.scale is not None:
            found /= self.scale
        return found


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Distances:
    """Measures the distances from centres, as KMeans does."""

    centers: NDArray[np.float64]  # (k, f)
    squares: NDArray[np.float64]  # (1, k)

    @classmethod
    def of(cls, step: FittedStep) -> Distances:
        """Read the step."""
        centers = _floats(step, "centers")
        return cls(centers, np.einsum("ij,ij->i", centers, centers)[None, :])

    def columns(self, given: int) -> int:
        """Return how many columns it makes of so many."""
        return _fitting(self.centers, given)

    def run(self, rows: NDArray[np.generic], out: NDArray[np.float64] | None) -> NDArray[np.generic]:
        """Return its result for a batch."""
        found: NDArray[np.float64] = np.matmul(rows, self.centers.T, out=out)
        found *= -2
        found += np.einsum("ij,ij->i", rows, rows)[:, None]  # type: ignore[arg-type] # floats
        found += self.squares
        np.maximum(found, 0, out=found)
        return np.sqrt(found, out=found)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Columns:
    """Takes some columns."""

    chosen: list[int]

    @classmethod
    def of(cls, step: FittedStep) -> Columns:
        """Read the step."""
        return cls(step.arrays["columns"].astype(np.int64).tolist())

    def columns(self, given: int) -> int:
        """Return how many columns it makes of so many."""
        if not all(0 <= column < given for column in self.chosen):
            raise PackageError(f"a column lies outside of {given}")
        return len(self.chosen)

    def run(self, rows: NDArray[np.generic], out: NDArray[np.float64] | None) -> NDArray[np.generic]:
        """Return its result for a batch."""
        return rows[:, self.chosen]  # its layout is scikit-learn's, which decides the last bits of later products


def _floats(step: FittedStep, name: str) -> NDArray[np.float64]:
    return step.arrays[name].astype(np.float64, copy=False)


def _fitting(operand: NDArray[np.float64], given: int) -> int:
    if operand.ndim != 2 or operand.shape[1] != given:
        raise PackageError(f"a step takes {operand.shape[-1]} columns, not {given}")
    return len(operand)
