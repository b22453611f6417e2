"""Avro's binary encoding, strictly, for what costs too much as generated code: numbers, tensors, columns.

Readers take `(buffer, position)` and return `(value, next position)`. They may run past the end of the buffer. The next
index or the final comparison of position and length detects that, so fields need no check of their own. A number has
one spelling. Padded, oversized and (for sizes) negative ones are refused; fastavro accepts them silently.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas.errors import DecodeError
from schemas.records import DTYPES, Outcome, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_RANK: Final = 9  # eight of an input, and the rows of a batch of them
ITEM_BYTES: Final = {name: np.dtype(name).itemsize for name in DTYPES}
INT_MAX: Final = 2**31 - 1
# Sizes and counts of 0 to 63, by far the most frequent, as one byte.
SMALL: Final = tuple(bytes((2 * number,)) for number in range(64))

pack_double: Final = struct.Struct("<d").pack
unpack_double: Final = struct.Struct("<d").unpack_from
_DOUBLES: Final = tuple(struct.Struct(f"<{count}d") for count in range(64))
# Fourteen bits of a number as two bytes that more follow: a time costs 0.45 us by them, 0.65 seven bits at a time.
_PAIRS: Final = tuple(bytes((low & 127 | 128, low >> 7 | 128)) for low in range(1 << 14))
_unpack_halves: Final = struct.Struct("<II").unpack_from


# --- Numbers ----------------------------------------------------------------------------------------------------------


def write_long(number: int) -> bytes:
    """Return a long (or a size) as a zigzag varint.

    Microseconds since the epoch take eight bytes until the year 3111. They are written in halves, as the upper one
    changes every 134 s only.
    """
    if 1 << 48 <= number < 1 << 55:
        low = number << 1
        return _PAIRS[low & 16383] + _PAIRS[low >> 14 & 16383] + _write_upper(number >> 27)
    zigzag = (number << 1) ^ (number >> 63)
    if not 0 <= zigzag < 1 << 64:
        raise OverflowError(f"{number} does not fit 64 bits")
    return _write_varint(zigzag)


def _write_varint(zigzag: int) -> bytes:
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_write_upper = lru_cache(maxsize=1024)(_write_varint)


def write_int(number: int) -> bytes:
    """Return an int of 32 bits as a zigzag varint."""
    if not -INT_MAX - 1 <= number <= INT_MAX:
        raise OverflowError(f"{number} does not fit 32 bits")
    return write_long(number)


@lru_cache(maxsize=1024)
def _read_upper(half: int) -> int:
    """Return what the last four of a number's eight bytes stand for, without its sign; -1 if it does not end there."""
    if half & 0x80808080 != 0x00808080 or half <= 0xFFFFFF:
        return -1
    return sum((half >> 8 * index & 127) << 7 * index for index in range(4)) << 28


def read_long(buffer: bytes, at: int) -> tuple[int, int]:
    """Read a long. Eight bytes that are one number, as times are, are folded by halves; the upper one is known."""
    if len(buffer) - at >= 8:
        low, half = _unpack_halves(buffer, at)
        if low & 0x80808080 == 0x80808080 and (upper := _read_upper(half)) >= 0:
            low = (low & 0x007F007F) + (low >> 1 & 0x3F803F80)
            low = (low & 0x3FFF) + (low >> 2 & 0xFFFC000)
            return (upper + low >> 1) ^ -(low & 1), at + 8
    byte = buffer[at]
    number, shift = byte & 127, 0
    while byte > 127:
        at += 1
        shift += 7
        byte = buffer[at]
        number |= (byte & 127) << shift
        if shift > 63:
            raise DecodeError("invalid", f"the number at byte {at} is longer than 64 bits")
    if number >> 64 or (shift and not byte):
        raise DecodeError("invalid", f"the number at byte {at} is padded or larger than 64 bits")
    return (number >> 1) ^ -(number & 1), at + 1


def read_int(buffer: bytes, at: int) -> tuple[int, int]:
    """Read an int; DecodeError if it needs more than 32 bits."""
    number, end = read_long(buffer, at)
    if not -INT_MAX - 1 <= number <= INT_MAX:
        raise DecodeError("invalid", f"{number} at byte {at} does not fit 32 bits")
    return number, end


