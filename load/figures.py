"""Figures: what a scenario measures, which direction is better, how much may be lost, and what must be reached.

A scenario declares each of its figures once, beside its computation. `skysail load run --check` judges a result by the
bounds. `skysail load compare` judges two results by the tolerances. These come from the spread between equal runs on a
busy two-core machine, where medians of three differed by 20 % without a cause. Exact figures have no tolerance.
"""

from __future__ import annotations

import enum
import fnmatch
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WITHOUT_UNIT = ""


class Better(enum.Enum):
    """Which direction is an improvement."""

    HIGHER = 1
    LOWER = -1


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of a figure; `only_with` names a parameter's value without which the bound does not apply."""

    relation: Literal["<=", ">=", "=="]
    bound: float
    only_with: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A bound and the figure that it is for."""

    figure: str
    relation: Literal["<=", ">=", "=="]
    bound: float
    only_with: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """The declaration of a figure.

    Attributes:
        name: permanent; `*` stands for what only the run knows, such as the name of a model.
        unit: of the value; empty = a count, a share or a ratio.
        better: which direction is an improvement; None = the figure is shown and never fails.
        relative: how much worse it may get, as a share of the base.
        absolute: the same in its unit; whichever allows more counts.
        must: what it must reach.
    """

    name: str
    unit: str
    better: Better | None = None
    relative: float = 0.0
    absolute: float = 0.0
    must: tuple[Bound, ...] = ()

    def allows(self, base: float, head: float) -> bool:
        """Tell whether the figure may change so between two runs."""
        if self.better is None:
            return True
        loss = (base - head) * self.better.value
        return loss <= max(self.relative * abs(base), self.absolute)


@dataclass(frozen=True, slots=True)
class Kind:
    """Figures with the same unit, direction and tolerance; a call declares some."""

    unit: str
    better: Better | None = None
    relative: float = 0.0
    absolute: float = 0.0

    def __call__(self, *names: str, must: Bound | tuple[Bound, ...] = ()) -> tuple[Figure, ...]:
        """Declare figures of this kind, with the same bounds."""
        bounds = (must,) if isinstance(must, Bound) else must
        return tuple(Figure(name, self.unit, self.better, self.relative, self.absolute, bounds) for name in names)


class Figures:
    """All figures that a scenario declares; the first declaration that fits a name counts, exact ones before others."""

    def __init__(self, *groups: Iterable[Figure]) -> None:
        self._all = tuple(chain.from_iterable(groups))
        self._exact = {figure.name: figure for figure in reversed(self._all)}
        self._patterns = tuple(figure for figure in self._all if "*" in figure.name)

    def __iter__(self) -> Iterator[Figure]:
        """Yield the declarations in order."""
        return iter(self._all)

    def of(self, name: str) -> Figure | None:
        """Return the declaration of a figure, None where there is none."""
        fitting = (figure for figure in self._patterns if fnmatch.fnmatchcase(name, figure.name))
        return self._exact.get(name) or next(fitting, None)

    def after(self, prefix: str) -> tuple[Figure, ...]:
        """Return the declarations for a result that has these figures under longer names; they bind there no more."""
        return tuple(replace(figure, name=prefix + figure.name, must=()) for figure in self._all)

    @property
    def targets(self) -> tuple[Target, ...]:
        """All bounds, in order."""
        return tuple(
            Target(figure.name, bound.relation, bound.bound, bound.only_with)
            for figure in self._all
            for bound in figure.must
        )


def at_least(bound: float, only_with: tuple[str, str] | None = None) -> Bound:
    """Return a lower bound."""
    return Bound(">=", bound, only_with)


def at_most(bound: float, only_with: tuple[str, str] | None = None) -> Bound:
    """Return an upper bound."""
    return Bound("<=", bound, only_with)


def exactly(bound: float, only_with: tuple[str, str] | None = None) -> Bound:
    """Return the only value that a figure may have."""
    return Bound("==", bound, only_with)


NONE = exactly(0)
IN_FULL = ("form", "full")  # a bound that the short form cannot be held to

SHOWN = Kind(WITHOUT_UNIT)
FAULTS = Kind(WITHOUT_UNIT, Better.LOWER)  # what should not be there at all
RIGHT = Kind(WITHOUT_UNIT, Better.HIGHER)  # what should all be there
DEFAULTS = Kind(WITHOUT_UNIT, Better.LOWER, 0.5)
ERROR = Kind(WITHOUT_UNIT, Better.LOWER, 0.0, 0.004)  # three standard deviations of Exp3 between seeds (0.0012)
WITHIN_SLO = Kind(WITHOUT_UNIT, Better.HIGHER, 0.0, 0.005)
PER_S = Kind("1/s", Better.HIGHER, 0.25)
CPU_US = Kind("us", Better.LOWER, 0.25)
MIB = Kind("MiB", Better.LOWER, 0.1)
P50_MS = Kind("ms", Better.LOWER, 0.5, 1.0)
P95_MS = Kind("ms", Better.LOWER, 0.7, 5.0)
P99_MS = Kind("ms", Better.LOWER, 1.0, 10.0)
P999_MS = Kind("ms", Better.LOWER, 2.0, 40.0)
SHOWN_MS, SHOWN_US, SHOWN_S, SHOWN_MIB = Kind("ms"), Kind("us"), Kind("s"), Kind("MiB")
RATIO = Kind(WITHOUT_UNIT, Better.LOWER, 0.3)  # of times
RATIO_RATE = Kind(WITHOUT_UNIT, Better.HIGHER, 0.2)  # both parts come from one run, so the machine's share cancels
GAIN = Kind(WITHOUT_UNIT, Better.HIGHER, 0.2)
KEPT = Kind(WITHOUT_UNIT, Better.HIGHER, 0.0, 0.05)
SHARE_OF_BEST = Kind(WITHOUT_UNIT, Better.HIGHER, 0.05)
LEAST_FOR_P999 = 10_000  # answers; ten of them are beyond it
QUANTILES_MS = {"p50": P50_MS, "p95": P95_MS, "p99": P99_MS, "p999": P999_MS, "max": SHOWN_MS}


def quantiles_ms(prefix: str, *points: str) -> tuple[Figure, ...]:
    """Declare latencies: p50, p95, p99, p99.9 and the maximum, or some of them, each as `<prefix><point>_ms`.

    Of few answers there is no p99.9.
    """
    return tuple(chain.from_iterable(QUANTILES_MS[point](f"{prefix}{point}_ms") for point in points or QUANTILES_MS))
