# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What is in `batches.pxd`, for Python: to look into a record batch, and to write one.

The bytes are clients': whatever is unusual is a ValueError, and Python decides about it.
"""

from libc.string cimport memset
from streams.columns.texts cimport Text, as_bytes, none, text_of

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
