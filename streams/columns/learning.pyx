# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Observations folded into policy states, over the bytes of whole record batches.

    batches ──read──▶ rows: which state, which arm, what it cost ──fold──▶ numbers of states ──▶ the kernel's `Folding`
                └─▶ records that are not of the common form, and rows that their state does not fit: the kernel, in order

All rows of a poll are read before any is folded, since all states have to be there.
"""

from libc.math cimport NAN, isfinite
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset
from streams.columns.batches cimport (
    Opened, Output, Slices, Taken, grow, next_record, release, write_byte, write_bytes, write_double,
)
from streams.columns.observations cimport Seen, read_label, read_loss, read_observation
from streams.columns.predictions cimport LABEL_LONG, NOTHING, Decided, expect, moved
from streams.columns.teaching cimport Kind, Lesson, Rule, are_classes, numbers_of, taught
from streams.columns.texts cimport (
    Place, Text, as_bytes, as_str, hashed, place_in, read_byte, read_double, read_long, read_same, read_text, same, text_of,
)
from streams.operators.id_times cimport IdTimes, hash_of

from policies.class_counts import key_of
from streams.operators.contract import Batch, Record, Span
from streams.operators.learn.bounds import Reach

cdef int64_t LATEST_US = <int64_t>1 << 61  # times beyond are the kernel's to judge

KINDS = {
    "single": <int>Kind.NOTHING_LEARNT,
    "exp3": <int>Kind.WEIGHTS,
    "epsilon_greedy": <int>Kind.AVERAGES,
    "ucb1": <int>Kind.AVERAGES,
    "discounted_ucb": <int>Kind.DISCOUNTED,
    "thompson": <int>Kind.BETAS,
    "exp4": <int>Kind.VOTES,
    "class_vote": <int>Kind.CLASSES,
    "timely": <int>Kind.VOTES,
}

cdef enum:
    MOST_KEPT = 4096  # names of states
    ALL = 0  # reaches, as `streams.operators.learn.bounds` has them
    OWN = 1
    NO_STATE = 2


REACHES = (Reach.ALL, Reach.OWN, Reach.NOTHING)


cdef struct Row:
    uint64_t key
    int own, common  # places of the states that it teaches; -1 = none
    int form, ledger
    Lesson lesson
    size_t losses  # place of those of all arms, where a policy learns from them
    double served
    bint asks_all, is_served, is_joined, is_of_context, is_of_all, has_span, is_bounded
    int64_t observed_us, forget_us
    uint64_t teacher, of_context  # by hash, where it is bounded: what is counted
    int64_t most, most_context


cdef struct Told:
    Taken record
    size_t first, behind  # of its rows
    int item  # of the run
    int left  # place among what is left to the kernel; -1 = it is not


cdef class Form:
    """A policy and the arms that it chooses among, as decisions name them."""

    cdef readonly str policy
    cdef readonly tuple arms
    cdef bytes policy_text, names
    cdef Rule rule
    cdef bint starts

    def __init__(
        self, str policy not None, tuple arms not None, int kind, double eta, double share, bint starts, int64_t classes
    ):
        """Say how a policy learns.

        Args:
            policy: as `registry.spec` writes it.
            arms: names of models.
            kind: of `teaching.pxd`.
            eta: rate of learning, or the discount.
            share: that is given back to all arms.
            starts: whether contexts start from a common state.
            classes: that have counts of their own; 0 = there are none.
        """
        self.rule.classes = classes
        self.policy, self.arms, self.starts = policy, arms, starts
        self.rule.kind, self.rule.eta, self.rule.share = <Kind>kind, eta, share


cdef class Known:
    """A state as it is while it is folded."""

    cdef str name
    cdef bytes text
    cdef object state  # as it was put last
    cdef double* values
    cdef double* after
    cdef int64_t room, count, version, taught_us
    cdef int form  # that it has; -1 = not known
    cdef uint64_t looked  # when it was looked up last
    cdef bint is_plain, is_changed

    def __dealloc__(self):
        free(self.values)
        free(self.after)

    cdef int load(self, state) except -1:
        """Take a state, if there is one whose policy alone lies under its name."""
        cdef int64_t index
        if state is self.state and state is not None:
            return 0
        self.state, self.form = state, -1
        self.is_plain = state is not None and not state.others
        if not self.is_plain:
            return 0
        self.count, self.version, self.taught_us = len(state.values), state.version, state.taught_us
        self.make_room()
        for index, value in enumerate(state.values):
            self.values[index] = value
        return 0

    cdef int make_room(self) except -1:
        cdef double* values
        cdef double* after
        if self.count <= self.room:
            return 0
        values = <double*>realloc(self.values, <size_t>self.count * sizeof(double))
        if values == NULL:
            raise MemoryError
        self.values = values
        after = <double*>realloc(self.after, <size_t>self.count * sizeof(double))
        if after == NULL:
            raise MemoryError
        self.after, self.room = after, self.count
        return 0

    cdef bint work_out(self, const Rule* rule, const Lesson* lesson, int64_t arms) noexcept:
        return taught(rule, lesson, self.values, self.after, arms)

    cdef void step(self, const Row* row) noexcept:
        """Take what was worked out."""
        self.values, self.after = self.after, self.values
        self.version += 1
        if row.forget_us:
            self.taught_us = max(self.taught_us, row.observed_us)

    cdef object put(self):
        """Return the state as it is now."""
        cdef int64_t index
        values = tuple([self.values[index] for index in range(self.count)])
        self.state = self.state._replace(version=self.version, values=values, taught_us=self.taught_us)
        self.is_changed = False
        return self.state


cdef class Ledger:
    """What an application's answers and models have cost, while observations of it are folded."""

    cdef str application
    cdef bytes text
    cdef tuple arms
    cdef double* sums  # of served losses, then of each arm; each with its count
    cdef int64_t taken, duplicates

    def __init__(self, str application not None, bytes text not None, tuple arms not None):
        self.application, self.text, self.arms = application, text, arms
        self.sums = <double*>realloc(NULL, 2 * (len(arms) + 1) * sizeof(double))
        if self.sums == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.sums)

    cdef int open(self, losses) except -1:
        cdef Py_ssize_t index
        for index, (total, count) in enumerate(losses.sums(self.application, self.arms)):
            self.sums[2 * index], self.sums[2 * index + 1] = total, count
        return 0

    cdef int close(self, losses) except -1:
        cdef Py_ssize_t index
        sums = [(self.sums[2 * index], self.sums[2 * index + 1]) for index in range(len(self.arms) + 1)]
        losses.put(self.application, self.arms, sums)
        return 0

    cdef void add(self, const Row* row, const double* losses) noexcept:
        """Add what a row has cost; `losses` of all arms, if it asks all."""
        cdef int64_t arm
        self.taken += 1
        if not row.is_joined:
            return
        if row.is_served:
            self.sums[0] += row.served
            self.sums[1] += 1.0
        if not row.asks_all:
            self.add_loss(row.lesson.arm, row.lesson.loss if row.lesson.is_known else NAN)
            return
        for arm in range(<int64_t>len(self.arms)):
            self.add_loss(arm, losses[arm])

    cdef void add_loss(self, int64_t arm, double loss) noexcept:
        if isfinite(loss):
            self.sums[2 * (arm + 1)] += loss
            self.sums[2 * (arm + 1) + 1] += 1.0


