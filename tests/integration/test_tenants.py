"""Two tenants on one Kafka and one Redis: each user does what docs/security.md says, and nothing to the other tenant.

What is expected comes from the page's table, which people write, and not from the rights that are tried.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from redis import Redis

from deploy.config.addresses import connection
from deploy.config.settings import ClientQuota, Settings
from deploy.connect.clients import admin, librdkafka
from deploy.state.acls import quota_commands, redis_users
from schemas import topics as names
from schemas.records import Status
from streams.operators.contract import Emit
from streams.rights import ASKER, OPERATOR, READER, TEACHER, Right, rights
from streams.runtime.errors import MisconfiguredError
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.log_reader import KafkaBroadcast, KafkaRecent, KafkaTail
from streams.topology import Topology, build
from tests.deployments import PATIENT_MS, Toy, deployed
from tests.kafka import producing, put
from tests.secure import SecureKafka, bindings, serving

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from deploy.local.redis import RedisServer
    from tests.deployments import Deployed

_log = logging.getLogger(__name__)

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
OWN, OTHER = "north", "south"
SERVED = "east", "west"
QUOTA_KIB, FLOOD_KIB = 64, 2_048
TOPOLOGY = build(["parity", "odd"], hosts={"small": ["odd"]})
ROLES = [node.role for node in TOPOLOGY.nodes]
PEOPLE = (ASKER, READER, TEACHER, OPERATOR)
GROUPS = [node.group for node in TOPOLOGY.nodes if node.group]
# Words of the page's table -> roles. Its rows on dead letters name them by what they read.
WORDS: Final = {
    "askers": [ASKER], "teachers": [TEACHER], "workers": ["worker.parity"], "hosts": ["host.small"],
    "every role": ROLES, **{role: [role] for role in ROLES if "." not in role},
}  # fmt: skip
_WORD: Final = re.compile(rf"\b({'|'.join(WORDS)})\b")
# Who reads some of a topic for a purpose of his own: workers to try a new version, the joiner after an outage, control
# to see what drifts. What is wrong with an answer, `mapping` says among its own letters.
ASIDE: Final = {
    names.QUERIES: {"worker.parity", "host.small", "control"},
    names.OBSERVATIONS: {"joiner"},
    names.PREDICTIONS: {"mapping", "control"},
}
# They read no topic to act on it, so they write no dead letters of it.
LOOKING_ON: Final = {"record", "telemetry", "gateway"}
ACTING: Final = {"queries", "feedback", "queries.dlq", "feedback.dlq", "mapping.dlq"}  # control, where somebody may act
REFUSED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Deed(NamedTuple):
    """What a user tried."""

    operation: str
    name: str  # of a topic or a group in full, or what of the cluster


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Start a Kafka of two tenants, with a record in every topic, and all their users."""
    with serving(tmp_path_factory.mktemp("shared"), is_open=False) as server:
        counts = {f"{tenant}.{topic}": 1 for tenant in (OWN, OTHER) for topic in TOPOLOGY.topics}
        server.create_topics(counts)
        producer = Producer({"bootstrap.servers": server.bootstrap})
        for topic in counts:
            producer.produce(topic, b"-", b"k")
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "first"})
        consumer.commit(
            offsets=[TopicPartition(f"{OWN}.{names.PREDICTIONS}", 0, 0)], asynchronous=False
        )  # groups are kept
        consumer.close()
        for tenant in (OWN, OTHER):
            for who, its in rights(TOPOLOGY, tenant, acts=True).items():
                server.grant(f"{tenant}.{who}", its)
        yield server


def written_by_the_page(topology: Topology) -> Mapping[str, set[str]]:
    """Return who writes each topic, as the page's table says; dead letters are written by who acts on the topic."""
    found, readers = dict[str, set[str]](), dict[str, set[str]]()
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != 3:
            continue
        for shown in re.findall(r"`([^`]+)`", cells[0]):
            for topic, others in _topics(shown, topology).items():
                found[topic], readers[topic] = _who(cells[1]), _who(cells[2]) - others
    for topic in [name for name in topology.topics if name.endswith(".dlq")]:
        source = topic.removesuffix(".dlq")
        aside = {*LOOKING_ON, *PEOPLE, *ASIDE.get(source, ())}
        found[topic] = {"mapping"} if source == names.MAPPING else readers[source] - aside
    for topic in ACTING:
        found[topic].add("control")
    return found


def _topics(shown: str, topology: Topology) -> Mapping[str, set[str]]:
    """Return the topics that a name stands for, and who of those named is about another model."""
    if "<model>" in shown:
        return {names.model_queries("parity"): {"host.small"}, names.model_queries("odd"): {"worker.parity"}}
    return {shown: set()} if shown in topology.topics and not shown.endswith(".dlq") else {}


