# Reading bytes that clients have written: a place in them, numbers and texts from there, and what a text is compared by.
#
# A place that has met something unusual is lost: `bad` stays set, and whatever is read afterwards is nothing. So many
# things are read first, and asked about once. Numbers are zigzag varints, as `schemas/native.pxd` reads them.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy
from streams.operators.id_times cimport hash_of


cdef struct Text:
    const uint8_t* at  # of another's bytes, which have to stay
    Py_ssize_t size  # -1 = there is none, as of a record without a key


cdef struct Place:
    const uint8_t* at
    const uint8_t* end
    bint bad


cdef inline Place place_in(Text text) noexcept nogil:
    """Return the begin of a text; where there is none, a place that is lost."""
    cdef Place place
    place.at, place.end, place.bad = text.at, text.at, text.size < 0
    if text.size > 0:
        place.end += text.size
    return place


cdef inline void lose(Place* place) noexcept nogil:
    place.at, place.bad = place.end, True


cdef inline Text none() noexcept nogil:
    cdef Text text
    text.at, text.size = NULL, -1
    return text


cdef inline Text text_of(bytes of):
    """Return the text of bytes, which somebody else has to keep."""
    cdef Text text
    text.at, text.size = <const uint8_t*>PyBytes_AS_STRING(of), PyBytes_GET_SIZE(of)
    return text


cdef inline bytes as_bytes(Text text):
    return None if text.size < 0 else PyBytes_FromStringAndSize(<const char*>text.at, text.size)


cdef inline str as_str(Text text):
    """Return a text of valid UTF-8.

    Raises:
        UnicodeDecodeError: it is none; a ValueError.
    """
    return PyUnicode_DecodeUTF8(<const char*>text.at, text.size, NULL)


cdef inline bint same(Text one, Text other) noexcept nogil:
    return one.size == other.size and (one.size <= 0 or memcmp(one.at, other.at, <size_t>one.size) == 0)


cdef inline uint64_t hashed(Text text) noexcept nogil:
    """Return the hash of an id, as `IdTimes` has it."""
    return hash_of(text.at, text.size)


cdef inline uint8_t read_byte(Place* place) noexcept nogil:
    if place.at >= place.end:
        lose(place)
        return 0
    place.at += 1
    return (place.at - 1)[0]


cdef inline int64_t read_long(Place* place) noexcept nogil:
    """Read a number of 64 bits: ten bytes at most, and no more than it takes."""
    cdef uint64_t number = 0
    cdef int shift = 0
    cdef uint8_t byte = 128
    while byte > 127:
        if place.at >= place.end or shift > 63:
            lose(place)
            return 0
        byte = place.at[0]
        place.at += 1
        number |= <uint64_t>(byte & 127) << shift
        if shift and (not byte or shift == 63 and byte > 1):
            lose(place)
            return 0
        shift += 7
    return <int64_t>(number >> 1) ^ -<int64_t>(number & 1)


cdef inline Text read_bytes(Place* place, int64_t size) noexcept nogil:
    """Read so many bytes."""
    cdef Text text
    if size < 0 or size > place.end - place.at:
        lose(place)
        size = 0
    text.at, text.size = place.at, size
    place.at += size
    return text


cdef inline Text read_text(Place* place) noexcept nogil:
    """Read a size and so many bytes."""
    return read_bytes(place, read_long(place))


cdef inline double read_double(Place* place) noexcept nogil:
    """Read eight bytes, as Avro and this machine write them (`little_endian`)."""
    cdef double number = 0.0
    if place.end - place.at < <Py_ssize_t>sizeof(double):
        lose(place)
        return number
    memcpy(&number, place.at, sizeof(double))
    place.at += sizeof(double)
    return number


cdef inline bint read_same(Place* place, Text expected) noexcept nogil:
    """Go over these bytes; False = others stand there, and the place stays."""
    if expected.size > place.end - place.at or expected.size > 0 and memcmp(place.at, expected.at, <size_t>expected.size):
        return False
    if expected.size > 0:
        place.at += expected.size
    return True


cdef inline bint little_endian() noexcept nogil:
    cdef uint64_t one = 1
    return (<uint8_t*>&one)[0] == 1


cdef inline bint is_utf8(Text text) noexcept nogil:
    """Tell whether Python would decode a text: neither overlong forms nor surrogates, nothing above U+10FFFF."""
    cdef const uint8_t* at = text.at
    cdef const uint8_t* end
    cdef uint64_t eight
    if text.size <= 0:
        return text.size == 0
    end = at + text.size
    while at < end:
        if end - at >= 8:
            memcpy(&eight, at, 8)
            if not eight & <uint64_t>0x8080808080808080:
                at += 8
                continue
        if at[0] < 0x80:
            at += 1
        elif not _is_character(&at, end):
            return False
    return True


cdef inline bint _is_character(const uint8_t** at, const uint8_t* end) noexcept nogil:
    """Go over a character of two to four bytes (Unicode 15, table 3-7); only the second byte has bounds of its own."""
    cdef uint8_t first = at[0][0]
    cdef uint8_t least = 0x80, most = 0xBF
    cdef int more, index
    if first < 0xC2 or first > 0xF4:
        return False
    more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    if first == 0xE0:
        least = 0xA0
    elif first == 0xED:
        most = 0x9F
    elif first == 0xF0:
        least = 0x90
    elif first == 0xF4:
        most = 0x8F
    if end - at[0] <= more or at[0][1] < least or at[0][1] > most:
        return False
    for index in range(2, more + 1):
        if at[0][index] & 0xC0 != 0x80:
            return False
    at[0] += more + 1
    return True