def read_size(buffer: bytes, at: int) -> tuple[int, int]:
    """Read how many bytes follow; DecodeError if negative or more than the whole buffer."""
    size, end = read_long(buffer, at)
    if size < 0:
        raise DecodeError("invalid", f"negative size at byte {at}")
    if size > len(buffer):
        raise DecodeError("truncated", f"{size} bytes announced at byte {at}, of {len(buffer)} in all")
    return size, end


def read_count(buffer: bytes, at: int) -> tuple[int, int]:
    """Read how many items the next block of an array or map has; a negative count is followed by the block's size."""
    count, end = read_long(buffer, at)
    if count < 0:
        _, end = read_size(buffer, end)
        count = -count
    if count > len(buffer):
        raise DecodeError("truncated", f"{count} items announced at byte {at}, of {len(buffer)} bytes in all")
    return count, end


def write_doubles(numbers: Sequence[float]) -> bytes:
    """Return an array of doubles; ValueError if one is not finite."""
    count = len(numbers)
    if not _all_finite(numbers):
        raise ValueError("a number is not finite")
    if 0 < count < 64:
        return SMALL[count] + _DOUBLES[count].pack(*numbers) + b"\0"
    return write_long(count) + struct.pack(f"<{count}d", *numbers) + b"\0" if count else b"\0"


def read_doubles(buffer: bytes, at: int) -> tuple[tuple[float, ...], int]:
    """Read an array of doubles, a block at once; struct.error where the buffer ends before a block does."""
    numbers: tuple[float, ...] = ()
    count = buffer[at]
    if not count & 129:  # below 64: one block almost always
        count >>= 1
        numbers = _DOUBLES[count].unpack_from(buffer, at + 1)
        at += 1 + 8 * count
    if count:
        numbers, at = _read_more_doubles(buffer, at, numbers) if buffer[at] else (numbers, at + 1)
    if not _all_finite(numbers):
        raise DecodeError("invalid", f"not a finite number, before byte {at}")
    return numbers, at


def _read_more_doubles(buffer: bytes, at: int, numbers: tuple[float, ...]) -> tuple[tuple[float, ...], int]:
    """Read the blocks from here to the end of an array of doubles."""
    blocks = [numbers]  # joined once at the end: thousands of blocks of one number are read as fast as one of thousands
    count, at = read_count(buffer, at)
    while count:
        blocks.append(struct.unpack_from(f"<{count}d", buffer, at))
        count, at = read_count(buffer, at + 8 * count)
    return tuple(chain.from_iterable(blocks)), at


def _all_finite(numbers: Iterable[float]) -> bool:
    """Tell whether every number is finite; a finite sum proves it, an infinite one may just be large."""
    return math.isfinite(sum(numbers)) or all(map(math.isfinite, numbers))


# --- Tensors ----------------------------------------------------------------------------------------------------------

_new_tensor = object.__new__
_set_dtype, _set_shape, _set_data = (Tensor.__dict__[name].__set__ for name in ("dtype", "shape", "data"))


@lru_cache(maxsize=1024)
def _write_layout(dtype: str, shape: tuple[int, ...]) -> tuple[bytes, int]:
    """Return everything before a tensor's elements, and how many bytes those must have."""
    if dtype not in ITEM_BYTES:
        raise ValueError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    if len(shape) > MAX_RANK or min(shape, default=0) < 0:
        raise ValueError(f"shape {shape} has more than {MAX_RANK} dimensions or a negative one")
    size = math.prod(shape) * ITEM_BYTES[dtype]
    dimensions = write_long(len(shape)) + b"".join(map(write_int, shape)) if shape else b""
    return write_long(DTYPES.index(dtype)) + dimensions + b"\0" + write_long(size), size


def write_tensor(tensor: Tensor) -> bytes:
    """Return a tensor; ValueError if its bytes are not what dtype and shape call for."""
    head, size = _write_layout(tensor.dtype, tensor.shape)
    data = tensor.data
    if len(data) != size:
        raise ValueError(f"{tensor.dtype}{list(tensor.shape)} needs {size} bytes of data, not {len(data)}")
    return head + data


