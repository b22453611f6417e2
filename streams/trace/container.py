"""Reads the blocks of an Avro container file, each bounded before it is inflated.

    header: "Obj" 1 | codec, schema | 16 bytes that end each block
    block:  records | bytes | deflated | the 16 bytes

fastavro inflates a whole block, whatever comes of it: 700 KB can be 700 MB. This reads what Skysail writes.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, BinaryIO, Final

from schemas.errors import DecodeError
from schemas.sizes import MOST_BYTES
from schemas.wire import read_count, read_long, read_size

if TYPE_CHECKING:
    from collections.abc import Iterator

# Ours end with the record by which they reach 128 KiB, and no record is much larger than `schemas.sizes` says.
BLOCK_BYTES: Final = 2 * MOST_BYTES
_HEADER_BYTES: Final = 1 << 20
_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_NUMBERS_BYTES: Final = 20  # two varints of 64 bits
_RAW: Final = -15  # zlib's word for deflate without a header


class ContainerError(ValueError):
    """It is no container file of ours, or a damaged one; the message says why."""


def blocks(file: BinaryIO, size: int, most_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a file's first `size` bytes: how many records, and their bytes.

    Args:
        file: the container file.
        size: how many of its bytes are read.
        most_bytes: of a block, inflated.

    Raises:
        ContainerError: they are no whole blocks, or one of them is too large.
    """
    sync, at = _header(file, size)
    while at < size:
        file.seek(at)
        count, length, begin = _numbers(file.read(min(_NUMBERS_BYTES, size - at)))
        if length > most_bytes or at + begin + length + _SYNC_BYTES > size:
            raise ContainerError(f"the block at byte {at} is larger than the file, or than {most_bytes:,} bytes")
        file.seek(at + begin)
        deflated = file.read(length)
        if file.read(_SYNC_BYTES) != sync:
            raise ContainerError(f"the block at byte {at} does not end as this file's do")
        yield count, _inflated(deflated, at, most_bytes)
        at += begin + length + _SYNC_BYTES


def _header(file: BinaryIO, size: int) -> tuple[bytes, int]:
    """Return the bytes that end each block, and where the first one begins."""
    head = file.read(min(size, _HEADER_BYTES))
    if not head.startswith(_MAGIC):
        raise ContainerError("it is no Avro container file")
    try:
        entries, at = _entries(head, len(_MAGIC))
    except (DecodeError, IndexError) as error:
        raise ContainerError("its header is no Avro header") from error
    if entries.get(b"avro.codec") != b"deflate":
        raise ContainerError("it is not compressed by `deflate`, as those of Skysail are")
    return head[at : at + _SYNC_BYTES], at + _SYNC_BYTES


def _entries(head: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    """Return a map of bytes, and where it ends."""
    found: dict[bytes, bytes] = {}
    while True:
        count, at = read_count(head, at)
        if count == 0:
            return found, at
        for _ in range(count):
            name, at = _bytes(head, at)
            found[name], at = _bytes(head, at)


def _bytes(head: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_size(head, at)
    return head[at : at + size], at + size


def _numbers(head: bytes) -> tuple[int, int, int]:
    """Return how many records and bytes a block has, and how many bytes say so."""
    try:
        count, at = read_long(head, 0)
        length, at = read_long(head, at)
    except (DecodeError, IndexError) as error:
        raise ContainerError("a block has no size") from error
    if count < 0 or length < 0:
        raise ContainerError("a block has a negative size")
    return count, length, at


def _inflated(deflated: bytes, at: int, most_bytes: int) -> bytes:
    """Return what a block holds."""
    block = zlib.decompressobj(_RAW)
    try:
        found = block.decompress(deflated, most_bytes + 1)
    except zlib.error as error:
        raise ContainerError(f"the block at byte {at} is damaged: {error}") from error
    if len(found) > most_bytes or not block.eof:
        raise ContainerError(f"the block at byte {at} is cut off, or holds more than {most_bytes:,} bytes")
    return found
