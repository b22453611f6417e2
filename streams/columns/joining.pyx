# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Predictions that wait and feedback that is joined with them, over the bytes of whole record batches.

    predictions ──wait──▶ the kernel's own memory ──join──▶ rows of one chunk ──▶ record batches of observations
         └──────────────────────────┴─▶ whatever is not of the common form: a record, for the kernel

What waits lies where the kernel has it, so either way goes on from the other at any record. Up to 64 rows are one chunk,
as with the kernel, whose observations of one state are one record. If a row of it has to go to the kernel, all rows of
its chunk do, and so records are cut alike.
"""

from libc.math cimport NAN, fabs, isfinite, pow
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy, memset
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from streams.columns.batches cimport (
    Opened, Output, Slices, Taken, begin_batch, begin_record, big, end_record, finish_batch, grow, long_size, next_record,
    put_big, release, write_byte, write_bytes, write_double, write_long,
)
from streams.columns.predictions cimport (
    DOUBLE, GIVEN, LABEL_LONG, LABEL_TEXT, LONG, MOST_OUTPUTS, NOTHING, TEXT, Decided, Predicted, expect, moved, read_context, read_name,
    read_prediction, read_value,
)
from streams.columns.texts cimport (
    Place, Text, as_bytes, as_str, hashed, none, place_in, read_byte, read_bytes, read_double, read_long, read_same,
    same, text_of,
)
from streams.operators.id_times cimport IdTimes

from streams.operators.contract import Batch, EmitBatch, Record, Span
from streams.operators.join.buffer import Ending

cdef enum:
    TOGETHER = 64  # rows of a chunk, as `streams.operators.join.outcomes` has it
    OFFSET_BYTES = 8  # before a prediction that waits, as `JoinBuffer` has it
    SHORT_ID = 128  # characters; each takes a byte at least
    SHORT_NAME = 128  # of a teacher: longer ones are cut, as `streams.operators.join.terms` has it
    BATCH_BYTES = 262144  # from which on a batch is finished
    MOST_KEPT = 1024  # names of policies, and of applications

cdef enum:  # what feedback is for
    UNUSUAL = 0
    ALONE = 1
    FITS = 2
    KEPT = 3

cdef enum Loss:
    OTHER = 0  # than these; where the loss itself is told, its kind does not matter
    ZERO_ONE = 1
    ABSOLUTE = 2
    SQUARED = 3
    PRICED = 4  # with costs in a unit, or by weight: the kernel's, however they are told

cdef object _new = tuple.__new__  # of a named tuple: a third of what its own takes

cdef enum:  # what an observation holds
    MORE = 0  # more than columns write
    LOSSES = 1
    ANSWERS = 2  # and what each model has answered

TEACHES = {"": <int>MORE, "losses": <int>LOSSES, "answers": <int>ANSWERS}
KINDS = {"zero_one": <int>ZERO_ONE, "absolute": <int>ABSOLUTE, "squared": <int>SQUARED, "": <int>PRICED}
cdef int64_t SECOND_US = 1000000
cdef int64_t LATEST_US = <int64_t>1 << 61  # times beyond are the kernel's to judge


cdef struct Row:
    uint64_t key
    Taken feedback
    int64_t predicted  # offset of the prediction
    int64_t answered_us
    size_t at, size  # of its observation, among those of the chunk
    int next  # of its state; -1 = none


cdef struct Group:
    Text state
    int first, last
    int64_t count
    size_t size


cdef class Owner:
    """An application, as predictions name it: how long these wait, and what feedback costs."""

    cdef readonly str name
    cdef readonly bytes text
    cdef bytes tail, before, behind, after
    cdef int64_t window_us
    cdef int kind
    cdef frozenset labels  # that name classes, as feedback has them; none = they are not known
    cdef frozenset teachers
    cdef double span, learnt  # the error that costs 1, where it is given; as it is learnt, in a chunk
    cdef int64_t held  # records in the room, at the begin of a run
    cdef int64_t count, large  # of records in a run, as it goes; of more than the usual size
    cdef bint is_met, is_learning

    def __init__(
        self, str name not None, bytes text not None, int64_t window_us, int kind, double span,
        frozenset labels not None, frozenset teachers not None, bytes tail not None, bytes before not None,
        bytes behind not None, bytes after,
    ):
        """Say how an application's predictions wait.

        Args:
            name: of the application.
            text: the same as bytes.
            window_us: how long they wait.
            kind: of loss, one of `KINDS`; 0 = another one, whose labels are the kernel's.
            span: the error that costs 1; 0 = it is learnt.
            labels: that name classes of its models, as feedback has them; none = any label does.
            teachers: who are named in its observations; none = each.
            tail: what stands behind the times of its observations, without a span, up to the teacher's name.
            before: the same up to a span.
            behind: and from there on.
            after: what stands behind the teacher's name; None = its lessons are not bounded, and nobody is named.
        """
        self.name, self.text, self.window_us, self.kind, self.span = name, text, window_us, kind, span
        self.labels, self.teachers = labels, teachers
        self.tail, self.before, self.behind, self.after = tail, before, behind, after


cdef class Lane:
    """The record batch that is being written for a partition of observations, and what it is the outcome of."""

    cdef Output records, predicted, told  # the latter two: offsets
    cdef int64_t count

    def __cinit__(self):
        memset(&self.records, 0, sizeof(Output))
        memset(&self.predicted, 0, sizeof(Output))
        memset(&self.told, 0, sizeof(Output))
        begin_batch(&self.records)

    def __dealloc__(self):
        release(&self.records)
        release(&self.predicted)
        release(&self.told)


cdef class Joining:
    """The joiner's columns; all memory is its kernel's.

    Args:
        forms: `forms.JoinForms`.
        topics: names of predictions, feedback and observations.
        max_bytes: of a value.
        memory_us: of the learner.
        owner_of: returns the `Owner` of a name and its text.
        teaches: returns what observations of a policy, as `registry.spec` writes it, that has asked so many models hold,
            one of `TEACHES`.
        route: returns partition and key of a state's observations.
        count: counts so many joins of an application.
        spans: the kernel's `ErrorSpans`.
        unpack: returns the records of a batch.

    Attributes:
        taken: records, by application.
        left: records, by application and why.
    """

    cdef object _owner_of, _teaches, _route, _count_joined, _spans, _unpack
    cdef bytes _prediction, _feedback, _one, _several
    cdef str _predictions_topic, _feedback_topic, _observations_topic
    cdef Py_ssize_t _max_bytes
    cdef int64_t _memory_us
    cdef Slices _slices
    cdef dict _owners, _policies, _lanes
    cdef Owner _owner  # of the row before
    cdef list _met, _learning  # owners of the run; of the chunk, those whose spans are learnt
    cdef object _batch  # that is read
    cdef list _records  # of it, where some had to be unpacked
    cdef Output _bytes  # of the decision that was read last: the next one is mostly the same
    cdef Decided _last
    cdef int _teaches_last
    # Of a run:
    cdef object _partition, _room
    cdef dict _waiting
    cdef list _ended, _begun, _names, _early_names
    cdef dict _early
    cdef int64_t _early_room  # for so many more of the usual size
    cdef IdTimes _joined, _observed
    cdef int64_t _now_us, _early_us, _observed_us, _start, _newest_us, _second, _most, _used, _usual
    cdef int64_t _now_s
    cdef uint32_t _oldest_s
    # The chunk:
    cdef Row _rows[TOGETHER]
    cdef Group _groups[TOGETHER]
    cdef int _count, _group_count
    cdef Output _seen
    cdef list _ids, _stored, _row_owners
    cdef bytes _routed
    cdef tuple _way  # of the state that was routed last
    cdef readonly dict taken, left

    def __cinit__(self):
        memset(&self._bytes, 0, sizeof(Output))
        memset(&self._seen, 0, sizeof(Output))
        memset(&self._last, 0, sizeof(Decided))

    def __init__(
        self, forms, topics, Py_ssize_t max_bytes, int64_t memory_us, owner_of, teaches, route, count, spans,
        unpack
    ):
        self._prediction, self._feedback, self._one, self._several = forms
        self._predictions_topic, self._feedback_topic, self._observations_topic = topics
        self._max_bytes, self._memory_us = max_bytes, memory_us
        self._owner_of, self._teaches, self._route = owner_of, teaches, route
        self._count_joined, self._spans, self._unpack = count, spans, unpack
        self._slices = Slices()
        self._owners, self._policies, self._lanes, self._met, self._learning = {}, {}, {}, [], []
        self._ids, self._stored, self._row_owners, self._names, self._early_names = [], [], [], [], []
        self.taken, self.left = {}, {}

    def __dealloc__(self):
        release(&self._bytes)
        release(&self._seen)

    def forget(self):
        """Forget what applications say: it may be otherwise now."""
        self._owners.clear()
        self._owner = None

    # ---- predictions begin to wait ----

    def wait(
        self, list run not None, partition, room, int64_t now_us, IdTimes observed not None, int64_t observed_us,
        int64_t early_us, uint32_t oldest_s, take
    ):
        """Let the predictions of a run of one partition wait.

        Args:
            run: its batches and records.
            partition: its `JoinBuffer`.
            room: of predictions.
            now_us: the time.
            observed: queries that have an observation already; their predictions are the kernel's.
            observed_us: a prediction that is younger has none.
            early_us: how long feedback waits.
            oldest_s: `seconds` of now.
            take: takes a record that is not of the common form; it is given the ids that wait so far, too.

        Returns:
            The ids of those that wait from now on, in order.
        """
        cdef Opened batch
        self._begin(partition, room, now_us, oldest_s)
        self._observed, self._observed_us, self._early_us, self._begun = observed, observed_us, early_us, []
        for item in run:
            if type(item) is not Batch:
                self._hand(item, take)
                continue
            try:
                batch = self._slices.opened(item.data, item.offset)
            except ValueError:
                for record in self._unpack(item):
                    self._hand(record, take)
                continue
            self._batch, self._records = item, None
            self._wait(&batch, item.end, take)
            partition.predictions_lag.position = batch.base + batch.next
            self._slices.leave(&batch)
        self._settle()
        begun = self._begun
        self._end()
        return begun

    cdef int _begin(self, partition, room, int64_t now_us, uint32_t oldest_s) except -1:
        self._partition, self._room, self._now_us, self._oldest_s = partition, room, now_us, oldest_s
        self._now_s = now_us // SECOND_US
        self._start = partition.start
        self._forget_run()
        if len(self._owners) >= MOST_KEPT:
            self.forget()
        self._look()
        return 0

    cdef int _forget_run(self) except -1:
        """Forget what a run has left that did not end."""
        cdef Owner owner
        for owner in self._met:
            owner.count, owner.large, owner.is_met = 0, 0, False
        self._met.clear()
        self._names.clear()
        self._early_names.clear()
        self._lanes.clear()
        return self._clear()

    cdef int _look(self) except -1:
        """Look at what the kernel has changed."""
        room = self._room
        self._most, self._used, self._usual = room.records, room.used, room.usual_bytes
        self._ended, self._newest_us = self._partition.ended.tables, self._partition.newest_us
        self._waiting = self._partition.predictions
        return 0

    cdef int _end(self) except -1:
        self._partition = self._room = self._batch = self._records = self._waiting = None
        self._ended = self._begun = self._joined = self._observed = self._early = None
        return 0

    cdef int _hand(self, record, take) except -1:
        self._settle()
        take(record, self._begun)
        self._look()
        return 0

    cdef int _wait(self, Opened* batch, int64_t end, take) except -1:
        cdef Taken taken
        while batch.base + batch.next < end and next_record(batch, &taken):
            if not self._waits(&taken):
                self._hand(self._record(&taken), take)
        return 0

    cdef int _settle(self) except -1:
        """Say to the kernel's memory what was done so far."""
        cdef Owner owner
        for owner in self._met:
            self._room.take_usual(owner.name, owner.count)
            self.taken[owner.name] = self.taken.get(owner.name, 0) + owner.count
            owner.count, owner.is_met = 0, False
        self._met.clear()
        self._turn(self._second)
        self._partition.newest_us = self._newest_us
        return 0

    cdef int _turn(self, int64_t second) except -1:
        """Give the wheel the ids of a second, before those of another."""
        if self._names:
            self._partition.wheel.extend(self._second * SECOND_US, self._names)
            self._names.clear()
        self._second = second
        return 0

    cdef bint _waits(self, const Taken* taken) except -1:
        """Let a prediction wait, if all that the kernel would do is that."""
        cdef Place place
        cdef Text name, application, context
        cdef Owner owner
        cdef uint64_t key
        cdef int64_t second
        if not taken.are_names or taken.value.size < 0 or taken.value.size + OFFSET_BYTES > self._usual:
            return False
        if not -LATEST_US < taken.stamp_us < LATEST_US:
            return False
        place = place_in(taken.value)
        if not read_same(&place, text_of(self._prediction)):
            return False
        name, application = read_name(&place), read_name(&place)
        context = read_context(&place)
        expect(&place, GIVEN)  # a decision
        if place.bad or name.size > SHORT_ID or taken.offset < self._start:
            return False
        owner = self._owner_named(application)
        if owner is None or not owner.is_met and self._meet(owner) < 0:
            return False
        if owner.held + owner.count >= self._most - self._used:
            return False
        key, query_id = hashed(name), as_str(name)
        if self._is_known(key) or query_id in self._waiting:
            return False
        if taken.stamp_us <= self._observed_us and self._observed.find_key(key):
            return False
        second = self._end_second(taken.stamp_us, owner.window_us)
        if second != self._second:
            self._turn(second)
        self._waiting[query_id] = _stored(taken)
        self._names.append(query_id)
        self._begun.append(query_id)
        self._newest_us = taken.stamp_us
        owner.count += 1
        self._used += 1
        return True

    cdef int64_t _end_second(self, int64_t stamp_us, int64_t window_us) noexcept:
        """Return the second in which a window is over; one that was read late stays a while."""
        cdef int64_t end_us = stamp_us + window_us, soonest_us = self._now_us + min(window_us, self._early_us)
        end_us = max(end_us, soonest_us)
        return end_us // SECOND_US + (end_us % SECOND_US > 0)

    cdef bint _is_known(self, uint64_t key) noexcept:
        """Tell whether the waiting of a prediction of this id has ended."""
        for known in self._ended:
            if (<IdTimes>known).find_key(key) > self._now_s:
                return True
        return False

    cdef int _meet(self, Owner owner) except -1:
        owner.held, owner.count, owner.is_met = self._room.held(owner.name), 0, True
        self._met.append(owner)
        return 0

    cdef Owner _owner_named(self, Text name):
        """Return an application; None where its name cannot be read."""
        cdef bytes text
        if self._owner is not None and same(text_of(self._owner.text), name):
            return self._owner
        text = as_bytes(name)
        owner = self._owners.get(text)
        if owner is None:
            owner = self._owners[text] = self._owner_of(as_str(name), text)
        self._owner = owner
        return owner

    cdef object _record(self, const Taken* taken):
        """Return a record of the batch that is read."""
        if taken.headers:
            if self._records is None:
                self._records = self._unpack(self._batch)
            for record in self._records:
                if record.offset == taken.offset:
                    return record
        topic, partition = self._batch[0], self._batch[1]
        return _new(
            Record, (topic, partition, taken.offset, taken.stamp_us, as_bytes(taken.key), as_bytes(taken.value), ())
        )

    # ---- feedback is joined ----

    def join(
        self, list run not None, partition, room, int64_t now_us, uint32_t oldest_s, list effects not None, bint is_plain,
        bint was_read, IdTimes observed not None, int64_t observed_us, int64_t early_us, take, take_alone, finish
    ):
        """Join the feedback of a run of one partition with the predictions that wait for it.

        Args:
            run: its batches and records.
            partition: its `JoinBuffer`.
            room: of predictions.
            now_us: the time.
            oldest_s: `seconds` of now.
            effects: what comes of it is added here.
            is_plain: whether observations may have the common form now.
            was_read: whether its records came before their predictions: each has one now, and no headers any more.
            observed: queries that have an observation already; feedback on them is the kernel's.
            observed_us: feedback that is younger is on none of them.
            early_us: how long feedback waits for its prediction.
            take: takes records as the kernel does; tells whether some are still to be joined with others.
            take_alone: takes a record, and its query's id, for which nothing waits.
            finish: joins what is still to be joined.
        """
        cdef Opened batch
        cdef Taken taken
        cdef bint is_open = False
        self._joined = partition.ended.of(Ending.JOINED)
        self._begin(partition, room, now_us, oldest_s)
        self._observed, self._observed_us = observed, observed_us
        self._early, self._early_us = partition.early, early_us
        self._look_early()
        for item in run:
            if was_read:
                taken = _taken(item)
                self._batch = item
                is_open = self._take(&taken, is_open, effects, is_plain, take, take_alone)
                continue
            if type(item) is not Batch:
                is_open = self._give_up([item], effects, take)
                continue
            try:
                batch = self._slices.opened(item.data, item.offset)
            except ValueError:
                is_open = self._give_up(self._unpack(item), effects, take)
                continue
            self._batch, self._records = item, None
            is_open = self._join(&batch, item.end, is_open, effects, is_plain, take, take_alone)
            partition.feedback_lag.position = batch.base + batch.next
            self._slices.leave(&batch)
        if is_open or self._commit(effects, take):
            finish()
        self._settle_early()
        self._flush(effects)
        self._end()

    cdef bint _join(
        self, Opened* batch, int64_t end, bint is_open, list effects, bint is_plain, take, take_alone
    ) except -1:
        cdef Taken taken
        while batch.base + batch.next < end and next_record(batch, &taken):
            is_open = self._take(&taken, is_open, effects, is_plain, take, take_alone)
        return is_open

    cdef bint _take(
        self, const Taken* taken, bint is_open, list effects, bint is_plain, take, take_alone
    ) except -1:
        """Take feedback; returns whether some is with the kernel, and still to be joined."""
        cdef int found
        if is_open:
            return self._give_up([self._record(taken)], effects, take)
        found = self._match(taken) if is_plain else UNUSUAL
        if found == ALONE:
            self._settle_early()
            take_alone(self._record(taken), self._ids.pop())
            self._look_early()
        elif found == UNUSUAL:
            return self._give_up([self._record(taken)], effects, take)
        elif found == FITS and self._count == TOGETHER:
            return self._commit(effects, take)
        return False

    cdef bint _give_up(self, list records, list effects, take) except -1:
        """Hand the rows of the chunk to the kernel, and these records behind them."""
        cdef int index
        cdef bint is_open
        cdef list all_of_it = []
        self._flush(effects)
        for index in range(self._count):
            self._waiting[self._ids[index]] = self._stored[index]
            all_of_it.append(self._record_of(&self._rows[index].feedback))
        self._clear()
        self._settle_early()
        is_open = take(all_of_it + records)
        self._look_early()
        return is_open

    cdef object _record_of(self, const Taken* taken):
        return Record(
            self._feedback_topic, self._partition.number, taken.offset, taken.stamp_us, as_bytes(taken.key),
            as_bytes(taken.value), ()
        )

    cdef int _clear(self) except -1:
        cdef Owner owner
        for owner in self._learning:
            owner.is_learning = False
        self._learning.clear()
        self._count, self._group_count, self._seen.size = 0, 0, 0
        self._ids.clear()
        self._stored.clear()
        self._row_owners.clear()
        return 0

    cdef int _match(self, const Taken* taken) except -1:
        """Take feedback as a row of the chunk, if it is of the common form and fits what waits.

        Returns:
            KEPT where it waits for its prediction from now on; ALONE, and its id behind those of the rows, where nothing
            waits for it; UNUSUAL where the kernel has to look.
        """
        cdef Place place
        cdef Text name, label, application, teacher
        cdef uint8_t kind = NOTHING
        cdef bint has_label
        cdef double loss = 0.0
        cdef uint64_t key
        cdef int index
        if taken.headers or taken.value.size > self._max_bytes:
            return UNUSUAL
        place = place_in(taken.value)
        if not read_same(&place, text_of(self._feedback)):
            return UNUSUAL
        name = read_name(&place)
        has_label = place.at < place.end and place.at[0] != NOTHING
        label = read_value(&place, &kind) if has_label else read_bytes(&place, 1)
        if not has_label:
            expect(&place, GIVEN)
            loss = read_double(&place)
        else:
            expect(&place, NOTHING)
        read_long(&place)  # when it was sent
        expect(&place, NOTHING)  # no weight
        application = read_name(&place)
        teacher = read_name(&place)
        expect(&place, NOTHING)  # no places
        if place.bad or place.at != place.end or not 0.0 <= loss <= 1.0:
            return UNUSUAL
        key, query_id = hashed(name), as_str(name)
        stored = self._waiting.pop(query_id, None)
        if stored is None:
            for index in range(self._count):
                if self._rows[index].key == key:
                    return UNUSUAL
            if name.size <= SHORT_ID and self._keeps(taken, key, query_id):
                return KEPT
            self._ids.append(query_id)
            return ALONE
        if self._observe(taken, <bytes>stored, application, key, label, kind, loss, teacher):
            self._ids.append(query_id)
            self._stored.append(stored)
            return FITS
        self._waiting[query_id] = stored
        return UNUSUAL

    cdef bint _keeps(self, const Taken* taken, uint64_t key, str query_id) except -1:
        """Let feedback wait for its prediction, if it is the first for it, and all that the kernel would do is that."""
        cdef Py_ssize_t size = taken.value.size + max(taken.key.size, 0)
        if <int64_t>len(self._early_names) >= self._early_room or size > self._partition.early_room.usual_bytes:
            return False
        if query_id in self._early or self._is_known(key):
            return False
        if taken.stamp_us <= self._observed_us and self._observed.find_key(key):
            return False
        self._early[query_id] = (self._record(taken),)
        self._early_names.append(query_id)
        return True

    cdef int _look_early(self) except -1:
        """Look for how much feedback there is room; each that waits takes one from what this partition may have, too."""
        room = self._partition.early_room
        self._early_room = (room.records - room.used - room.held(self._partition.number) + 1) // 2
        self._ended = self._partition.ended.tables
        return 0

    cdef int _settle_early(self) except -1:
        """Say to the kernel's memory which feedback waits."""
        if self._early_names:
            self._partition.early_room.take_usual(self._partition.number, len(self._early_names))
            self._partition.early_wheel.extend(self._now_us + self._early_us, self._early_names)
            self._early_names.clear()
        return 0

    cdef bint _observe(
        self, const Taken* taken, bytes stored, Text application, uint64_t key, Text label, uint8_t kind, double loss,
        Text teacher,
    ) except -1:
        """Write the observation of a prediction behind those of the chunk; False where it is not of the common form."""
        cdef Text whole = text_of(stored)
        cdef Place place
        cdef Predicted found
        cdef int64_t index
        cdef int taught
        cdef Owner owner
        cdef Row* row
        cdef double costs[MOST_OUTPUTS]
        cdef double span = 0.0
        whole.at += OFFSET_BYTES
        whole.size -= OFFSET_BYTES
        if whole.size > self._max_bytes:
            return False
        place = place_in(whole)
        if not read_same(&place, text_of(self._prediction)) or not read_prediction(&place, &self._last, &found):
            return self._leave(none(), "prediction")
        if application.size and not same(application, found.application):
            return self._leave(found.application, "application")
        owner = self._owner_named(found.application)
        if owner.after is not None and teacher.size > SHORT_NAME:
            return self._leave(found.application, "teacher")
        if not _are_judged(&found, owner.kind, kind):
            return self._leave(found.application, "label")
        taught = self._taught_by(&found)
        if taught == MORE:
            return self._leave(found.application, "policy")
        if not 0 <= found.answered_us < LATEST_US or (
            min(taken.stamp_us, self._now_us) > found.answered_us + self._memory_us
        ):
            return self._leave(found.application, "time")
        if kind != NOTHING:
            span = self._span(owner, &found, label)
            loss = _loss(owner.kind, found.answer, label, span)
            for index in range(found.count):
                costs[index] = _loss(owner.kind, found.outputs[index].answer, label, span)
            if owner.labels and _are_wrong(loss, costs, found.count) and as_bytes(label) not in owner.labels:
                return self._leave(found.application, "label")
        else:
            for index in range(found.count):
                costs[index] = loss if _are_alike(found.outputs[index].answer, found.answer) else NAN
        row = &self._rows[self._count]
        row.key, row.feedback, row.answered_us, row.at = key, taken[0], found.answered_us, self._seen.size
        row.predicted = _offset_of(stored)
        self._write(&found, label, loss, costs, taken.stamp_us, owner, span, taught == ANSWERS, teacher)
        row.size = self._seen.size - row.at
        self._assign(found.decided.state)
        self._row_owners.append(owner)
        self._count += 1
        return True

    cdef double _span(self, Owner owner, const Predicted* found, Text label) except -1.0:
        """Return the error that costs 1, and learn from the errors as `ErrorSpans.learn` does; 0 = losses have none."""
        cdef double span, error, largest = 0.0
        cdef int64_t index
        if owner.kind == ZERO_ONE or owner.span:
            return owner.span if owner.kind != ZERO_ONE else 0.0
        if not owner.is_learning:
            owner.learnt, owner.is_learning = self._spans.of(owner.name), True
            self._learning.append(owner)
        span = owner.learnt
        for index in range(found.count):
            error = _error(found.outputs[index].answer, label)
            if span:
                owner.learnt = _within(owner.learnt * (1.09 if error > owner.learnt else 0.99))
            elif error > largest:
                largest = error
        if span:
            return span
        if not largest:
            return 1.0
        owner.learnt = _within(2.0 * largest)
        return owner.learnt

    cdef bint _leave(self, Text application, str why) except -1:
        """Count what is left to the kernel; returns False."""
        named = ("" if application.size < 0 else as_str(application)), why
        self.left[named] = self.left.get(named, 0) + 1
        return False

    cdef int _taught_by(self, const Predicted* found) except -1:
        """Return what a decision's observations hold, and keep the decision: the next one is mostly the same."""
        if found.is_last:
            return self._teaches_last
        policy = as_bytes(found.decided.policy)
        key = policy, found.decided.asked
        teaches = self._policies.get(key)
        if teaches is None:
            if len(self._policies) >= MOST_KEPT:
                self._policies.clear()
            teaches = self._policies[key] = self._teaches(policy.decode(), key[1])
        self._bytes.size = 0
        write_bytes(&self._bytes, found.decided.whole)
        self._last, self._teaches_last = moved(&found.decided, self._bytes.data), teaches
        return teaches

    cdef int _write(
        self, const Predicted* found, Text label, double loss, const double* costs, int64_t observed_us, Owner owner,
        double span, bint has_answers, Text teacher
    ) except -1:
        """Write an observation; one of `costs` that is no number is not known, and span 0 = it has none."""
        cdef Output* out = &self._seen
        cdef Text behind
        cdef Place names
        cdef int64_t index, place
        write_bytes(out, found.named)
        write_bytes(out, found.decided.whole)
        write_long(out, found.decided.arms)
        names = place_in(found.decided.names)
        for index in range(found.decided.arms):
            place = _place_of(found, read_name(&names))
            if place >= 0 and isfinite(costs[place]):
                write_byte(out, GIVEN)
                write_double(out, costs[place])
            else:
                write_byte(out, NOTHING)
        write_byte(out, 0)
        write_byte(out, GIVEN)  # the loss of what was answered
        write_double(out, loss)
        write_bytes(out, label)
        write_byte(out, 0)  # joined
        write_long(out, found.answered_us)
        write_long(out, observed_us)
        behind = text_of(owner.before if span else owner.tail)
        if has_answers:
            self._write_answers(found)
            behind.at += 1  # that there are none
            behind.size -= 1
        write_bytes(out, behind)
        if span:
            write_double(out, span)
            write_bytes(out, text_of(owner.behind))
        if owner.after is None:
            return 0
        if owner.teachers and as_bytes(teacher) not in owner.teachers:
            teacher.size = 0
        write_long(out, teacher.size)
        write_bytes(out, teacher)
        return write_bytes(out, text_of(owner.after))

    cdef int _write_answers(self, const Predicted* found) except -1:
        """Write the label that each arm has answered, as `join_forms` has seen to: numbers that are not whole are none."""
        cdef Output* out = &self._seen
        cdef Place names = place_in(found.decided.names)
        cdef Text answer
        cdef int64_t index, place
        write_byte(out, GIVEN)
        write_long(out, found.decided.arms)
        for index in range(found.decided.arms):
            place = _place_of(found, read_name(&names))
            if place < 0 or found.outputs[place].kind == DOUBLE:
                write_byte(out, NOTHING)
                continue
            answer = found.outputs[place].answer
            answer.at += 1
            answer.size -= 1
            write_byte(out, LABEL_LONG if found.outputs[place].kind == LONG else LABEL_TEXT)
            write_bytes(out, answer)
        return write_byte(out, 0)

    cdef int _assign(self, Text state) except -1:
        """Put the row that was written last to those of its state."""
        cdef Row* row = &self._rows[self._count]
        cdef Group* group
        cdef int index
        row.next = -1
        for index in range(self._group_count - 1, -1, -1):
            group = &self._groups[index]
            if same(group.state, state):
                self._rows[group.last].next = self._count
                group.last, group.count, group.size = self._count, group.count + 1, group.size + row.size
                return 0
        group = &self._groups[self._group_count]
        group.state = state  # in a prediction that is kept as long as the chunk
        group.first = group.last = self._count
        group.count, group.size = 1, row.size
        self._group_count += 1
        return 0

    cdef bint _commit(self, list effects, take) except -1:
        """Write the observations of the chunk, and end the waiting of its predictions.

        Returns:
            Whether they have gone to the kernel instead, and are still to be joined.
        """
        cdef int index
        for index in range(self._group_count):
            if <Py_ssize_t>self._value_size(&self._groups[index]) > self._max_bytes:
                return self._give_up([], effects, take)
        for index in range(self._group_count):
            self._write_record(&self._groups[index], effects)
        for index in range(self._count):
            self._close(&self._rows[index], self._row_owners[index], self._stored[index])
        for owner in self._learning:
            if (<Owner>owner).learnt:
                self._spans.put((<Owner>owner).name, (<Owner>owner).learnt)
        self._give_back()
        self._clear()
        return False

    cdef size_t _value_size(self, const Group* group) noexcept:
        if group.count == 1:
            return <size_t>text_of(self._one).size + group.size
        return <size_t>text_of(self._several).size + long_size(group.count) + group.size + 1

    cdef int _write_record(self, const Group* group, list effects) except -1:
        """Write the observations of one state as a record."""
        cdef Lane lane = self._lane_of(group.state)
        cdef Output* out = &lane.records
        cdef int index = group.first
        begin_record(out, lane.count, group.state, self._value_size(group))
        if group.count == 1:
            write_bytes(out, text_of(self._one))
        else:
            write_bytes(out, text_of(self._several))
            write_long(out, group.count)
        while index >= 0:
            self._write_row(lane, &self._rows[index])
            index = self._rows[index].next
        if group.count > 1:
            write_byte(out, 0)
        end_record(out)
        lane.count += 1
        if out.size > BATCH_BYTES:
            self._finish(self._way[0], effects)
        return 0

    cdef int _write_row(self, Lane lane, const Row* row) except -1:
        cdef Text seen
        seen.at, seen.size = self._seen.data + row.at, <Py_ssize_t>row.size
        write_bytes(&lane.records, seen)
        _note(&lane.predicted, row.predicted)
        return _note(&lane.told, row.feedback.offset)

    cdef Lane _lane_of(self, Text state):
        """Return where observations of a state are written, and remember its way."""
        if self._routed is None or not same(text_of(self._routed), state):
            self._routed = as_bytes(state)
            self._way = self._route(self._routed.decode())
        lane = self._lanes.get(self._way[0])
        if lane is None:
            lane = self._lanes[self._way[0]] = Lane()
        return lane

    cdef int _close(self, const Row* row, Owner owner, bytes stored) except -1:
        """Remember for a while that a prediction was joined, and free its room."""
        cdef int64_t until_us = max(self._now_us, row.answered_us) + owner.window_us
        cdef int64_t until = until_us // SECOND_US + (until_us % SECOND_US > 0)
        self._joined.put_key(row.key, <uint32_t>max(1, min(until, <int64_t>0xFFFFFFFF)), self._oldest_s)
        if not owner.is_met:
            owner.count, owner.is_met = 0, True
            self._met.append(owner)
        owner.count += 1
        if len(stored) > self._usual:
            self._room.give_back(owner.name, len(stored))
            owner.large += 1
        return 0

    cdef int _give_back(self) except -1:
        """Free the room of usual records, and count all that were joined."""
        cdef Owner owner
        for owner in self._met:
            self._room.give_usual_back(owner.name, owner.count - owner.large)
            self._count_joined(owner.name, owner.count)
            self.taken[owner.name] = self.taken.get(owner.name, 0) + owner.count
            owner.count = owner.large = 0
            owner.is_met = False
        self._met.clear()
        return 0

    cdef int _finish(self, partition, list effects) except -1:
        """Say that the record batch of a partition is to be written."""
        cdef Lane lane = self._lanes.pop(partition)
        cdef tuple completes
        finish_batch(&lane.records, lane.count, self._now_us // 1000)
        completes = _spans(self._predictions_topic, self._partition.number, &lane.predicted) + _spans(
            self._feedback_topic, self._partition.number, &lane.told
        )
        data = PyBytes_FromStringAndSize(<const char*>lane.records.data, <Py_ssize_t>lane.records.size)
        effects.append(EmitBatch(self._observations_topic, partition, data, lane.count, completes))
        return 0

    cdef int _flush(self, list effects) except -1:
        """Say that all that is written is to be written."""
        for partition in [*self._lanes]:
            self._finish(partition, effects)
        return 0


cdef inline bint _is_judged(int kind, uint8_t told, uint8_t answered) noexcept:
    """Tell whether a label of this branch says what an answer of that one costs."""
    if kind == ZERO_ONE:
        return told == answered and told != DOUBLE
    return kind != OTHER and told != TEXT and answered != TEXT


cdef inline bint _are_judged(const Predicted* found, int kind, uint8_t told) noexcept:
    """Tell whether a label of this branch, or the loss itself, says what each answer costs."""
    cdef int64_t index
    cdef uint8_t answered
    if kind == PRICED:
        return False
    for index in range(found.count):
        answered = found.outputs[index].kind
        if told == NOTHING and answered != found.kind and answered != TEXT and found.kind != TEXT:
            return False  # a whole number may be the same as another one
        if told != NOTHING and not _is_judged(kind, told, answered):
            return False
    return told == NOTHING or _is_judged(kind, told, found.kind)


cdef inline bint _are_alike(Text one, Text other) noexcept:
    """Tell whether two answers are the same, which are both of one branch or not both numbers."""
    return same(one, other) or one.at[0] == other.at[0] == DOUBLE and _number(one) == _number(other)


cdef inline bint _are_wrong(double loss, const double* costs, int64_t count) noexcept:
    """Tell whether neither what was answered nor any model was right."""
    cdef int64_t index
    for index in range(count):
        if costs[index] == 0.0:
            return False
    return loss != 0.0


cdef inline int64_t _place_of(const Predicted* found, Text model) noexcept:
    """Return the place of a model's last output; -1 = it has none."""
    cdef int64_t index
    for index in range(found.count - 1, -1, -1):
        if same(found.outputs[index].model, model):
            return index
    return -1


cdef inline double _error(Text answer, Text label) noexcept:
    return fabs(_number(answer) - _number(label))


cdef inline double _loss(int kind, Text answer, Text label, double span) noexcept:
    """Return what an answer costs."""
    cdef double error
    if kind == ZERO_ONE:
        return 0.0 if same(label, answer) else 1.0
    error = _error(answer, label) / span
    if error > 1.0:
        error = 1.0
    return pow(error, 2.0) if kind == SQUARED else error


cdef inline double _number(Text value) noexcept:
    """Return a number that was read."""
    cdef Place place = place_in(value)
    return <double>read_long(&place) if read_byte(&place) == LONG else read_double(&place)


cdef inline double _within(double span) noexcept:
    return 1e-300 if span < 1e-300 else 1e300 if span > 1e300 else span


cdef Taken _taken(record) except *:
    """Return a record without headers as columns have it; it has to be kept as long."""
    cdef Taken taken
    taken.offset, taken.stamp_us, taken.headers = record.offset, record.timestamp_us, 0
    taken.key = none() if record.key is None else text_of(record.key)
    taken.value = none() if record.value is None else text_of(record.value)
    return taken


cdef bytes _stored(const Taken* taken):
    """Return a prediction as `JoinBuffer` lets it wait: its offset before its bytes."""
    cdef bytes stored = PyBytes_FromStringAndSize(NULL, taken.value.size + OFFSET_BYTES)
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(stored)
    put_big(at, <uint64_t>taken.offset, OFFSET_BYTES)
    memcpy(at + OFFSET_BYTES, taken.value.at, <size_t>taken.value.size)
    return stored


cdef inline int64_t _offset_of(bytes stored):
    return <int64_t>big(<const uint8_t*>PyBytes_AS_STRING(stored), OFFSET_BYTES)


cdef int _note(Output* offsets, int64_t offset) except -1:
    grow(offsets, sizeof(int64_t))
    memcpy(offsets.data + offsets.size, &offset, sizeof(int64_t))
    offsets.size += sizeof(int64_t)
    return 0


cdef int _ordered(const void* one, const void* other) noexcept nogil:
    return ((<const int64_t*>one)[0] > (<const int64_t*>other)[0]) - (
        (<const int64_t*>one)[0] < (<const int64_t*>other)[0]
    )


cdef tuple _spans(str topic, partition, Output* offsets):
    """Return the spans that these offsets make up."""
    cdef int64_t* at = <int64_t*>offsets.data
    cdef size_t count = offsets.size // sizeof(int64_t), index, begin = 0
    cdef list spans = []
    qsort(at, count, sizeof(int64_t), &_ordered)
    for index in range(1, count + 1):
        if index == count or at[index] != at[index - 1] + 1:
            spans.append(Span(topic, partition, at[begin], at[index - 1] + 1))
            begin = index
    return tuple(spans)
