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
