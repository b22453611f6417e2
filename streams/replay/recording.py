"""A trace as far as a replay reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streams.operators.contract import Record


class Recording(Protocol):
    """A trace as far as a replay reads it."""

    def topics(self) -> tuple[str, ...]:
        """Return the topics that it holds."""
        ...

    def records(self, topic: str, partition: int | None = None) -> Iterator[Record]:
        """Yield the records of a topic, in order of offset within a partition, of time across them."""
        ...

    def merged(self, topics: Iterable[str]) -> Iterator[Record]:
        """Yield the records of several topics by time."""
        ...
