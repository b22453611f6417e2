# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Reads and writes what is usual, in C; whatever is not is left to the generated Python, which says what is wrong.

A record type is a tree of nodes (`schemas.compiling` makes it from a schema). Nothing is decided here: a value, a byte
or a length that is the least unusual ends the attempt, and the Python reader or writer starts over. So both can only
differ in speed, which `tests/property/test_compiled_codec.py` holds them to.

Measured on one core (CPython 3.11): a query with 64 float32 is read in 0.56 to 0.97 us and written in 0.37 to 0.85, a
prediction is read in 0.75 and written in 0.5.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_FromDouble
from cpython.long cimport PyLong_AsLongLong, PyLong_FromLongLong, PyLong_FromVoidPtr
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject, PyObject_GenericSetAttr
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.math cimport isfinite
from libc.string cimport memcmp, memcpy
from schemas.native cimport Cursor, PyTypeObject, new_record, put, read_long, read_size

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    CONFLUENT_BYTES = 5  # as in schemas.framing
    SINGLE_OBJECT_BYTES = 10
    KEY_BYTES = 48  # as in schemas.memo
    MAX_SHARED_BYTES = 2048
    CAPACITY = 1024
    KEPT_BYTES = 2097152  # of a writer's buffer: four times the largest value
    MAX_RANK = 9
    INT_MAX_ = 2147483647
    MAX_ELEMENTS = 1073741824  # of a tensor, so that no product overflows

cdef enum Kind:
    NULL_, BOOLEAN, INT, LONG, DOUBLE, STRING, BYTES, OUTCOMES, INT32S, INT64S,
    ENUM, DOUBLES, ARRAY, ALONE, UNION, RECORD, SHARED, TENSOR, OBJECT

KINDS = {
    "null": NULL_, "boolean": BOOLEAN, "int": INT, "long": LONG, "double": DOUBLE, "string": STRING, "bytes": BYTES,
    "outcomes": OUTCOMES, "int32s": INT32S, "int64s": INT64S, "enum": ENUM, "doubles": DOUBLES, "array": ARRAY,
    "alone": ALONE, "union": UNION, "record": RECORD, "shared": SHARED, "tensor": TENSOR,
    "object": OBJECT,
}


cdef class Node:
    """One type of a schema.

    Args:
        kind: one of KINDS.
        parts: nodes of the items, the branches or the fields, in the order of the wire.
        members: of an enumeration; element types of a tensor; outcomes; a record's values for fields that the writer
            does not know, in the order of its class; an object's attributes.
        made: class of a record, tensor or object (which is no tuple, and whose constructor checks it).
        places: where each part stands in the class, -1 = nowhere.
        widths: bytes of an element, by type of tensor.
    """

    cdef Kind kind
    cdef tuple parts
    cdef tuple members
    cdef type made
    cdef Py_ssize_t count
    cdef int[64] places
    cdef int[16] widths
    cdef dict known

    def __init__(self, str kind, tuple parts=(), tuple members=(), type made=None, tuple places=(), tuple widths=()):
        if len(places) > 64 or len(widths) > 16 or len(members) > 64 or len(parts) > 64:
            raise ValueError(f"{kind}: more parts than there is room for")
        self.kind = KINDS[kind]
        self.parts = parts
        self.members = members
        self.made = made
        self.count = len(parts)
        self.known = {}
        for index, place in enumerate(places):
            self.places[index] = place
        for index, width in enumerate(widths):
            self.widths[index] = width

    cdef inline Node part(self, Py_ssize_t index):
        return <Node>PyTuple_GET_ITEM(self.parts, index)


# --- Reading ----------------------------------------------------------------------------------------------------------

cdef class Reader:
    """Reads one record type of one writer: `read(buffer, start) -> (record, end)`.

    Args:
        root: what is read.
        python: reads whatever is unusual.
    """

    cdef Node root
    cdef object python

    def __init__(self, Node root, python):
        self.root = root
        self.python = python

    def __call__(self, bytes buffer not None, Py_ssize_t start):
        cdef Cursor cursor
        cdef const unsigned char* begin = <const unsigned char*>PyBytes_AS_STRING(buffer)
        cursor.at = begin + start
        cursor.end = begin + PyBytes_GET_SIZE(buffer)
        try:
            record = read(self.root, &cursor)
        except Exception:
            return self.python(buffer, start)
        return record, cursor.at - begin


