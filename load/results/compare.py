"""Compares two results of a scenario: which figures count, which direction is better, how much they may differ.

The tolerances come from the spread between equal runs on a busy two-core machine (medians of three differed by 20 %
without a cause); figures that are exact by nature have none. What matches no rule is shown and never fails.
"""

from __future__ import annotations

import enum
import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING

from load.harness.arrivals import POISSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.results.results import Result


class Better(enum.Enum):
    """Which direction is an improvement."""

    HIGHER = 1
    LOWER = -1


@dataclass(frozen=True, slots=True)
class Rule:
    """Figures that match `pattern` may get worse by `relative` of the base or by `absolute`, whichever is more."""

    pattern: str
    better: Better
    relative: float
    absolute: float = 0.0


# The first rule that matches counts.
RULES = (
    Rule("*lost", Better.LOWER, 0.0),
    Rule("*unanswered", Better.LOWER, 0.0),
    Rule("*duplicates", Better.LOWER, 0.0),
    *(Rule(name, Better.LOWER, 0.0) for name in ("roles_ended", "faults", "violations")),
    Rule("least_in_time", Better.HIGHER, 0.0, 0.01),
    Rule("simulated_hours", Better.HIGHER, 0.0),
    Rule("*wrong*", Better.LOWER, 0.0),
    Rule("*defaults", Better.LOWER, 0.5),
    Rule("*parts_failed", Better.LOWER, 0.0),
    Rule("*unserved_more", Better.LOWER, 0.0),
    Rule("*right", Better.HIGHER, 0.0),
    Rule("*_seen", Better.HIGHER, 0.0),
    *(Rule(f"{lane}_in_time", Better.HIGHER, 0.0, 0.001) for lane in ("models_*", "left_out", "replaced", "not_asked")),
    Rule("*_late_share", Better.LOWER, 0.0, 0.05),
    Rule("*_saved", Better.HIGHER, 0.2),
    Rule("*hit_ratio", Better.HIGHER, 0.0, 0.005),
    Rule("*_off_reference", Better.LOWER, 0.0),
    Rule("*_off_lru", Better.LOWER, 0.0, 0.005),
    Rule("*_off_mean", Better.LOWER, 0.0, 0.05),
    Rule("confidence_off", Better.LOWER, 0.0),
    Rule("*_difference", Better.LOWER, 0.0, 1e-5),
    Rule("best_missing_costs", Better.LOWER, 0.0, 0.004),
    Rule("saved_over_*", Better.HIGHER, 0.0, 0.01),
    Rule("*error*", Better.LOWER, 0.0, 0.004),  # three standard deviations of Exp3 between seeds (.0012)
    Rule("*within_slo", Better.HIGHER, 0.0, 0.005),
    Rule("*flat_per_s", Better.HIGHER, 0.4),  # one of a few shares of the rate: from .75 to .5 is one step
    Rule("*_per_s", Better.HIGHER, 0.25),
    Rule("*_per_core_s", Better.HIGHER, 0.25),
    Rule("scale_*", Better.HIGHER, 0.1),
    Rule("*_over_lowest", Better.HIGHER, 0.3),
    Rule("*share_of_best", Better.HIGHER, 0.05),
    Rule("*_least_*share", Better.HIGHER, 0.05),
    Rule("default_behind", Better.LOWER, 0.0, 0.05),
    Rule("*ing_batches", Better.LOWER, 0.5, 2.0),
    Rule("backoff_batches", Better.LOWER, 0.0, 1.0),
    Rule("*ratio_flat", Better.HIGHER, 0.4),
    Rule("*ratio_rate", Better.HIGHER, 0.2),  # both parts come from one run, so the machine's share cancels
    Rule("*ratio*", Better.LOWER, 0.3),
    Rule("*gain*", Better.HIGHER, 0.2),
    Rule("*kept*", Better.HIGHER, 0.0, 0.05),
    Rule("*cpu_us*", Better.LOWER, 0.25),
    Rule("*sender_late*", Better.LOWER, 9.0, 50.0),  # of the harness, not of what it measures
    Rule("*p50_ms", Better.LOWER, 0.5, 1.0),
    Rule("*p95_ms", Better.LOWER, 0.7, 5.0),
    Rule("*p99_ms", Better.LOWER, 1.0, 10.0),
    Rule("*p999_ms", Better.LOWER, 2.0, 40.0),
    Rule("*_over_deadline_ms", Better.LOWER, 0.0, 5.0),
    *(Rule(f"{switch}_s", Better.LOWER, 1.0, 0.5) for switch in ("there", "back", "canary")),
    Rule("*_outage_s", Better.LOWER, 0.5, 2.0),
    Rule("*_mib", Better.LOWER, 0.1),
    Rule("*_mib_per_million", Better.LOWER, 0.0, 30.0),
    Rule("contexts_*_states", Better.LOWER, 0.0),
    Rule("*_other", Better.LOWER, 0.0, 0.05),
    Rule("*_cores", Better.LOWER, 0.3, 0.02),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in both results; `rule` is None for figures that are only shown."""

    figure: str
    base: float
    head: float
    rule: Rule | None

    @property
    def worse(self) -> bool:
        """Whether the figure got worse by more than its rule allows."""
        if self.rule is None:
            return False
        loss = (self.base - self.head) * self.rule.better.value
        return loss > max(self.rule.relative * abs(self.base), self.rule.absolute)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All figures of two results; figures that only one of them has are named, not compared."""

    scenario: str
    changes: tuple[Change, ...]
    only_base: tuple[str, ...]
    only_head: tuple[str, ...]

    @property
    def worse(self) -> tuple[Change, ...]:
        """The changes that fail the comparison."""
        return tuple(change for change in self.changes if change.worse)


def compare(base: Result, head: Result) -> Comparison:
    """Compare two runs of the same scenario.

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
            Change(name, base.figures[name], head.figures[name], rule_of(name))
            for name in base.figures
            if name in head.figures
        ),
        only_base=_missing(base.figures, head.figures),
        only_head=_missing(head.figures, base.figures),
    )


def rule_of(figure: str) -> Rule | None:
    """Return the rule for a figure, None if it is only shown."""
    return next((rule for rule in RULES if fnmatch.fnmatchcase(figure, rule.pattern)), None)


def _missing(these: Mapping[str, float], those: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(name for name in these if name not in those)
