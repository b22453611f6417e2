"""What many records have in common, cut from what the codec writes: there is no second schema.

    a record of marks ─▶ Codec.encode ─▶ cut at the marks ─▶ pieces ─▶ put around other marks: the same bytes?

A change of a schema changes the pieces by itself. A record that cannot be cut, or is not put together again, has no
column form: Python reads it, and writes it.
"""

from __future__ import annotations

import struct
from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas.records import ModelOutput, Outcome, Prediction, Query, Status, Tensor
from schemas.wire import ITEM_BYTES, write_long

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Decision, Value

_double: Final = struct.Struct("<d").pack
# The second branch of a union with null, as one byte.
_GIVEN: Final = b"\2"
# Shorter inputs cannot be told from what stands around them.
_LEAST_WIDTH: Final = 4
# So many forms of answers are remembered.
_FORMS: Final = 1_024


class Uncut(Exception):  # noqa: N818 - no error: such records are left to Python
    """A record is not written as columns have it."""


class QueryForm(NamedTuple):
    """A query's bytes around what differs.

        head | id | application | given | numbers | context | sent | objective | middle | token | tail

    Attributes:
        head: framing.
        given: that its input is a tensor, and that one's type, shape and size.
        width: bytes of its numbers.
        middle: no priority, no features, no version.
        tail: no candidates.
    """

    head: bytes
    given: bytes
    width: int
    middle: bytes
    tail: bytes


class AnswerForm(NamedTuple):
    """A prediction's bytes around what differs, of one arm, version and kind of answer; see `decided`.

        head | id | application | context | decided | answer | named | answer
            | closed | worked | ended | times | token | tail

    Attributes:
        head: framing.
        named: confidence, model and version.
        closed: no scores, and no other output unless the output's times (`worked`) are told.
        ended: if so, no other output; else nothing, and `worked` is nothing, too.
        tail: no message, no steps, and so on.
    """

    head: bytes
    named: bytes
    closed: bytes
    ended: bytes
    tail: bytes


class ArmPieces(NamedTuple):
    """What an arm stands for: whoever answers, and the decision that says so."""

    decision: Decision
    model: str
    version: str


def query_form(codec: Codec, application: str, dtype: str, shape: tuple[int, ...]) -> QueryForm:
    """Return how an application's queries with such inputs are written.

    Raises:
        Uncut: they have no column form.
    """
    width = prod(shape) * ITEM_BYTES[dtype]
    if width < _LEAST_WIDTH:
        raise Uncut

    def written(marks: _QueryMarks) -> bytes:
        given = Tensor(dtype, shape, marks.numbers)
        query = Query(marks.id, application, given, marks.context, marks.sent_us, marks.slo_ms, reply_token=marks.token)
        return codec.encode(query)

    marks, other = _QueryMarks(_numbers(width, 7)), _QueryMarks(_numbers(width, 91), "q", "c", -5, 0.25, "")
    pieces = cut(written(marks), marks.cut(application))
    head, given, middle, tail = _only(pieces, (0, 2, 5, 6))
    if joined(pieces, other.cut(application)) != written(other):
        raise Uncut
    return QueryForm(head, given, width, middle, tail)


def answer_form(
    codec: Codec, application: str, asked: ArmPieces, kind: type[int | float | str], *, is_timed: bool = False
) -> AnswerForm:
    """Return how the answers of one arm are written.

    Args:
        codec: of the deployment.
        application: that asks.
        asked: the arm.
        kind: of its answers.
        is_timed: whether the output's times are told.

    Raises:
        Uncut: they have no column form.
    """
    marks = _AnswerMarks(_ANSWERS[kind][0], worked=_WORKED if is_timed else ())
    other = _AnswerMarks(_ANSWERS[kind][1], "q", "c", (3, -4, 5, 6), "", (0, 70, 1) if is_timed else ())
    pieces = cut(_answer(codec, application, asked, marks), marks.cut(application))
    if joined(pieces, other.cut(application)) != _answer(codec, application, asked, other):
        raise Uncut
    if not is_timed:
        head, _, named, closed, tail = _only(pieces, (0, 3, 4, 5, 7))
        return AnswerForm(head, named, closed, b"", tail)
    head, _, named, closed, ended, tail = _only(pieces, (0, 3, 4, 5, 6, 8))
    return AnswerForm(head, named, closed, ended, tail)


