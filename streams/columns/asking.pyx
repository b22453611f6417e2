# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Queries that wait for a model elsewhere, without an object of Python each: asked together, answered in any order.

    Poll.take ─▶ Asked: rows ─add─▶ Waiting: (partition, row id) ─▶ row ─match─▶ Found ─write─▶ a record batch, spans
                                       └─ due, claimed, dropped ─▶ `rows`, for Python

A row is what `Poll.take` has made of it. It is asked under its id, or where that one waits already under `ID@OFFSET`, as
the kernel renames it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from streams.columns.batches cimport Output, begin_batch, finish_batch, headers_in, release
from streams.columns.saying cimport Answer, Who, answer_at, answers_in, write_prediction
from streams.columns.texts cimport Text, as_bytes, as_str, same, text_of
from streams.operators.id_times cimport hash_of

cdef enum:  # of a row's numbers, as `Poll.take` has them
    PARTITION, OFFSET, SENT, DEADLINE, UNTIL, ARM, STATE, PLACES, TEXTS, ID, KEY, CONTEXT, TOKEN, HEADS
    FIELDS

cdef enum:
    BUCKET_US = 1000  # as the combiner keeps deadlines
    LEAST = 1024  # entries of the table

cdef int64_t NEVER = 0x7FFFFFFFFFFFFFFF


cdef class Asked:
    """Rows that are asked together.

    Args:
        numbers: and
        texts: as `Poll.take` returns them.
        received_us: when they were read.
        of: whose they are, for Python.

    Attributes:
        count: rows.
        left: of them that wait.
        places: that all of them take.
        slack_us: that the last one has for its answer; -1 = there is none.

    Raises:
        ValueError: these do not belong together.
    """

    cdef bytes numbers, texts
    cdef uint8_t* open  # whether a row waits
    cdef dict renamed  # row ids that are not the query's
    cdef int64_t due_us  # no row has to be answered before
    cdef readonly int64_t received_us
    cdef readonly int64_t places, slack_us
    cdef readonly Py_ssize_t count, left
    cdef readonly object of

    def __init__(self, bytes numbers not None, bytes texts not None, int64_t received_us, object of):
        cdef Py_ssize_t row
        cdef const int64_t* at
        self.numbers, self.texts, self.received_us, self.of = numbers, texts, received_us, of
        self.count = len(numbers) // (FIELDS * 8)
        self.renamed, self.due_us, self.places, self.slack_us = {}, NEVER, 0, -1
        for row in range(self.count):
            at = self.row(row)
            if at[TEXTS] < 0 or at[TEXTS] + _size(at, 5) > len(texts) or at[ID] < 0 or at[HEADS] < 1 or at[ARM] < 0 or at[STATE] < 0:
                raise ValueError("not what was taken")
            self.due_us = min(self.due_us, _bucket(at[UNTIL]))
            self.places += at[PLACES]
            self.slack_us = at[DEADLINE] - at[SENT]
        self.open = <uint8_t*>calloc(max(self.count, 1), 1)
        if self.open == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.open)

    cdef const int64_t* row(self, Py_ssize_t row) noexcept:
        return <const int64_t*>PyBytes_AS_STRING(self.numbers) + FIELDS * row

    cdef Text text(self, Py_ssize_t row, int field) noexcept:
        """Return the id, key, context, token or headers of a row."""
        cdef const int64_t* at = self.row(row)
        cdef Text found
        found.at = <const uint8_t*>PyBytes_AS_STRING(self.texts) + at[TEXTS] + _size(at, field - ID)
        found.size = <Py_ssize_t>at[field]
        return found

    cdef Text row_id(self, Py_ssize_t row):
        """Return the id under which a row is asked."""
        if self.renamed and row in self.renamed:
            return text_of(<bytes>self.renamed[row])
        return self.text(row, ID)

    cdef int look(self) except -1:
        """Work out when the next row has to be answered."""
        cdef Py_ssize_t row
        self.due_us = NEVER
        for row in range(self.count):
            if self.open[row]:
                self.due_us = min(self.due_us, _bucket(self.row(row)[UNTIL]))
        return 0

    cdef tuple given(self, Py_ssize_t row):
        """Return a row for Python: id, row id, key, context, token, headers, partition, offset, four times, arm, state,
        places."""
        cdef const int64_t* at = self.row(row)
        context = self.text(row, CONTEXT)
        return (
            as_str(self.text(row, ID)), as_str(self.row_id(row)), as_bytes(self.text(row, KEY)),
            None if context.size < 0 else as_str(context), as_str(self.text(row, TOKEN)),
            headers_in(self.text(row, HEADS)), at[PARTITION], at[OFFSET], at[SENT], self.received_us, at[DEADLINE], at[UNTIL], at[ARM], at[STATE], at[PLACES],
        )

    def parts(self, bytes inputs not None, Py_ssize_t most, double share, int64_t back_us):
        """Return what is asked of each model for each partition.

        Args:
            inputs: of the rows, one behind the other.
            most: rows of a part.
            share: of what a query has for its answer that is kept for the way back, and
            back_us: the most that is kept.

        Returns:
            Partition, arm, ids, when their outputs are due (us), and inputs of each part.
        """
        cdef Py_ssize_t row, width = len(inputs) // max(self.count, 1)
        cdef const int64_t* at
        cdef dict groups = {}
        cdef list found = [], group
        if width * self.count != len(inputs) or most < 1:
            raise ValueError("not an input a row")
        for row in range(self.count):
            at = self.row(row)
            key = (at[PARTITION], at[ARM])
            group = <list>groups.get(key)
            if group is None or len(group) == most:
                group = []
                groups[key] = group
                found.append((key, group))
            group.append(row)
        return [(*key, *self._part(group, inputs, width, share, back_us)) for key, group in found]

    cdef tuple _part(self, list rows, bytes inputs, Py_ssize_t width, double share, int64_t back_us):
        cdef bytes made = PyBytes_FromStringAndSize(NULL, len(rows) * width)
        cdef char* to = PyBytes_AS_STRING(made)
        cdef list ids = [], due_us = []
        cdef const int64_t* at
        cdef Py_ssize_t row
        for row in rows:
            at = self.row(row)
            ids.append(as_str(self.row_id(row)))
            due_us.append(at[UNTIL] - min(<int64_t>(<double>(at[DEADLINE] - at[SENT]) * share), back_us))
            memcpy(to, PyBytes_AS_STRING(inputs) + row * width, <size_t>width)
            to += width
        return tuple(ids), tuple(due_us), made


