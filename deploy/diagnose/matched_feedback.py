"""Which of the last queries a feedback is about: what the joiner would find, told before anything runs."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas.records import KeyedFeedback, Query

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.diagnose.mapped_topics import MappedRecord

_SECOND_US: Final = 1_000_000


class AskedQuery(NamedTuple):
    """A query by when it was asked (us)."""

    at_us: int
    query_id: str
    key: bytes


class FeedbackMatch(NamedTuple):
    """The query that a feedback is about, or why there is none.

    Attributes:
        query_id: of the query; None: none is found.
        words: for a person.
    """

    query_id: str | None
    words: str


class AskedQueries:
    """The last queries, by id and by key.

    Args:
        mapped: records that became queries.
    """

    def __init__(self, mapped: Iterable[MappedRecord]) -> None:
        self._by_id: dict[str, AskedQuery] = {}
        self._by_key: dict[str, list[AskedQuery]] = {}
        for record, made, key in mapped:
            if isinstance(made, Query):
                asked = AskedQuery(record.timestamp_us, made.query_id, key)
                self._by_id.setdefault(made.query_id, asked)
                self._by_key.setdefault(made.context or "", []).append(asked)
        for several in self._by_key.values():
            several.sort()

    def __len__(self) -> int:
        return len(self._by_id)

    def match(self, told: MappedRecord) -> FeedbackMatch:
        """Return which query a feedback is about."""
        record, made, key = told
        assert not isinstance(made, Query)
        if not isinstance(made, KeyedFeedback):
            return self._by(made.query_id, key, record.timestamp_us)
        return self._by(made.context, key, record.timestamp_us) if made.revises else self._last(made, told)

    def _by(self, query_id: str, key: bytes, at_us: int) -> FeedbackMatch:
        asked = self._by_id.get(query_id)
        if asked is None:
            return FeedbackMatch(None, f"none of the last {len(self):,}")
        if asked.key != key:
            there, here = asked.key.decode(errors="replace"), key.decode(errors="replace")
            return FeedbackMatch(None, f"its query has key {there}, not {here}")
        return FeedbackMatch(query_id, _later(at_us - asked.at_us))

    def _last(self, made: KeyedFeedback, told: MappedRecord) -> FeedbackMatch:
        """Return the last query of a key, if it is young enough."""
        at_us = min(made.sent_us or told.record.timestamp_us, told.record.timestamp_us)
        known = self._by_key.get(made.context, [])
        place = bisect_right(known, at_us, key=lambda asked: asked.at_us)
        if not place:
            return FeedbackMatch(None, f"none of that key before, of the last {len(self):,}")
        asked = known[place - 1]
        words = f"{asked.query_id}, {_later(at_us - asked.at_us)}"
        is_young = at_us - asked.at_us <= made.within_us
        return FeedbackMatch(asked.query_id if is_young else None, words if is_young else f"{words}: too old")


def _later(us: int) -> str:
    return f"{us / _SECOND_US:,.1f} s later" if us >= 0 else f"{-us / _SECOND_US:,.1f} s earlier"
