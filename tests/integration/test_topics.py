"""Topics on a real broker: usable once created, compared with the topology, waited for by whoever starts."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from deploy.cli import skysail
from deploy.config import configuration
from deploy.config.settings import KeepInputs, Settings
from deploy.connect.clients import librdkafka
from deploy.connect.schema_registry import codec_for
from deploy.errors import MissingError, StartError
from deploy.local.admin import admin_client
from deploy.local.embedded import EmbeddedBroker
from deploy.state import catalog, desired
from deploy.state import topics as deployed_topics
from deploy.state.topics import Unread
from load.harness.topics import delete
from schemas import topics
from schemas.records import Application
from streams.runtime.errors import MisconfiguredError
from streams.runtime.kafka import admin
from streams.runtime.kafka.admin import ANSWER_S, create, find
from streams.topology import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

    from deploy.local.services import Broker


@pytest.fixture
def settings(kafka: Broker, prefix: str) -> Iterator[Settings]:
    """Settings of a deployment whose topics are away afterwards."""
    yield settings_of(kafka.bootstrap, prefix)
    delete(kafka.bootstrap, prefix)


def settings_of(bootstrap: str, prefix: str) -> Settings:
    """Return settings that wait for topics only shortly."""
    return Settings.model_validate(
        {"prefix": prefix, "partitions": 2, "kafka": {"bootstrap": bootstrap, "topics_wait_s": 0.5}}
    )


def configure(settings: Settings, topic: str, key: str, value: str) -> None:
    """Change one property of a topic."""
    admin.configure(admin_client(settings.kafka.bootstrap), f"{settings.prefix}.{topic}", {key: value})


def invoke(settings: Settings, folder: Path, *arguments: str) -> Result:
    """Run a command line with these settings."""
    file = configuration.write(settings, folder / "skysail.yaml")
    return CliRunner(env=dict(os.environ)).invoke(skysail, [*arguments, "--config", str(file)])


def test_what_was_created_is_there_for_the_next_client(kafka: Broker, prefix: str) -> None:
    """The broker answers the request before it shows the topic, in most cases; whoever creates waits."""
    for number in range(5):
        names = {f"{prefix}.t{number}-{topic}": 4 for topic in range(10)}
        assert create(admin_client(kafka.bootstrap), names) == list(names)
        found = find(admin_client(kafka.bootstrap), names)
        assert {name: (topic.partitions, topic.leaderless) for name, topic in found.items()} == dict.fromkeys(
            names, (4, 0)
        )
    delete(kafka.bootstrap, prefix)


def test_topics_are_created_once_with_their_configuration(settings: Settings) -> None:
    """A second run changes nothing; what another deployment has is not seen."""
    topology = build(["knn"], partitions=2)
    assert deployed_topics.create(settings, topology) == list(topology.topics)
    assert deployed_topics.create(settings, topology) == []
    assert deployed_topics.partition_counts(settings) == {name: t.partitions for name, t in topology.topics.items()}
    other = settings.model_copy(update={"prefix": settings.prefix[:-1]})
    assert deployed_topics.partition_counts(other) == {}
    assert [finding.aspect for finding in deployed_topics.check(settings, topology)] == ["replication"]


def test_a_topic_that_the_broker_refuses_is_an_error_that_says_why(kafka: Broker, prefix: str) -> None:
    """More copies than brokers."""
    with pytest.raises(MisconfiguredError, match=f"{prefix}.*check rights and replication"):
        create(admin_client(kafka.bootstrap), {prefix: 1}, replication=9)


def test_the_check_tells_faults_from_warnings(settings: Settings, tmp_path: Path) -> None:
    """Exit code 1 and what to do for what cannot run; 0 for what can."""
    missing = invoke(settings, tmp_path, "topics", "check")
    assert missing.exit_code == 1
    assert "skysail topics create" in missing.output

    created = invoke(settings, tmp_path, "topics", "create", "--json")
    assert created.exit_code == 0
    assert f"{settings.prefix}.queries" in json.loads(created.output)["created"]
    configure(settings, topics.QUERIES, "retention.ms", "3600000")
    passed = invoke(settings, tmp_path, "topics", "check")
    assert passed.exit_code == 0
    assert "warning: only one copy" in passed.output
    assert f"--entity-name {settings.prefix}.queries --add-config retention.ms=86400000" in passed.output

    configure(settings, topics.OBSERVATIONS, "message.timestamp.type", "CreateTime")
    refused = invoke(settings, tmp_path, "topics", "check", "--json")
    assert refused.exit_code == 1
    told = json.loads(refused.stdout)
    assert told["usable"] is False
    assert told["findings"][0]["aspect"] == "message.timestamp.type"
    assert told["findings"][0]["topics"] == [topics.OBSERVATIONS]
    assert {finding["fault"] for finding in told["findings"][1:]} == {False}


def test_what_a_topic_takes_on_disk_is_told_beside_its_bounds(settings: Settings, tmp_path: Path) -> None:
    """A mebibyte written is a mebibyte more; days and bytes are those that the settings ask for."""
    asked = settings.model_copy(update={"keep_inputs": KeepInputs(days=30, gib=8)})
    deployed_topics.create(asked, desired.build(asked, {}))
    before = {row.topic: row for row in deployed_topics.usage(asked)}
    assert before[topics.QUERIES].days == 30
    assert before[topics.QUERIES].most == 8 << 30
    assert before[topics.APPLICATIONS].days is None

    producer = Producer({**librdkafka(asked), "linger.ms": 0})
    producer.produce(f"{asked.prefix}.{topics.QUERIES}", key=b"k", value=os.urandom(1 << 19))
    producer.produce(f"{asked.prefix}.{topics.QUERIES}", key=b"k", value=os.urandom(1 << 19))
    producer.flush(10)
    grown = deployed_topics.usage(asked)[0]
    assert grown.topic == topics.QUERIES
    assert 1 << 20 <= grown.bytes - before[topics.QUERIES].bytes < (1 << 20) + 4096

    told = invoke(asked, tmp_path, "topics", "usage").output
    assert told.splitlines()[1].split() == ["queries", "1.0", "MiB", "30", "d", "8.0", "GiB"]


def test_what_a_role_has_yet_to_read_is_told_by_partition(settings: Settings, tmp_path: Path) -> None:
    """By what its group has committed; what is read to its end is left out."""
    topology = desired.build(settings, {})
    deployed_topics.create(settings, topology)
    assert deployed_topics.lag(settings, topology) == []
    producer = Producer(librdkafka(settings))
    for partition, count in ((0, 2), (1, 5)):
        for _ in range(count):
            producer.produce(f"{settings.prefix}.{topics.FEEDBACK}", key=b"k", value=b"v", partition=partition)
    producer.flush(10)
    place = TopicPartition(f"{settings.prefix}.{topics.FEEDBACK}", 1, 4)
    group = ConsumerGroupTopicPartitions(f"{settings.prefix}.{topology.node('joiner').group}", [place])
    client = admin_client(settings.kafka.bootstrap)
    (done,) = client.alter_consumer_group_offsets([group]).values()
    done.result(10)
    assert deployed_topics.lag(settings, topology) == [
        Unread("joiner", topics.FEEDBACK, 0, 0, 2),
        Unread("joiner", topics.FEEDBACK, 1, 4, 5),
    ]
    assert (
        "2 unread  joiner: feedback, partition 0, from offset 0" in invoke(settings, tmp_path, "topics", "lag").output
    )


def test_topics_that_were_created_without_settings_are_mended_by_one_command(
    settings: Settings, tmp_path: Path
) -> None:
    """It sets what can be set, says what, and what is left afterwards is no fault."""
    topology = build([], partitions=2)
    create(
        admin_client(settings.kafka.bootstrap),
        {f"{settings.prefix}.{t.name}": t.partitions for t in topology.topics.values()},
    )
    assert invoke(settings, tmp_path, "topics", "check").exit_code == 1
    mended = invoke(settings, tmp_path, "topics", "check", "--mend")
    assert mended.exit_code == 0, mended.output
    assert f"mended: {settings.prefix}.observations has message.timestamp.type LogAppendTime now" in mended.output
    assert "--mend" not in invoke(settings, tmp_path, "topics", "check").output


@pytest.mark.parametrize("role", ["selection", "joiner", "learner", "control"])
def test_a_role_alone_refuses_to_start_without_its_topics(settings: Settings, tmp_path: Path, role: str) -> None:
    """After a bounded time, with a sentence that says what to do, and without having started."""
    result = invoke(settings, tmp_path, "run", "--role", role, "--quiet")
    assert isinstance(result.exception, StartError)
    assert "skysail topics create" in str(result.exception)
    assert f"{settings.prefix}.{topics.REPORTS}" in str(result.exception) or "all topics" in str(result.exception)


def test_a_role_alone_refuses_at_once_what_does_not_mend_itself(settings: Settings, tmp_path: Path) -> None:
    """And minds its own topics only: the joiner starts where the learner would not."""
    patient = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"topics_wait_s": 60.0})})
    deployed_topics.create(patient, build([], partitions=2))
    configure(patient, topics.FEEDBACK, "cleanup.policy", "compact")
    started_s = time.monotonic()
    result = invoke(patient, tmp_path, "run", "--role", "joiner", "--quiet")
    assert isinstance(result.exception, StartError)
    assert "cleanup.policy=delete" in str(result.exception)
    assert time.monotonic() - started_s < 30
    deployed_topics.require(patient, desired.used_by(patient, codec_for(patient), ["learner"], []))


def test_a_model_without_its_topic_stops_its_own_worker_alone(settings: Settings) -> None:
    """Selection starts at once, however long it would wait for topics of its own."""
    patient = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"topics_wait_s": 60.0})})
    whole = build(["knn"], partitions=2)
    deployed_topics.create(patient, build([], partitions=2))
    started_s = time.monotonic()
    deployed_topics.require(patient, whole.used_by(["selection"]))
    assert time.monotonic() - started_s < 30
    with pytest.raises(StartError, match=r"models\.knn\.queries.*skysail topics create"):
        deployed_topics.require(settings, whole.used_by(["worker.knn"]))


def test_topics_that_are_being_created_are_waited_for(settings: Settings) -> None:
    """Whoever starts first does not have to be whoever creates."""
    patient = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"topics_wait_s": 60.0})})
    topology = build([], partitions=2)
    creating = threading.Timer(1.0, deployed_topics.create, (patient, topology))
    creating.start()
    deployed_topics.require(patient, topology)
    creating.join()
    assert deployed_topics.partition_counts(patient).keys() == topology.topics.keys()


def test_a_broker_that_tells_no_configuration_can_be_used() -> None:
    """The embedded one: a warning, and no time lost."""
    try:
        broker = EmbeddedBroker().start()
    except MissingError as error:
        pytest.skip(str(error))
    with broker:
        settings, topology = settings_of(broker.bootstrap, "t"), build([], partitions=2)
        broker.create_topics({f"t.{name}": topic.partitions for name, topic in topology.topics.items()})
        started_s = time.monotonic()
        deployed_topics.require(settings, topology)
        assert time.monotonic() - started_s < ANSWER_S, "it was not asked for what it does not know"
        assert "configuration" in {finding.aspect for finding in deployed_topics.check(settings, topology)}


def test_what_was_published_is_read_to_the_end(settings: Settings) -> None:
    """The last record of a name holds; a null takes it away; records that nobody can read are passed over."""
    codec = codec_for(settings)
    assert catalog.read(settings, codec, Application) == {}
    deployed_topics.create(settings, build([], partitions=2))
    assert catalog.read(settings, codec, Application) == {}
    first, second = Application("a", ("m",)), Application("a", ("n",))
    catalog.publish(settings, codec, [first, Application("b", ("m",)), second])
    assert catalog.read(settings, codec, Application) == {"a": second, "b": Application("b", ("m",))}
    producer = Producer(librdkafka(settings))
    for key, value in ((b"c", b"garbage"), (b"b", None)):
        producer.produce(f"{settings.prefix}.{topics.APPLICATIONS}", value, key)
    assert producer.flush(10) == 0
    assert catalog.read(settings, codec, Application) == {"a": second}
