# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What is in `batches.pxd` and `texts.pxd`, for Python: to look into a record batch, to write one, and to try both.

The bytes are clients': whatever is unusual is a ValueError, and Python decides about it.
"""

from libc.string cimport memset
from streams.columns.texts cimport Text, as_bytes, hashed, is_utf8, none, text_of
from streams.operators.id_times cimport IdTimes

ctypedef long long Long


cdef class Slices:
    """The batch that was read last, as far as it was."""

    cdef Opened opened(self, bytes data, int64_t offset) except *:
        """Open a batch at its first record that is not before an offset; raises ValueError as `opened` does."""
        cdef Opened batch
        cdef Taken taken
        if data is self._data and self._at.base + self._at.next <= offset:
            batch = self._at
        else:
            batch = opened(data)
        while batch.base + batch.next < offset and next_record(&batch, &taken):
            pass
        self._data, self._at = data, batch
        return batch

    cdef void leave(self, const Opened* batch) noexcept:
        """Say how far the batch that was opened last was read; one that is read to its end is let go."""
        self._at = batch[0]
        if batch.next >= batch.count:
            self._data = None


def sliced(list cuts not None, bytes data not None):
    """Return the offsets that are read where a batch is cut at these offsets."""
    cdef Slices slices = Slices()
    cdef Opened batch
    cdef Taken taken
    cdef list found = []
    for begin, end in cuts:
        batch = slices.opened(data, begin)
        offsets = []
        while batch.base + batch.next < end and next_record(&batch, &taken):
            offsets.append(taken.offset)
        slices.leave(&batch)
        found.append(offsets)
    return found


def records(bytes data not None):
    """Return offset, time (us), key, value and number of headers of each record of a batch.

    Raises:
        ValueError: it is not of format 2, compressed, a control batch, cut off or spoilt, or has gaps.
    """
    cdef Opened batch = opened(data)
    cdef Taken record
    cdef list found = []
    while next_record(&batch, &record):
        found.append((record.offset, record.stamp_us, as_bytes(record.key), as_bytes(record.value), record.headers))
    return found


def written(list pairs not None, Long time_ms):
    """Return a batch of records without headers, of these keys (None = without) and values."""
    cdef Output output
    cdef Text key
    cdef Long index = 0
    memset(&output, 0, sizeof(output))
    try:
        begin_batch(&output)
        for name, value in pairs:
            key = none() if name is None else text_of(name)
            write_record(&output, index, key, text_of(value))
            index += 1
        finish_batch(&output, index, time_ms)
        return (<char*>output.data)[: output.size]
    finally:
        release(&output)


def checksum(bytes data not None, bint by_table=False):
    """Return the CRC-32C of bytes, by the machine's instruction where it has one."""
    cdef Text text = text_of(data)
    return (crc32c_by_table if by_table else crc32c_of)(text.at, <size_t>text.size)


def is_text(bytes data not None):
    """Tell whether bytes are UTF-8, as Python decodes it."""
    return is_utf8(text_of(data))


def number(bytes data not None):
    """Return the number that bytes begin with, and how many it takes.

    Raises:
        ValueError: there is none.
    """
    cdef Place place = place_in(text_of(data))
    cdef Long found = read_long(&place)
    if place.bad:
        raise ValueError
    return found, place.at - text_of(data).at


def number_written(Long given):
    """Return the bytes of a number."""
    cdef Output output
    memset(&output, 0, sizeof(output))
    try:
        write_long(&output, given)
        if output.size != long_size(given):
            raise AssertionError
        return (<char*>output.data)[: output.size]
    finally:
        release(&output)


def put(IdTimes times not None, bytes name not None, unsigned int time, unsigned int oldest):
    """Give an id a time by its bytes alone, as `IdTimes.put` does by its text."""
    return times.put_key(hashed(text_of(name)), time, oldest)


def find(IdTimes times not None, bytes name not None):
    """Return the time of an id by its bytes alone, as `IdTimes.find` does by its text."""
    return times.find_key(hashed(text_of(name)))