def _who(cell: str) -> set[str]:
    """Return the users that a cell names, as words of its phrases."""
    return {role for word in _WORD.findall(cell) for role in WORDS[word]}


class Intruder:
    """Tries everything as one user; what the broker lets it do is returned."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        self._settings = Settings.model_validate({"kafka": kafka})
        self._conf = librdkafka(self._settings)
        self._admin = admin(self._settings)

    def deeds(self, topics: Iterable[str], groups: Iterable[str]) -> set[Deed]:
        """Return what was allowed."""
        topics, groups = list(topics), list(groups)
        writes = {Deed("Write", name) for name in self._written(topics)}
        reads = {Deed("Read", name) for name in self._read(topics)}
        return writes | reads | self._joined(groups) | self._changed(topics) | self._of_the_cluster()

    def _written(self, topics: list[str]) -> set[str]:
        producer, done = Producer({**self._conf, "message.timeout.ms": 60_000}), dict[str, KafkaError | None]()
        for topic in topics:
            producer.produce(topic, b"x", b"k", on_delivery=lambda error, _, topic=topic: done.update({topic: error}))
        assert producer.flush(90) == 0
        assert {error.code() for error in done.values() if error is not None} <= REFUSED
        return {topic for topic in topics if done[topic] is None}

    def _seen(self, topics: list[str]) -> set[str]:
        """Return the topics that are shown at all: a right to read shows them, too."""
        asked = self._admin.describe_topics(TopicCollection(topics))
        return {topic for topic, done in asked.items() if self._is_allowed({topic: done})}

    def _read(self, topics: list[str]) -> set[str]:
        topics = [*self._seen(topics)]
        consumer = Consumer({**self._conf, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in topics])
        told, allowed = set[str](), set[str]()
        for _ in range(600):
            if told == {*topics}:
                break
            message = consumer.poll(0.2)
            if message is None or message.topic() is None:  # the latter is about a group, which nobody joins
                continue
            told.add(message.topic())
            if message.error() is None:
                allowed.add(message.topic())
            else:
                assert message.error().code() in REFUSED, message.error()
        consumer.close()
        assert told == {*topics}, sorted({*topics} - told)
        return allowed

    def _joined(self, groups: list[str]) -> set[Deed]:
        """Try to commit; who may join a group is refused the topic at most, which is looked at after the group."""
        found = set[Deed]()
        for group in groups:
            place = TopicPartition(f"{group.partition('.')[0]}.{names.PREDICTIONS}", 0, 0)
            asked = ConsumerGroupTopicPartitions(group, [place])
            told = self._refusal(self._admin.alter_consumer_group_offsets([asked]))
            if told != KafkaError.GROUP_AUTHORIZATION_FAILED:
                found.add(Deed("Read", group))
        return found

    def _changed(self, topics: list[str]) -> set[Deed]:
        """Try what only operators do; nothing is changed where that can be tried without."""
        found, seen = set[Deed](), self._seen(topics)
        entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        for topic in topics:
            resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
            # Who is not shown a topic finds nobody to ask: that is a refusal, too.
            delete = {"Delete": lambda topic=topic: self._admin.delete_records([TopicPartition(topic, 0, 0)])}
            tried = (delete if topic in seen else {}) | {
                "DescribeConfigs": lambda one=resource: self._admin.describe_configs([one]),
                "AlterConfigs": lambda one=resource: self._admin.incremental_alter_configs([one], validate_only=True),
                "Alter": lambda topic=topic: self._admin.create_partitions(
                    [NewPartitions(topic, 2)], validate_only=True
                ),
                "Create": lambda topic=topic: self._admin.create_topics(
                    [NewTopic(f"{topic}-new", 1, 1)], validate_only=True
                ),
            }
            found |= {Deed(what, topic) for what, call in tried.items() if self._is_allowed(call())}
        return found

    def _of_the_cluster(self) -> set[Deed]:
        found = set[Deed]()
        right = Right("topic", f"{OWN}.{names.QUERIES}", ("Write",))
        if self._is_allowed(self._admin.create_acls([*bindings("anybody", [right])])):
            found.add(Deed("Alter", "cluster"))
        producer = Producer({**self._conf, "transactional.id": f"{OWN}.anything"})
        try:
            producer.init_transactions(30)
            found.add(Deed("Write", "transactional id"))
        except KafkaException as error:
            check_refusal(error)
        return found

    def _is_allowed(self, asked: Mapping[object, Any]) -> bool:
        return self._refusal(asked) is None

    def _refusal(self, asked: Mapping[object, Any]) -> int | None:
        """Return the code by which something was refused."""
        for done in asked.values():
            try:
                told = done.result(60)
            except KafkaException as error:
                return check_refusal(error)
            codes = [one.error.code() for one in getattr(told, "topic_partitions", ()) if one.error is not None]
            assert {*codes} <= REFUSED
            if codes:
                return int(codes[0])
        return None


def check_refusal(error: KafkaException) -> int:
    """Raise an error again that is about anything but rights; returns its code."""
    code = error.args[0].code()
    if code not in REFUSED:
        raise error
    return int(code)


def expected(who: str, writers: Mapping[str, set[str]]) -> set[Deed]:
    """Return what a user may do, as the page says, in its own tenant; elsewhere nothing."""
    everything = [f"{OWN}.{topic}" for topic in TOPOLOGY.topics]
    if who == OPERATOR:
        all_of_it = ("Write", "Read", "DescribeConfigs", "AlterConfigs", "Alter", "Delete", "Create")
        groups = {Deed("Read", f"{OWN}.{group}") for group in (*GROUPS, "consumers.mine")}
        return {Deed(what, topic) for what in all_of_it for topic in everything} | groups
    may = {Deed("Write", f"{OWN}.{topic}") for topic, its in writers.items() if who in its}
    if who in ROLES:
        own = {node.role: node.group for node in TOPOLOGY.nodes}[who]
        may |= {Deed(what, topic) for what in ("Read", "DescribeConfigs") for topic in everything}
        may |= {Deed("Read", f"{OWN}.{own}")} if own else set()
    elif who in {ASKER, READER}:
        may.add(Deed("Read", f"{OWN}.{names.PREDICTIONS}"))
    if who == READER:
        may = {Deed("Read", f"{OWN}.{names.PREDICTIONS}"), Deed("Read", f"{OWN}.consumers.mine")}
    return may


@pytest.mark.parametrize("how", ["login", "certificate"])
def test_each_user_does_what_the_page_says_and_nothing_else(shared: SecureKafka, how: str) -> None:
    """Every user, topic, group and operation, of its own tenant and of the other one; by password or certificate."""
    topics = [f"{tenant}.{topic}" for tenant in (OWN, OTHER) for topic in TOPOLOGY.topics]
    groups = [f"{tenant}.{group}" for tenant in (OWN, OTHER) for group in (*GROUPS, "consumers.mine")]
    writers = written_by_the_page(TOPOLOGY)
    found = dict[str, set[Deed]]()

    def intrude(who: str) -> None:
        found[who] = Intruder(getattr(shared, how)(f"{OWN}.{who}")).deeds(topics, groups)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(intrude, (*ROLES, *PEOPLE)))
    for who, did in found.items():
        assert did == expected(who, writers), who


@pytest.mark.parametrize("fast", [True, False])
async def test_who_lacks_one_right_is_told_which(shared: SecureKafka, fast: bool) -> None:
    """Each topic that each role writes: without the right it ends by an error with the topic and the right."""
    user = f"{OWN}.lacking-{fast}"
    common = rights(TOPOLOGY, OWN)["record"][:2]  # what every role may
    shared.grant(user, common)
    settings = Settings.model_validate({"prefix": OWN, "kafka": {**shared.login(user), "fast": fast}})
    written = sorted({topic for node in TOPOLOGY.nodes for topic in node.produces})
    async with producing(connection(settings)) as transport:
        for topic in written:
            emit, said = Emit(topic, 0, b"k", b"-"), rf"no right Write on topic {OWN}\.{re.escape(topic)}: `skysail"
            with pytest.raises(MisconfiguredError, match=said):
                await transport.send(topic, 0, [emit])
            shared.grant(user, [Right("topic", f"{OWN}.{topic}", ("Write",))])
            await transport.send(topic, 0, [emit])


async def followed(place: KafkaConnection) -> None:
    """Read a topic as roles follow one."""
    reader = KafkaBroadcast(place, [names.PREDICTIONS])
    try:
        await reader.start()
        while not reader.caught_up:
            await reader.poll(100)
    finally:
        await reader.stop(3)


async def looked_at(place: KafkaConnection) -> None:
    """Read a topic's end, as control does."""
    await KafkaRecent(place, timeout_s=PATIENT_MS / 1e3).last(names.PREDICTIONS, 1)


