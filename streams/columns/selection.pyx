# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Queries of the common form in C: from record batches to rows of models, and from answers to record batches.

    batches ─▶ Poll: a row a query ─▶ ask: draws, one matrix an arm ─▶ the models ─▶ answer: record batches, spans
                  └─ whatever is unusual ─▶ `left`, for Python

A row points into the bytes that were fetched; nothing of a query becomes an object of Python.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset
from streams.columns.batches cimport (
    Opened, Output, Slices, Taken, begin_batch, finish_batch, next_record, release, write_bytes
)
from streams.columns.draw cimport MOST_DRAWN, draw_begin, draw_of
from streams.columns.saying cimport (
    KINDS, Answer, Who, answer_at, answers_in, begin_prediction, end_prediction, write_prediction
)
from streams.columns.texts cimport (
    Place, Text, as_bytes, is_utf8, place_in, read_byte, read_bytes, read_double, read_long, read_same, read_text, same, text_of
)
from streams.operators.id_times cimport IdTimes, hash_of

cdef enum:
    MOST_ARMS = 64
    MOST_CONTEXT = 1024  # bytes; Python takes longer ones
    MOST_TOKEN = 256
    PLACE_BYTES = 1024  # as `operators.selection.pending.PLACE_BYTES`
    LEFT = -1  # instead of a lane
    TAKEN = -3  # instead of a lane: its model is asked elsewhere
    SEVERAL = -4  # instead of a lane: an id of several
    WAITS = -5  # instead of a lane: left, and it does not matter which rows that are not left come first
    HANDED = -6  # instead of a lane: left, and Python has it
    LATE = -16  # minus its lane, instead of that: its time was over when it came
    TAKEN_FIELDS = 14  # of a row that is taken

# Why a query is left to Python; `WHYS` has their words.
cdef enum:
    FINE = 0
    FOREIGN = 1
    APPLICATION = 2
    INPUT = 3
    FIELDS = 4
    TIMES = 5
    HEADERS = 6
    STATE = 7
    IDS = 10

WHYS = ("", "foreign", "application", "input", "fields", "times", "headers", "state", "model", "turns", "ids", "timed")

cdef extern from *:
    """
    #include <stdint.h>
    #include <stddef.h>
    /* CRC-32 as zlib has it, four bits a step: of texts that are short. */
    static uint32_t crc32_of(const uint8_t *at, size_t size) {
        static const uint32_t STEPS[16] = {
            0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
            0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
        uint32_t crc = 0xffffffffu;
        for (; size; size--, at++) {
            crc ^= *at;
            crc = crc >> 4 ^ STEPS[crc & 15];
            crc = crc >> 4 ^ STEPS[crc & 15];
        }
        return ~crc;
    }
    """
    uint32_t crc32_of(const uint8_t* at, size_t size) noexcept nogil

cdef int64_t AHEAD_US = 1_000_000  # as `operators.times.AHEAD_US`
cdef int64_t MOST_AGE_US = 1 << 45  # a year: so far apart sums of times do not overflow
cdef uint32_t MARKS = 1 << 12  # as in `operators.ids`

cdef struct Row:
    Text id, key, context, token, heads  # a context of size -1: it has none
    const uint8_t* numbers
    int64_t offset, sent_us, deadline_us
    int lane, arm, batch, why, state
    bint has_clock  # it says itself when it was sent
    int64_t places  # that it takes, see `pending.Quota`
    Py_ssize_t place  # among the rows of its arm


cdef class State:
    """A policy's state: how arms are drawn by it, and how its decisions are written.

    Args:
        cumulative: sums of the arms' propensities.

    Raises:
        ValueError: there are none, or too many.
    """

    cdef double cumulative[MOST_ARMS]
    cdef readonly int arms
    cdef list decided

    def __init__(self, tuple cumulative not None):
        if not 0 < len(cumulative) <= MOST_ARMS:
            raise ValueError("no such number of arms")
        for index, total in enumerate(cumulative):
            self.cumulative[index] = total
        self.arms = <int>len(cumulative)
        self.decided = [None] * (KINDS * self.arms)

    def decide(self, Py_ssize_t arm, int kind, bytes decided not None):
        """Write an arm's decision like this, before an answer of a kind.

        Raises:
            ValueError: there is no such arm or kind.
        """
        if not 0 <= arm < self.arms or not 0 <= kind < KINDS:
            raise ValueError("no such arm")
        self.decided[KINDS * arm + kind] = decided

    def is_decided(self, Py_ssize_t arm, int kind):
        """Tell whether it is known how an arm's decision is written."""
        return 0 <= arm < self.arms and 0 <= kind < KINDS and self.decided[KINDS * arm + kind] is not None

    cdef int arm_of(self, double u) noexcept:
        """Return the arm that a draw gives: the inverse CDF, as `bisect_right` finds it."""
        cdef double wanted = u * self.cumulative[self.arms - 1]
        cdef int arm = 0
        while arm < self.arms - 1 and self.cumulative[arm] <= wanted:
            arm += 1
        return arm


