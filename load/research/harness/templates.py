"""Records made from templates: the bytes that a codec has written once, with another id and another time put in.

A template is cut from what its encoder writes. So it follows any change of a schema by itself.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, TypeAlias

from schemas.wire import write_long

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Encode: TypeAlias = Callable[[str, int], bytes]  # of an id and a time (us) that a record shall have
    Fill: TypeAlias = Callable[[bytes, int], bytes]  # the same, of an id of `ID_BYTES` in ASCII

ID_BYTES: Final = 32
_ID_BITS: Final = 4 * ID_BYTES
_IDS_AT_ONCE: Final = 256
# What marks the gaps; and what proves that the bytes around them depend on neither.
_MARK, _MARK_US = "9f0c5e1d7a3b48264be2a86d13f57c90", 1_234_567_890_123_457
_PROOFS: Final = (("0" * ID_BYTES, 1 << 48), ("f" * ID_BYTES, (1 << 55) - 1))


def template(encode: Encode) -> Fill:
    """Return what makes the bytes of `encode` for any id and any time.

    Raises:
        ValueError: they are not the same bytes around one id and at most one time.
    """
    head, *rest = encode(_MARK, _MARK_US).split(_MARK.encode())
    if len(rest) != 1:
        raise ValueError(f"a record has its id {len(rest)} times, not once")
    middle, *tail = rest[0].split(write_long(_MARK_US))
    fill = _timed(head, middle, tail[0]) if tail else _timeless(head, middle)
    for query_id, time_us in _PROOFS:
        if fill(query_id.encode(), time_us) != encode(query_id, time_us):
            raise ValueError("a record's bytes depend on its id or its time in more than one place")
    return fill


def _timed(head: bytes, middle: bytes, tail: bytes) -> Fill:
    return lambda query_id, time_us: b"".join((head, query_id, middle, write_long(time_us), tail))


def _timeless(head: bytes, tail: bytes) -> Fill:
    return lambda query_id, _: b"".join((head, query_id, tail))


def ids(seed: int) -> Iterator[bytes]:
    """Yield ids of 32 digits, no two alike, the same for the same seed; 0.2 us each, where a digest takes 0.6."""
    drawn = random.Random(seed)  # noqa: S311  # names, not secrets
    while True:
        digits = b"%0*x" % (_IDS_AT_ONCE * ID_BYTES, drawn.getrandbits(_IDS_AT_ONCE * _ID_BITS))
        for start in range(0, len(digits), ID_BYTES):
            yield digits[start : start + ID_BYTES]