def decided(codec: Codec, application: str, asked: ArmPieces, kind: type[int | float | str], form: AnswerForm) -> bytes:
    """Return how a decision for the same arm is written, between context and answer: it differs by state.

    Raises:
        Uncut: what stands around it is not as in that form.
    """
    marks, before, behind = _around(application, _ANSWERS[kind][0], form)
    value = _answer(codec, application, asked, marks)
    if not (value.startswith(before) and value.endswith(behind)):
        raise Uncut
    return value[len(before) : -len(behind)]


@lru_cache(_FORMS)  # contexts are many, and each has a decision of its own
def _around(application: str, mark: Value, form: AnswerForm) -> tuple[_AnswerMarks, bytes, bytes]:
    """Return marks of an answer, which is `mark`, and what stands before and behind a decision written with them."""
    marks = _AnswerMarks(mark, worked=_WORKED if form.ended else ())
    query_id, name, context, answer, _, *rest = marks.cut(application)
    *worked, times, token = rest
    before = form.head + query_id + name + context
    behind = form.closed + b"".join(worked) + form.ended + times + token + form.tail
    return marks, before, answer + form.named + answer + behind


class TogetherForm(NamedTuple):
    """An answer that several models have given together: `head`, then who asked, `middle`, times and token, `tail`."""

    head: bytes
    middle: bytes
    tail: bytes


def together_form(codec: Codec, application: str, answer: Callable[[Query], Prediction]) -> TogetherForm:
    """Return how an answer is written.

    Args:
        codec: of the deployment.
        application: that asks.
        answer: returns the answer to a query, whose times are all that of the query.

    Raises:
        Uncut: it has no column form.
    """

    def written(marks: _AnswerMarks) -> bytes:
        query = Query(marks.id, application, b"", marks.context, marks.times[0], reply_token=marks.token)
        sent_us, received_us, deadline_us, answered_us = marks.times
        prediction = answer(query)._replace(
            sent_us=sent_us, received_us=received_us, deadline_us=deadline_us, answered_us=answered_us
        )
        return codec.encode(prediction)

    marks, other = _AnswerMarks(0), _AnswerMarks(0, "q", "c", (3, -4, 5, 6), "")
    pieces = cut(written(marks), marks.around(application))
    if joined(pieces, other.around(application)) != written(other):
        raise Uncut
    return TogetherForm(*_only(pieces, (0, 3, 5)))


class LateForm(NamedTuple):
    """A default answer with a message: as `TogetherForm`, whose tail is `before`, the message, `behind`."""

    head: bytes
    middle: bytes
    before: bytes
    behind: bytes


def late_form(codec: Codec, application: str, answer: Callable[[str, Query], Prediction]) -> LateForm:
    """Return how an answer with any message is written.

    Args:
        codec: of the deployment.
        application: that asks.
        answer: returns the answer with a message to a query, whose times are all that of the query.

    Raises:
        Uncut: it has no column form.
    """
    one, other = (together_form(codec, application, partial(answer, message)) for message in _MESSAGES)
    before, behind = cut(one.tail, (text(_MESSAGES[0]),))
    if other != TogetherForm(one.head, one.middle, before + text(_MESSAGES[1]) + behind):
        raise Uncut
    return LateForm(one.head, one.middle, before, behind)


