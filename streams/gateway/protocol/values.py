"""What all protocols have in common: a request, what it asks, how its answers are written, and a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.records import Feedback, Input, Prediction, Tensor

JSON: Final = b"application/json"
# Rows of one request: they are asked together, and a larger file belongs to `skysail score`.
MOST_ROWS: Final = 4_096
Headers: TypeAlias = "tuple[tuple[bytes, bytes], ...]"


class RequestRefusedError(Exception):
    """A request that gets no answer, with what to do about it.

    Attributes:
        status: of HTTP.
        retry_s: after so long it may be tried again; 0 = nothing is said of that.
        allow: the methods that are for the path; "" = that is not the matter.
    """

    def __init__(self, status: int, message: str, retry_s: int = 0, allow: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.retry_s = retry_s
        self.allow = allow


class InputForm(NamedTuple):
    """What an application is known to take."""

    dtype: str | None  # of a row's numbers; None = texts, bytes or columns
    shape: tuple[int, ...] = ()


class HttpRequest(NamedTuple):
    """A request to one application, its body whole."""

    application: str
    body: bytes
    version: str | None = None  # or label, as the path names it
    kind: str = ""  # the type of the body, without parameters
    json_bytes: int | None = None  # so long is the JSON before binary tensors; None = the whole body
    id: str = ""  # of a header; a body may have its own
    takes: InputForm | None = None  # None = not known


class HttpQuestion(NamedTuple):
    """What a request asks: one query a row."""

    application: str
    rows: tuple[Input, ...]
    id: str = ""  # "" = none was given
    context: str | None = None
    features: tuple[tuple[float, ...], ...] = ()  # one a row; empty = none
    slo_ms: float | None = None
    priority: int = 0
    version: str | None = None
    candidates: Tensor | tuple[str, ...] | None = None
    top: int = 1


class HttpReply(NamedTuple):
    """An answer as it is sent."""

    body: bytes
    status: int = 200
    kind: bytes = JSON
    headers: Headers = ()


class ParsedRequest(NamedTuple):
    """What a request asks, and how the answers are written: one prediction a row, in order."""

    ask: HttpQuestion
    render: Callable[[Sequence[Prediction]], HttpReply]


class ParsedFeedback(NamedTuple):
    """Feedback that a request brings, each with the context that its query had."""

    items: tuple[tuple[Feedback, str | None], ...]
    reply: HttpReply


def document(body: bytes) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        RequestRefusedError: it is none.
    """
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestRefusedError(400, f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestRefusedError(400, "the body is not a JSON object")
    return found


def text(given: Mapping[str, Any], name: str) -> str | None:
    """Return a member that is a text, or nothing.

    Raises:
        RequestRefusedError: it is something else.
    """
    found = given.get(name)
    if found is None or isinstance(found, str):
        return found
    raise RequestRefusedError(400, f"{name} is a text, not {found!r:.80}")


def number(given: Mapping[str, Any], name: str) -> float | None:
    """Return a member that is a number, or nothing.

    Raises:
        RequestRefusedError: it is something else.
    """
    found = given.get(name)
    if found is None or (isinstance(found, int | float) and not isinstance(found, bool)):
        return found
    raise RequestRefusedError(400, f"{name} is a number, not {found!r:.80}")


def whole(given: Mapping[str, Any], name: str, otherwise: int) -> int:
    """Return a member that is a whole number, or what stands in for it.

    Raises:
        RequestRefusedError: it is something else, or too large.
    """
    found = number(given, name)
    if found is None:
        return otherwise
    if int(found) != found or abs(found) > 1_000_000_000:
        raise RequestRefusedError(400, f"{name} is a whole number, not {found!r:.80}")
    return int(found)


def few(rows: int) -> int:
    """Return a number of rows that one request may have.

    Raises:
        RequestRefusedError: there are none or too many.
    """
    if not 0 < rows <= MOST_ROWS:
        raise RequestRefusedError(
            400, f"{rows} rows: a request has 1 to {MOST_ROWS:,}; score files with `skysail score`"
        )
    return rows


def dumped(value: object) -> bytes:
    """Return JSON; NaN becomes null."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