cdef class Values:
    """Reads whole values, framing and all: `read(record, value) -> record`.

    Args:
        readers: by record class, by framing.
        max_bytes: larger values are unusual.
        python: reads whatever is unusual.
    """

    cdef dict readers
    cdef Py_ssize_t max_bytes
    cdef object python

    def __init__(self, dict readers, Py_ssize_t max_bytes, python):
        self.readers = readers
        self.max_bytes = max_bytes
        self.python = python

    def __call__(self, record, value):
        cdef Cursor cursor
        cdef Py_ssize_t start, size
        if type(value) is not bytes:
            return self.python(record, value)
        size = PyBytes_GET_SIZE(value)
        cursor.at = <const unsigned char*>PyBytes_AS_STRING(value)
        cursor.end = cursor.at + size
        start = CONFLUENT_BYTES if cursor.at[0] == 0 else SINGLE_OBJECT_BYTES
        if start < size <= self.max_bytes:
            reader = (<dict>self.readers[record]).get(PyBytes_FromStringAndSize(<const char*>cursor.at, start))
            if type(reader) is Reader:
                cursor.at += start
                try:
                    decoded = read((<Reader>reader).root, &cursor)
                except Exception:
                    return self.python(record, value)
                if cursor.at == cursor.end:
                    return decoded
        return self.python(record, value)


def first_text(value):
    """Return a value's first field, which must be a text; None where anything is unusual."""
    cdef Cursor cursor
    try:
        return read_text(&cursor) if begins(value, &cursor) else None
    except Exception:
        return None


def first_texts(value, Py_ssize_t count):
    """Return a value's first fields, which must be texts; None where anything is unusual."""
    cdef Cursor cursor
    cdef Py_ssize_t index
    try:
        if not begins(value, &cursor):
            return None
        texts = PyTuple_New(count)
        for index in range(count):
            text = read_text(&cursor)
            put(texts, index, text)
        return texts
    except Exception:
        return None


cdef inline bint begins(value, Cursor* cursor):
    """Go to the first field; False where there is no framing, or it is unusual."""
    if type(value) is not bytes or PyBytes_GET_SIZE(value) <= SINGLE_OBJECT_BYTES:
        return False
    cursor.at = <const unsigned char*>PyBytes_AS_STRING(value)
    cursor.end = cursor.at + PyBytes_GET_SIZE(value)
    if cursor.at[0] and (cursor.at[0] != 0xC3 or cursor.at[1] != 1):
        return False
    cursor.at += SINGLE_OBJECT_BYTES if cursor.at[0] else CONFLUENT_BYTES
    return True


cdef inline object read_text(Cursor* cursor):
    cdef Py_ssize_t size = read_size(cursor)
    text = PyUnicode_DecodeUTF8(<const char*>cursor.at, size, NULL)
    cursor.at += size
    return text


cdef object read(Node node, Cursor* cursor):
    cdef unsigned char byte
    cdef long long number
    cdef double real
    cdef Kind kind = node.kind
    if kind == STRING:
        return read_text(cursor)
    if kind == UNION:
        byte = read_byte(cursor)
        if byte & 1 or byte >> 1 >= node.count:
            raise ValueError
        return read(node.part(byte >> 1), cursor)
    if kind == NULL_:
        return None
    if kind == LONG:
        return PyLong_FromLongLong(read_long(cursor))
    if kind == INT:
        number = read_long(cursor)
        if number != <int>number:
            raise ValueError
        return PyLong_FromLongLong(number)
    if kind == DOUBLE:
        return PyFloat_FromDouble(read_double(cursor))
    if kind == ENUM:
        byte = read_byte(cursor)
        if byte & 1 or byte >> 1 >= PyTuple_GET_SIZE(node.members):
            raise ValueError
        return <object>PyTuple_GET_ITEM(node.members, byte >> 1)
    if kind == RECORD:
        return read_record(node, cursor)
    if kind == SHARED:
        return read_shared(node, cursor)
    if kind == ARRAY or kind == DOUBLES:
        return read_array(node, cursor)
    if kind == ALONE:  # one item, where an array of them is wanted
        return (read(node.part(0), cursor),)
    if kind == TENSOR:
        return read_tensor(node, cursor)
    if kind == OBJECT:
        return node.made(*[read(part, cursor) for part in node.parts])
    if kind == BOOLEAN:
        byte = read_byte(cursor)
        if byte > 1:
            raise ValueError
        return byte == 1
    if kind == BYTES:
        return read_bytes(cursor, read_size(cursor))
    return read_column(node, cursor)


cdef inline unsigned char read_byte(Cursor* cursor) except? 255:
    if cursor.at >= cursor.end:
        raise ValueError
    cdef unsigned char byte = cursor.at[0]
    cursor.at += 1
    return byte


