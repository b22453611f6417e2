"""JSON from strangers: one object, of a bounded size, in which no name comes twice. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from workers.packages.signing.refusal import SignatureError

# The names and digests of some 26,000 files with short names: base64 makes them a third longer.
MOST_BYTES: Final = 4 << 20


def written(document: dict[str, Any]) -> bytes:
    """Return an object as JSON without spaces."""
    return json.dumps(document, separators=(",", ":")).encode()


def read(content: bytes, what: str) -> dict[str, Any]:
    """Return the object.

    Args:
        content: of a file or a payload.
        what: it is, for people.

    Raises:
        SignatureError: it is too large, or no object.
    """
    if len(content) > MOST_BYTES:
        raise SignatureError("too-large", f"{what} is larger than {MOST_BYTES:,} bytes: sign the package again")
    try:
        found = json.loads(content.decode(), object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise SignatureError("unreadable", f"{what} is no JSON ({reason}): sign the package again") from error
    if not isinstance(found, dict):
        raise SignatureError("unreadable", f"{what} is no object: sign the package again")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
