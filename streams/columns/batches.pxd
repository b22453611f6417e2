# Record batches of format 2, in and out, as they travel; https://kafka.apache.org/documentation/#recordbatch
#
#     base offset 8 | length 4 | epoch 4 | magic 1 | crc 4 | attributes 2 | last offset 4 | first, max time 8, 8 | ... | count 4
#     record: length | attributes 1 | time | offset | key | value | headers        all but one as zigzag varints

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset
from streams.columns.texts cimport (
    Place, Text, as_bytes, as_str, is_utf8, lose, none, place_in, read_byte, read_bytes, read_long, text_of
)

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    static uint32_t skysail_crc_table[8][256];
    static int skysail_has_crc_table;

    static void skysail_fill_crc_table(void) {
        uint32_t i, j, c;
        for (i = 0; i < 256; i++) {
            for (c = i, j = 0; j < 8; j++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
            skysail_crc_table[0][i] = c;
        }
        for (j = 1; j < 8; j++)
            for (i = 0; i < 256; i++) {
                c = skysail_crc_table[j - 1][i];
                skysail_crc_table[j][i] = c >> 8 ^ skysail_crc_table[0][c & 255];
            }
        skysail_has_crc_table = 1;
    }

    /* Eight bytes a step, by tables (Kounavis and Berry, doi.org/10.1109/TC.2008.85). */
    static uint32_t crc32c_by_table(const uint8_t* at, size_t size) {
        uint32_t c = 0xFFFFFFFFu;
        if (!skysail_has_crc_table) skysail_fill_crc_table();
        for (; size >= 8; at += 8, size -= 8) {
            c ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
            c = skysail_crc_table[7][c & 255] ^ skysail_crc_table[6][c >> 8 & 255] ^ skysail_crc_table[5][c >> 16 & 255]
                ^ skysail_crc_table[4][c >> 24] ^ skysail_crc_table[3][at[4]] ^ skysail_crc_table[2][at[5]]
                ^ skysail_crc_table[1][at[6]] ^ skysail_crc_table[0][at[7]];
        }
        while (size--) c = c >> 8 ^ skysail_crc_table[0][(c ^ *at++) & 255];
        return ~c;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>
    __attribute__((target("sse4.2")))
    static uint32_t crc32c_by_instruction(const uint8_t* at, size_t size) {
        uint64_t c = 0xFFFFFFFFu, eight;
        for (; size >= 8; at += 8, size -= 8) {
            memcpy(&eight, at, 8);
            c = _mm_crc32_u64(c, eight);
        }
        while (size--) c = _mm_crc32_u8((uint32_t)c, *at++);
        return ~(uint32_t)c;
    }
    static uint32_t crc32c_of(const uint8_t* at, size_t size) {
        return __builtin_cpu_supports("sse4.2") ? crc32c_by_instruction(at, size) : crc32c_by_table(at, size);
    }
    #else
    static uint32_t crc32c_of(const uint8_t* at, size_t size) { return crc32c_by_table(at, size); }
    #endif
    """
    uint32_t crc32c_of(const uint8_t* at, size_t size) noexcept nogil
    uint32_t crc32c_by_table(const uint8_t* at, size_t size) noexcept nogil

cdef enum:
    HEADER = 61
    CHECKED = 21  # from where on the checksum counts
    UNUSUAL = 0x27  # attributes: compressed, or a control batch
    APPENDED = 0x08  # attributes: the time is the broker's, one for all

cdef inline int64_t last_ms() noexcept nogil:
    """Return the last time that has 64 bits as microseconds, too."""
    return 9223372036854775


# A batch that is read: where its next record begins, and how many are left.
cdef struct Opened:
    Place place
    int64_t base, first_ms, latest_ms
    int64_t next, count  # places in the batch, which are offsets less `base`
    bint is_appended


cdef struct Taken:
    int64_t offset
    int64_t stamp_us
    Text key, value  # of the batch's bytes
    int64_t headers
    Text heads  # how many headers there are, and they themselves, as they are written
    int64_t heads_size  # characters of their names, and bytes of their contents
    bint are_names  # whether the names of all are UTF-8


cdef inline uint64_t big(const uint8_t* at, int width) noexcept nogil:
    cdef uint64_t number = 0
    cdef int index
    for index in range(width):
        number = number << 8 | at[index]
    return number


cdef inline Opened opened(bytes data) except *:
    """Open a batch, at its first record, once all of its records have been gone over.

    Raises:
        ValueError: it is none of format 2, compressed, a control batch, cut off or spoilt; or its offsets have gaps.
    """
    cdef Text whole = text_of(data)
    cdef Opened batch
    cdef Taken record
    cdef int attributes
    memset(&batch, 0, sizeof(batch))
    if whole.size < HEADER or whole.at[16] != 2:
        raise ValueError("no record batch of format 2")
    attributes = <int>big(whole.at + 21, 2)
    if attributes & UNUSUAL or <int64_t>big(whole.at + 8, 4) != whole.size - 12:
        raise ValueError("a record batch of another kind")
    if crc32c_of(whole.at + CHECKED, <size_t>(whole.size - CHECKED)) != <uint32_t>big(whole.at + 17, 4):
        raise ValueError("a record batch with a wrong checksum")
    batch.base, batch.first_ms, batch.latest_ms = (
        <int64_t>big(whole.at, 8), <int64_t>big(whole.at + 27, 8), <int64_t>big(whole.at + 35, 8)
    )
    batch.count, batch.is_appended = <int64_t>big(whole.at + 57, 4), attributes & APPENDED
    if batch.count != <int64_t>big(whole.at + 23, 4) + 1 or not 0 <= batch.base <= 0x7FFFFFFF00000000:
        raise ValueError("a record batch with gaps")
    batch.place = place_in(whole)
    batch.place.at += HEADER
    cdef Opened checked = batch
    while next_record(&checked, &record):
        pass
    if checked.place.bad or checked.place.at != checked.place.end:
        raise ValueError("a record batch that contradicts itself")
    return batch


cdef inline bint next_record(Opened* batch, Taken* record) noexcept nogil:
    """Read the next record; False = there is none left, or it is not what it says (`batch.place.bad`)."""
    cdef Place* place = &batch.place
    cdef Place inside
    cdef Text name
    cdef int64_t delta_ms, count
    if batch.next >= batch.count:
        return False
    inside = place_in(read_bytes(place, read_long(place)))
    if read_byte(&inside) & 0x80:  # attributes: there are none yet; aiokafka reads them as a number of several bytes
        lose(&inside)
    delta_ms = read_long(&inside)
    if read_long(&inside) != batch.next or not _added(batch.first_ms, delta_ms, &record.stamp_us):
        lose(&inside)
    if batch.is_appended:
        record.stamp_us = batch.latest_ms
    if not -last_ms() <= record.stamp_us <= last_ms():
        lose(&inside)
    else:
        record.stamp_us *= 1000
    record.offset = batch.base + batch.next
    record.key = _read_nullable(&inside)
    record.value = _read_nullable(&inside)
    record.heads.at = inside.at
    record.heads_size, record.are_names = 0, True
    count = record.headers = read_long(&inside)
    while count > 0 and not inside.bad:
        name = read_bytes(&inside, read_long(&inside))
        record.are_names = record.are_names and is_utf8(name)
        record.heads_size += _characters(name) + max(_read_nullable(&inside).size, 0)
        count -= 1
    record.heads.size = inside.at - record.heads.at
    if inside.bad or count or inside.at != inside.end or place.bad:
        lose(place)
        return False
    batch.next += 1
    return True


# Batches that are read in slices: the checksum is worked out once, and each slice begins where the one before ended.
cdef class Slices:
    cdef bytes _data
    cdef Opened _at

    cdef Opened opened(self, bytes data, int64_t offset) except *
    cdef void leave(self, const Opened* batch) noexcept


cdef inline int64_t _characters(Text text) noexcept nogil:
    """Return how many characters a text in UTF-8 has."""
    cdef Py_ssize_t index
    cdef int64_t count = 0
    for index in range(text.size):
        count += (text.at[index] & 0xC0) != 0x80
    return count


cdef inline Text _read_nullable(Place* place) noexcept nogil:
    cdef int64_t size = read_long(place)
    return none() if size < 0 else read_bytes(place, size)


cdef inline bint _added(int64_t one, int64_t other, int64_t* sum) noexcept nogil:
    """Add; False = the sum has more than 64 bits."""
    cdef uint64_t found = <uint64_t>one + <uint64_t>other
    sum[0] = <int64_t>found
    return ((<uint64_t>one ^ found) & (<uint64_t>other ^ found)) >> 63 == 0


# What is written, in memory that grows; zeroed at first (`memset`), and given back by `release`.
cdef struct Output:
    uint8_t* data
    size_t size
    size_t room


cdef inline void release(Output* output) noexcept:
    free(output.data)
    output.data, output.size, output.room = NULL, 0, 0


cdef inline int grow(Output* output, size_t more) except -1 nogil:
    """Make room for more bytes behind what is written.

    Raises:
        MemoryError: there is none.
    """
    cdef size_t room
    cdef void* grown
    if output.size + more > output.room:
        room = 2 * (output.size + more) + 4096
        grown = realloc(output.data, room)
        if grown == NULL:
            with gil:
                raise MemoryError
        output.data, output.room = <uint8_t*>grown, room
    return 0


cdef inline int write_bytes(Output* output, Text text) except -1 nogil:
    if text.size > 0:
        grow(output, <size_t>text.size)
        memcpy(output.data + output.size, text.at, <size_t>text.size)
        output.size += <size_t>text.size
    return 0


cdef inline int write_byte(Output* output, uint8_t byte) except -1 nogil:
    grow(output, 1)
    output.data[output.size] = byte
    output.size += 1
    return 0


cdef inline int write_double(Output* output, double number) except -1 nogil:
    grow(output, sizeof(double))
    memcpy(output.data + output.size, &number, sizeof(double))
    output.size += sizeof(double)
    return 0


cdef inline int write_long(Output* output, int64_t number) except -1 nogil:
    cdef uint64_t left = <uint64_t>number << 1 ^ <uint64_t>(number >> 63)
    grow(output, 10)
    while left > 127:
        output.data[output.size] = <uint8_t>(left & 127 | 128)
        output.size += 1
        left >>= 7
    output.data[output.size] = <uint8_t>left
    output.size += 1
    return 0


cdef inline int write_text(Output* output, Text text) except -1 nogil:
    """Write a size and the bytes; one that is none has size -1."""
    write_long(output, text.size)
    return write_bytes(output, text)


cdef inline size_t long_size(int64_t number) noexcept nogil:
    """Return how many bytes a number takes."""
    cdef uint64_t left = <uint64_t>number << 1 ^ <uint64_t>(number >> 63)
    cdef size_t size = 1
    while left > 127:
        size += 1
        left >>= 7
    return size


cdef inline size_t text_size(Text text) noexcept nogil:
    return long_size(text.size) + (<size_t>text.size if text.size > 0 else 0)


cdef inline int begin_batch(Output* output) except -1 nogil:
    """Begin a batch in place of what was written before; records follow, then `finish_batch`."""
    output.size = 0
    grow(output, HEADER)
    output.size = HEADER
    return 0


cdef inline int begin_record(
    Output* output, int64_t index, Text key, size_t value_size, size_t heads_size = 1
) except -1 nogil:
    """Begin a record: exactly so many bytes of its value follow, then `end_record`.

    Args:
        output: where a batch was begun.
        index: of the record in its batch.
        key: of the record, if it has one.
        value_size: bytes.
        heads_size: bytes of its headers, as `Taken.heads` has them; 1 = it has none.
    """
    write_long(
        output, <int64_t>(2 + long_size(index) + text_size(key) + long_size(value_size) + value_size + heads_size)
    )
    write_byte(output, 0)  # attributes
    write_byte(output, 0)  # its time is the batch's
    write_long(output, index)
    write_text(output, key)
    return write_long(output, <int64_t>value_size)


cdef inline int end_record(Output* output, const Text* heads = NULL) except -1 nogil:
    """End a record with its headers, as `Taken.heads` has them; without them it has none."""
    return write_byte(output, 0) if heads == NULL else write_bytes(output, heads[0])


cdef inline tuple headers_in(Text heads):
    """Return headers, as `Taken.heads` has them, as Python has them; those that are not read are none."""
    cdef Place place = place_in(heads)
    cdef int64_t left = read_long(&place)
    cdef Text name
    cdef list found = []
    while left > 0 and not place.bad:
        name = read_bytes(&place, read_long(&place))
        found.append((as_str(name), as_bytes(_read_nullable(&place))))
        left -= 1
    return tuple(found)


cdef inline int write_record(Output* output, int64_t index, Text key, Text value) except -1 nogil:
    """Write a record without headers; see `begin_record`."""
    begin_record(output, index, key, <size_t>value.size)
    write_bytes(output, value)
    return end_record(output)


cdef inline void finish_batch(Output* output, int64_t count, int64_t time_ms) noexcept nogil:
    """Write the header of a batch of so many records that were made at this time, with base offset 0."""
    finish_times(output, count, time_ms, time_ms)


cdef inline void finish_times(Output* output, int64_t count, int64_t first_ms, int64_t latest_ms) noexcept nogil:
    """Write the header of a batch whose times count from the first one, with base offset 0."""
    cdef uint8_t* header = output.data
    memset(header, 0, HEADER)
    put_big(header + 8, output.size - 12, 4)
    memset(header + 12, 255, 4)  # the epoch is the broker's to say
    header[16] = 2
    put_big(header + 23, <uint64_t>(count - 1), 4)
    put_big(header + 27, <uint64_t>first_ms, 8)
    put_big(header + 35, <uint64_t>latest_ms, 8)
    memset(header + 43, 255, 10)  # no producer's id and epoch, and as a sequence 0, as aiokafka writes it
    put_big(header + 57, <uint64_t>count, 4)
    put_big(header + 17, crc32c_of(header + CHECKED, output.size - CHECKED), 4)


cdef inline void put_big(uint8_t* at, uint64_t number, int width) noexcept nogil:
    cdef int index
    for index in range(width):
        at[index] = <uint8_t>(number >> (8 * (width - 1 - index)))
