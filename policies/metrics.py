"""Metrics beside the loss: a value in its unit, and the same as a loss in [0, 1].

    loss = (value - least) / (most - least), or 1 less that where more is better; outside, the nearest end counts

All that judges candidates bounds means of losses. What it finds is told in the unit: a loss of 1 is `width` of it.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.records import Metric, ModelOutput, Step

FEEDBACK: Final = "feedback"
LATENCY: Final = "latency"
PRICE: Final = "price"
KINDS: Final = (FEEDBACK, LATENCY, PRICE)
MILLISECONDS: Final = "ms"
MOST: Final = 16  # metrics of an application
_LONGEST: Final = 63
_HEDGE, _ASKED = "hedge", "asked"
_NOT_ASKED: Final = "overloaded"


def width(metric: Metric) -> float:
    """Return what a loss of 1 is in the unit."""
    return metric.most - metric.least


def loss_of(metric: Metric, value: float) -> float:
    """Return a value as a loss.

    Examples:
        >>> from schemas.records import Metric
        >>> loss_of(Metric("revenue", is_higher_better=True, most=200.0), 50.0)
        0.75
    """
    part = min(1.0, max(0.0, (value - metric.least) / width(metric)))
    return 1.0 - part if metric.is_higher_better else part


def price_of(metric: Metric, outputs: Sequence[ModelOutput], steps: Sequence[Step], arms: Sequence[str]) -> float:
    """Return what it costs to ask the models of an answer.

    One whose answer was remembered counts as asked: a price tells what a model costs, not whose input came second.

    Args:
        metric: with its prices.
        outputs: of the models that were asked.
        steps: of the answer: a hedge has asked its model twice.
        arms: names of the models, by which steps name them.
    """
    named = {output.model: output.version for output in outputs}
    asked = [output.model for output in outputs if output.outcome.value != _NOT_ASKED]
    again = [arms[arm] for step in steps if (step.kind, step.outcome) == (_HEDGE, _ASKED) for arm in step.arms]
    return sum([_price(metric, model, named.get(model, "")) for model in (*asked, *again)])


def _price(metric: Metric, model: str, version: str) -> float:
    prices = metric.prices
    return prices.get(f"{model}@{version}", prices.get(model, 0.0))


def faults_of(metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield what is impossible about an application's metrics."""
    if len(metrics) > MOST:
        yield f"it has {len(metrics)} metrics, more than {MOST}"
    if len({metric.name for metric in metrics}) < len(metrics):
        yield "two of its metrics have one name"
    for metric in metrics:
        yield from (f"metric {metric.name!r:.80}: {fault}" for fault in _faults(metric))


def _faults(metric: Metric) -> Iterator[str]:
    numbers = (metric.least, metric.most, metric.guardrail, metric.absent, *metric.prices.values())
    if not metric.name or len(metric.name) > _LONGEST:
        yield f"a name has 1 to {_LONGEST} characters"
    if metric.of not in KINDS:
        yield f"it is of one of {', '.join(KINDS)}"
    if not all(isfinite(number) for number in numbers if number is not None):
        yield "its numbers must be finite"
    elif not metric.least < metric.most:
        yield "its span must rise"
    if metric.guardrail is not None and not metric.guardrail >= 0.0:
        yield "guardrail is how much worse it may get, 0 at least"
    if metric.absent is not None and metric.of != FEEDBACK:
        yield "absent is of a metric that is told"
    if bool(metric.prices) != (metric.of == PRICE):
        yield "prices are for `of: price`, which needs some"
    if any(price < 0.0 for price in metric.prices.values()):
        yield "a price is 0 at least"
