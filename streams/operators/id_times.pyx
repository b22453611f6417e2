# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Ids and a time for each in 16 to 54 bytes, whatever the id: open addressing over 64 bits of its hash.

Two ids are taken for one with a chance of 2**-64 times the ids held: once in years at ten thousand a second. The hash is
FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/), begun with Python's own seed so that nobody can choose ids that meet
in it, and stirred as MurmurHash3 ends. Its size may be any number: the upper half of the hash, as a fraction, says where
to look (Lemire, doi.org/10.1145/3230636).

A table that is full moves into another one, some slots at each put: at once it would stop whoever waits for 27 ns an id,
which is a third of a second for ten minutes of 20,000 a second.

    0                     23/32              3/4                   moved
    ├─ fills ──────────────┼─ counts what stays ┼─ moves what stays ───┤ the old one is given back
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "sys/mman.h":
    void* mmap(void* place, size_t size, int protection, int flags, int file, ssize_t offset) noexcept
    int munmap(void* place, size_t size) noexcept
    void* MAP_FAILED
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef int64_t NONE = -1, ON = -2
cdef size_t SMALLEST = 1024  # slots
# A put looks at so many slots, to count and to move. Both phases must end before the table is full: of its slots 1/32
# is left for the first one, and what `_next_slots` adds for the second.
cdef size_t COUNTED = 64, MOVED = 16
cdef size_t GIVEN_BACK = 65536  # moved slots whose pages are given back at once: all of a large table would take ms
BASIS = <uint64_t>0xCBF29CE484222325 ^ <uint64_t><Py_ssize_t>hash("ids")


cdef class IdTimes:
    """See `ids.py`."""

    def __cinit__(self):
        self._table = allocated(SMALLEST)

    def __dealloc__(self):
        release(&self._table)
        release(&self._old)

    def __sizeof__(self):
        return (self._table.slots + self._old.slots) * (sizeof(uint64_t) + sizeof(uint32_t))

    def find(self, str name not None):
        return self.find_key(hashed(name))

    def put(self, str name not None, uint32_t time, uint32_t oldest):
        return self.put_key(hashed(name), time, oldest)

    cdef uint32_t find_key(self, uint64_t key) noexcept:
        cdef uint32_t time = self._table.times[slot_of(&self._table, key)]
        return time if time else self._before(key)

    cdef uint32_t put_key(self, uint64_t key, uint32_t time, uint32_t oldest) except? 4294967295:
        cdef size_t slot
        self._oldest = max(self._oldest, oldest)
        if self._old.slots:
            self._move()
        elif 32 * self._table.used >= 23 * self._table.slots:
            self._count()
        slot = slot_of(&self._table, key)
        cdef uint32_t before = self._table.times[slot]
        if not before:
            before = self._before(key)
            self._table.used += 1
        elif before < self._oldest:
            self._stays += 1  # it may have been counted as one that goes
        self._table.keys[slot], self._table.times[slot] = key, time
        return before

    cdef uint32_t _before(self, uint64_t key) noexcept:
        """Return the time of a key that has not been moved; 0 = there is none.

        A key lies behind its place, or around the end, only where all slots between are taken: so from `_moved` on, too.
        """
        cdef size_t begin
        if not self._old.slots:
            return 0
        begin = max(self._moved, place_of(&self._old, key))
        cdef int64_t slot = found_in(&self._old, key, begin, self._old.slots)
        if slot == ON:
            slot = found_in(&self._old, key, self._moved, begin)
        return self._old.times[slot] if slot >= 0 else 0

    cdef int _count(self) except -1:
        """Count what is to stay; when the table is full, begin to move."""
        cdef size_t at, end
        if not self._counted:
            self._stays, self._began = 0, self._table.used
        end = min(self._counted + COUNTED, self._table.slots)
        for at in range(self._counted, end):
            self._stays += self._table.times[at] >= self._oldest and self._table.times[at] > 0
        self._counted = end
        if 4 * self._table.used >= 3 * self._table.slots and end == self._table.slots:
            table = allocated(self._next_slots())
            self._old, self._table, self._moved, self._counted = self._table, table, 0, 0
        return 0

    cdef size_t _next_slots(self) noexcept:
        """Return a size of which half is free of what stays, and a third of that and what comes while it moves."""
        cdef size_t stays = self._stays + self._table.used - self._began
        return max(SMALLEST, max(2 * stays, 3 * (stays + self._table.slots // MOVED + 1) // 2))

    cdef int _move(self) noexcept:
        """Move some slots, but for what is older and what has been put again since."""
        cdef size_t slot, at, end = min(self._moved + MOVED, self._old.slots)
        cdef uint32_t time
        for at in range(self._moved, end):
            time = self._old.times[at]
            if time >= self._oldest and time > 0:
                slot = slot_of(&self._table, self._old.keys[at])
                if not self._table.times[slot]:
                    self._table.keys[slot], self._table.times[slot] = self._old.keys[at], time
                    self._table.used += 1
        self._moved = end
        if end == self._old.slots:
            release(&self._old)
        elif end - self._old.begin >= GIVEN_BACK:
            give_back(&self._old, GIVEN_BACK)
        return 0


cdef Table allocated(size_t slots) except *:
    cdef Table table
    table.slots, table.begin, table.used = slots, 0, 0
    table.keys = <uint64_t*>zeroed(slots * sizeof(uint64_t))
    try:
        table.times = <uint32_t*>zeroed(slots * sizeof(uint32_t))
    except MemoryError:
        munmap(table.keys, slots * sizeof(uint64_t))
        raise
    return table


cdef void* zeroed(size_t size) except NULL:
    """Return memory of zeros that takes its pages when they are first written: `calloc` may write them at once."""
    cdef void* found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if found == MAP_FAILED:
        raise MemoryError
    return found


cdef void give_back(Table* table, size_t slots) noexcept:
    """Give back the first slots that are still there."""
    munmap(table.keys + table.begin, slots * sizeof(uint64_t))
    munmap(table.times + table.begin, slots * sizeof(uint32_t))
    table.begin += slots


cdef void release(Table* table) noexcept:
    if table.slots > table.begin:
        give_back(table, table.slots - table.begin)
    table.keys, table.times, table.slots, table.begin, table.used = NULL, NULL, 0, 0, 0


cdef size_t place_of(const Table* table, uint64_t key) noexcept:
    """Return where a key would be if all were free."""
    return ((key >> 32) * table.slots) >> 32


cdef size_t slot_of(const Table* table, uint64_t key) noexcept:
    """Return where a key is, or would be put; a slot is always free."""
    cdef size_t slot = place_of(table, key)
    while table.times[slot] and table.keys[slot] != key:
        slot += 1
        if slot == table.slots:
            slot = 0
    return slot


cdef int64_t found_in(const Table* table, uint64_t key, size_t begin, size_t end) noexcept:
    """Return in which of these slots a key is; NONE if a free one comes first, ON if it may be behind them."""
    cdef size_t slot
    for slot in range(begin, end):
        if not table.times[slot]:
            return NONE
        if table.keys[slot] == key:
            return slot
    return ON


cdef uint64_t hashed(str name) except? 0:
    cdef Py_ssize_t size
    cdef const char* text = PyUnicode_AsUTF8AndSize(name, &size)
    return hash_of(<const unsigned char*>text, size)
