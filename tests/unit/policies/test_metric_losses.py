"""Metrics beside the loss: values as losses, prices of asking, and what is refused."""

from __future__ import annotations

import pytest

from policies.metrics import faults_of, loss_of, price_of
from schemas.records import Metric, ModelOutput, Outcome, Step

REVENUE = Metric("revenue", is_higher_better=True, least=-50.0, most=150.0, unit="EUR")


@pytest.mark.parametrize(("value", "loss"), [(150.0, 0.0), (-50.0, 1.0), (100.0, 0.25), (1e9, 0.0), (-1e9, 1.0)])
def test_more_of_what_is_good_is_less_loss(value: float, loss: float) -> None:
    """Values outside of the span count as its nearest end: one order of a million decides nothing."""
    assert loss_of(REVENUE, value) == loss


def test_less_of_what_is_bad_is_less_loss() -> None:
    """A time of a quarter of the span costs a quarter."""
    assert loss_of(Metric("latency", "latency", most=200.0), 50.0) == 0.25


def test_asking_is_paid_for_each_question() -> None:
    """A hedge asks twice, what was refused for overload was not asked, and a version may have a price of its own."""
    price = Metric("price", "price", prices={"big": 2.0, "big@2": 3.0, "small": 0.5})
    outputs = [
        ModelOutput("big", "2", Outcome.OK, 1),
        ModelOutput("small", "1", Outcome.MISSING, None),
        ModelOutput("free", "1", Outcome.OK, 1),
    ]
    hedge = Step("hedge", (1,), 0, 1.0, "asked")
    kept = Step("escalate", (0,), 0, 1.0, "kept")
    assert price_of(price, outputs, (), ("big", "small", "free")) == 3.5
    assert price_of(price, outputs, (hedge, kept), ("big", "small", "free")) == 4.0
    assert price_of(price, [ModelOutput("big", "1", Outcome.OVERLOADED, None)], (), ("big",)) == 0.0


@pytest.mark.parametrize(
    ("metric", "fault"),
    [
        (Metric("m", "money"), "feedback, latency, price"),
        (Metric("m", least=1.0, most=1.0), "its span must rise"),
        (Metric("m", most=float("nan")), "finite"),
        (Metric("m", guardrail=-1.0), "0 at least"),
        (Metric("m", "latency", absent=0.0), "absent"),
        (Metric("m", "price"), "prices"),
        (Metric("m", prices={"a": 1.0}), "prices"),
        (Metric("m", "price", prices={"a": -1.0}), "a price is 0 at least"),
        (Metric(""), "characters"),
    ],
)
def test_impossible_metrics_are_refused(metric: Metric, fault: str) -> None:
    """Each with its reason."""
    assert fault in " ".join(faults_of([metric]))


def test_a_name_is_there_once_and_possible_metrics_pass() -> None:
    """Feedback names the metric alone."""
    assert "one name" in " ".join(faults_of([REVENUE, REVENUE]))
    assert not [*faults_of([REVENUE, Metric("price", "price", prices={"a": 1.0})])]
