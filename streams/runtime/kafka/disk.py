"""How much disk topics take: asked of every broker (DescribeLogDirs), which neither client library does for us."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Int64, Schema, String

from streams.runtime.errors import BrokerUnavailableError
from streams.runtime.kafka.connection import LOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.runtime.kafka.connection import KafkaConnection

_KEY = 35  # DescribeLogDirs; version 1 is the oldest that Kafka 4 takes (KIP-896)
_PARTITION = Array(("partition", Int32), ("size", Int64), ("offset_lag", Int64), ("is_future", Boolean))
_TOPIC = Array(("topic", String("utf-8")), ("partitions", _PARTITION))
_FOLDER = Array(("error_code", Int16), ("log_dir", String("utf-8")), ("topics", _TOPIC))


class _LogDirs(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = _KEY
    API_VERSION = 1
    SCHEMA = Schema(("throttle_time_ms", Int32), ("results", _FOLDER))


class _LogDirsRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = _KEY
    API_VERSION = 1
    RESPONSE_TYPE = _LogDirs
    SCHEMA = Schema(("topics", Array(("topic", String("utf-8")), ("partitions", Array(Int32)))))


class _DescribeLogDirs(Request[_LogDirsRequest]):  # type: ignore[misc]
    API_KEY = _KEY

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._topics = [(name, list(range(count))) for name, count in counts.items()]

    def build(self, request_struct_class: type[_LogDirsRequest]) -> _LogDirsRequest:
        return request_struct_class(self._topics)


async def sizes(connection: KafkaConnection, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes that each topic takes on the disks of all brokers together, all its copies counted.

    Args:
        connection: whose principal may describe the cluster.
        counts: partitions by the topic's full name.

    Raises:
        BrokerUnavailableError: no broker answers, or one refuses.
    """
    client, found = AIOKafkaClient(**connection.options()), Counter(dict.fromkeys(counts, 0))
    try:
        await client.bootstrap()
        brokers = [broker.nodeId for broker in client.cluster.brokers()]
        for answer in await asyncio.gather(*(client.send(broker, _DescribeLogDirs(counts)) for broker in brokers)):
            for code, _, topics in answer.results:
                if code:
                    raise for_code(code)
                for name, partitions in topics:
                    found[name] += sum(size for _, size, *_ in partitions)
    except LOST as fault:
        raise BrokerUnavailableError(f"the broker does not tell its disks' use: {fault!r}") from fault
    finally:
        await client.close()
    return dict(found)