async def awaited(place: KafkaConnection) -> None:
    """Wait for what comes, as applications do, or for a while."""
    tail, end_s = KafkaTail(place, [names.PREDICTIONS]), time.monotonic() + PATIENT_MS / 1e3
    await tail.start()
    try:
        while not await tail.poll(500) and time.monotonic() < end_s:
            pass
    finally:
        await tail.stop()


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("seen", [names.QUERIES, names.PREDICTIONS])
async def test_who_may_not_read_a_topic_is_told_so(shared: SecureKafka, fast: bool, seen: str) -> None:
    """Roles that follow it or look at its end, and applications that wait for it; with the right it is read."""
    user, topic = f"{OWN}.sees-{seen}-{fast}", f"{OWN}.{names.PREDICTIONS}"
    shared.grant(user, [Right("topic", f"{OWN}.{seen}", ("Describe",))])
    place = connection(Settings.model_validate({"prefix": OWN, "kafka": {**shared.login(user), "fast": fast}}))
    async with producing(KafkaConnection(shared.bootstrap, OWN)) as transport:
        await put(transport, [b"there"], topic=names.PREDICTIONS)
    for read in (followed, looked_at, awaited):
        with pytest.raises(MisconfiguredError, match="this user has no right Read"):
            await read(place)
    shared.grant(user, [Right("topic", topic, ("Read",))])
    for read in (followed, looked_at):
        await read(place)


