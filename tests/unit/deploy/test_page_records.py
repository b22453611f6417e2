"""Who may read records on the page of a deployment that has no tokens."""

from __future__ import annotations

import pytest

from deploy.config.settings import Settings
from deploy.system.page import shows_records


@pytest.mark.parametrize(
    ("control", "security", "are_shown"),
    [
        ({}, "PLAINTEXT", True),
        ({"names": ["sky.example"]}, "PLAINTEXT", False),
        ({"host": "0.0.0.0"}, "PLAINTEXT", False),
        ({}, "SASL_SSL", False),
    ],
)
def test_records_are_open_only_where_nobody_else_comes(
    control: dict[str, object],
    security: str,
    are_shown: bool,
) -> None:
    """A name in `control.names` is a proxy's: what listens here alone is then reached by others."""
    kafka = {"properties": {"security_protocol": security}}
    settings = Settings.model_validate({"control": control, "kafka": kafka})
    assert shows_records(settings) == are_shown