cdef class Learning:
    """The learner's columns of one poll and partition.

    Args:
        heads: framings of an observation and of several.
        max_bytes: of a value.
        form_of: returns the `Form` of a policy and arms; None = they have none.
        unpack: returns the records of a batch.
        decode: returns the observations of a record.

    Attributes:
        taken: observations, by application.
        left: records, and rows that their states do not fit, by application and why.
    """

    cdef object _form_of, _unpack, _decode
    cdef bytes _one, _several
    cdef Py_ssize_t _max_bytes
    cdef Slices _slices
    cdef list _forms, _known, _ledgers, _run, _left, _changed
    cdef dict _form_places, _places, _ledger_places, _keys  # the last: of labels
    cdef Output _rows, _told, _bytes, _losses_of, _name
    cdef Decided _last  # the decision that was read last: the next one is mostly the same
    cdef int _form, _own, _ledger  # places of the row before; -1 = none
    cdef uint64_t _look
    cdef object _losses, _counters, _folding_run, _states
    cdef Ledger _open
    cdef int64_t _numbers, _first, _behind  # the latter: of the span of records that were folded last
    cdef readonly dict taken, left

    def __cinit__(self):
        memset(&self._rows, 0, sizeof(Output))
        memset(&self._told, 0, sizeof(Output))
        memset(&self._bytes, 0, sizeof(Output))
        memset(&self._losses_of, 0, sizeof(Output))
        memset(&self._name, 0, sizeof(Output))
        memset(&self._last, 0, sizeof(Decided))

    def __init__(self, heads, Py_ssize_t max_bytes, form_of, unpack, decode):
        self._one, self._several = heads
        self._max_bytes = max_bytes
        self._form_of, self._unpack, self._decode = form_of, unpack, decode
        self._slices = Slices()
        self._forms, self._known, self._ledgers, self._changed = [], [], [], []
        self._form_places, self._places, self._ledger_places, self._keys = {}, {}, {}, {}
        self._run, self._left = [], []
        self._form = self._own = self._ledger = -1
        self.taken, self.left = {}, {}

    def __dealloc__(self):
        release(&self._rows)
        release(&self._told)
        release(&self._bytes)
        release(&self._losses_of)
        release(&self._name)

    # ---- all rows are read ----

    def read(self, list run not None, int64_t start, leave):
        """Read a run of batches and records of one partition; `fold` follows, or nothing.

        Args:
            run: the batches and records, in order.
            start: first offset that is to be folded.
            leave: returns what to leave to the kernel, of a record.

        Returns:
            Names of the states that are needed for rows, in order; what is left needs its own.
        """
        cdef Opened batch
        cdef Taken taken
        cdef int item = 0
        cdef dict needed = {}
        self._begin(run)
        for item in range(len(run)):
            one = run[item]
            if type(one) is not Batch:
                self._leave(item, leave(one))
                continue
            try:
                batch = self._slices.opened(one.data, one.offset)
            except ValueError:
                for record in self._unpack(one):
                    self._leave(item, leave(record))
                continue
            while batch.base + batch.next < one.end and next_record(&batch, &taken):
                if not self._read(&taken, item, needed if taken.offset >= start else None):
                    self._leave(item, leave(self._record(&taken, item)))
            self._slices.leave(&batch)
        return needed

    cdef int _begin(self, list run) except -1:
        self._run, self._left = run, []
        self._rows.size = self._told.size = self._losses_of.size = 0
        if len(self._known) > MOST_KEPT or len(self._forms) > MOST_KEPT or len(self._ledgers) > MOST_KEPT:
            for kept in (self._known, self._forms, self._ledgers):
                kept.clear()
            for places in (self._places, self._form_places, self._ledger_places):
                places.clear()
            self._form = self._own = self._ledger = -1
            self._last.whole.size = 0
        return 0

    cdef int _leave(self, int item, what) except -1:
        """Note what is left to the kernel in its place among the records."""
        cdef Told told
        memset(&told, 0, sizeof(Told))
        told.item, told.left = item, len(self._left)
        self._left.append(what)
        return self._note(&told)

    cdef int _note(self, const Told* told) except -1:
        grow(&self._told, sizeof(Told))
        memcpy(self._told.data + self._told.size, told, sizeof(Told))
        self._told.size += sizeof(Told)
        return 0

    cdef bint _read(self, const Taken* taken, int item, dict needed) except -1:
        """Read the rows of a record; False = one of them is not of the common form."""
        cdef Place place
        cdef Told told
        cdef int64_t count = 1, index
        cdef bint are_several
        if taken.value.size > self._max_bytes:
            return False
        place = place_in(taken.value)
        told.record, told.item, told.left, told.first = taken[0], item, -1, self._rows.size // sizeof(Row)
        are_several = read_same(&place, text_of(self._several))
        if are_several:
            count = read_long(&place)
        elif not read_same(&place, text_of(self._one)):
            return self._count("", "schema")
        for index in range(count):
            if not self._read_row(&place, needed):
                self._rows.size = told.first * sizeof(Row)
                return False
        if are_several:
            expect(&place, 0)
        if place.bad or count < 1 or place.at != place.end:
            self._rows.size = told.first * sizeof(Row)
            return self._count("", "observation")
        told.behind = self._rows.size // sizeof(Row)
        self._note(&told)
        return True

    cdef bint _read_row(self, Place* place, dict needed) except -1:
        cdef Seen seen
        cdef Row row
        cdef Form form
        if not read_observation(place, &self._last, &seen):
            return self._count("", "observation")
        if not -LATEST_US < seen.observed_us < LATEST_US or not -LATEST_US < seen.forget_us < LATEST_US:
            return self._count("", "time")
        row.form = self._form_place(&seen)
        if row.form < 0:
            return self._count(as_str(seen.application), "policy")
        form = self._forms[row.form]
        row.key = hashed(seen.id)
        row.lesson.arm, row.lesson.is_known, row.lesson.loss = seen.decided.chosen, seen.is_known, seen.loss
        if not self._read_shares(&seen, &row.lesson.propensity):
            return self._count(as_str(seen.application), "propensities")
        row.asks_all, row.losses = seen.decided.asked > 1, self._losses_of.size
        if form.rule.kind == Kind.VOTES or form.rule.kind == Kind.CLASSES:
            self._note_losses(&seen)
        elif row.asks_all:
            return self._count(as_str(seen.application), "policy")
        if form.rule.kind == Kind.CLASSES:
            self._note_labels(&seen)
        elif seen.answers.size >= 0:
            return self._count(as_str(seen.application), "policy")
        row.served, row.is_served, row.is_joined = seen.served, seen.is_served, seen.is_joined
        row.has_span = seen.has_span
        row.observed_us, row.forget_us = seen.observed_us, seen.forget_us
        row.own, row.common = self._place_of(seen.decided.state), -1
        row.is_of_context = seen.context.size >= 0
        row.is_of_all = same(seen.decided.state, seen.application)
        self._note_bound(&seen, &row)
        if row.is_of_context and form.starts and not row.is_of_all:
            row.common = self._common_place(seen.application)
        row.ledger = self._ledger_place(seen.application, form)
        if needed is not None:
            needed[(<Known>self._known[row.own]).name] = None
            if row.common >= 0:
                needed[(<Known>self._known[row.common]).name] = None
        grow(&self._rows, sizeof(Row))
        memcpy(self._rows.data + self._rows.size, &row, sizeof(Row))
        self._rows.size += sizeof(Row)
        return True

    cdef int _note_bound(self, const Seen* seen, Row* row) except -1:
        """Note by what the lessons of a teacher, and of one of his contexts, are counted, as `LessonCounts.reach` does."""
        row.is_bounded, row.most, row.most_context = seen.is_bounded, seen.most, seen.most_context
        if not seen.is_bounded:
            return 0
        self._name.size = 0
        write_bytes(&self._name, seen.application)
        write_byte(&self._name, 0)
        write_bytes(&self._name, seen.teacher)
        row.teacher = hash_of(self._name.data, self._name.size)
        if row.is_of_context:
            write_byte(&self._name, 0)
            write_bytes(&self._name, seen.context)
            row.of_context = hash_of(self._name.data, self._name.size)
        return 0

    cdef int _note_labels(self, const Seen* seen) except -1:
        """Keep the keys of the labels of all arms, behind their losses; what is no label is not a number."""
        cdef Place answers
        cdef int64_t index
        cdef double key
        if seen.answers.size >= 0:
            answers = place_in(seen.answers)
        for index in range(seen.decided.arms):
            key = NAN if seen.answers.size < 0 else self._key_of(read_label(&answers))
            write_double(&self._losses_of, key)
        return 0

    cdef double _key_of(self, Text label) except? -1.0:
        """Return the key of a label that stands there with its branch."""
        cdef Place place
        if label.at[0] == NOTHING:
            return NAN
        text = as_bytes(label)
        key = self._keys.get(text)
        if key is None:
            if len(self._keys) >= MOST_KEPT:
                self._keys.clear()
            place = place_in(label)
            is_whole = read_byte(&place) == LABEL_LONG
            key = self._keys[text] = key_of(read_long(&place) if is_whole else as_str(read_text(&place)))
        return key

    cdef int _note_losses(self, const Seen* seen) except -1:
        """Keep the losses of all arms; one that is not known is not a number."""
        cdef Place losses = place_in(seen.losses)
        cdef int64_t index
        cdef double loss
        for index in range(seen.decided.arms):
            loss = NAN
            read_loss(&losses, &loss)
            write_double(&self._losses_of, loss)
        return 0

    cdef bint _count(self, str application, str why) except -1:
        """Count what is left to the kernel; returns False."""
        self.left[application, why] = self.left.get((application, why), 0) + 1
        return False

    cdef int _form_place(self, const Seen* seen) except -2:
        """Return the place of a decision's form, and keep the decision; -1 = it has none."""
        cdef Form form
        if seen.is_last:
            return self._form
        self._bytes.size = 0
        write_bytes(&self._bytes, seen.decided.whole)
        self._last = moved(&seen.decided, self._bytes.data)
        if self._form >= 0:
            form = self._forms[self._form]
            if (
                same(text_of(form.policy_text), seen.decided.policy) and same(text_of(form.names), seen.decided.names)
                and not seen.decided.apprentice.size
            ):
                return self._form
        self._form = self._found_form(&seen.decided)
        return self._form

    cdef int _found_form(self, const Decided* decided) except -2:
        cdef Form form
        cdef Place names = place_in(decided.names)
        key = as_bytes(decided.policy), as_bytes(decided.names)
        if decided.apprentice.size:
            return -1
        place = self._form_places.get(key)
        if place is None:
            arms = [as_str(read_text(&names)) for _ in range(decided.arms)]
            form = self._form_of(as_str(decided.policy), tuple(arms))
            place = -1
            if form is not None:
                form.policy_text, form.names = key
                place = len(self._forms)
                self._forms.append(form)
            self._form_places[key] = place
        return place

    cdef bint _read_shares(self, const Seen* seen, double* share) noexcept:
        """Read the propensity of the arm that was chosen; False = not all lie in [0, 1]."""
        cdef Place shares = place_in(seen.decided.shares)
        cdef int64_t index
        cdef double one
        for index in range(seen.decided.arms):
            one = read_double(&shares)
            if not 0.0 <= one <= 1.0:
                return False
            if index == seen.decided.chosen:
                share[0] = one
        return True

    cdef int _place_of(self, Text name) except -1:
        """Return the place of a state by its name."""
        if self._own < 0 or not same(text_of((<Known>self._known[self._own]).text), name):
            self._own = self._common_place(name)
        return self._own

    cdef int _common_place(self, Text name) except -1:
        cdef Known known
        cdef bytes text = as_bytes(name)
        place = self._places.get(text)
        if place is None:
            known = Known()
            known.name, known.text, known.form = as_str(name), text, -1
            place = self._places[text] = len(self._known)
            self._known.append(known)
        return place

    cdef int _ledger_place(self, Text application, Form form) except -1:
        cdef Ledger ledger
        if self._ledger >= 0:
            ledger = self._ledgers[self._ledger]
            if ledger.arms is form.arms and same(text_of(ledger.text), application):
                return self._ledger
        key = as_bytes(application), form.arms
        place = self._ledger_places.get(key)
        if place is None:
            ledger = Ledger(as_str(application), key[0], form.arms)
            place = self._ledger_places[key] = len(self._ledgers)
            self._ledgers.append(ledger)
        self._ledger = place
        return place

    cdef object _record(self, const Taken* taken, int item):
        """Return a record of a batch."""
        batch = self._run[item]
        if taken.headers:
            for record in self._unpack(batch):
                if record.offset == taken.offset:
                    return record
        return Record(
            batch.topic, batch.partition, taken.offset, taken.stamp_us, as_bytes(taken.key), as_bytes(taken.value), ()
        )

    # ---- all rows are folded ----

    def fold(self, run, dict states not None, partition, learner, int64_t most_numbers, list effects not None):
        """Fold what was read, on states that are there; `run.end` follows.

        Args:
            run: the kernel's `Run`.
            states: by name.
            partition: the kernel's.
            learner: the kernel.
            most_numbers: from which on states are written.
            effects: what comes of it is added here.
        """
        cdef size_t index
        cdef const Told* told
        self._folding_run, self._states, self._losses, self._counters = run, states, learner.losses, learner.counters
        self._look += 1
        self._forget_changes()
        for index in range(self._told.size // sizeof(Told)):
            told = <const Told*>self._told.data + index
            if told.left >= 0:
                self._settle()
                self._left[told.left](run)
                self._look_again()
            else:
                self._fold(told, partition, effects)
            if told.left < 0 and told.record.offset >= partition.start:
                self._check_numbers(told.record.offset + 1, most_numbers)
        self._settle()
        for ledger in self._ledgers:
            self._count_taken(ledger, learner)
        self._folding_run = self._states = self._losses = self._counters = None

    cdef int _forget_changes(self) except -1:
        """Forget what a fold has left that did not end."""
        cdef Known known
        for known in self._changed:
            known.state, known.is_changed = None, False
        self._changed.clear()
        self._numbers, self._open = 0, None
        self._first = self._behind = -1
        return 0

    cdef int _count_taken(self, Ledger ledger, learner) except -1:
        if ledger.taken:
            learner.applied[ledger.application] += ledger.taken
            self.taken[ledger.application] = self.taken.get(ledger.application, 0) + ledger.taken
        if ledger.duplicates:
            self._counters["duplicate_observations_total", "application", ledger.application] += ledger.duplicates
        ledger.taken = ledger.duplicates = 0
        return 0

    cdef int _look_again(self) except -1:
        """Look all states up anew: the kernel may have changed them."""
        self._folding_run.folding.settle()
        self._folding_run.flush()
        self._look += 1
        return 0

    cdef int _check_numbers(self, int64_t offset, int64_t most_numbers) except -1:
        if self._folding_run.folding.numbers + self._numbers >= most_numbers:
            self._settle()
            self._folding_run.write(offset)
        return 0

    cdef int _settle(self) except -1:
        """Say to the kernel what the states are now, and what observations have cost."""
        cdef Known known
        for known in self._changed:
            self._folding_run.folding.put(known.name, known.put())
        self._changed.clear()
        self._numbers = 0
        if self._open is not None:
            self._open.close(self._losses)
            self._open = None
        return self._end_span()

    cdef int _fold(self, const Told* told, partition, list effects) except -1:
        """Fold the rows of a record."""
        cdef IdTimes times
        cdef uint32_t newest, begin
        cdef size_t index
        cdef const Row* row
        cdef bint is_read_back = told.record.offset < partition.start
        cdef list items = None
        cdef int reach
        times, newest, begin = partition.seen.move(told.record.stamp_us)
        for index in range(told.first, told.behind):
            row = <const Row*>self._rows.data + index
            reach = ALL if not row.is_bounded else reached(row, partition.counts.at(told.record.stamp_us))
            if times.put_key(row.key, newest, begin) >= begin:
                if not is_read_back:
                    (<Ledger>self._ledgers[row.ledger]).duplicates += 1
            elif not is_read_back and not self._teach(row, reach):
                if items is None:
                    record = self._record(&told.record, told.item)
                    items = list(self._decode(record))
                self._settle()
                self._count((<Ledger>self._ledgers[row.ledger]).application, "state")
                self._folding_run.fold(items[index - told.first], told.record.stamp_us, REACHES[reach])
                self._look_again()
        if items is not None:
            self._folding_run.end_record(record, effects)
        elif not is_read_back:
            if self._behind != told.record.offset:
                self._end_span()
                self._first = told.record.offset
            self._behind = told.record.offset + 1
        return 0

    cdef int _end_span(self) except -1:
        """Say which records are complete, once the states are written."""
        if self._behind > self._first:
            topic, partition = self._run[0][:2]
            self._folding_run.spans.append(Span(topic, partition, self._first, self._behind))
        self._first = self._behind = -1
        return 0

    cdef bint _teach(self, const Row* row, int reach) except -1:
        """Fold a row; False = its states are not of the common form, or cannot be taught."""
        if reach == NO_STATE:
            return self._count_bounded(row, reach)
        cdef Form form = self._forms[row.form]
        cdef Known own = self._known[row.own]
        cdef Known common = None if row.common < 0 or reach == OWN else self._known[row.common]
        cdef int64_t arms = len(form.arms), arm
        cdef Lesson lesson = row.lesson
        if not self._fits(own, row.form, form) or common is not None and not self._fits(common, row.form, form):
            return False
        if row.is_of_context and row.forget_us and own.taught_us and row.observed_us - own.taught_us > row.forget_us:
            return False
        lesson.losses = <const double*>(self._losses_of.data + row.losses)
        lesson.labels = lesson.losses + arms
        if not own.work_out(&form.rule, &lesson, arms):
            return False
        if common is not None and not common.work_out(&form.rule, &lesson, arms):
            return False
        if reach != ALL:
            self._count_bounded(row, reach)
        self._take(own, row)
        if common is not None:
            self._take(common, row)
        ledger = <Ledger>self._ledgers[row.ledger]
        if ledger is not self._open:
            if self._open is not None:
                self._open.close(self._losses)
            self._open = ledger
            self._open.open(self._losses)
        self._open.add(row, lesson.losses)
        if row.has_span and row.is_joined and (row.lesson.is_known or row.asks_all):
            for arm in range(arms):
                if arm == lesson.arm and not row.asks_all:
                    self._losses.note_spanned(ledger.application, lesson.loss)
                elif row.asks_all and isfinite(lesson.losses[arm]):
                    self._losses.note_spanned(ledger.application, lesson.losses[arm])
        return True

    cdef bint _count_bounded(self, const Row* row, int reach) except -1:
        """Count a lesson that does not reach as far as others; returns True."""
        application, by = (<Ledger>self._ledgers[row.ledger]).application, REACHES[reach].value
        self._counters["bounded_lessons_total", "application", application, "by", by] += 1
        return True

    cdef int _take(self, Known known, const Row* row) except -1:
        known.step(row)
        if not known.is_changed:
            known.is_changed = True
            self._changed.append(known)
            if known.name not in self._folding_run.folding.changed:
                self._numbers += known.count + len(known.state.confidences) + len(known.state.coverage)
        return 0

    cdef bint _fits(self, Known known, int place, Form form) except -1:
        """Tell whether a state is of a form, and of its policy alone."""
        if known.looked != self._look:
            known.load(self._states.get(known.name))
            known.looked = self._look
        if not known.is_plain:
            return False
        if known.form != place:
            state = known.state
            if state.policy != form.policy or state.arms != form.arms:
                return False
            if known.count != numbers_of(&form.rule, len(form.arms)):
                return False
            if form.rule.kind == Kind.CLASSES and not are_classes(&form.rule, known.values):
                return False
            known.form = place
        return True


cdef int reached(const Row* row, IdTimes counts) except -1:
    """Count a lesson, and return how far it teaches, as `LessonCounts.reach` does."""
    if row.most and counted(counts, row.teacher) > row.most:
        return NO_STATE
    if not row.most_context or not row.is_of_context or counted(counts, row.of_context) <= row.most_context:
        return ALL
    return NO_STATE if row.is_of_all else OWN


cdef int64_t counted(IdTimes counts, uint64_t name) except -1:
    cdef uint32_t count = counts.find_key(name) + 1
    counts.put_key(name, count, 1)
    return count
