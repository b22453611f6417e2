"""A network drops connections without a word: both ends hold them open, and no answer comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from deploy.local.cluster import KafkaCluster
from deploy.local.process import free_port
from load.harness.proxy import Proxy
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.log_reader import KafkaTail
from tests.kafka import producing, put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streams.operators.contract import Record

# An answer is waited for 10 s; aiokafka's own limit is 40.
PATIENCE_S: Final = 30.0


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[Proxy, KafkaCluster, str]]:
    """Start a broker whose clients come through a proxy; returns where it is, too."""
    port = free_port()
    with Proxy([port]) as proxy, KafkaCluster(1, bench=False, through={port: proxy.doors[port]}) as cluster:
        yield proxy, cluster, f"127.0.0.1:{proxy.doors[port]}"


@pytest.mark.parametrize("is_fast", [True, False], ids=["fast", "stock"])
async def test_who_waits_for_answers_of_predictions_has_them_again_within_seconds(
    is_fast: bool, proxied: tuple[Proxy, KafkaCluster, str], prefix: str
) -> None:
    """A client's reader, by our own requests and by aiokafka's alone."""
    proxy, cluster, bootstrap = proxied
    await asyncio.to_thread(cluster.nodes[0].create_topics, {f"{prefix}.in": 1})
    connection = KafkaConnection(bootstrap, prefix, fast=is_fast)
    tail = KafkaTail(connection, ["in"])
    records: list[Record] = []
    await tail.start()
    await tail.poll(200)
    proxy.half_open()
    async with producing(connection) as transport:
        await put(transport, [b"answer"])
    async with asyncio.timeout(PATIENCE_S):
        while not records:
            records += await tail.poll(200)
    await tail.stop()
    assert [record.value for record in records] == [b"answer"]
