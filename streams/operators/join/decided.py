"""Whether a prediction's bytes hold a decision: without one there is nothing to wait for."""

from __future__ import annotations

from schemas.errors import DecodeError
from schemas.framing import CONFLUENT_BYTES, SINGLE_OBJECT_BYTES
from schemas.wire import read_size

_NULL = 0  # the first branch of a union, as one byte


def may_be_decided(value: bytes, query_id: str, application: str) -> bool:
    """Look past the first two fields of a prediction, whose texts are known, without decoding the rest.

    Returns:
        False where the record, if it is one, has no decision.
    """
    at = SINGLE_OBJECT_BYTES if value and value[0] else CONFLUENT_BYTES
    if query_id.isascii() and application.isascii() and len(query_id) < 64 > len(application):  # as most are
        at += len(query_id) + len(application) + 2
    else:
        at += _written(query_id) + _written(application)
    try:
        if value[at] == _NULL:  # no context
            return value[at + 1] != _NULL
        size, start = read_size(value, at + 1)
        return value[start + size] != _NULL
    except (DecodeError, IndexError):
        return True  # whoever decodes it finds out what is wrong


def _written(text: str) -> int:
    """Return how many bytes a text takes with its size before it."""
    size = len(text) if text.isascii() else len(text.encode())
    return size + (1 if size < 64 else 2 if size < 8_192 else 3)