def _parse_layout(buffer: bytes, at: int) -> tuple[str, tuple[int, ...], int, int]:
    """Read dtype and shape; returns them, the bytes the elements must have, and where the layout ends."""
    dtype = buffer[at]
    if dtype & 1 or dtype >> 1 >= len(DTYPES):
        raise DecodeError("invalid", f"unknown dtype at byte {at}")
    shape: list[int] = []
    count, at = read_count(buffer, at + 1)
    while count:
        if len(shape) + count > MAX_RANK:
            raise DecodeError("invalid", f"more than {MAX_RANK} dimensions at byte {at}")
        for _ in range(count):
            length, at = read_int(buffer, at)
            shape.append(length)
        count, at = read_count(buffer, at)
    if min(shape, default=0) < 0:
        raise DecodeError("invalid", f"negative dimension before byte {at}")
    name = DTYPES[dtype >> 1]
    size = math.prod(shape) * ITEM_BYTES[name]
    if size > INT_MAX:
        raise DecodeError("invalid", f"{name} of more than {INT_MAX} bytes before byte {at}")
    return name, tuple(shape), size, at


@lru_cache(maxsize=1024)
def _layout(head: bytes) -> tuple[str, tuple[int, ...], int, bytes]:
    """Read a layout that should fill `head` exactly, and spell the size that must follow.

    IndexError if it does not fill `head`: only whole, valid ones are kept.
    """
    dtype, shape, size, end = _parse_layout(head, 0)
    if end != len(head):
        raise IndexError
    return dtype, shape, size, write_long(size)


def read_tensor(buffer: bytes, at: int) -> tuple[Tensor, int]:
    """Read a tensor; its bytes are copied once.

    The layout is looked up by its bytes, which most tensors share: it ends at the first zero byte after the dtype,
    unless a dimension is zero.
    """
    end = buffer.find(0, at + 1) + 1
    try:
        dtype, shape, expected, spelt = _layout(buffer[at:end])
    except (IndexError, DecodeError):
        dtype, shape, expected, end = _parse_layout(buffer, at)
        spelt = write_long(expected)
    if not buffer.startswith(spelt, end):
        size, at = read_size(buffer, end)
        raise DecodeError("invalid", f"{dtype}{list(shape)} needs {expected} bytes of data, not {size}")
    at = end + len(spelt)
    end = at + expected
    tensor = _new_tensor(Tensor)
    _set_dtype(tensor, dtype)
    _set_shape(tensor, shape)
    _set_data(tensor, buffer[at:end])
    return tensor, end


# --- Columns ----------------------------------------------------------------------------------------------------------

_outcome_value = attrgetter("_value_")  # `value` is a Python property of the enumeration: 0.2 us a row
_OUTCOME_CODES: Final = {outcome.value: code for code, outcome in enumerate(Outcome)}
_OUTCOMES: Final = dict(enumerate(Outcome))


def pack_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """Return one byte a row. Batches are mostly all OK: then a count, which compares identities, is all it takes."""
    rows = len(outcomes)
    if outcomes.count(Outcome.OK) == rows:
        return bytes(rows)
    return bytes(map(_OUTCOME_CODES.__getitem__, map(_outcome_value, outcomes)))


def unpack_outcomes(column: bytes) -> tuple[Outcome, ...]:
    """Return the outcomes of a column; KeyError if a byte is none."""
    return tuple(map(_OUTCOMES.__getitem__, column))


def _pack(code: str, numbers: Iterable[int]) -> bytes:
    row = tuple(numbers)
    return struct.pack(f"<{len(row)}{code}", *row)


def _unpack(code: str, width: int, column: bytes) -> tuple[int, ...]:
    if len(column) % width:
        raise ValueError(f"a column of {len(column)} bytes has no whole number of int{8 * width}")
    return struct.unpack(f"<{len(column) // width}{code}", column)


def pack_int32s(numbers: Iterable[int]) -> bytes:
    """Return four bytes a row, little endian; struct.error if a number does not fit."""
    return _pack("i", numbers)


def unpack_int32s(column: bytes) -> tuple[int, ...]:
    """Return the numbers of a column; ValueError if it does not hold whole numbers of four bytes."""
    return _unpack("i", 4, column)


def pack_int64s(numbers: Iterable[int]) -> bytes:
    """Return eight bytes a row, little endian; struct.error if a number does not fit."""
    return _pack("q", numbers)


def unpack_int64s(column: bytes) -> tuple[int, ...]:
    """Return the numbers of a column; ValueError if it does not hold whole numbers of eight bytes."""
    return _unpack("q", 8, column)