async def test_two_tenants_serve_at_once_and_a_flood_of_one_client_waits(
    shared: SecureKafka, own_redis: RedisServer, tmp_path: Path
) -> None:
    """Each is asked, answered, told and learns; the lines of `skysail topics quotas` slow one client down alone."""
    async with AsyncExitStack() as both:
        there = [await both.enter_async_context(tenant(shared, own_redis, tmp_path, name)) for name in SERVED]
        for each, client in ((one, one.client) for one in there):
            prediction = await client.predict("sums", np.array([1, 2], dtype=np.float32))
            assert (prediction.status, prediction.answer) == (Status.COMPLETE, 1)
            await client.feedback(prediction, label=1)
            learnt = partial(each.watch.counter, "learner", "applied_total{application=sums}")
            await each.watch.until(learnt, "a lesson")
        asker, quota = rights(TOPOLOGY, SERVED[0])[ASKER], {"flood": ClientQuota(write_kib=QUOTA_KIB)}
        for user in ("flood", "free"):
            shared.grant(f"{SERVED[0]}.{user}", asker)
        for line in quota_commands(quota, SERVED[0], shared.bootstrap):
            await asyncio.to_thread(shared.typed, line, "kafka.admin.ConfigCommand")
        free_s = await asyncio.to_thread(flooded, shared.login(f"{SERVED[0]}.free"))
        flood = asyncio.create_task(asyncio.to_thread(flooded, shared.login(f"{SERVED[0]}.flood")))
        answered = 0
        while not flood.done():
            prediction = await there[0].client.predict("sums", np.array([1, 2], dtype=np.float32))
            assert prediction.status is Status.COMPLETE
            answered += 1
        # What it sends at once counts over ten seconds, so that much is free.
        least_s = FLOOD_KIB / QUOTA_KIB - 12.0
        took_s = await flood
        assert took_s >= least_s, f"without a quota it takes {free_s:.1f} s"
        _log.warning("%d KiB took %.1f s, with the quota %.1f, and %d answers", FLOOD_KIB, free_s, took_s, answered)
        assert answered


def tenant(kafka: SecureKafka, redis: RedisServer, folder: Path, name: str) -> AbstractAsyncContextManager[Deployed]:
    """Run a deployment under a user of its own on Kafka, which the other tenant's topics refuse, and one on Redis."""
    kafka.grant(f"{name}.all", rights(TOPOLOGY, name)[OPERATOR])
    client, place = Redis.from_url(redis.url), urlsplit(redis.url)
    client.execute_command("ACL", "SETUSER", f"{name}.all", *redis_users(name)[OPERATOR], ">password")
    client.close()
    address = f"redis://{name}.all:password@{place.hostname}:{place.port}/0"
    (folder / name).mkdir()
    applications = {"sums": {"models": ["parity"], "policy": "exp3", "slo_ms": PATIENT_MS, "default_output": -1}}
    toy = {"parity": Toy("tests.toys:parity", np.ones((2, 2), dtype=np.float32))}
    more = {"kafka": kafka.login(f"{name}.all"), "processes": "shared", "partitions": 1}
    return deployed(kafka, address, name, folder / name, toy, applications, **more)


def flooded(kafka: Mapping[str, Any]) -> float:
    """Write many queries that nobody reads as such, as fast as the broker takes them; return how long it took (s)."""
    producer = Producer({**librdkafka(Settings.model_validate({"kafka": kafka})), "linger.ms": 5, "batch.size": 65_536})
    begun = time.monotonic()
    for _ in range(FLOOD_KIB):
        producer.produce(f"{SERVED[0]}.{names.QUERIES}", bytes(1024), b"k")
    assert producer.flush(200) == 0
    return time.monotonic() - begun
