"""Compares two results of a scenario: which figures got worse by more than their declarations allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from load.harness.arrivals import POISSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.figures import Figure, Figures
    from load.results.results import Result


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in both results; `declared` is None for one that its scenario does not declare, which never fails."""

    figure: str
    base: float
    head: float
    declared: Figure | None

    @property
    def judged(self) -> bool:
        """Whether one direction of it is worse than the other."""
        return self.declared is not None and self.declared.better is not None

    @property
    def worse(self) -> bool:
        """Whether the figure got worse by more than its declaration allows."""
        return self.declared is not None and not self.declared.allows(self.base, self.head)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All figures of two results; one that the second has no more fails, one that it has beside is named."""

    scenario: str
    changes: tuple[Change, ...]
    only_base: tuple[str, ...]
    only_head: tuple[str, ...]

    @property
    def worse(self) -> tuple[Change, ...]:
        """The changes that fail the comparison."""
        return tuple(change for change in self.changes if change.worse)

    @property
    def failed(self) -> bool:
        """Whether a figure got worse, or is gone: a lane that ends before it is measured has not held."""
        return bool(self.worse or self.only_base)


def compare(base: Result, head: Result, figures: Figures) -> Comparison:
    """Compare two runs of the same scenario, by its declared figures.

    Raises:
        ValueError: they are of different scenarios or forms, or their queries arrived otherwise.
    """
    if base.scenario != head.scenario:
        raise ValueError(f"{base.scenario!r} and {head.scenario!r} are different scenarios; compare runs of one")
    before, after = (result.parameters.get("arrivals", POISSON.name) for result in (base, head))
    if before != after:
        raise ValueError(f"the arrivals were {before} and {after}; compare runs with the same --arrivals")
    forms = tuple(str(result.parameters["form"]) for result in (base, head) if "form" in result.parameters)
    if len({*forms}) > 1:
        raise ValueError(f"the forms were {' and '.join(forms)}; compare runs both with --short or both without")
    return Comparison(
        scenario=base.scenario,
        changes=tuple(
            Change(name, base.figures[name], head.figures[name], figures.of(name))
            for name in base.figures
            if name in head.figures
        ),
        only_base=_missing(base.figures, head.figures),
        only_head=_missing(head.figures, base.figures),
    )


def _missing(these: Mapping[str, float], those: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(name for name in these if name not in those)
