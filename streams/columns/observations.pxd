# An observation of the common form, as the joiner writes it for one model that was asked, or for all.
#
#     id | application | context | decision | losses | loss | label | status | times | answers | span | forget | nothing |
#     bound | nothing
#
# The fields are those of `schemas/Observation.avsc`. `join_forms.py` sees to it that they still are, by what the codec writes.

from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t
from streams.columns.predictions cimport (
    GIVEN, LABEL_LONG, LABEL_TEXT, NOTHING, Decided, expect, moved, read_context, read_decision, read_name, read_value, since,
)
from streams.columns.texts cimport Place, Text, lose, none, read_byte, read_double, read_long, read_same


cdef struct Seen:
    Text id, application, context
    Decided decided
    bint is_last  # whether the decision has the bytes of one that was read before
    double loss, served  # of the arm that was chosen, and of what was answered
    bint is_known, is_served  # whether there is such a loss
    Text losses  # of the arms, as they stand
    Text answers  # of the arms, as they stand; -1 = there are none
    bint is_joined, has_span, is_bounded
    int64_t observed_us, forget_us
    Text teacher  # where it is bounded
    int64_t most, most_context


cdef inline bint read_loss(Place* place, double* loss) noexcept nogil:
    """Read a number or nothing; tell whether there is one."""
    cdef uint8_t branch = read_byte(place)
    if branch == GIVEN:
        loss[0] = read_double(place)
        if not isfinite(loss[0]):
            lose(place)
        return True
    if branch != NOTHING:
        lose(place)
    return False


cdef inline bint read_losses(Place* place, Seen* seen) noexcept nogil:
    """Read the losses of the arms; they lie in [0, 1]."""
    cdef int64_t index
    cdef double loss
    cdef bint is_known
    if read_long(place) != seen.decided.arms:
        lose(place)
    seen.losses.at = place.at
    for index in range(seen.decided.arms):
        if place.bad:
            return False
        loss = 0.0
        is_known = read_loss(place, &loss)
        if not 0.0 <= loss <= 1.0:
            lose(place)
        if index == seen.decided.chosen:
            seen.loss, seen.is_known = loss, is_known
    seen.losses = since(seen.losses.at, place)
    expect(place, 0)
    return True


cdef inline Text read_label(Place* place) noexcept nogil:
    """Read the label that an arm has answered; return it with its branch."""
    cdef const uint8_t* begin = place.at
    cdef uint8_t branch = read_byte(place)
    if branch == LABEL_LONG:
        read_long(place)
    elif branch == LABEL_TEXT:
        read_name(place)
    elif branch != NOTHING:
        lose(place)
    return since(begin, place)


cdef inline Text read_answers(Place* place, int64_t arms) noexcept nogil:
    """Read what the arms have answered, where that stands there."""
    cdef const uint8_t* begin
    cdef Text answers
    cdef int64_t index
    if place.at < place.end and place.at[0] == NOTHING:
        place.at += 1
        return none()
    expect(place, GIVEN)
    if read_long(place) != arms:
        lose(place)
    begin = place.at
    for index in range(arms):
        read_label(place)
        if place.bad:
            break
    answers = since(begin, place)
    expect(place, 0)
    return answers


cdef inline bint read_observation(Place* place, const Decided* last, Seen* seen) noexcept nogil:
    """Read one of the observations of a record; False = it is not of the common form.

    Args:
        place: where it begins; behind it, if it is.
        last: a decision that has been read; it is not read again where the same bytes stand.
        seen: what is there.
    """
    cdef uint8_t status, kind
    cdef double span
    cdef int index
    seen.loss = seen.served = 0.0
    seen.is_known = False
    seen.id, seen.application = read_name(place), read_name(place)
    seen.context = read_context(place)
    seen.is_last = last.whole.size > 0 and read_same(place, last.whole)
    if seen.is_last:
        seen.decided = moved(last, place.at - last.whole.size)
    else:
        seen.decided = read_decision(place)
    read_losses(place, seen)
    seen.is_served = read_loss(place, &seen.served)
    if place.at < place.end and place.at[0] == NOTHING:
        read_byte(place)
    else:
        read_value(place, &kind)  # the label
    status = read_byte(place)
    if status > 2 or status & 1:
        lose(place)
    seen.is_joined = status == 0
    read_long(place)
    seen.observed_us = read_long(place)
    seen.answers = read_answers(place, seen.decided.arms)
    seen.has_span = read_loss(place, &span)
    expect(place, NOTHING)  # no versions
    seen.forget_us = read_long(place)
    for index in range(10):
        # No steps, scores, candidates, confidence, set of labels, stages, imputed, ranked, worth, weight.
        expect(place, NOTHING)
    read_bound(place, seen)
    for index in range(4):
        expect(place, NOTHING)  # no draw of a context, episode, places, interval
    return not place.bad


cdef inline void read_bound(Place* place, Seen* seen) noexcept nogil:
    """Read how far the lesson may teach, where that is bounded."""
    seen.is_bounded = not (place.at < place.end and place.at[0] == NOTHING)
    if not seen.is_bounded:
        place.at += 1
        return
    expect(place, GIVEN)
    seen.teacher, seen.most, seen.most_context = read_name(place), read_long(place), read_long(place)
    if seen.most != <int32_t>seen.most or seen.most_context != <int32_t>seen.most_context:
        lose(place)  # they have 32 bits
