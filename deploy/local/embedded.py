"""A broker inside this process: librdkafka's mock cluster, for machines without the jars and for protocol faults.

It serves clients of any process as long as this one lives. It holds everything in memory: at most 5 MiB or 100,000
batches a partition, without replication or security. Never use it for figures or durability. An empty fetch waits the
whole `fetch_max_wait_ms` even if data arrive meanwhile, so set that to 5-20 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from deploy.errors import StartError
from deploy.local.librdkafka import MockCluster

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


class EmbeddedBroker:
    """librdkafka's mock cluster with the shape of a local broker; `cluster` has the faults."""

    description = "librdkafka's mock broker (in this process)"

    def __init__(self, brokers: int = 1) -> None:
        """Prepare; nothing listens yet."""
        self._brokers = brokers
        self._cluster: MockCluster | None = None

    @property
    def cluster(self) -> MockCluster:
        """The mock cluster while it runs.

        Raises:
            StartError: It is not running.
        """
        if self._cluster is None:
            raise StartError("The embedded broker is not running.")
        return self._cluster

    @property
    def bootstrap(self) -> str:
        """Where clients connect: `host:port`, comma-separated if there are several brokers."""
        return self.cluster.bootstrap

    def start(self) -> Self:
        """Start listening (about 2 ms); does nothing if it runs.

        Raises:
            MissingError: librdkafka is not there.
        """
        if self._cluster is None:
            self._cluster = MockCluster(self._brokers)
            self._cluster.group_initial_rebalance_delay_ms(0)
        return self

    def stop(self) -> None:
        """Stop, and forget everything."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        """Create topics `{name: partitions}`; those that exist are left alone."""
        for name, count in partitions.items():
            self.cluster.topic_create(name, count)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
