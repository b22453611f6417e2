"""Record batches made by hand, which other clients could write and ours never does, and their way to a broker.

Layouts: Kafka's protocol guide, "Record Batch" (magic 2) and Produce v7. Numbers are zigzag varints, as Avro's.
"""

from __future__ import annotations

import gzip
import socket
import struct
import time
from typing import TYPE_CHECKING, Final

import cramjam
from aiokafka.record.util import calc_crc32c

from schemas.wire import write_long

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_HEAD: Final = struct.Struct(">hiqqqhii")
_PRODUCE, _VERSION, _TIMEOUT_MS = 0, 7, 30_000


def record(value: bytes, key: bytes | None = None, offset: int = 0) -> bytes:
    """Return one record, the `offset`th of its batch."""
    written = b"\0\0" + write_long(offset) + _sized(key) + _sized(value) + write_long(0)
    return write_long(len(written)) + written


def _sized(part: bytes | None) -> bytes:
    return write_long(-1) if part is None else write_long(len(part)) + part


def batch(records: bytes, count: int = 1, codec: int = NONE) -> bytes:
    """Return a batch around records that are compressed already; its checksum is right, whatever they hold."""
    now_ms = time.time_ns() // 1_000_000
    rest = _HEAD.pack(codec, count - 1, now_ms, now_ms, -1, -1, -1, count) + records
    body = struct.pack(">ibI", 0, 2, calc_crc32c(rest)) + rest
    return struct.pack(">qi", 0, len(body)) + body


def zstd(records: bytes, count: int = 1) -> bytes:
    """Return a batch compressed with zstd."""
    return batch(bytes(cramjam.zstd.compress(records)), count, ZSTD)


def gzip_with_a_tail(data: bytes) -> bytes:
    """Compress, and put bytes behind it that Java leaves alone, where Python's gzip does not."""
    return gzip.compress(data) + b"trailing"


def lz4_with_a_wrong_checksum(data: bytes) -> bytes:
    """Compress as Java's LZ4 reads it, which does not look at the checksum behind the content.

    In independent blocks, the only kind that Kafka takes.
    """
    packer = cramjam.lz4.Compressor(level=1, content_checksum=True, block_linked=False)
    packer.compress(data)
    packed = bytearray(bytes(packer.finish()))
    packed[-1] ^= 1
    return bytes(packed)


def produce(bootstrap: str, topic: str, partition: int, made: bytes) -> int:
    """Ask a broker to take a batch; returns the protocol's error code, 0 where it was taken."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    head = struct.pack(">hhih4s", _PRODUCE, _VERSION, 1, 4, b"load") + struct.pack(">hhi", -1, -1, _TIMEOUT_MS)
    name = topic.encode()
    body = struct.pack(f">ih{len(name)}sii i".replace(" ", ""), 1, len(name), name, 1, partition, len(made)) + made
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_MS / 1e3) as there:
        there.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        answer = _exactly(there.recv, struct.unpack(">i", _exactly(there.recv, 4))[0])
    at = 4 + 4 + 2 + len(name) + 4 + 4  # correlation, topics, name, partitions, partition
    return int(struct.unpack_from(">h", answer, at)[0])


def _exactly(receive: Callable[[int], bytes], count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = receive(count)
        if not part:
            raise ConnectionError("the broker closed the connection: it did not like the batch")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def many(values: Sequence[bytes], key: bytes | None = None) -> bytes:
    """Return the records of a batch with these values."""
    return b"".join(record(value, key, offset) for offset, value in enumerate(values))