cdef inline double read_double(Cursor* cursor) except? -1:
    cdef double number
    if cursor.end - cursor.at < 8:
        raise ValueError
    memcpy(&number, cursor.at, 8)
    cursor.at += 8
    if not isfinite(number):
        raise ValueError
    return number


cdef inline bytes read_bytes(Cursor* cursor, Py_ssize_t size):
    data = PyBytes_FromStringAndSize(<const char*>cursor.at, size)
    cursor.at += size
    return data


cdef object read_record(Node node, Cursor* cursor):
    cdef Py_ssize_t index, size = PyTuple_GET_SIZE(node.members)
    cdef int place
    cdef object record = new_record(node.made, size)
    for index in range(node.count):
        value = read(node.part(index), cursor)
        place = node.places[index]
        if place >= 0:
            put(record, place, value)
    for index in range(size):  # fields that the writer did not know
        if <PyObject*>PyTuple_GET_ITEM(record, index) == NULL:
            value = <object>PyTuple_GET_ITEM(node.members, index)
            put(record, index, value)
    return record


cdef object read_shared(Node node, Cursor* cursor):
    cdef Py_ssize_t left = cursor.end - cursor.at
    cdef const unsigned char* start = cursor.at
    cdef bytes key = PyBytes_FromStringAndSize(<const char*>start, min(left, <Py_ssize_t>KEY_BYTES))
    cdef PyObject* found = PyDict_GetItem(node.known, key)
    cdef bytes encoded
    if found != NULL:
        encoded = <bytes>PyTuple_GET_ITEM(<object>found, 1)
        size = PyBytes_GET_SIZE(encoded)
        if size <= left and memcmp(PyBytes_AS_STRING(encoded), start, size) == 0:
            cursor.at += size
            return <object>PyTuple_GET_ITEM(<object>found, 0)
    value = read_record(node, cursor)
    if cursor.at - start <= MAX_SHARED_BYTES:
        if len(node.known) >= CAPACITY:
            node.known.clear()
        node.known[key] = value, PyBytes_FromStringAndSize(<const char*>start, cursor.at - start)
    return value


cdef object read_array(Node node, Cursor* cursor):
    """Read one block and the end; more blocks, or sizes before them, are unusual."""
    cdef Py_ssize_t index, count = read_size(cursor)
    if count == 0:
        return ()
    cdef object items = PyTuple_New(count)
    for index in range(count):
        item = PyFloat_FromDouble(read_double(cursor)) if node.kind == DOUBLES else read(node.part(0), cursor)
        put(items, index, item)
    if read_byte(cursor):
        raise ValueError
    return items


cdef object read_tensor(Node node, Cursor* cursor):
    cdef unsigned char dtype = read_byte(cursor)
    if dtype & 1 or dtype >> 1 >= PyTuple_GET_SIZE(node.members):
        raise ValueError
    cdef long long length, expected = node.widths[dtype >> 1]
    cdef Py_ssize_t index, rank = read_size(cursor)
    if rank > MAX_RANK:
        raise ValueError
    cdef object shape = PyTuple_New(rank)
    for index in range(rank):
        length = read_long(cursor)
        if length < 0 or length > INT_MAX_ or expected > MAX_ELEMENTS:
            raise ValueError
        expected *= length
        number = PyLong_FromLongLong(length)
        put(shape, index, number)
    if rank and read_byte(cursor):
        raise ValueError
    if read_size(cursor) != expected:
        raise ValueError
    return new_tensor(node.made, <object>PyTuple_GET_ITEM(node.members, dtype >> 1), shape, read_bytes(cursor, expected))


cdef object new_tensor(type made, object dtype, object shape, object data):
    tensor = (<PyTypeObject*>made).tp_alloc(<PyTypeObject*>made, 0)  # no tuple: it has no hash to forget
    PyObject_GenericSetAttr(tensor, "dtype", dtype)  # as a frozen dataclass sets its own fields
    PyObject_GenericSetAttr(tensor, "shape", shape)
    PyObject_GenericSetAttr(tensor, "data", data)
    return tensor


