# What both compiled modules are made of: a place in bytes, numbers as zigzag varints (Avro's and Kafka's are the same),
# and records made slot by slot. Whatever is unusual is a ValueError: Python decides about it.

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.limits cimport LLONG_MAX, LLONG_MIN

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_alloc)(PyTypeObject* of, Py_ssize_t items)

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030E0000  /* tuples keep their hash: -1 = not worked out yet, and memory comes zeroed */
    #define FORGET_HASH(record) (((PyTupleObject *)(record))->ob_hash = -1)
    #else
    #define FORGET_HASH(record) ((void)0)
    #endif
    """
    void FORGET_HASH(object record)

cdef struct Cursor:
    const unsigned char* at
    const unsigned char* end


cdef inline object new_record(type made, Py_ssize_t fields):
    """Return a named tuple whose fields are yet to be put in place."""
    record = (<PyTypeObject*>made).tp_alloc(<PyTypeObject*>made, fields)
    FORGET_HASH(record)
    return record


cdef inline void put(object record, Py_ssize_t index, object value):
    Py_INCREF(value)
    PyTuple_SET_ITEM(record, index, value)


cdef inline long long read_long(Cursor* cursor) except? -1:
    cdef unsigned long long number = 0
    cdef int shift = 0
    cdef unsigned char byte = 128
    while byte > 127:
        if cursor.at >= cursor.end or shift > 63:
            raise ValueError
        byte = cursor.at[0]
        cursor.at += 1
        number |= <unsigned long long>(byte & 127) << shift
        if shift and (not byte or shift == 63 and byte > 1):
            raise ValueError
        shift += 7
    return <long long>(number >> 1) ^ -<long long>(number & 1)


cdef inline Py_ssize_t read_size(Cursor* cursor) except -1:
    cdef long long size = read_long(cursor)
    if size < 0 or size > cursor.end - cursor.at:
        raise ValueError
    return size


cdef inline long long plus(long long one, long long other) except? -1:
    """Return a sum that has 64 bits; in C any other is undefined."""
    if one > LLONG_MAX - other if other > 0 else one < LLONG_MIN - other:
        raise ValueError
    return one + other
