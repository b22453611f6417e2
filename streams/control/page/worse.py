"""Alerts of losses that have risen: whose, since when, and how far."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streams.control.page.page_types import Alert, of, skysail
from streams.operators.statistics import MAX_LABELS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from streams.control.figures import Figures
    from streams.control.losses import WorseLoss


def worse(found: Sequence[WorseLoss]) -> Iterator[Alert]:
    """Return an alert for each application whose answers, or whose models' answers, have become worse."""
    for application in sorted({each.application for each in found}):
        served = next((each for each in found if each.application == application and not each.model), None)
        models = [each for each in found if each.application == application and each.model]
        yield _served(served, models) if served else _models(application, models)


def of_existing(found: Sequence[WorseLoss], names: Collection[str], live: Sequence[Figures]) -> Sequence[WorseLoss]:
    """Leave out applications that were removed, where the page knows all that exist.

    It does where selection processes report, and none has so many figures that it may have left out applications.

    Args:
        found: what has risen.
        names: of the applications that are deployed, or were answered lately.
        live: the processes that report.
    """
    sizes = [len(each["counters"]) + len(each["gauges"]) for each in live if each["role"] == "selection"]
    if not sizes or max(sizes) > MAX_LABELS:
        return found
    return [each for each in found if each.application in names]


def _served(served: WorseLoss, models: Sequence[WorseLoss]) -> Alert:
    told = ", ".join(f"{each.model} {_levels(each)}" for each in models)
    whose = f"of its models {told}" if told else "no model alone"
    text = (
        f"answers of {served.application} have become worse: loss {_levels(served)}, since {_time(served.since_us)};"
        f" {whose}. Inputs, labels or models have changed"
    )
    return of(served.application, Alert(level="bad", text=text, command=skysail("app", "show", served.application)))


def _models(application: str, models: Sequence[WorseLoss]) -> Alert:
    """Tell of models that became worse while what is served did not: the policy asks others."""
    told = ", ".join(f"{each.model} {_levels(each)}, since {_time(each.since_us)}" for each in models)
    text = f"{application}: a model has become worse, what is served has not: loss of {told}"
    return of(application, Alert(level="warn", text=text, command=skysail("app", "show", application)))


def _levels(each: WorseLoss) -> str:
    return f"{each.before:.2f} → {each.now:.2f}"


def _time(time_us: int) -> str:
    return f"{datetime.fromtimestamp(time_us / 1e6, UTC):%H:%M} UTC"
