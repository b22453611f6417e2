"""Rows of a topic are read by its form; what cannot be read has its fault in its place."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deploy.config.settings import Settings
from deploy.errors import UsageError
from deploy.scoring import opening
from deploy.scoring.topic import TopicRows
from streams.mapping.formats import REGISTRY, TopicForm


@dataclass(frozen=True)
class Read:
    """A message, as Kafka's client has it."""

    at: int
    said: bytes

    def value(self) -> bytes:
        """Return what it says."""
        return self.said

    def key(self) -> bytes | None:
        """Return its key."""
        return b"k" if self.at else None

    def partition(self) -> int:
        """Return where it stands."""
        return 2

    def offset(self) -> int:
        """Return where it stands."""
        return self.at


def test_messages_are_rows_by_the_topics_form() -> None:
    """With keys, ids by place, and how far it is read."""
    form = TopicForm("lines", "csv", ("a", "b"), ";")
    found = TopicRows(Settings(), form, ())._block(cast("Any", [Read(0, b"1;2"), Read(7, b"1")]))
    assert (found.keys, found.ids, found.until) == ([None, b"k"], ["lines-2-0", "lines-2-7"], 8)
    assert [*found.faults] == [1]


def test_a_topic_of_a_registrys_schemas_is_refused() -> None:
    """Before a message is read."""
    form = TopicForm("orders", "avro", schema=REGISTRY)
    subject, told = SimpleNamespace(incoming=SimpleNamespace(form=form)), SimpleNamespace(rows="topic:orders")
    with pytest.raises(UsageError, match="registry"):
        opening._source(Settings(), cast("Any", told), cast("Any", subject), {"bounds": [(0, 9)]})
