"""Judges a result by the targets of its scenario.

One that is missed stands on the page of its scenario, too.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from load.figures import Figures, Target
    from load.results.results import Result

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was measured; None = the result has no such figure, which is a failure too."""

    target: Target
    measured: float | None

    @property
    def reached(self) -> bool:
        """Whether the bound holds."""
        return self.measured is not None and _COMPARE[self.target.relation](self.measured, self.target.bound)


def verdicts(result: Result, figures: Figures) -> list[Verdict]:
    """Judge a result by those targets of its scenario's figures that apply to it."""
    return [
        Verdict(target, result.figures.get(target.figure)) for target in figures.targets if _applies(target, result)
    ]


def not_judged(result: Result, figures: Figures) -> list[Target]:
    """Return the targets that hold for other data than this result was measured on."""
    return [target for target in figures.targets if not _applies(target, result)]


def _applies(target: Target, result: Result) -> bool:
    return target.only_with is None or result.parameters.get(target.only_with[0]) == target.only_with[1]
