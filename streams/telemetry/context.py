"""Which trace a query belongs to: W3C's header `traceparent`, or a trace of its own. Ids follow from the record."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streams.operators.contract import Position

HEADER: Final = "traceparent"
# Version, trace, parent, flags; later versions may have more behind. Trace and parent are not all zeros.
_FORM: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)
_SAMPLED: Final = 1
_TRACE_BYTES, _LEG_BYTES = 16, 8


class TraceContext(NamedTuple):
    """A trace, and where in it a query was asked.

    Attributes:
        trace_id: 128 bits, not 0.
        parent_id: 64 bits: the leg of whoever asked; 0 = nobody said: the query begins the trace.
    """

    trace_id: int
    parent_id: int = 0


def told(headers: Iterable[tuple[str, bytes | None]]) -> tuple[TraceContext | None, bool]:
    """Return the trace that a query's headers name, and whether it is sampled; None = they name none that is right."""
    for name, value in headers:
        if name.lower() == HEADER:
            found = _FORM.fullmatch(value or b"")
            if found is None or (found[1] == b"00" and found[5]):
                return None, False
            return TraceContext(int(found[2], 16), int(found[3], 16)), bool(int(found[4], 16) & _SAMPLED)
    return None, False


def own(place: Position) -> TraceContext:
    """Return the trace of a query whose headers name none: the same one each time its record is read."""
    return TraceContext(_drawn(f"{place.topic}/{place.partition}/{place.offset}", _TRACE_BYTES))


def leg_id(*of: object) -> int:
    """Return the id of a leg by what it is of: the same one each time it is made."""
    return _drawn("/".join(map(str, of)), _LEG_BYTES)


def _drawn(said: str, size: int) -> int:
    return int.from_bytes(blake2b(said.encode(), digest_size=size).digest(), "big") or 1