cdef object read_column(Node node, Cursor* cursor):
    cdef Py_ssize_t index, rows, size = read_size(cursor)
    cdef int width = 1 if node.kind == OUTCOMES else 4 if node.kind == INT32S else 8
    cdef int small
    cdef long long number
    if size % width:
        raise ValueError
    rows = size // width
    cdef object column = PyTuple_New(rows)
    for index in range(rows):
        if width == 1:
            if cursor.at[index] >= PyTuple_GET_SIZE(node.members):
                raise ValueError
            value = <object>PyTuple_GET_ITEM(node.members, cursor.at[index])
        elif width == 4:
            memcpy(&small, cursor.at + 4 * index, 4)
            value = PyLong_FromLongLong(small)
        else:
            memcpy(&number, cursor.at + 8 * index, 8)
            value = PyLong_FromLongLong(number)
        put(column, index, value)
    cursor.at += size
    return column


# --- Writing ----------------------------------------------------------------------------------------------------------

cdef struct Out:
    unsigned char* data
    size_t size
    size_t room


cdef class Writer:
    """Writes one record type: `write(record, head) -> bytes`.

    Args:
        root: what is written.
        python: writes whatever is unusual, or says what is wrong with it.
    """

    cdef Node root
    cdef object python
    cdef Out out

    def __init__(self, Node root, python):
        self.root = root
        self.python = python

    def __dealloc__(self):
        PyMem_Free(self.out.data)

    def __call__(self, record, bytes head not None):
        cdef Out out = self.out
        self.out = Out(NULL, 0, 0)  # a finalizer, or another thread that it lets run, may come in meanwhile
        out.size = 0
        try:
            append(&out, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
            write(self.root, record, &out)
            return PyBytes_FromStringAndSize(<const char*>out.data, out.size)
        except Exception:
            return self.python(record, head)
        finally:
            if self.out.data == NULL and out.room <= KEPT_BYTES:
                self.out = out
            else:
                PyMem_Free(out.data)


cdef inline int need(Out* out, size_t more) except -1:
    cdef void* grown
    cdef size_t room
    if out.size + more >= out.room:  # so that there is memory even for nothing
        room = max(<size_t>1024, 2 * (out.size + more))
        grown = PyMem_Realloc(out.data, room)
        if grown == NULL:
            raise MemoryError
        out.data = <unsigned char*>grown
        out.room = room
    return 0


cdef inline int append(Out* out, const void* data, size_t size) except -1:
    need(out, size)
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef inline int write_long(Out* out, long long number) except -1:
    cdef unsigned long long zigzag = (<unsigned long long>number << 1) ^ <unsigned long long>(number >> 63)
    need(out, 10)
    while zigzag > 127:
        out.data[out.size] = <unsigned char>(zigzag & 127 | 128)
        out.size += 1
        zigzag >>= 7
    out.data[out.size] = <unsigned char>zigzag
    out.size += 1
    return 0


cdef inline int write_double(Out* out, object number) except -1:
    cdef double value
    if not isinstance(number, float):
        raise ValueError
    value = PyFloat_AS_DOUBLE(number)
    if not isfinite(value):
        raise ValueError
    return append(out, &value, 8)


cdef int write(Node node, object value, Out* out) except -1:
    cdef Kind kind = node.kind
    cdef Py_ssize_t size
    cdef const char* text
    cdef long long number
    if kind == STRING:
        if not isinstance(value, str):
            raise ValueError
        text = PyUnicode_AsUTF8AndSize(value, &size)
        write_long(out, size)
        return append(out, text, size)
    if kind == UNION:
        return write_union(node, value, out)
    if kind == LONG or kind == INT:
        if not isinstance(value, int):
            raise ValueError
        number = PyLong_AsLongLong(value)
        if kind == INT and number != <int>number:
            raise ValueError
        return write_long(out, number)
    if kind == DOUBLE:
        return write_double(out, value)
    if kind == ENUM:
        return write_long(out, index_of(node.members, value))
    if kind == RECORD:
        return write_record(node, value, out)
    if kind == SHARED:
        return write_shared(node, value, out)
    if kind == ARRAY or kind == DOUBLES:
        return write_array(node, value, out)
    if kind == TENSOR:
        return write_tensor(node, value, out)
    if kind == OBJECT:
        if type(value) is not node.made:
            raise ValueError
        for name, part in zip(node.members, node.parts):
            write(part, getattr(value, name), out)
        return 0
    if kind == NULL_:
        return 0
    if kind == BOOLEAN:
        if value is not True and value is not False:
            raise ValueError
        return write_long(out, -1 if value is True else 0)  # 1 and 0
    if kind == BYTES:
        if not isinstance(value, bytes):
            raise ValueError
        write_long(out, PyBytes_GET_SIZE(value))
        return append(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    return write_column(node, value, out)


cdef inline Py_ssize_t index_of(tuple members, object value) except -1:
    cdef Py_ssize_t index
    for index in range(PyTuple_GET_SIZE(members)):
        if <PyObject*>PyTuple_GET_ITEM(members, index) == <PyObject*>value:
            return index
    raise ValueError


cdef int write_union(Node node, object value, Out* out) except -1:
    cdef Py_ssize_t index
    for index in range(node.count):
        if takes(node.part(index), value):
            write_long(out, index)
            return write(node.part(index), value, out)
    raise ValueError


cdef inline bint takes(Node node, object value):
    cdef Kind kind = node.kind
    if kind == NULL_:
        return value is None
    if kind == LONG:
        return isinstance(value, int)
    if kind == DOUBLE:
        return isinstance(value, float)
    if kind == STRING:
        return isinstance(value, str)
    if kind == BYTES:
        return isinstance(value, bytes)
    if kind == ARRAY:
        return isinstance(value, tuple)
    return node.made is not None and type(value) is node.made


cdef int write_record(Node node, object record, Out* out) except -1:
    cdef Py_ssize_t index
    if type(record) is not node.made or PyTuple_GET_SIZE(record) != node.count:
        raise ValueError
    for index in range(node.count):
        write(node.part(index), <object>PyTuple_GET_ITEM(record, index), out)
    return 0


cdef int write_shared(Node node, object record, Out* out) except -1:
    cdef object key = PyLong_FromVoidPtr(<void*>record)
    cdef PyObject* found = PyDict_GetItem(node.known, key)
    cdef bytes encoded
    cdef size_t start = out.size
    if found != NULL and <PyObject*>PyTuple_GET_ITEM(<object>found, 0) == <PyObject*>record:
        encoded = <bytes>PyTuple_GET_ITEM(<object>found, 1)
        return append(out, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))
    write_record(node, record, out)
    if out.size - start <= MAX_SHARED_BYTES:
        if len(node.known) >= CAPACITY:
            node.known.clear()
        node.known[key] = record, PyBytes_FromStringAndSize(<const char*>out.data + start, out.size - start)
    return 0


cdef int write_array(Node node, object items, Out* out) except -1:
    cdef Py_ssize_t index, count
    if type(items) is not tuple:
        raise ValueError
    count = PyTuple_GET_SIZE(items)
    if count:
        write_long(out, count)
    for index in range(count):
        if node.kind == DOUBLES:
            write_double(out, <object>PyTuple_GET_ITEM(items, index))
        else:
            write(node.part(0), <object>PyTuple_GET_ITEM(items, index), out)
    return write_long(out, 0)


cdef int write_tensor(Node node, object tensor, Out* out) except -1:
    cdef object shape, length, data, dtype
    cdef Py_ssize_t index, place = -1
    cdef long long number, expected
    if type(tensor) is not node.made:
        raise ValueError
    dtype, shape, data = tensor.dtype, tensor.shape, tensor.data
    if type(shape) is not tuple or len(shape) > MAX_RANK or type(data) is not bytes:
        raise ValueError
    for index in range(PyTuple_GET_SIZE(node.members)):
        if <object>PyTuple_GET_ITEM(node.members, index) == dtype:
            place = index
            break
    if place < 0:
        raise ValueError
    write_long(out, place)
    expected = node.widths[place]
    if shape:
        write_long(out, len(shape))
    for length in shape:
        if type(length) is not int:
            raise ValueError
        number = PyLong_AsLongLong(length)
        if number < 0 or number > INT_MAX_ or expected > MAX_ELEMENTS:
            raise ValueError
        expected *= number
        write_long(out, number)
    if PyBytes_GET_SIZE(data) != expected:
        raise ValueError
    write_long(out, 0)
    write_long(out, expected)
    return append(out, PyBytes_AS_STRING(data), expected)


cdef int write_column(Node node, object rows, Out* out) except -1:
    cdef int width = 1 if node.kind == OUTCOMES else 4 if node.kind == INT32S else 8
    cdef Py_ssize_t index, count
    cdef long long number
    if type(rows) is not tuple:
        raise ValueError
    count = PyTuple_GET_SIZE(rows)
    write_long(out, count * width)
    need(out, count * width)
    for index in range(count):
        value = <object>PyTuple_GET_ITEM(rows, index)
        if width == 1:
            number = index_of(node.members, value)
        elif isinstance(value, int):
            number = PyLong_AsLongLong(value)
            if width == 4 and number != <int>number:
                raise ValueError
        else:
            raise ValueError
        memcpy(out.data + out.size, &number, width)  # little endian, as `schemas.compiling` makes sure
        out.size += width
    return 0
