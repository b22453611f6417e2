# A prediction as selection writes it where all models that were asked have answered: what differs, around pieces of what
# the codec has written once (`pieces.py`).
#
#     head | id | application | context | decision and answer, and what follows from them | times | token | tail

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy
from streams.columns.batches cimport (
    Output, begin_record, end_record, long_size, text_size, write_byte, write_bytes, write_long, write_text
)
from streams.columns.texts cimport Text, text_of

cdef enum:  # kinds of answers
    WHOLE = 0
    DOUBLE = 1
    TEXT = 2
    KINDS = 3


cdef struct Who:  # has asked, and when
    Text id, application, key, context, token  # a key or context of size -1: there is none
    Text heads  # headers, as `batches.Taken` has them
    int64_t sent_us, received_us, deadline_us, answered_us


cdef struct Answer:
    int kind
    int64_t whole
    Text said  # bytes of a double, or a text


cdef inline int64_t answers_in(int kind, object answers) except -1:
    """Return how many answers these are: of texts a list, else bytes of 64 bits a number.

    Raises:
        TypeError: they are something else.
    """
    if kind != TEXT:
        return len(<bytes?>answers) // 8
    for text in <list?>answers:
        <bytes?>text
    return len(<list>answers)


cdef inline Answer answer_at(int kind, object answers, Py_ssize_t row):
    """Return one of answers, of which there are as many, and which stay."""
    cdef Answer answer
    answer.kind, answer.whole = kind, 0
    if kind == TEXT:
        answer.said = text_of(<bytes>(<list>answers)[row])
    else:
        answer.said.at, answer.said.size = <const uint8_t*>PyBytes_AS_STRING(<bytes>answers) + 8 * row, 8
        if kind == WHOLE:
            memcpy(&answer.whole, answer.said.at, 8)
    return answer


cdef inline int write_prediction(
    Output* output, Py_ssize_t number, const Who* who, tuple form, bytes decision, const Answer* answer, Text worked
) except -1:
    """Write a prediction as a batch's next record.

    Args:
        output: where a batch was begun.
        number: of the record in it.
        who: has asked.
        form: a `pieces.AnswerForm`.
        decision: as it is written before an answer of this kind.
        answer: of the model.
        worked: times of its output, if the form tells them; else nothing.
    """
    cdef Text named = text_of(<bytes>form[1]), closed = text_of(<bytes>form[2]), ended = text_of(<bytes>form[3])
    cdef Text tail = text_of(<bytes>form[4]), decided = text_of(decision)
    cdef size_t size = <size_t>(decided.size + named.size + closed.size + ended.size + worked.size)
    if worked.size < 0 or (worked.size > 0) != (ended.size > 0):
        raise ValueError("times that the form does not tell, or none that it does")
    size += 2 * _answer_size(answer)
    begin_prediction(output, number, who, text_of(<bytes>form[0]), size, tail)
    write_bytes(output, decided)
    _write_answer(output, answer)
    write_bytes(output, named)
    _write_answer(output, answer)
    write_bytes(output, closed)
    write_bytes(output, worked)
    write_bytes(output, ended)
    return end_prediction(output, who, tail)


cdef inline int begin_prediction(
    Output* output, Py_ssize_t number, const Who* who, Text head, size_t middle_size, Text tail
) except -1 nogil:
    """Begin a prediction: exactly so many bytes of its middle follow, then `end_prediction`."""
    cdef size_t size = <size_t>(head.size + tail.size) + middle_size + text_size(who.id) + text_size(who.application)
    size += 1 + (text_size(who.context) if who.context.size >= 0 else 0) + text_size(who.token)
    size += long_size(who.sent_us) + long_size(who.received_us) + long_size(who.deadline_us) + long_size(who.answered_us)
    begin_record(output, number, who.key, size, <size_t>who.heads.size)
    write_bytes(output, head)
    write_text(output, who.id)
    write_text(output, who.application)
    write_byte(output, 2 if who.context.size >= 0 else 0)
    return write_text(output, who.context) if who.context.size >= 0 else 0


cdef inline int end_prediction(Output* output, const Who* who, Text tail) except -1 nogil:
    write_long(output, who.sent_us)
    write_long(output, who.received_us)
    write_long(output, who.deadline_us)
    write_long(output, who.answered_us)
    write_text(output, who.token)
    write_bytes(output, tail)
    return end_record(output, &who.heads)


cdef inline size_t _answer_size(const Answer* answer) noexcept nogil:
    if answer.kind == WHOLE:
        return long_size(answer.whole)
    return 8 if answer.kind == DOUBLE else text_size(answer.said)


cdef inline int _write_answer(Output* output, const Answer* answer) except -1 nogil:
    if answer.kind == WHOLE:
        return write_long(output, answer.whole)
    return write_bytes(output, answer.said) if answer.kind == DOUBLE else write_text(output, answer.said)
