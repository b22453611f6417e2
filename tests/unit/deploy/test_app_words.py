"""`skysail app show` as people read it."""

from __future__ import annotations

import pytest

from deploy.cli.app import _worded


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "none"),
        (True, "true"),
        (600.0, "600"),
        (("svc", "forest"), "svc, forest"),
        ((), "none"),
        ({"eta": 0.1}, "eta=0.1"),
        ("exp3", "exp3"),
        (-1, "-1"),
        ("", "none"),
    ],
)
def test_values_are_shown_as_they_are_typed(value: object, said: str) -> None:
    """No tuple, no dictionary and no None of Python's."""
    assert _worded(value) == said