cdef struct Entry:
    uint64_t hash
    int64_t row
    int asked  # a place in `Waiting.asked`, and 1; 0 = no entry


cdef class Waiting:
    """All rows that wait, by partition and row id: a table with open addressing."""

    cdef Entry* entries
    cdef Py_ssize_t room, count
    cdef list asked, free
    cdef int64_t due_us
    cdef bint is_known  # whether `due_us` is right

    def __cinit__(self):
        self.room, self.asked, self.free, self.due_us, self.is_known = LEAST, [], [], NEVER, True
        self.entries = <Entry*>calloc(LEAST, sizeof(Entry))
        if self.entries == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.entries)

    def __len__(self):
        return self.count

    def add(self, Asked asked not None, dict others not None):
        """Wait for rows, none of which does yet.

        Args:
            asked: the rows.
            others: that wait in Python, by row id, by partition: their ids are taken.
        """
        cdef Py_ssize_t row
        cdef int place
        if not asked.count:
            return
        if self.free:
            place = self.free.pop()
            self.asked[place - 1] = asked
        else:
            self.asked.append(asked)
            place = <int>len(self.asked)
        for row in range(asked.count):
            self._name(asked, row, others)
            self._insert(asked, row, place)
        self.due_us = min(self.due_us, asked.due_us)

    cdef int _name(self, Asked asked, Py_ssize_t row, dict others) except -1:
        """Choose the id under which a row is asked."""
        cdef const int64_t* at = asked.row(row)
        cdef dict waiting = <dict>others.get(at[PARTITION]) if others else None
        while self._find(<int>at[PARTITION], asked.row_id(row)) >= 0 or waiting and as_str(asked.row_id(row)) in waiting:
            asked.renamed[row] = b"%b@%d" % (as_bytes(asked.row_id(row)), at[OFFSET])
        return 0

    cdef int _insert(self, Asked asked, Py_ssize_t row, int place) except -1:
        cdef Entry entry
        if 2 * (self.count + 1) > self.room:
            self._grow()
        entry.hash, entry.row, entry.asked = _hash(<int>asked.row(row)[PARTITION], asked.row_id(row)), row, place
        _put(self.entries, self.room, entry)
        asked.open[row] = True
        asked.left += 1
        self.count += 1
        return 0

    cdef int _grow(self) except -1:
        cdef Entry* grown = <Entry*>calloc(2 * self.room, sizeof(Entry))
        cdef Py_ssize_t index
        if grown == NULL:
            raise MemoryError
        for index in range(self.room):
            if self.entries[index].asked:
                _put(grown, 2 * self.room, self.entries[index])
        free(self.entries)
        self.entries, self.room = grown, 2 * self.room
        return 0

    cdef Py_ssize_t _find(self, int partition, Text row_id) except -2:
        """Return where a row's entry is; -1 = it does not wait."""
        cdef uint64_t wanted = _hash(partition, row_id)
        cdef Py_ssize_t index = <Py_ssize_t>(wanted & <uint64_t>(self.room - 1))
        cdef Entry* entry
        cdef Asked asked
        while self.entries[index].asked:
            entry = self.entries + index
            if entry.hash == wanted:
                asked = <Asked>self.asked[entry.asked - 1]
                if asked.row(entry.row)[PARTITION] == partition and same(asked.row_id(entry.row), row_id):
                    return index
            index = (index + 1) & (self.room - 1)
        return -1

    cdef Py_ssize_t _find_text(self, int partition, str row_id) except -2:
        cdef Text found
        cdef Py_ssize_t size = 0
        try:
            found.at = <const uint8_t*>PyUnicode_AsUTF8AndSize(row_id, &size)
        except UnicodeEncodeError:  # half of a surrogate pair: no row that was taken has it
            return -1
        found.size = size
        return self._find(partition, found)

    cdef int _remove(self, Asked asked, Py_ssize_t row) except -1:
        """Let go of a row; entries behind its own move up as far as they may."""
        cdef Py_ssize_t mask = self.room - 1, hole, index, home
        cdef Py_ssize_t at = self._find(<int>asked.row(row)[PARTITION], asked.row_id(row))
        if at < 0:
            raise ValueError("no such row")
        place = self.entries[at].asked
        hole = index = at
        while True:
            index = (index + 1) & mask
            if not self.entries[index].asked:
                break
            home = <Py_ssize_t>(self.entries[index].hash & <uint64_t>mask)
            if (index - home) & mask >= (index - hole) & mask:
                self.entries[hole] = self.entries[index]
                hole = index
        self.entries[hole].asked = 0
        asked.open[row] = False
        asked.left -= 1
        self.count -= 1
        if not asked.left:
            self.is_known = self.is_known and asked.due_us > self.due_us
            self.asked[place - 1] = None
            self.free.append(place)
        return 0

    def next_due(self):
        """Return before when no row has to be answered (us); None = there is none."""
        if not self.is_known:
            self.due_us, self.is_known = min([(<Asked>each).due_us for each in self.asked if each is not None], default=NEVER), True
        return self.due_us if self.count else None

    def due(self, int64_t now_us):
        """Remove and return the rows that have to be answered now: whose they are with `Asked.given`, in order."""
        cdef Asked asked
        cdef Py_ssize_t row
        cdef list found = []
        if self.count and self.due_us <= now_us:
            for asked in [each for each in self.asked if each is not None]:
                if asked.due_us <= now_us:
                    found += self._popped(asked, [
                        row for row in range(asked.count) if asked.open[row] and _bucket(asked.row(row)[UNTIL]) <= now_us
                    ])
                    asked.look()
            self.is_known = False
        return found

    def claim(self, wanted):
        """Remove and return rows by partition and row id, as far as they wait."""
        cdef list found = []
        cdef Entry* entry
        cdef Py_ssize_t at
        if not self.count:
            return found
        for partition, row_id in wanted:
            at = self._find_text(partition, row_id)
            if at >= 0:
                entry = self.entries + at
                found += self._popped(<Asked>self.asked[entry.asked - 1], [entry.row])
        return found

    def rows(self, partitions=None):
        """Remove and return all rows, or those of some partitions."""
        cdef Asked asked
        cdef Py_ssize_t row
        cdef list found = []
        for asked in [each for each in self.asked if each is not None]:
            found += self._popped(asked, [
                row for row in range(asked.count)
                if asked.open[row] and (partitions is None or asked.row(row)[PARTITION] in partitions)
            ])
        return found

    cdef list _popped(self, Asked asked, list rows):
        cdef list found = [(asked.of, asked.given(row)) for row in rows]
        for row in rows:
            self._remove(asked, row)
        return found

    def match(self, int partition, tuple row_ids not None, str model not None):
        """Return the rows that a model has answered; None: one of them does not wait for it, or is there twice."""
        cdef Found found = Found(len(row_ids))
        cdef Py_ssize_t at
        cdef Entry* entry
        for row_id in row_ids:
            at = self._find_text(partition, row_id)
            if at < 0:
                return None
            entry = self.entries + at
            if not found.note(<Asked>self.asked[entry.asked - 1], entry.row, model):
                return None
        found.partition, found.waiting = partition, self
        return found if found.is_once() else None


