"""The hash of Kafka's Java client for keys, so that every client finds the same partition.

Source: `org.apache.kafka.common.utils.Utils.murmur2`. The tests check its published values.
"""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the signed 32-bit hash of `data`, bit for bit as Java computes it."""
    size = len(data)
    h = _SEED ^ size
    for word in struct.unpack_from(f"<{size // 4}I", data):
        k = word * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    if size & 3:
        h = (h ^ int.from_bytes(data[size & ~3 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h > _POSITIVE else h


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition, in [0, partitions), that Java's default partitioner gives a record with this key."""
    return (murmur2(key) & _POSITIVE) % partitions
