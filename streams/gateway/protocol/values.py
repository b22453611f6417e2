"""What all protocols have in common: a request, what it asks, how its answers are written, and a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.records import Element, Feedback, Input, MetricFeedback, Prediction, Tensor, TensorForm

JSON: Final = b"application/json"
# Rows of one request: they are asked together, and a larger file belongs to `skysail score`.
MOST_ROWS: Final = 4_096
# Of all values that a body of JSON or CSV makes, about: a list of nothing takes 64 bytes for two of the body's.
MOST_BYTES: Final = 64 << 20
_LIGHT: Final = 64 << 10  # bytes of a body that cannot make much
_COSTS: Final = ((b"[", 88), (b"{", 240), (b",", 32))
# A row that waits: its query, what the client keeps of it, and its answer, about.
_ROW_BYTES: Final = 2_000
_COPIES: Final = (
    8  # of an id: in the query and its record, in batches, as key, in the answer's record, and in the reply
)
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

    dtype: Element | None  # of a row's numbers; None = texts, bytes or columns
    shape: tuple[int, ...] = ()
    outputs: tuple[TensorForm, ...] = ()  # the tensors of its answers, where they have names

    @property
    def inputs(self) -> tuple[TensorForm, ...]:
        """The tensors of a row, where they have names."""
        return self.dtype if isinstance(self.dtype, tuple) else ()


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
    headers: tuple[tuple[str, bytes], ...] = ()  # of its queries' records


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

    items: tuple[tuple[Feedback | MetricFeedback, str | None], ...]
    reply: HttpReply


def document(body: bytes) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        RequestRefusedError: it is none, or would take far more memory than a request may.
    """
    if len(body) > _LIGHT and sum(body.count(sign) * cost for sign, cost in _COSTS) > MOST_BYTES:
        raise RequestRefusedError(413, "the body has too many values: send fewer rows, or binary tensors")
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
    raise RequestRefusedError(400, f"{name} is a text, not {shown(found)}")


def number(given: Mapping[str, Any], name: str) -> float | None:
    """Return a member that is a number, or nothing.

    Raises:
        RequestRefusedError: it is something else.
    """
    found = given.get(name)
    if found is None or (isinstance(found, int | float) and not isinstance(found, bool)):
        return found
    raise RequestRefusedError(400, f"{name} is a number, not {shown(found)}")


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


def few_named(rows: int, names: Sequence[str]) -> int:
    """Return a number of rows that one request may have, each of which repeats the names of its columns.

    Raises:
        RequestRefusedError: there are none or too many, or the names are too long for so many.
    """
    if few(rows) * sum(map(len, names)) > MOST_BYTES:
        raise RequestRefusedError(413, "the names of the columns are too long for so many rows")
    return rows


def shown(value: object) -> str:
    """Return a value of JSON as a refusal tells it: of a long text its beginning, of lists and objects what they are.

    Examples:
        >>> shown("four"), shown([[[1]]])
        ("'four'", 'a list')
    """
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return repr(value[:40]) if isinstance(value, str) else repr(value)


def weight(ask: HttpQuestion) -> int:
    """Return how many bytes a question and its answers take while it waits, about."""
    data = sum([len(row) if isinstance(row, str | bytes) else len(row.data) for row in ask.rows])
    texts = len(ask.id) + len(ask.context or "")
    each = _ROW_BYTES + _COPIES * texts + (32 * len(ask.features[0]) if ask.features else 0)
    return 2 * data + each * len(ask.rows)


def dumped(value: object) -> bytes:
    """Return JSON; NaN becomes null."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