cdef struct Hit:
    Py_ssize_t asked, row, pair


cdef class Found:
    """Rows that a model has answered, in the order of its answers.

    Attributes:
        pairs: of each kind of row, its `Asked`, state and arm.
    """

    cdef Hit* hits
    cdef Py_ssize_t count, room
    cdef int partition
    cdef Waiting waiting
    cdef list asked
    cdef dict _places
    cdef readonly list pairs
    cdef Output output

    def __init__(self, Py_ssize_t room):
        self.room, self.asked, self.pairs, self._places = room, [], [], {}
        self.hits = <Hit*>calloc(max(room, 1), sizeof(Hit))
        if self.hits == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.hits)
        release(&self.output)

    cdef bint note(self, Asked asked, Py_ssize_t row, str model) except -1:
        """Take a row; False: it asks another model."""
        cdef const int64_t* at = asked.row(row)
        cdef Hit* hit = self.hits + self.count
        cdef Hit* last = hit - 1
        cdef const int64_t* before
        hit.row = row
        if self.count and self.asked[last.asked] is asked:
            before = asked.row(last.row)
            hit.asked, hit.pair = last.asked, last.pair
            if before[STATE] == at[STATE] and before[ARM] == at[ARM]:
                self.count += 1
                return True
        elif asked in self._places:
            hit.asked = self._places[asked]
        else:
            hit.asked = self._places[asked] = len(self.asked)
            self.asked.append(asked)
        key = (hit.asked, at[STATE], at[ARM])
        if key not in self._places:
            if asked.of.names[at[ARM]] != model:
                return False
            self._places[key] = len(self.pairs)
            self.pairs.append((asked, at[STATE], at[ARM]))
        hit.pair = self._places[key]
        self.count += 1
        return True

    cdef bint is_once(self) except -1:
        """Tell whether no row is there twice."""
        cdef Py_ssize_t index
        cdef Asked asked
        cdef bint once = True
        for index in range(self.count):
            asked = <Asked>self.asked[self.hits[index].asked]
            once = once and asked.open[self.hits[index].row] == 1
            asked.open[self.hits[index].row] = 2
        for index in range(self.count):
            (<Asked>self.asked[self.hits[index].asked]).open[self.hits[index].row] = 1
        return once

    def write(self, list said not None, int kind, object answers not None, list worked not None, int64_t answered_us):
        """Write the answers of all rows, which wait no longer.

        Args:
            said: name of the application, form of the answer and decision, of each of `pairs`; see `saying.pxd`.
            kind: of the answers: 0 = whole numbers, 1 = doubles, 2 = texts.
            answers: bytes of as many numbers of 64 bits; or a list of as many byte strings.
            worked: times of as many outputs, as they are written; or nothing, if no form tells them.
            answered_us: the time.

        Returns:
            The record batch, and spans (begin, end) of the offsets that it answers. Of each `Asked`: how long each
            answer took from when its query was sent (us), how many were late, and the places that they took.

        Raises:
            ValueError: these are not as many.
        """
        cdef Py_ssize_t index
        cdef Hit* hit
        cdef Asked asked
        cdef const int64_t* at
        cdef Who who
        cdef Answer answer
        cdef list spans = [], noted = [(each, [], [0, 0]) for each in self.asked]
        if len(said) != len(self.pairs) or answers_in(kind, answers) != self.count or len(worked) not in (0, self.count):
            raise ValueError("not an answer a row")
        for name, form, decision in said:
            if len(<tuple?>form) != 5:
                raise ValueError("no form of an answer")
            for piece in (<bytes?>name, <bytes?>decision, *<tuple?>form):
                <bytes?>piece
        for piece in worked:
            <bytes?>piece
        begin_batch(&self.output)
        for index in range(self.count):
            hit = self.hits + index
            asked = <Asked>self.asked[hit.asked]
            at = asked.row(hit.row)
            name, form, decision = <tuple>said[hit.pair]
            who, answer = self._who(asked, hit.row, <bytes>name, answered_us), answer_at(kind, answers, index)
            told = worked[index] if worked and len(<bytes>(<tuple>form)[3]) else b""
            write_prediction(&self.output, index, &who, <tuple>form, <bytes>decision, &answer, text_of(<bytes>told))
            if spans and <int64_t>spans[len(spans) - 1] == at[OFFSET]:
                spans[len(spans) - 1] = at[OFFSET] + 1
            else:
                spans.append(at[OFFSET])
                spans.append(at[OFFSET] + 1)
            _, durations, sums = noted[hit.asked]
            (<list>durations).append(answered_us - at[SENT])
            (<list>sums)[0] += answered_us > at[DEADLINE]
            (<list>sums)[1] += at[PLACES]
        for index in range(self.count):
            self.waiting._remove(<Asked>self.asked[self.hits[index].asked], self.hits[index].row)
        finish_batch(&self.output, self.count, answered_us // 1000)
        data = PyBytes_FromStringAndSize(<const char*>self.output.data, <Py_ssize_t>self.output.size)
        return data, [*zip(spans[::2], spans[1::2])], noted

    cdef Who _who(self, Asked asked, Py_ssize_t row, bytes application, int64_t answered_us) noexcept:
        cdef const int64_t* at = asked.row(row)
        cdef Who who
        who.id, who.application, who.key = asked.text(row, ID), text_of(application), asked.text(row, KEY)
        who.context, who.token, who.heads = asked.text(row, CONTEXT), asked.text(row, TOKEN), asked.text(row, HEADS)
        who.sent_us, who.received_us, who.deadline_us, who.answered_us = (
            at[SENT], asked.received_us, at[DEADLINE], answered_us
        )
        return who


cdef int64_t _size(const int64_t* at, int fields) noexcept:
    """Return the bytes of a row's first texts."""
    cdef int field
    cdef int64_t size = 0
    for field in range(fields):
        size += max(at[ID + field], 0)
    return size


cdef int64_t _bucket(int64_t time_us) noexcept:
    return time_us - (time_us % BUCKET_US + BUCKET_US) % BUCKET_US


cdef uint64_t _hash(int partition, Text row_id) noexcept:
    return hash_of(row_id.at, row_id.size) + <uint64_t>partition * 0x9E3779B97F4A7C15ULL


cdef void _put(Entry* entries, Py_ssize_t room, Entry entry) noexcept:
    cdef Py_ssize_t index = <Py_ssize_t>(entry.hash & <uint64_t>(room - 1))
    while entries[index].asked:
        index = (index + 1) & (room - 1)
    entries[index] = entry
