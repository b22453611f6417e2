# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""For tests: what is in `batches.pxd` and `texts.pxd`, each thing by itself. Nothing else calls these."""

from libc.string cimport memset
from streams.columns.batches cimport (
    Opened, Output, Slices, Taken, crc32c_by_table, crc32c_of, long_size, next_record, release, write_long
)
from streams.columns.texts cimport Place, Text, hashed, is_utf8, place_in, read_long, text_of
from streams.operators.id_times cimport IdTimes

ctypedef long long Long


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
