"""Finds and creates topics: the only place that does. It blocks, and is meant for the start of programs.

It stands on librdkafka's client, since everything that starts programs does; roles have no use for it.
"""

from __future__ import annotations

import time
from contextlib import closing
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from streams.checks import Found
from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]  # not in its __all__

ANSWER_S = 10.0
CREATE_S = 30.0
SERVED_S = 15.0
# Members notice new partitions within 10 s, and rebalance; on a busy machine that takes several times as long.
TAKEN_S = 90.0
POLL_S = 0.02
ALL: Final[Mapping[str, int]] = MappingProxyType({})
# A group's coordinator is another broker by now, or is about to be.
_MOVING: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
# Topics that one request creates, or asks about: a busy machine does so many within `CREATE_S` and `ANSWER_S`.
AT_ONCE = 100


def partitions(client: AdminClient) -> dict[str, int]:
    """Return the number of partitions of every topic, by full name.

    Raises:
        BrokerUnavailableError: no broker answers.
    """
    return {name: len(topic.partitions) for name, topic in _listed(client).topics.items() if topic.error is None}


def find(client: AdminClient, names: Iterable[str], served: Mapping[str, int] = ALL) -> dict[str, Found]:
    """Return those of the topics that are there, with their configuration if the broker tells it.

    Args:
        client: of any of the brokers.
        names: in full.
        served: partitions that are, by full name; what is in others is counted.

    Raises:
        BrokerUnavailableError: no broker answers.
    """
    listed = _listed(client)
    there = {name: listed.topics[name] for name in names if name in listed.topics and not listed.topics[name].error}
    has = {name: len(topic.partitions) for name, topic in there.items()}
    logs = _logs(client, {name: count for name, count in has.items() if count > served.get(name, count)})
    # A broker without a controller (librdkafka's mock) would let the question time out.
    configs = _configs(client, list(there)) if listed.controller_id in listed.brokers else {}
    found = {}
    for name, topic in there.items():
        places = topic.partitions.values()
        found[name] = Found(
            partitions=len(places),
            replicas=min((len(place.replicas) for place in places), default=0),
            leaderless=sum(place.leader < 0 for place in places),
            config=configs.get(name, {}),
            waiting=sum(end - begin for number, begin, end in logs.get(name, ()) if number >= served[name]),
            used=max((number + 1 for number, _, end in logs.get(name, ()) if end), default=0),
        )
    return found


def _logs(client: AdminClient, counts: Mapping[str, int]) -> dict[str, list[tuple[int, int, int]]]:
    """Return number, begin and end of each partition's log, by topic, as far as the broker tells."""
    places = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
    found: dict[str, list[tuple[int, int, int]]] = {}
    if not places:
        return found
    earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    begins, ends = _offsets(client, places, earliest), _offsets(client, places, latest)
    for place in begins.keys() & ends.keys():
        found.setdefault(place.topic, []).append((place.partition, begins[place], ends[place]))
    return found


