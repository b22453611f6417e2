# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What is in `batches.pxd`, for Python: to look into a record batch, and to write one.

The bytes are clients': whatever is unusual is a ValueError, and Python decides about it.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memset
from streams.columns.texts cimport Place, Text, as_bytes, none, place_in, read_byte, read_bytes, read_long, text_of

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


def joined(list parts not None):
    """Return the records of some batches as one batch, in order, with the times that they have.

    Raises:
        ValueError: one of them is no batch that `records` reads, or has the broker's time.
    """
    cdef Output output
    cdef Opened batch
    cdef Long count = 0, first_ms = 0, latest_ms = 0
    memset(&output, 0, sizeof(output))
    try:
        begin_batch(&output)
        for data in parts:
            batch = opened(data)
            if batch.is_appended:
                raise ValueError("a record batch with the broker's time")
            if not count:
                first_ms, latest_ms = batch.first_ms, batch.latest_ms
            latest_ms = max(latest_ms, batch.latest_ms)
            _copy(&output, &batch, count, first_ms)
            count += batch.count
        finish_times(&output, count, first_ms, latest_ms)
        return (<char*>output.data)[: output.size]
    finally:
        release(&output)


cdef int _copy(Output* output, Opened* batch, Long before, Long first_ms) except -1:
    """Write the records of a batch behind so many others, whose times count from `first_ms`."""
    cdef Place inside
    cdef Text rest
    cdef Long index, later_ms
    cdef unsigned char attributes
    for index in range(before, before + batch.count):
        inside = place_in(read_bytes(&batch.place, read_long(&batch.place)))
        attributes = read_byte(&inside)
        later_ms = <Long>(<uint64_t>read_long(&inside) + <uint64_t>batch.first_ms - <uint64_t>first_ms)
        read_long(&inside)  # its place in the batch
        rest.at, rest.size = inside.at, inside.end - inside.at
        write_long(output, 1 + <Long>long_size(later_ms) + <Long>long_size(index) + rest.size)
        write_byte(output, attributes)
        write_long(output, later_ms)
        write_long(output, index)
        write_bytes(output, rest)
    return 0