def _answer(codec: Codec, application: str, asked: ArmPieces, marks: _AnswerMarks) -> bytes:
    output = ModelOutput(asked.model, asked.version, Outcome.OK, marks.answer)
    if marks.worked:
        output = output.timed(*marks.worked)
    prediction = Prediction(
        marks.id, application, marks.context, asked.decision, Status.COMPLETE, None, marks.answer, 1.0, (output,),
        *marks.times, marks.token,
    )  # fmt: skip
    return codec.encode(prediction)


def cut(value: bytes, marks: Sequence[bytes]) -> list[bytes]:
    """Return what stands around marks, each of which stands first behind the last one.

    Raises:
        Uncut: one does not.
    """
    pieces = []
    for mark in marks:
        piece, found, value = value.partition(mark)
        if not found:
            raise Uncut
        pieces.append(piece)
    return [*pieces, value]


def joined(pieces: Sequence[bytes], marks: Sequence[bytes]) -> bytes:
    """Put marks between pieces, of which there is one more."""
    return b"".join([part for pair in zip(pieces, [*marks, b""], strict=True) for part in pair])


def text(given: str) -> bytes:
    """Return a text as Avro writes it."""
    raw = given.encode()
    return write_long(len(raw)) + raw


class _QueryMarks(NamedTuple):
    """What differs between queries."""

    numbers: bytes
    id: str = "mark of an id"
    context: str = "mark of a context"
    sent_us: int = 1_234_567_890_123_456
    slo_ms: float = 12.345678
    token: str = "mark of a token"  # noqa: S105 - no password

    def cut(self, application: str) -> tuple[bytes, ...]:
        """Return them as they are written, in order."""
        times = write_long(self.sent_us) + _GIVEN + _double(self.slo_ms)
        return text(self.id), text(application), self.numbers, _GIVEN + text(self.context), times, text(self.token)


class _AnswerMarks(NamedTuple):
    """What differs between answers."""

    answer: Value
    id: str = "mark of an id"
    context: str = "mark of a context"
    times: tuple[int, int, int, int] = (2**50 + 123, 2**51 + 456, 2**51 + 789, 2**52 + 7)
    token: str = "mark of a token"  # noqa: S105 - no password
    worked: tuple[int, int, int] | tuple[()] = ()  # times of the output, where they are told

    def cut(self, application: str) -> tuple[bytes, ...]:
        """Return them as they are written, in order."""
        answer, worked = _written(self.answer), [b"".join(map(write_long, self.worked))] if self.worked else []
        context, times = _GIVEN + text(self.context), b"".join(map(write_long, self.times))
        return text(self.id), text(application), context, answer, answer, *worked, times, text(self.token)

    def around(self, application: str) -> tuple[bytes, ...]:
        """Return them but for the answer."""
        query_id, name, context, *_, times, token = self.cut(application)
        return query_id, name, context, times, token


_WORKED: Final = (2**49 + 13, 2**48 + 29, 2**30 + 7)
_MESSAGES: Final = ("mark of a message", "m" * 200)
# Two answers of each kind that nothing else in a prediction looks like.
_ANSWERS: Final[Mapping[type, tuple[Value, Value]]] = {
    int: (0x1234_5678_9ABC_DEF, -77),
    float: (1.2345678901234567e-200, -2.5),
    str: ("mark of an answer", "a"),
}


def _written(answer: Value) -> bytes:
    if isinstance(answer, str):
        return text(answer)
    return write_long(answer) if isinstance(answer, int) else _double(float(answer))  # type: ignore[arg-type]


def _numbers(width: int, seed: int) -> bytes:
    """Return bytes of some numbers that nothing else in a query looks like."""
    return bytes((seed + 37 * place + place // 7) % 251 for place in range(width))


def _only(pieces: Sequence[bytes], places: Sequence[int]) -> list[bytes]:
    """Return the pieces at these places; at all others there must be nothing.

    Raises:
        Uncut: there is something.
    """
    if any(piece for place, piece in enumerate(pieces) if place not in places):
        raise Uncut
    return [pieces[place] for place in places]
