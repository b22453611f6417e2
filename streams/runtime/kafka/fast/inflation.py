"""Unpacks what a batch carries compressed, up to a bound: 8 KB of zstd can be 256 MB, and all of it fits a broker.

zlib and cramjam, not aiokafka's functions: those unpack all of it, and go round for ever over a Snappy block of
negative size.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import cramjam

if TYPE_CHECKING:
    from collections.abc import Callable

# What one batch may be. Brokers take 1 MiB unless told otherwise, and ours write no more; text shrinks to a tenth.
MOST_BYTES: Final = 16 << 20
_FIRST_BYTES, _STEP = 64 << 10, 8  # of the room that is tried first, and how much more room is tried next
_XERIAL, _XERIAL_BYTES = b"\x82SNAPPY\x00", 16  # what Java's Snappy puts before its blocks
_SIZE_BYTES: Final = 4  # before each of them
_GZIP: Final = 31  # zlib's word for a gzip header and the largest window


class InflationError(ValueError):
    """It cannot be unpacked, or is too large to be."""


def inflate(codec: int, data: bytes, most_bytes: int = MOST_BYTES) -> bytes:
    """Return what was compressed.

    Args:
        codec: Kafka's number of it.
        data: of one batch.
        most_bytes: of the result.

    Raises:
        InflationError: the result would be larger, or the data are not of that codec.
    """
    if codec not in _CODECS:
        raise InflationError(f"there is no compression {codec}")
    try:
        return _CODECS[codec](data, most_bytes)
    except (zlib.error, cramjam.DecompressionError) as fault:
        raise InflationError(f"not unpacked to at most {most_bytes} bytes: {fault}") from fault


def _gzip(data: bytes, most_bytes: int) -> bytes:
    """Unpack the first member; what follows is nothing to Java, nor to the broker."""
    member = zlib.decompressobj(wbits=_GZIP)
    found = member.decompress(data, most_bytes + 1)
    if not member.eof or len(found) > most_bytes:
        raise InflationError(f"gzip ends nowhere within {most_bytes} bytes")
    return found


def _snappy(data: bytes, most_bytes: int) -> bytes:
    blocks, size = [], 0
    for block in _xerial(data) if data.startswith(_XERIAL) else [data]:
        size += cramjam.snappy.decompress_raw_len(block)
        if size > most_bytes:
            raise InflationError(f"Snappy says that it is more than {most_bytes} bytes")
        blocks.append(bytes(cramjam.snappy.decompress_raw(block)))
    return b"".join(blocks)


def _xerial(data: bytes) -> list[bytes]:
    blocks, at = [], _XERIAL_BYTES
    while at < len(data):
        begin = at + _SIZE_BYTES
        at = begin + int.from_bytes(data[at:begin], "big")
        if not begin < at <= len(data):
            raise InflationError("a Snappy block is cut off")
        blocks.append(data[begin:at])
    return blocks


def _growing(decompress_into: Callable[[bytes, bytearray], int]) -> Callable[[bytes, int], bytes]:
    """Make an unpacker that tries more and more room: these formats need not say how much there will be."""

    def unpack(data: bytes, most_bytes: int) -> bytes:
        room = min(max(_FIRST_BYTES, _STEP * len(data)), most_bytes)
        while True:
            found = bytearray(room)
            try:
                return bytes(memoryview(found)[: decompress_into(data, found)])
            except cramjam.DecompressionError:
                if room == most_bytes:
                    raise
            room = min(room * _STEP, most_bytes)

    return unpack


_CODECS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    1: _gzip,
    2: _snappy,
    3: _growing(cramjam.lz4.decompress_into),
    4: _growing(cramjam.zstd.decompress_into),
}
