"""A difference of mean losses in the unit of what mistakes cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.errors import PolicyError
from policies.loss_rules import rule, unit_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import Application
    from streams.promotion.evidence import Evidence


def priced(applications: Iterable[Application], evidence: Evidence) -> str:
    """Say by how much a candidate costs less a query, with bounds; empty = its applications have not one such unit.

    Where feedback has weights, the difference is that of w times the loss, which no unit tells.
    """
    units = {_unit(each) for each in applications}
    worth, unit = units.pop() if len(units) == 1 else (None, "")
    if worth is None:
        return ""
    mean, lower, upper = [worth * each for each in (evidence.difference, evidence.lower, evidence.upper)]
    return f" (it costs {mean:.4g} [{lower:.4g}, {upper:.4g}]{unit and ' '}{unit} less a query)"


def _unit(application: Application) -> tuple[float | None, str]:
    try:
        judged = rule(application.loss)
    except PolicyError:  # of a package that is not installed here
        return None, ""
    worth = judged.worth(judged.span if application.span is None else application.span)
    return (worth, unit_of(application.loss)) if application.max_weight == 1.0 else (None, "")
