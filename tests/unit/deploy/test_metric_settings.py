"""Metrics in a settings file, and in the record that is published."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from deploy.config.settings import ApplicationSettings
from deploy.state.metrics import recorded, written
from schemas.records import Metric

GIVEN = {
    "revenue": {"better": "higher", "span": [-20, 200], "unit": "EUR", "absent": 0, "guardrail": 0.5},
    "latency": {"of": "latency", "span": 500, "guardrail": 5},
    "price": {"of": "price", "span": 0.1, "unit": "EUR", "prices": {"big": 0.02}},
}


def test_a_settings_file_says_what_is_measured() -> None:
    """Latencies are in ms, whatever is written; one number is the upper end of the span."""
    app = ApplicationSettings.model_validate({"models": ["big"], "metrics": GIVEN})
    assert recorded(app) == (
        Metric("revenue", "feedback", True, -20.0, 200.0, "EUR", 0.5, 0.0),
        Metric("latency", "latency", False, 0.0, 500.0, "ms", 5.0),
        Metric("price", "price", False, 0.0, 0.1, "EUR", prices={"big": 0.02}),
    )


def test_what_is_published_can_be_written_as_settings_again() -> None:
    """There and back it says the same."""
    made = recorded(ApplicationSettings.model_validate({"models": ["big"], "metrics": GIVEN}))
    assert recorded(ApplicationSettings.model_validate({"models": ["big"], "metrics": written(made)})) == made


def test_a_metric_needs_its_span() -> None:
    """Without one nothing bounds what a single value may do to a mean."""
    with pytest.raises(ValidationError, match="span"):
        ApplicationSettings.model_validate({"models": ["big"], "metrics": {"revenue": {}}})
