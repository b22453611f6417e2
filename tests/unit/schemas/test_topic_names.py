"""Topic names and the names that go into them."""

from __future__ import annotations

import pytest

from schemas import topics
from schemas.errors import SchemaError


def test_topics_are_named_after_what_they_carry() -> None:
    """A model's queries and a topic's dead letters have names that can be read off."""
    assert topics.model_queries("forest-2") == "models.forest-2.queries"
    assert topics.dead_letters(topics.QUERIES) == "queries.dlq"


@pytest.mark.parametrize("name", ["a", "0", "forest-2", "x" * 63])
def test_good_names_are_returned(name: str) -> None:
    """Lower-case letters, digits and dashes, up to 63 of them."""
    assert topics.check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "A", "a_b", "a.b", "a b", "ä", "٣", "x" * 64, "a\n"])
def test_bad_names_are_refused_with_the_rule(name: str) -> None:
    """Kafka confuses dots and underscores in its metrics, and other characters are no topic names at all."""
    with pytest.raises(SchemaError, match=r"application name .* lower-case letters, digits and dashes"):
        topics.check_name(name, "application")


@pytest.mark.parametrize("version", ["1", "0.10.2", "2026-01-02T10:00:00", "v1_rc+3", "x" * 256])
def test_good_versions_are_returned(version: str) -> None:
    """Numbers, dates and what build systems make."""
    assert topics.check_version(version) == version


@pytest.mark.parametrize(
    "version", ["", "a\nb", "\x1b[2J", "../../x", "a@b", "a b", ".1", "-rf", "٣", "\u202e1", "x" * 257, "1\n"]
)
def test_bad_versions_are_refused_with_the_rule(version: str) -> None:
    """A version stands in keys, commands, tables and logs, and does nothing there."""
    with pytest.raises(SchemaError, match=r"use 1 to 256 letters, digits and"):
        topics.check_version(version)
