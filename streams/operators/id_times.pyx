# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Ids and a time for each in 16 to 40 bytes, whatever the id: open addressing over 64 bits of its hash.

Two ids are taken for one with a chance of 2**-64 times the ids held: once in years at ten thousand a second. The hash is
FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/), begun with Python's own seed so that nobody can choose ids that meet
in it, and stirred as MurmurHash3 ends. A table never shrinks before it is full, and is copied whole then: to one and a
half times its size if nothing can be left out, for twice would leave most of it empty. Its size may be any number: the
upper half of the hash, as a fraction, says where to look (Lemire, doi.org/10.1145/3230636).
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef size_t SMALLEST = 1024  # slots
cdef uint64_t BASIS = <uint64_t>0xCBF29CE484222325 ^ <uint64_t><Py_ssize_t>hash("ids")


cdef class IdTimes:
    """See `ids.py`."""

    cdef uint64_t* _keys
    cdef uint32_t* _times  # 0 = the slot is free
    cdef size_t _slots, _used

    def __cinit__(self):
        self._allocate(SMALLEST)

    def __dealloc__(self):
        free(self._keys)
        free(self._times)

    def __sizeof__(self):
        return self._slots * (sizeof(uint64_t) + sizeof(uint32_t))

    def find(self, str name not None):
        return self._times[self._slot(hashed(name))]

    def put(self, str name not None, uint32_t time, uint32_t oldest):
        cdef uint64_t key = hashed(name)
        cdef size_t slot = self._slot(key)
        cdef uint32_t before = self._times[slot]
        if not before:
            if 4 * self._used >= 3 * self._slots:
                self._rebuild(oldest)
                slot = self._slot(key)
            self._used += 1
        self._keys[slot], self._times[slot] = key, time
        return before

    cdef size_t _slot(self, uint64_t key) noexcept:
        """Return where a key is, or would be put."""
        cdef size_t slot = ((key >> 32) * self._slots) >> 32
        while self._times[slot] and self._keys[slot] != key:
            slot += 1
            if slot == self._slots:
                slot = 0
        return slot

    cdef int _allocate(self, size_t slots) except -1:
        cdef uint64_t* keys = <uint64_t*>calloc(slots, sizeof(uint64_t))
        cdef uint32_t* times = <uint32_t*>calloc(slots, sizeof(uint32_t))
        if not keys or not times:
            free(keys)
            free(times)
            raise MemoryError
        self._keys, self._times, self._slots, self._used = keys, times, slots, 0
        return 0

    cdef int _rebuild(self, uint32_t oldest) except -1:
        """Leave out what is older, and have every second slot free."""
        cdef uint64_t* keys = self._keys
        cdef uint32_t* times = self._times
        cdef size_t before = self._slots, kept = 0, at, slot
        for at in range(before):
            kept += times[at] >= oldest and times[at] > 0
        self._allocate(max(SMALLEST, 2 * kept))
        for at in range(before):
            if times[at] >= oldest and times[at] > 0:
                slot = self._slot(keys[at])
                self._keys[slot], self._times[slot] = keys[at], times[at]
        self._used = kept
        free(keys)
        free(times)
        return 0


cdef uint64_t hashed(str name) except? 0:
    cdef Py_ssize_t size, at
    cdef const unsigned char* text = <const unsigned char*>PyUnicode_AsUTF8AndSize(name, &size)
    cdef uint64_t found = BASIS
    for at in range(size):
        found = (found ^ text[at]) * <uint64_t>0x100000001B3
    found = (found ^ (found >> 33)) * <uint64_t>0xFF51AFD7ED558CCD
    found = (found ^ (found >> 33)) * <uint64_t>0xC4CEB9FE1A85EC53
    return found ^ (found >> 33)
