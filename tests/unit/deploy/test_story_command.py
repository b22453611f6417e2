"""What a person types after `skysail story`."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from deploy.cli.story import TimeOption, story
from deploy.errors import UsageError


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("2026-11-27T12:30", 1_795_782_600_000_000),
        ("2026-11-27T13:30+01:00", 1_795_782_600_000_000),
        ("1795782600", 1_795_782_600_000_000),
        ("1795782600123", 1_795_782_600_123_000),
    ],
)
def test_a_time_may_be_written_in_several_ways(text: str, time_us: int) -> None:
    """UTC where it does not say; seconds or milliseconds since the epoch."""
    assert TimeOption().convert(text, None, None) == time_us


def test_what_is_no_time_says_how_to_write_one() -> None:
    """With an example."""
    with pytest.raises(click.BadParameter, match="2026-11-27T12:30"):
        TimeOption().convert("noon", None, None)


@pytest.mark.parametrize("arguments", [[], ["q1", "--application", "digits"]], ids=["nothing", "both"])
def test_either_a_query_or_an_application_is_named(arguments: list[str]) -> None:
    """Neither or both is refused before anything is read."""
    with pytest.raises(UsageError, match="either QUERY_ID or --application"):
        CliRunner().invoke(story, arguments, catch_exceptions=False)