def _offsets(client: AdminClient, places: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
    """Return the offset of each partition that its leader tells."""
    found = {}
    for place, future in client.list_offsets(dict.fromkeys(places, spec), request_timeout=ANSWER_S).items():
        try:
            found[place] = future.result(ANSWER_S).offset
        except (KafkaException, TimeoutError):
            continue  # without a leader, or no right to look
    return found


def progress(
    client: AdminClient, options: Mapping[str, str], group: str, counts: Mapping[str, int]
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return how far a group has come, and where the log ends, by topic and partition.

    Where it has committed nothing it stands at the oldest record. A partition without a leader is left out.

    Args:
        client: of any of the brokers.
        options: by which librdkafka connects to them.
        group: its full name.
        counts: partitions by full name.

    Raises:
        BrokerUnavailableError: nobody tells.
    """
    asked = [TopicPartition(name, at) for name, n in counts.items() for at in range(n)]
    try:
        with closing(member(options, group)) as consumer:
            told = committed(consumer, asked)
    except KafkaException as error:
        raise BrokerUnavailableError(f"the broker does not tell how far group {group} is: {error}") from error
    logs = {(name, at): (begin, end) for name, found in _logs(client, counts).items() for at, begin, end in found}
    return {place: (max(begin, told.get(place, -1)), end) for place, (begin, end) in logs.items()}


def member(options: Mapping[str, str], group: str) -> Consumer:
    """Return a consumer of a group that never joins it: it asks how far the group is.

    An admin client is no use for that. Where the group's coordinator has just moved, it ends the process by a null
    pointer (github.com/confluentinc/librdkafka/issues/5040).
    """
    return Consumer({**options, "group.id": group, "enable.auto.commit": False})


def committed(consumer: Consumer, places: Sequence[TopicPartition]) -> dict[tuple[str, int], int]:
    """Return the offset that a consumer's group has committed, by topic and partition; below 0 = none.

    Raises:
        KafkaException: nobody tells.
    """
    end_s = time.monotonic() + ANSWER_S
    while True:
        try:
            found = consumer.committed([*places], timeout=ANSWER_S)
            break
        except KafkaException as error:
            if error.args[0].code() not in _MOVING or time.monotonic() > end_s:
                raise
            time.sleep(POLL_S)  # meanwhile it asks who coordinates the group
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
    return {(place.topic, place.partition): place.offset for place in found}


def create(
    client: AdminClient,
    counts: Mapping[str, int],
    replication: int = 1,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> list[str]:
    """Create topics and wait until they can be used; returns those that were not there.

    The answer to the request comes up to 1.7 s before the broker shows the topic, and that comes up to 0.6 s before the
    broker serves it (measured with 40 partitions, Kafka 4.3.1).

    Args:
        client: of any of the brokers.
        counts: partitions by full name.
        replication: copies of each partition.
        configs: as Kafka names it, by full name.

    Raises:
        BrokerUnavailableError: no broker answers, or begins to serve any more partitions for `SERVED_S`.
        MisconfiguredError: the broker refuses a topic.
    """
    if not counts:
        return []
    configs = configs or {}
    wanted = [NewTopic(name, count, replication, config=dict(configs.get(name, {}))) for name, count in counts.items()]
    created = [
        name for start in range(0, len(wanted), AT_ONCE) for name in _created(client, wanted[start : start + AT_ONCE])
    ]
    # A topic that was there has as many partitions as it has, but at least the first.
    _await_served(client, {name: count if name in created else 1 for name, count in counts.items()})
    return created


def _created(client: AdminClient, wanted: list[NewTopic]) -> Iterator[str]:
    """Have topics created; yields those that were not there."""
    for name, future in client.create_topics(wanted, operation_timeout=CREATE_S).items():
        try:
            future.result(CREATE_S)
        except KafkaException as error:
            # Another process may be creating the same topics at the same time.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                message = f"the broker did not create topic {name}: {error.args[0].str()}; check rights and replication"
                raise MisconfiguredError(message) from error
        else:
            yield name


def widen(client: AdminClient, topic: str, count: int, group: str) -> None:
    """Add partitions to a topic, and wait until they are served, and until the members of a group read them all.

    A member notices them within `ConsumerSettings.metadata_age_ms`. Whoever writes to them before is read later.

    Args:
        client: of any of the brokers.
        topic: its full name.
        count: partitions that it is to have.
        group: that reads it. Without members nothing is waited for.

    Raises:
        BrokerUnavailableError: no broker answers, or the members have not taken them after `TAKEN_S`.
        MisconfiguredError: the broker refuses.
    """
    (done,) = client.create_partitions([NewPartitions(topic, count)], operation_timeout=CREATE_S).values()
    try:
        done.result(CREATE_S)
    except KafkaException as error:
        message = f"the broker added no partitions to topic {topic}: {error.args[0].str()}; check rights"
        raise MisconfiguredError(message) from error
    _await_served(client, {topic: count})
    end_s = time.monotonic() + TAKEN_S
    while left := _unread(client, topic, count, group):
        if time.monotonic() > end_s:
            message = f"group {group} has not taken {left} new partitions of {topic} after {TAKEN_S:g} s"
            raise BrokerUnavailableError(f"{message}; see whether its workers run, and try again")
        time.sleep(POLL_S)


def configure(client: AdminClient, topic: str, values: Mapping[str, str]) -> None:
    """Set properties of a topic, and wait until the broker shows them; the others stay as they are.

    The broker answers the request before it shows the change. One that shows nothing is not waited for.

    Args:
        client: of any of the brokers.
        topic: its full name.
        values: by Kafka's names.

    Raises:
        MisconfiguredError: the broker refuses.
    """
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    (done,) = client.incremental_alter_configs([resource], request_timeout=ANSWER_S).values()
    try:
        done.result(ANSWER_S)
    except KafkaException as error:
        message = (
            f"the broker did not change topic {topic}: {error.args[0].str()}; give this user the right AlterConfigs"
        )
        raise MisconfiguredError(message) from error
    end_s = time.monotonic() + SERVED_S
    while (shown := _configs(client, [topic]).get(topic)) is not None and time.monotonic() < end_s:
        if values.items() <= shown.items():
            return
        time.sleep(POLL_S)


def _unread(client: AdminClient, topic: str, count: int, group: str) -> int:
    """Return how many of a topic's partitions no member of a group has; 0 for a group without members."""
    (described,) = client.describe_consumer_groups([group], request_timeout=ANSWER_S).values()
    try:
        members = described.result(ANSWER_S).members
    except KafkaException as error:
        message = (
            f"the broker does not tell who reads {topic}: {error.args[0].str()}; give this user the right Describe"
        )
        raise MisconfiguredError(message) from error
    has = {place for one in members if one.assignment for place in one.assignment.topic_partitions}
    return count - sum(place.topic == topic for place in has) if members else 0


def _await_served(client: AdminClient, counts: Mapping[str, int]) -> None:
    """Wait until every partition's leader answers for it, some time after it is known to be the leader.

    Thousands of them take minutes. So it is waited as long as there is one more at least every `SERVED_S`.
    """
    waiting = {TopicPartition(name, number) for name, count in counts.items() for number in range(count)}
    end_s = time.monotonic() + SERVED_S
    while left := _unserved(client, waiting):
        if len(left) < len(waiting):
            end_s = time.monotonic() + SERVED_S
        elif time.monotonic() > end_s:
            names = ", ".join(sorted({place.topic for place in left}))
            message = f"for {SERVED_S:g} s no broker has begun to serve any of these new topics: {names}"
            raise BrokerUnavailableError(f"{message}; see that all brokers are up")
        waiting = left
        time.sleep(POLL_S)


def _unserved(client: AdminClient, places: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Return the partitions of which nobody tells the end."""
    _listed(client)  # renews what the client remembers: it would not ask about a topic that was missing a moment ago
    end = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = client.list_offsets(dict.fromkeys(places, end), request_timeout=ANSWER_S)
    return {place for place, future in asked.items() if future.exception(ANSWER_S) is not None}


def _listed(client: AdminClient) -> ClusterMetadata:
    try:
        return client.list_topics(timeout=ANSWER_S)
    except KafkaException as error:
        raise BrokerUnavailableError(f"no broker tells its topics: {error.args[0].str()}") from error


def _configs(client: AdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    """Return configurations; without those that the broker keeps to itself."""
    if not names:
        return {}
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(names), AT_ONCE):
        found |= _told(client, [ConfigResource(ResourceType.TOPIC, name) for name in names[start : start + AT_ONCE]])
    return found


def _told(client: AdminClient, resources: list[ConfigResource]) -> dict[str, dict[str, str]]:
    found = {}
    for resource, future in client.describe_configs(resources, request_timeout=ANSWER_S).items():
        try:
            entries = future.result(ANSWER_S)
        except (KafkaException, TimeoutError):
            continue  # deleted since, no right to look, or no answer: the check reports that it could not
        found[resource.name] = {entry.name: entry.value for entry in entries.values()}
    return found