cdef class Lane:
    """One application, as columns answer it.

    Args:
        name: its own, UTF-8.
        form: a `pieces.QueryForm`.
        slo_us: its objective.
        longest_us: that a query may have.
        margin_us: how long before the deadline an answer leaves; -1 = as follows from the objective.
        margins: if so, the part of the objective, and the most (us).
    """

    cdef bytes name, head, given, middle, tail
    cdef Py_ssize_t width
    cdef int64_t slo_us, longest_us, margin_us, margin_part, most_margin_us
    cdef tuple states  # that decide the rows of a poll
    cdef bint asks_all  # whether all arms are asked
    cdef bytes head_of_answers, tail_of_answers
    cdef list middles  # of answers, by state and code
    cdef bytes codes_of  # a code for each row, of what all models have answered
    cdef Py_ssize_t codes, coded
    cdef int arms
    cdef int kinds[MOST_ARMS]
    cdef Py_ssize_t rows[MOST_ARMS]
    cdef list forms, answers

    def __init__(
        self, bytes name not None, tuple form not None, int64_t slo_us, int64_t longest_us, int64_t margin_us,
        tuple margins not None
    ):
        self.name, self.states = name, ()
        self.head, self.given, self.width, self.middle, self.tail = form
        self.slo_us, self.longest_us, self.margin_us = slo_us, longest_us, margin_us
        self.margin_part, self.most_margin_us = margins
        self.arms = 0
        self.forms, self.answers = [], []

    cdef int64_t margin_of(self, int64_t slo_us) noexcept:
        """Return how long before its deadline the answer to a query leaves."""
        return min(slo_us // self.margin_part, self.most_margin_us) if self.margin_us < 0 else self.margin_us

    def decide_by(self, tuple states not None, bint asks_all=False):
        """Decide the next poll's rows by these states: one for all, or one for each of `Poll.contexts`.

        Args:
            states: which.
            asks_all: whether they ask all arms, and answer by what these have answered together.

        Raises:
            ValueError: they have not the same number of arms.
        """
        self.states, self.arms = (), 0
        for state in states:
            if self.arms and (<State?>state).arms != self.arms:
                raise ValueError("not the same arms")
            self.arms = (<State?>state).arms
        self.states, self.asks_all, self.coded = states, asks_all, 0
        self.forms, self.answers = [None] * self.arms, [None] * self.arms

    def say_together(
        self, Py_ssize_t codes, bytes codes_of not None, list middles not None, bytes head not None, bytes tail not None
    ):
        """Take what all models have answered together.

        Args:
            codes: how many different answers there are.
            codes_of: which of them each row has, as whole numbers of 64 bits.
            middles: what stands between context and times, by state and code; None = no row has both.
            head: framing of an answer.
            tail: behind its token.

        Raises:
            ValueError: these do not fit together.
        """
        if codes < 1 or len(middles) != codes * len(self.states):
            raise ValueError("not an answer a state and code")
        for middle in middles:
            if middle is not None:
                <bytes?>middle
        self.codes, self.codes_of, self.coded, self.middles = codes, codes_of, len(codes_of) // 8, middles
        self.head_of_answers, self.tail_of_answers = head, tail

    cdef object middle_of(self, int state, Py_ssize_t place):
        """Return what stands in the middle of a row's answer.

        Raises:
            ValueError: nothing was said of it.
        """
        cdef int64_t code = -1
        if 0 <= place < self.coded and 0 <= state < len(self.states):
            memcpy(&code, PyBytes_AS_STRING(self.codes_of) + 8 * place, 8)
        if not 0 <= code < self.codes or self.middles[state * self.codes + code] is None:
            raise ValueError("no answer for a row")
        return self.middles[state * self.codes + code]

    def say(self, Py_ssize_t arm, Py_ssize_t rows, int kind, object answers not None, tuple form not None):
        """Take an arm's answers.

        Args:
            arm: that was asked.
            rows: answers.
            kind: of them: 0 = whole numbers, 1 = doubles, 2 = texts.
            answers: bytes of as many numbers of 64 bits; or a list of as many byte strings.
            form: a `pieces.AnswerForm`.

        Raises:
            ValueError: these are not as many.
        """
        if not 0 <= arm < self.arms or len(form) != 5 or not 0 <= kind < KINDS:
            raise ValueError("no such arm")
        if answers_in(kind, answers) != rows:
            raise ValueError("not an answer a row")
        for piece in form:
            <bytes?>piece
        self.kinds[arm], self.rows[arm], self.answers[arm], self.forms[arm] = kind, rows, answers, form


cdef class Poll:
    """The queries of some record batches.

    Args:
        batches: `contract.Batch`es.
        lanes: of the applications that columns answer.
        now_us: the time.
        slices: what was read last of a batch that comes in several polls.

    Raises:
        ValueError: a batch is not what it says: Python takes them all.
    """

    cdef list batches
    cdef Slices slices
    cdef tuple lanes
    cdef int64_t now_us
    cdef Row* rows
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t room, late_rows
    cdef uint64_t begun[8]
    cdef Output output

    def __init__(self, list batches not None, tuple lanes not None, int64_t now_us, Slices slices=None):
        cdef Py_ssize_t index
        if not lanes:
            raise ValueError("nothing is answered here")
        self.batches, self.lanes, self.now_us = batches, lanes, now_us
        self.slices = Slices() if slices is None else slices
        draw_begin(b"select", 6, self.begun)
        for lane in lanes:
            <Lane?>lane
        for index in range(len(batches)):
            self._read(<int>index)

    def __dealloc__(self):
        free(self.rows)
        release(&self.output)

    cdef int _read(self, int index) except -1:
        _, _, first, end, data = self.batches[index]
        cdef int64_t begin_at = first, end_at = end
        cdef Opened batch = self.slices.opened(<bytes?>data, begin_at)
        cdef Taken record
        while batch.base + batch.next < end_at and next_record(&batch, &record):
            self._add(&record, index)
        self.slices.leave(&batch)
        return 0

    cdef int _add(self, Taken* record, int batch) except -1:
        cdef void* grown
        cdef Row* row
        if self.count == self.room:
            self.room = 2 * self.room + 64
            grown = realloc(self.rows, self.room * sizeof(Row))
            if grown == NULL:
                raise MemoryError
            self.rows = <Row*>grown
        row = self.rows + self.count
        memset(row, 0, sizeof(Row))
        row.offset, row.key, row.batch, row.lane = record.offset, record.key, batch, LEFT
        row.why = self._classified(record, row)
        self.count += 1
        return 0

    cdef int _classified(self, Taken* record, Row* row) except -1:
        """Read a query into its row; returns why it is left to Python."""
        cdef Place place = place_in(record.value)
        cdef Text name
        cdef int index
        if not record.are_names:
            return HEADERS
        row.heads = record.heads
        if not read_same(&place, text_of((<Lane>self.lanes[0]).head)):
            return FOREIGN
        row.id, name = read_text(&place), read_text(&place)
        if place.bad:
            return FOREIGN
        for index in range(<int>len(self.lanes)):
            if same(name, text_of((<Lane>self.lanes[index]).name)):
                return self._fields(record, row, &place, index)
        return APPLICATION

    cdef int _fields(self, Taken* record, Row* row, Place* place, int found) except -1:
        cdef Lane lane = <Lane>self.lanes[found]
        cdef double slo_ms = -1.0
        cdef uint8_t has_context, has_slo
        if not read_same(place, text_of(lane.given)):
            return INPUT
        row.numbers = read_bytes(place, lane.width).at
        has_context = read_byte(place)
        row.context.size = -1
        if has_context == 2:
            row.context = read_text(place)
        row.sent_us, has_slo = read_long(place), read_byte(place)
        if has_slo == 2:
            slo_ms = read_double(place)
        if place.bad or has_context & 0xFD or has_slo & 0xFD or not read_same(place, text_of(lane.middle)):
            return FIELDS
        row.token = read_text(place)
        if not read_same(place, text_of(lane.tail)) or place.bad or place.at != place.end:
            return FIELDS
        if not 0 < row.id.size <= MOST_DRAWN or row.context.size > MOST_CONTEXT or row.token.size > MOST_TOKEN:
            return FIELDS
        if not is_utf8(row.id) or not is_utf8(row.token) or row.context.size > 0 and not is_utf8(row.context):
            return FIELDS
        if has_slo and not (isfinite(slo_ms) and 0.0 <= slo_ms * 1000.0 <= <double>lane.longest_us):
            return FIELDS
        row.places = 1
        if record.value.size > PLACE_BYTES or record.headers:
            row.places += (record.value.size - lane.width + max(record.key.size, 0) + record.heads_size) // PLACE_BYTES
        return self._times(record, row, lane, <int64_t>(slo_ms * 1000.0) if has_slo else lane.slo_us, found)

    cdef int _times(self, Taken* record, Row* row, Lane lane, int64_t slo_us, int found) noexcept:
        """Tell whether there is time for an answer; the clock of its sender is right, or Python says so."""
        cdef int64_t margin_us = lane.margin_of(slo_us)
        row.has_clock = row.sent_us != 0
        row.sent_us = row.sent_us or record.stamp_us
        # So far apart that sums cannot overflow.
        if not self.now_us - MOST_AGE_US < row.sent_us <= self.now_us + AHEAD_US:
            return TIMES
        row.deadline_us = row.sent_us + slo_us
        if row.deadline_us - margin_us > self.now_us:
            row.lane = found
        elif row.sent_us <= self.now_us:
            row.lane = LATE - found
            self.late_rows += 1
        else:
            return TIMES
        return FINE

    def late(self):
        """Return which lanes have rows whose time was over when they came, and are answered first of all.

        Who has the id of another row is left to Python: there it is seen who comes first. So are all, if a row's id is
        not known.
        """
        cdef Py_ssize_t index
        cdef int why
        cdef set others = set(), found = set()
        cdef bint is_known = True
        if not self.late_rows:
            return found
        for index in range(self.count):
            why = self.rows[index].why
            is_known = is_known and why != HEADERS and why != FOREIGN
            if self.rows[index].lane > LATE:
                others.add(self._id(self.rows + index))
        for index in range(self.count):
            if self.rows[index].lane <= LATE:
                if not is_known or self._id(self.rows + index) in others:
                    self.rows[index].lane, self.rows[index].why = LEFT, TIMES
                else:
                    found.add(LATE - self.rows[index].lane)
        return found

    def leave_late(self, int lane):
        """Leave a lane's late rows to Python."""
        cdef Py_ssize_t index
        for index in range(self.count):
            if self.rows[index].lane == LATE - lane:
                self.rows[index].lane, self.rows[index].why = LEFT, TIMES

    def ages(self, int lane):
        """Return how long ago a lane's late rows were sent (us), and whether they say so themselves."""
        cdef Py_ssize_t index
        cdef list found = []
        for index in range(self.count):
            if self.rows[index].lane == LATE - lane:
                found.append((self.now_us - self.rows[index].sent_us, bool(self.rows[index].has_clock)))
        return found

    def answer_late(
        self, int number, tuple form not None, list messages not None, recents not None, Py_ssize_t most_bytes
    ):
        """Answer a lane's late rows by default.

        Args:
            number: of the lane.
            form: a `pieces.LateForm`.
            messages: row by row, as they are written.
            recents: as of `answer`.
            most_bytes: of a record batch, unless one record has more.

        Returns:
            An `Answered`.

        Raises:
            ValueError: there is not a message a row.
        """
        cdef bytes head, middle, before, behind
        cdef Answered answered = Answered([(<Lane>lane).arms for lane in self.lanes])
        cdef Lane lane = <Lane?>self.lanes[number]
        cdef Recent recent = None
        cdef Row* row
        cdef Py_ssize_t index, place = 0, written_rows = -1
        cdef int partition = -1, found
        head, middle, before, behind = form
        for index in range(self.count):
            row = self.rows + index
            if row.lane != LATE - number:
                continue
            if place >= len(messages):
                raise ValueError("not a message a row")
            found = self.batches[row.batch][1]
            if found != partition or <Py_ssize_t>self.output.size > most_bytes:
                self._close(answered, partition, written_rows, self.now_us)
                recent, partition, written_rows = recents(number, found), found, 0
                begin_batch(&self.output)
            row.lane = TAKEN
            if recent.add(row):
                tail = before + <bytes?>messages[place] + behind
                self._write_late(row, lane, written_rows, text_of(head), text_of(middle), text_of(tail))
                answered.note_late(row, number, self.now_us)
                written_rows += 1
            else:
                answered.again(partition, row.offset, number)
            place += 1
        self._close(answered, partition, written_rows, self.now_us)
        return answered

    cdef int _write_late(self, Row* row, Lane lane, Py_ssize_t number, Text head, Text middle, Text tail) except -1:
        cdef Who who = self._who(row, lane, self.now_us)
        begin_prediction(&self.output, number, &who, head, <size_t>middle.size, tail)
        write_bytes(&self.output, middle)
        return end_prediction(&self.output, &who, tail)

    def runs(self):
        """Return the runs of rows that are answered here or left, in order: whether they are left, and from where on.

        Rows that wait for states make no run of their own: `leave_states`.
        """
        cdef Py_ssize_t index
        cdef list found = []
        cdef int is_left, last = -1
        for index in range(self.count):
            is_left = self.rows[index].lane == LEFT
            if self.rows[index].lane != WAITS and self.rows[index].lane != TAKEN and is_left != last:
                found.append((is_left == 1, index))
                last = is_left
        return found

    def whys(self):
        """Return how many rows are left to Python, by why."""
        cdef Py_ssize_t index
        cdef list found = [0] * len(WHYS)
        for index in range(self.count):
            found[self.rows[index].why] += 1
        return dict(zip(WHYS[1:], found[1:]))

    def is_left(self, Py_ssize_t begin, Py_ssize_t end):
        """Tell whether a row of some is left to Python and must keep its place."""
        cdef Py_ssize_t index
        self._check(begin, end)
        for index in range(begin, end):
            if self.rows[index].lane == LEFT:
                return True
        return False

    def hand_over(self, Py_ssize_t end):
        """Return batch and offset of the rows before one that are left to Python, by their order, each once."""
        cdef Py_ssize_t index
        cdef list found = []
        self._check(0, end)
        for index in range(end):
            if self.rows[index].lane == LEFT or self.rows[index].lane == WAITS:
                found.append((self.rows[index].batch, self.rows[index].offset))
                self.rows[index].lane = HANDED
        return found

    def partitions(self):
        """Return the partitions of the batches."""
        return {each[1] for each in self.batches}

    def lanes_of(self, Py_ssize_t begin, Py_ssize_t end):
        """Return which lanes rows have."""
        cdef Py_ssize_t index
        cdef set found = set()
        self._check(begin, end)
        for index in range(begin, end):
            found.add(self.rows[index].lane)
        return {lane for lane in found if lane >= 0}

    def decided(self, Py_ssize_t begin, Py_ssize_t end, int lane):
        """Return which arms each state has drawn for a lane's rows, as pairs of a state's place and an arm."""
        cdef Py_ssize_t index
        cdef set found = set()
        self._check(begin, end)
        for index in range(begin, end):
            if self.rows[index].lane == lane:
                found.add((self.rows[index].state, self.rows[index].arm))
        return found

    def coded(self, Py_ssize_t begin, Py_ssize_t end, int lane, bytes codes_of not None):
        """Return which states and codes a lane's rows have together, as pairs of places.

        Args:
            begin: of the rows.
            end: behind the last one.
            lane: whose.
            codes_of: the code of each row that asks, as whole numbers of 64 bits.
        """
        cdef Py_ssize_t index
        cdef int64_t code
        cdef set found = set()
        self._check(begin, end)
        for index in range(begin, end):
            if self.rows[index].lane == lane:
                if not 0 <= 8 * self.rows[index].place < len(codes_of):
                    raise ValueError("not a code a row")
                memcpy(&code, PyBytes_AS_STRING(codes_of) + 8 * self.rows[index].place, 8)
                found.add((self.rows[index].state, code))
        return found

    def contexts(self, int lane):
        """Return the contexts that a lane's rows have, each once; a row is decided by the state in its context's place.

        Returns:
            Texts, None = no context.
        """
        cdef dict places = {}
        cdef Py_ssize_t index
        cdef Row* row
        for index in range(self.count):
            row = self.rows + index
            if row.lane == lane:
                row.state = places.setdefault(as_bytes(row.context), len(places))
        return [None if context is None else (<bytes>context).decode() for context in places]

    def leave_states(self, int lane, set states not None, bint in_order=True):
        """Leave the rows of a lane to Python whose states have these places.

        Args:
            lane: whose.
            states: places.
            in_order: whether such a row keeps its place among all; else only among those that are left, unless its id
                is one of the lane's other rows, too.
        """
        cdef set ids = set() if in_order else self._ids(lane, states)
        cdef Py_ssize_t index
        cdef Row* row
        for index in range(self.count):
            row = self.rows + index
            if row.lane == lane and row.state in states:
                row.lane, row.why = LEFT if in_order or self._id(row) in ids else WAITS, STATE

    cdef set _ids(self, int lane, set states):
        """Return the ids that a lane's rows have whose states are others."""
        cdef set found = set()
        cdef Py_ssize_t index
        for index in range(self.count):
            if self.rows[index].lane == lane and self.rows[index].state not in states:
                found.add(self._id(self.rows + index))
        return found

    cdef tuple _id(self, Row* row):
        return self.batches[row.batch][1], hash_of(row.id.at, row.id.size)

    def leave_shared(self, set lanes not None):
        """Leave rows of these lanes to Python that ask for several under one id: who comes first is seen there."""
        cdef dict known = {}
        cdef Py_ssize_t index
        cdef Row* row
        cdef int other
        for index in range(self.count):
            row = self.rows + index
            if row.lane in lanes:
                key = self._id(row)
                other = known.setdefault(key, row.lane)
                if other != row.lane:
                    known[key] = SEVERAL
        for index in range(self.count):
            row = self.rows + index
            if row.lane in lanes and known[self._id(row)] == SEVERAL:
                row.lane, row.why = LEFT, IDS

    def leave(self, Py_ssize_t begin, int lane, str why not None):
        """Leave the rows of a lane to Python from one on, for a reason of `WHYS`."""
        cdef Py_ssize_t index
        cdef int said = WHYS.index(why)
        self._check(begin, self.count)
        for index in range(begin, self.count):
            if self.rows[index].lane == lane:
                self.rows[index].lane, self.rows[index].why = LEFT, said

    def ask(self, Py_ssize_t begin, Py_ssize_t end, int number):
        """Draw the arms of a lane's rows: of copies, too, which are seen when they are answered, in their order.

        Args:
            begin: of the rows.
            end: behind the last one.
            number: of the lane.

        Returns:
            Of each arm that is asked: its number, how many rows it has, and their numbers, row after row.
        """
        cdef Lane lane = <Lane?>self.lanes[number]
        cdef Py_ssize_t taken[MOST_ARMS]
        cdef Py_ssize_t index
        cdef Row* row
        self._check(begin, end)
        memset(taken, 0, sizeof(taken))
        for index in range(begin, end):
            row = self.rows + index
            if row.lane != number:
                continue
            row.arm = 0 if lane.asks_all else self._draw(row, lane)
            row.place = taken[row.arm]
            taken[row.arm] += 1
        return self._matrices(begin, end, number, taken)

    cdef int _draw(self, Row* row, Lane lane) except -2:
        if not 0 <= row.state < len(lane.states):
            raise ValueError("no such state")
        if lane.arms == 1:
            return 0
        return (<State>lane.states[row.state]).arm_of(draw_of(row.id.at, <size_t>row.id.size, self.begun))

    cdef list _matrices(self, Py_ssize_t begin, Py_ssize_t end, int number, const Py_ssize_t* taken):
        cdef Lane lane = <Lane>self.lanes[number]
        cdef char* at[MOST_ARMS]
        cdef bytes made
        cdef list found = []
        cdef Py_ssize_t index
        cdef int arm
        for arm in range(lane.arms):
            if taken[arm]:
                made = PyBytes_FromStringAndSize(NULL, taken[arm] * lane.width)
                at[arm] = PyBytes_AS_STRING(made)
                found.append((arm, taken[arm], made))
        for index in range(begin, end):
            arm = self.rows[index].arm
            if self.rows[index].lane == number:
                memcpy(at[arm], self.rows[index].numbers, <size_t>lane.width)
                at[arm] += lane.width
        return found

    cdef int _check(self, Py_ssize_t begin, Py_ssize_t end) except -1:
        if not 0 <= begin <= end <= self.count:
            raise ValueError("no such rows")
        return 0

    def answer(self, Py_ssize_t begin, Py_ssize_t end, int64_t answered_us, recents not None, Py_ssize_t most_bytes):
        """Write the answers of rows, by what their lanes were told to say.

        Args:
            begin: of the rows.
            end: behind the last one.
            answered_us: when the answers were there.
            recents: of a lane and a partition, a `Recent`: the ids that its application has had, to which these are added.
            most_bytes: of a record batch, unless one record has more.

        Returns:
            An `Answered`.
        """
        cdef Answered answered = Answered([(<Lane>lane).arms for lane in self.lanes])
        cdef Recent recent = None
        cdef Row* row
        cdef Py_ssize_t index, number = -1
        cdef int number_of_lane = LEFT, partition = -1, found
        self._check(begin, end)
        for index in range(begin, end):
            row = self.rows + index
            if row.lane < 0:
                continue
            found = self.batches[row.batch][1]
            if found != partition or number_of_lane != row.lane:
                recent = recents(row.lane, found)
            if found != partition or <Py_ssize_t>self.output.size > most_bytes:
                self._close(answered, partition, number, answered_us)
                partition, number = found, 0
                begin_batch(&self.output)
            number_of_lane = row.lane
            if not recent.add(row):
                answered.again(partition, row.offset, row.lane)
                continue
            if (<Lane>self.lanes[row.lane]).asks_all:
                self._write_together(row, <Lane>self.lanes[row.lane], number, answered_us)
            else:
                self._write(row, <Lane>self.lanes[row.lane], number, answered_us)
            answered.note(row, answered_us)
            number += 1
        self._close(answered, partition, number, answered_us)
        return answered

    cdef int _close(self, Answered answered, int partition, Py_ssize_t count, int64_t answered_us) except -1:
        if count > 0:
            finish_batch(&self.output, count, answered_us // 1000)
            data = PyBytes_FromStringAndSize(<const char*>self.output.data, <Py_ssize_t>self.output.size)
            answered.close(partition, data, count)
        return 0

    cdef int _write(self, Row* row, Lane lane, Py_ssize_t number, int64_t answered_us) except -1:
        """Write an answer; pieces and answers stay while the lane has them."""
        if not 0 <= row.arm < lane.arms or not 0 <= row.state < len(lane.states):
            raise ValueError("a row was drawn by other states")
        cdef Who who = self._who(row, lane, answered_us)
        cdef int kind = lane.kinds[row.arm]
        cdef object form = lane.forms[row.arm], decision = (<State>lane.states[row.state]).decided[KINDS * row.arm + kind]
        if form is None or decision is None or row.place >= lane.rows[row.arm]:
            raise ValueError("an arm has not answered, or it is not known how its decision is written")
        cdef Answer answer = answer_at(kind, lane.answers[row.arm], row.place)
        return write_prediction(&self.output, number, &who, <tuple>form, <bytes>decision, &answer, text_of(b""))

    cdef int _write_together(self, Row* row, Lane lane, Py_ssize_t number, int64_t answered_us) except -1:
        """Write an answer that several models have given together."""
        cdef Who who = self._who(row, lane, answered_us)
        cdef object kept = lane.middle_of(row.state, row.place)
        cdef Text middle = text_of(<bytes>kept), tail = text_of(lane.tail_of_answers)
        begin_prediction(&self.output, number, &who, text_of(lane.head_of_answers), <size_t>middle.size, tail)
        write_bytes(&self.output, middle)
        return end_prediction(&self.output, &who, tail)

    cdef Who _who(self, Row* row, Lane lane, int64_t answered_us) noexcept:
        cdef Who who
        who.id, who.application, who.key = row.id, text_of(lane.name), row.key
        who.context, who.token, who.heads = row.context, row.token, row.heads
        who.sent_us, who.received_us, who.deadline_us, who.answered_us = (
            row.sent_us, self.now_us, row.deadline_us, answered_us
        )
        return who

    def places_of(self, int number):
        """Return how many places a lane's rows take together."""
        cdef Py_ssize_t index
        cdef int64_t places = 0
        for index in range(self.count):
            if self.rows[index].lane == number:
                places += self.rows[index].places
        return places

    def take(self, Py_ssize_t begin, Py_ssize_t end, int number, recents not None):
        """Take the rows of a lane whose models are asked elsewhere, with the arms that they draw.

        Args:
            begin: of the rows.
            end: behind the last one.
            number: of the lane.
            recents: as of `answer`.

        Returns:
            The new ones, as `TAKEN_FIELDS` numbers of 64 bits each (partition, offset, when sent, deadline, until when
            it waits, arm, state, places; where its texts begin, sizes of id, key, context, token and headers, -1 = it
            has none); their texts; their inputs; partitions and offsets of copies.
        """
        cdef Recent recent = None
        cdef Output texts, inputs
        cdef Py_ssize_t index
        cdef list copies = []
        cdef int partition = -1
        self._check(begin, end)
        memset(&texts, 0, sizeof(texts))
        memset(&inputs, 0, sizeof(inputs))
        self.output.size = 0
        try:
            for index in range(begin, end):
                if self.rows[index].lane != number:
                    continue
                if recent is None or partition != self.batches[self.rows[index].batch][1]:
                    partition = self.batches[self.rows[index].batch][1]
                    recent = recents(number, partition)
                if recent.add(self.rows + index):
                    self._take(self.rows + index, <Lane?>self.lanes[number], partition, &texts, &inputs)
                else:
                    copies.append((partition, self.rows[index].offset))
                self.rows[index].lane = TAKEN
            return written(&self.output), written(&texts), written(&inputs), copies
        finally:
            release(&texts)
            release(&inputs)

    cdef int _take(self, Row* row, Lane lane, int partition, Output* texts, Output* inputs) except -1:
        cdef int64_t numbers[TAKEN_FIELDS]
        cdef Text given
        numbers[0], numbers[1], numbers[2], numbers[3] = partition, row.offset, row.sent_us, row.deadline_us
        numbers[4] = row.deadline_us - lane.margin_of(row.deadline_us - row.sent_us)
        numbers[5], numbers[6], numbers[7], numbers[8] = self._draw(row, lane), row.state, row.places, <int64_t>texts.size
        numbers[9], numbers[10], numbers[11] = row.id.size, row.key.size, row.context.size
        numbers[12], numbers[13] = row.token.size, row.heads.size
        write_bytes(texts, row.id)
        write_bytes(texts, row.key)
        write_bytes(texts, row.context)
        write_bytes(texts, row.token)
        write_bytes(texts, row.heads)
        given.at, given.size = row.numbers, lane.width
        write_bytes(inputs, given)
        given.at, given.size = <const uint8_t*>numbers, sizeof(numbers)
        return write_bytes(&self.output, given)


cdef bytes written(Output* output):
    return PyBytes_FromStringAndSize(<const char*>output.data, <Py_ssize_t>output.size)


cdef class Answered:
    """What became of rows.

    Args:
        arms: of each lane.

    Attributes:
        batches: partition, bytes, number of records, and the spans (begin, end) of the queries that they answer.
        copies: partition and offset of queries whose ids were known.
    """

    cdef readonly list batches, copies
    cdef list _spans, _arms, _taken, _durations, _late, _slacks

    def __init__(self, list arms not None):
        self.batches, self.copies, self._spans = [], [], []
        self._arms = [[0] * count for count in arms]
        self._taken, self._late, self._slacks = [0] * len(arms), [0] * len(arms), [-1] * len(arms)
        self._durations = [[] for _ in arms]

    def of(self, Py_ssize_t lane):
        """Return of a lane its answers by arm, all its rows, copies too, how long each answer took from when its query
        was sent (us), how many were late, and what the last query had for an answer (us); -1 = there was none."""
        return self._arms[lane], self._taken[lane], self._durations[lane], self._late[lane], self._slacks[lane]

    cdef int again(self, int partition, int64_t offset, int lane) except -1:
        self.copies.append((partition, offset))
        self._taken[lane] += 1
        return 0

    cdef int note(self, Row* row, int64_t answered_us) except -1:
        cdef list arms = self._arms[row.lane]
        arms[row.arm] += 1
        self._slacks[row.lane] = row.deadline_us - row.sent_us
        return self.note_late(row, row.lane, answered_us)

    cdef int note_late(self, Row* row, int lane, int64_t answered_us) except -1:
        """Note an answer that nobody was asked for."""
        cdef list spans = self._spans
        if spans and spans[len(spans) - 1] == row.offset:
            spans[len(spans) - 1] = row.offset + 1
        else:
            spans.append(row.offset)
            spans.append(row.offset + 1)
        self._taken[lane] += 1
        self._late[lane] += answered_us > row.deadline_us
        (<list>self._durations[lane]).append(answered_us - row.sent_us)
        return 0

    cdef int close(self, int partition, bytes data, Py_ssize_t count) except -1:
        spans, self._spans = self._spans, []
        self.batches.append((partition, data, count, [*zip(spans[::2], spans[1::2])]))
        return 0


cdef class Recent:
    """The ids of one application and partition, as `ids.RecentIds` keeps them.

    Args:
        ids: with their generations.
        generation: the latest.
        size: ids of it.
        capacity: of a generation.
    """

    cdef IdTimes ids
    cdef readonly uint32_t generation
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t capacity

    def __init__(self, IdTimes ids not None, uint32_t generation, Py_ssize_t size, Py_ssize_t capacity):
        self.ids, self.generation, self.size, self.capacity = ids, generation, size, capacity

    cdef bint add(self, Row* row) except -1:
        """Remember a row's id; tell whether it is new."""
        cdef uint64_t key = hash_of(row.id.at, row.id.size)
        cdef uint32_t oldest = self.generation - MARKS, mark = mark_of(row.token)
        cdef uint32_t known = self.ids.put_key(key, self.generation + mark, oldest)
        if known >= oldest and known % MARKS == mark:
            if known < self.generation:  # a copy takes no room of its own: it stays where the first is
                self.ids.put_key(key, known, oldest)
            return False
        self.size += 1
        if self.size >= self.capacity:
            self.generation, self.size = self.generation + MARKS, 0
        return True


cdef uint32_t mark_of(Text token) noexcept:
    return crc32_of(token.at, <size_t>token.size) % MARKS if token.size > 0 else 0
