# The compiled table for other modules in C: by the hash of an id, so that an id need not be made a text first.

from libc.stdint cimport uint32_t, uint64_t

cdef uint64_t BASIS


cdef struct Table:
    uint64_t* keys
    uint32_t* times  # 0 = the slot is free
    size_t slots
    size_t begin  # slots before have been given back
    size_t used


cdef inline uint64_t hash_of(const unsigned char* text, Py_ssize_t size) noexcept nogil:
    """Return the hash of an id's UTF-8."""
    cdef uint64_t found = BASIS
    cdef Py_ssize_t at
    for at in range(size):
        found = (found ^ text[at]) * <uint64_t>0x100000001B3
    found = (found ^ (found >> 33)) * <uint64_t>0xFF51AFD7ED558CCD
    found = (found ^ (found >> 33)) * <uint64_t>0xC4CEB9FE1A85EC53
    return found ^ (found >> 33)


cdef class IdTimes:
    cdef Table _table  # takes every put
    cdef Table _old  # what has been full, from `_moved` on; without slots where nothing moves
    cdef size_t _moved
    cdef size_t _counted, _stays, _began  # slots looked at, what stays of these, ids that were there at the begin
    cdef uint32_t _oldest  # the latest of what puts have said: what may be left out once may be left out for good

    cdef uint32_t find_key(self, uint64_t key) noexcept
    cdef uint32_t put_key(self, uint64_t key, uint32_t time, uint32_t oldest) except? 4294967295
    cdef uint32_t _before(self, uint64_t key) noexcept
    cdef int _count(self) except -1
    cdef size_t _next_slots(self) noexcept
    cdef int _move(self) noexcept
