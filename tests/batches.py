"""Record batches by hand: sound ones, and what a broker takes from strangers."""

from __future__ import annotations

import struct
import zlib

import cramjam
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

AnswerColumn = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def batch(base: int, said: list[AnswerColumn], compression: int = 0, since_ms: int = 1_000) -> bytes:
    """Build a batch as a broker has it: with its first offset; records are a millisecond apart."""
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, 0, 1 << 20)
    for number, (key, value, headers) in enumerate(said):
        builder.append(number, since_ms + number, key, value, headers)
    return struct.pack(">q", base) + bytes(builder.build())[8:]


def with_checksum(data: bytes) -> bytes:
    """Correct a batch's checksum."""
    return data[:17] + struct.pack(">I", calc_crc32c(data[21:])) + data[21:]


def compressed(base: int, said: list[AnswerColumn], codec: int, records: bytes | None = None) -> bytes:
    """Build a compressed batch; its records may be these bytes, whatever they are."""
    if records is None:
        return batch(base, said, codec)
    head = bytearray(batch(base, said)[:61])
    head[22] |= codec
    head[8:12] = (49 + len(records)).to_bytes(4, "big")
    return with_checksum(bytes(head) + records)


TWO: list[AnswerColumn] = [(None, b"a", []), (None, b"b", [])]


MEBIBYTES = 256


def bomb(codec: int) -> bytes:
    """Compress zeros, without ever having them in one piece; Snappy says in its first bytes that it is a gibibyte."""
    zeros = bytes(1 << 20)
    if codec == 1:
        packer = zlib.compressobj(1, wbits=31)
        return b"".join([packer.compress(zeros) for _ in range(MEBIBYTES)]) + packer.flush()
    if codec == 2:
        return b"\x80\x80\x80\x80\x04" + bytes(100)
    packers = {3: lambda: cramjam.lz4.Compressor(level=1, block_linked=False), 4: cramjam.zstd.Compressor}
    packer = packers[codec]()
    for _ in range(MEBIBYTES):
        packer.compress(zeros)
    return bytes(packer.finish())
