# A prediction of the common form, as selection writes it where all models that were asked have answered: gone over field by
# field.
#
#     id | application | context | decision | status, no reason | answer | confidence | outputs | times | token | nothing
#
# The fields are those of `schemas/Prediction.avsc`. `join_forms.py` sees to it that they still are, by what the codec writes.

from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint8_t
from streams.columns.texts cimport (
    Place, Text, is_utf8, lose, none, read_byte, read_bytes, read_double, read_long, read_same, read_text,
)

cdef enum:  # branches of unions, as they are written
    NOTHING = 0
    GIVEN = 2  # the second one
    LONG = 2
    DOUBLE = 4
    TEXT = 6
    LABEL_LONG = 2  # where numbers are whole
    LABEL_TEXT = 4

cdef enum:
    INT_MAX = 0x7FFFFFFF
    MOST_OUTPUTS = 64


cdef struct Decided:
    Text whole
    Text state, policy
    int64_t chosen  # the arm that is asked; where all are, the first one
    int64_t asked  # arms: one, or all
    int64_t arms
    Text names  # of the arms, each with its size
    Text shares  # doubles
    Text apprentice


cdef struct Said:  # by a model
    Text model
    Text answer  # with its branch
    uint8_t kind  # branch of the answer


cdef struct Predicted:
    Text named  # id, application and context as they stand
    Text id, application, context
    Decided decided
    Text answer  # with its branch
    uint8_t kind  # branch of the answer
    int64_t count
    Said outputs[MOST_OUTPUTS]
    int64_t answered_us
    bint is_last  # whether the decision has the bytes of one that was read before


cdef inline Text read_name(Place* place) noexcept nogil:
    """Read a text; one that is not valid UTF-8 is not of the common form."""
    cdef Text text = read_text(place)
    if not is_utf8(text):
        lose(place)
    return text


cdef inline Text since(const uint8_t* begin, Place* place) noexcept nogil:
    cdef Text text
    text.at, text.size = begin, 0 if place.bad else place.at - begin
    return text


cdef inline Text read_context(Place* place) noexcept nogil:
    cdef uint8_t branch = read_byte(place)
    if branch == GIVEN:
        return read_name(place)
    if branch != NOTHING:
        lose(place)
    return none()


cdef inline void expect(Place* place, uint8_t byte) noexcept nogil:
    if read_byte(place) != byte:
        lose(place)


cdef inline Text read_value(Place* place, uint8_t* kind) noexcept nogil:
    """Read a label, a number or a text; return it with its branch."""
    cdef const uint8_t* begin = place.at
    kind[0] = read_byte(place)
    if kind[0] == LONG:
        read_long(place)
    elif kind[0] == TEXT:
        read_name(place)
    elif kind[0] == DOUBLE:
        if not isfinite(read_double(place)):
            lose(place)
    else:
        lose(place)
    return since(begin, place)


cdef inline int64_t read_count(Place* place) noexcept nogil:
    """Read the size of an array's first block, of which each item takes a byte at least."""
    cdef int64_t count = read_long(place)
    if count < 1 or count > place.end - place.at:
        lose(place)
        return 0
    return count


cdef inline Decided read_decision(Place* place) noexcept nogil:
    """Read a decision without features and without versions beside those that serve, that asks one of its arms or all."""
    cdef Decided decided
    cdef const uint8_t* begin = place.at
    cdef int64_t index
    cdef Place shares
    decided.asked, decided.chosen = read_count(place), read_long(place)
    for index in range(1, decided.asked):
        if decided.chosen or read_long(place) != index:
            lose(place)
        if place.bad:
            break
    expect(place, 0)
    read_long(place)  # version of the state
    decided.state, decided.policy = read_name(place), read_name(place)
    decided.arms = read_count(place)
    decided.names.at = place.at
    for index in range(decided.arms):
        read_name(place)
        if place.bad:
            break
    decided.names = since(decided.names.at, place)
    expect(place, 0)
    if read_long(place) != decided.arms or decided.chosen < 0 or decided.chosen >= decided.arms:
        lose(place)
    if decided.asked > 1 and decided.asked != decided.arms:
        lose(place)
    decided.shares = read_bytes(place, 8 * decided.arms)
    shares.at, shares.end, shares.bad = decided.shares.at, decided.shares.at + decided.shares.size, False
    for index in range(decided.shares.size // 8):
        if not isfinite(read_double(&shares)):
            lose(place)
            break
    expect(place, 0)
    expect(place, 0)  # no features
    decided.apprentice = read_name(place)
    expect(place, 0)  # no versions
    decided.whole = since(begin, place)
    return decided


cdef inline Decided moved(const Decided* decided, const uint8_t* to) noexcept nogil:
    """Return a decision whose bytes stand elsewhere, too."""
    cdef Decided other = decided[0]
    cdef const uint8_t* begin = decided.whole.at
    other.whole.at = to
    other.state.at = to + (decided.state.at - begin)
    other.policy.at = to + (decided.policy.at - begin)
    other.names.at = to + (decided.names.at - begin)
    other.shares.at = to + (decided.shares.at - begin)
    other.apprentice.at = to + (decided.apprentice.at - begin)
    return other


cdef inline void read_outputs(Place* place, Predicted* found) noexcept nogil:
    """Read the outputs: a label, number or text each, without scores."""
    cdef int64_t index
    found.count = read_count(place)
    if found.count > MOST_OUTPUTS:
        lose(place)
        found.count = 0
    for index in range(found.count):
        found.outputs[index].model = read_name(place)
        read_name(place)  # version
        expect(place, 0)  # it is OK
        found.outputs[index].answer = read_value(place, &found.outputs[index].kind)
        expect(place, NOTHING)  # no scores
        expect(place, 0)  # it is the model's own
        read_long(place)  # how long it waited,
        read_long(place)  # how long its batch took,
        read_long(place)  # and its rows
        if place.bad:
            return
    expect(place, 0)


cdef inline bint read_prediction(Place* place, const Decided* last, Predicted* found) noexcept nogil:
    """Read what is behind the framing; False = it is not of the common form.

    Args:
        place: where it begins.
        last: a decision that has been read; it is not read again where the same bytes stand.
        found: what is there.
    """
    cdef const uint8_t* begin = place.at
    cdef uint8_t status
    found.id, found.application = read_name(place), read_name(place)
    found.context = read_context(place)
    found.named = since(begin, place)
    expect(place, GIVEN)  # a decision
    found.is_last = last.whole.size > 0 and read_same(place, last.whole)
    if found.is_last:
        found.decided = moved(last, place.at - last.whole.size)
    else:
        found.decided = read_decision(place)
    status = read_byte(place)
    if status > 4 or status & 1:
        lose(place)
    expect(place, NOTHING)  # no reason
    found.answer = read_value(place, &found.kind)
    if not isfinite(read_double(place)):  # confidence
        lose(place)
    read_outputs(place, found)
    read_long(place)
    read_long(place)
    read_long(place)
    found.answered_us = read_long(place)
    read_name(place)  # token
    read_name(place)  # message
    expect(place, 0)  # no steps
    expect(place, 0)  # no candidates
    expect(place, NOTHING)  # no set of labels
    expect(place, 0)  # nothing imputed
    expect(place, 0)  # no stages
    expect(place, NOTHING)  # nothing ranked
    expect(place, 0)  # drawn by its id
    expect(place, 0)  # of no episode
    expect(place, NOTHING)  # no interval
    return not place.bad and place.at == place.end
