"""How long the applications of a trace have waited: the most patient and the least of all their configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.codec import Codec
    from streams.operators.contract import Record


class RecordedTerms(NamedTuple):
    """What can be relied on, however an application was configured at the time.

    Attributes:
        slo_us: its longest objective.
        window_us: its shortest window; 0 = it was removed at some time.
        has_default: whether a window's end always teaches.
    """

    slo_us: int
    window_us: int
    has_default: bool


def terms_of(records: Iterable[Record], codec: Codec, longest_us: int) -> Mapping[str, RecordedTerms]:
    """Return the terms of each application in a trace; `longest_us` bounds every window."""
    found: dict[str, RecordedTerms] = {}
    for record in records:
        if record.topic != topics.APPLICATIONS:
            continue
        try:
            name, now = _terms(record, codec, longest_us)
        except DecodeError:
            continue
        before = found.get(name, now)
        found[name] = RecordedTerms(
            max(before.slo_us, now.slo_us),
            min(before.window_us, now.window_us),
            before.has_default and now.has_default,
        )
    return found


def _terms(record: Record, codec: Codec, longest_us: int) -> tuple[str, RecordedTerms]:
    if record.value is None:
        return (record.key or b"").decode(errors="replace"), RecordedTerms(0, 0, has_default=False)
    known = codec.decode(Application, record.value)
    window_us = min(int(known.window_s * 1e6), longest_us)
    return known.name, RecordedTerms(int(known.slo_ms * 1e3), window_us, known.default_loss is not None)
