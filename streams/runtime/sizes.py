"""How large a record is that is to be produced."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.operators.contract import Emit


def size_of(emit: Emit) -> int:
    """Return the bytes of value, key and headers, without what frames them."""
    size = len(emit.value) + len(emit.key or b"")
    if emit.headers:
        size += sum(len(name.encode()) + len(value or b"") for name, value in emit.headers)
    return size
