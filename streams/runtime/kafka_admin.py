"""Creates and describes topics."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from streams.runtime.kafka_client import KafkaConnection


READY_S = 15.0


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic to be created.

    Attributes:
        name: without the deployment's prefix.
        partitions: how many.
        config: as Kafka names it (`retention.ms`, `cleanup.policy`, `max.message.bytes`, …).
        replication: copies. The client's protocol version cannot ask for the broker's default (KIP-464).
    """

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    replication: int = 1


class KafkaAdmin:
    """Asks and changes a cluster's topics; each call connects and disconnects."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection

    async def create(self, plans: Iterable[TopicPlan]) -> list[str]:
        """Create the topics that are not there, wait until they can be used, and return their names.

        Raises:
            BrokerUnavailableError: no broker answered, or partitions have no leader after `READY_S`.
            MisconfiguredError: the broker refuses a topic.
        """
        wanted = {self._connection.real(plan.name): plan for plan in plans}
        new = [
            NewTopic(real, plan.partitions, plan.replication, topic_configs=dict(plan.config))
            for real, plan in wanted.items()
        ]
        async with self._client() as client:
            answer = await client.create_topics(new)
            created = self._created(answer.topic_errors, wanted)
            await _usable(client, wanted)
        return created

    def _created(self, outcomes: Iterable[Any], wanted: Mapping[str, TopicPlan]) -> list[str]:
        created = []
        for real, code, *message in outcomes:
            error = for_code(code)
            if code == 0:
                created.append(wanted[real].name)
            elif error is not TopicAlreadyExistsError:
                raise MisconfiguredError(f"the broker refuses topic {real}: {error.__name__} {message}")
        return created

    async def partitions(self) -> dict[str, int]:
        """Return the number of partitions of every topic of this deployment, by logical name.

        Raises:
            BrokerUnavailableError: no broker answered.
        """
        async with self._client() as client:
            described = await client.describe_topics()
        prefix = self._connection.real("")
        return {
            self._connection.logical(topic["topic"]): len(topic["partitions"])
            for topic in described
            if topic["topic"].startswith(prefix) and not topic["is_internal"]
        }

    async def delete(self, names: Iterable[str]) -> None:
        """Delete topics by logical name; those that are not there are ignored.

        Raises:
            BrokerUnavailableError: no broker answered.
        """
        async with self._client() as client:
            await client.delete_topics([self._connection.real(name) for name in names])

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[AIOKafkaAdminClient]:
        client = AIOKafkaAdminClient(**self._connection.options())
        try:
            await client.start()
            yield client
        except KafkaError as fault:
            raise BrokerUnavailableError(f"cannot administer {self._connection.bootstrap}: {fault!r}") from fault
        finally:
            await client.close()


async def _usable(client: AIOKafkaAdminClient, wanted: Mapping[str, TopicPlan]) -> None:
    """Wait until every partition has a leader: right after its creation a topic is known to few brokers, if any."""
    try:
        async with asyncio.timeout(READY_S):
            while not all(map(_led, await client.describe_topics(list(wanted)))):  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.05)
    except TimeoutError as fault:
        raise BrokerUnavailableError(f"some of {sorted(wanted)} have no leader after {READY_S} s") from fault


def _led(topic: Mapping[str, Any]) -> bool:
    partitions = topic["partitions"]
    return topic["error_code"] == 0 and all(p["error_code"] == 0 and p["leader"] >= 0 for p in partitions)
