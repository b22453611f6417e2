"""An application's metrics, as settings have them and as its record does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policies.metrics import LATENCY, MILLISECONDS
from schemas.records import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.config.settings import ApplicationSettings, MetricSettings

_HIGHER, _LOWER = "higher", "lower"


def recorded(app: ApplicationSettings) -> tuple[Metric, ...]:
    """Return the metrics of an application's record."""
    return tuple([_recorded(name, given) for name, given in app.metrics.items()])


def _recorded(name: str, given: MetricSettings) -> Metric:
    unit = MILLISECONDS if given.of == LATENCY else given.unit
    is_higher_better = given.better == _HIGHER
    return Metric(name, given.of, is_higher_better, *given.ends, unit, given.guardrail, given.absent, given.prices)


def written(metrics: Sequence[Metric]) -> dict[str, dict[str, Any]]:
    """Return metrics as settings have them."""
    return {metric.name: _written(metric) for metric in metrics}


def _written(metric: Metric) -> dict[str, Any]:
    told = {"of": metric.of, "better": _HIGHER if metric.is_higher_better else _LOWER, "unit": metric.unit}
    numbers = {"guardrail": metric.guardrail, "absent": metric.absent, "prices": dict(metric.prices)}
    return told | numbers | {"span": [metric.least, metric.most]}
