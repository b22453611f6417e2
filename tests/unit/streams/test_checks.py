"""The check of a broker's topics: one sentence for each thing, which says what to do; faults are told from warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas import topics
from schemas.sizes import MAX_BYTES, ROOM_BYTES
from streams.checks import Finding, Found, check
from streams.topology import DAY_MS, Topology, build

TOPOLOGY = build(["knn"], window_ms=600_000)
LARGEST = MAX_BYTES + ROOM_BYTES
ASKED = "models.knn.queries"


def perfect(topology: Topology = TOPOLOGY) -> dict[str, Found]:
    """Return what a broker has on which everything is as it should be."""
    return {
        name: Found(topic.partitions, replicas=3, config={"retention.ms": "-1", **topic.config()})
        for name, topic in topology.topics.items()
    }


def checked(changes: dict[str, Found], topology: Topology = TOPOLOGY) -> list[Finding]:
    """Check a broker that is perfect but for these topics."""
    return check(topology, perfect(topology) | changes, replication=3, prefix="sky")


def configured(name: str, key: str, value: str) -> list[Finding]:
    """Check a broker of which one topic has one other property."""
    found = perfect()[name]
    return checked({name: replace(found, config={**found.config, key: value})})


@pytest.mark.parametrize(
    "key", ["cleanup.policy", "retention.ms", "message.timestamp.type", "max.message.bytes", "compression.type"]
)
def test_a_broker_may_keep_part_of_a_configuration_to_itself(key: str) -> None:
    """What it tells is looked at, and that it does not tell all is a warning."""
    found = perfect()[topics.QUERIES]
    partial = {name: value for name, value in found.config.items() if name != key}
    (warning,) = checked({topics.QUERIES: replace(found, config=partial)})

    assert (warning.aspect, warning.fault, warning.topics) == ("configuration", False, (topics.QUERIES,))


def test_more_replicas_in_sync_than_there_are_is_a_fault() -> None:
    """Every write would be refused, for ever."""
    assert configured(topics.QUERIES, "min.insync.replicas", "3") == []
    (fault,) = configured(topics.QUERIES, "min.insync.replicas", "4")

    assert (fault.aspect, fault.fault) == ("min.insync.replicas", True)
    assert "sky.queries has min.insync.replicas 4 instead of 3" in fault.message
    assert "nothing can be written" in fault.message


def counted(name: str, partitions: int) -> list[Finding]:
    """Check a broker of which one topic has another number of partitions."""
    return checked({name: replace(perfect()[name], partitions=partitions)})


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    """The topology's own configuration passes."""
    assert checked({}) == []


def test_missing_topics_are_one_fault_that_says_what_to_do() -> None:
    """It names them as the broker would, and the command; it may pass by itself."""
    there = perfect()
    del there[ASKED], there[topics.QUERIES]
    (fault,) = check(TOPOLOGY, there, replication=3, prefix="sky")

    assert (fault.aspect, fault.fault, fault.passing) == ("existence", True, True)
    assert set(fault.topics) == {ASKED, topics.QUERIES}
    assert (
        fault.message == f"not on the broker: sky.queries, sky.{ASKED}; create what is missing: skysail topics create"
    )


@pytest.mark.parametrize("lost", [{ASKED}, {f"{ASKED}.dlq"}, {ASKED, f"{ASKED}.dlq"}])
def test_the_topic_of_a_model_that_another_role_runs_is_a_warning_where_it_is_missing(lost: set[str]) -> None:
    """One model's topic stops the worker of that model, and neither selection nor another model's worker."""
    whole = build(["knn", "svc"], window_ms=600_000)
    for roles, is_fault in ((["selection"], False), (["selection", "worker.svc"], False), (["worker.knn"], True)):
        part = whole.used_by(roles)
        there = {name: found for name, found in perfect(part).items() if name not in lost}
        (finding,) = check(part, there, replication=3, prefix="sky")
        assert (finding.aspect, finding.fault, set(finding.topics)) == ("existence", is_fault, lost)
        assert "skysail topics create" in finding.message
        assert ("all else goes on" in finding.message) is not is_fault


def test_a_model_that_another_role_runs_may_be_without_a_leader() -> None:
    """What it is asked waits in its own lane; selection starts."""
    selection = TOPOLOGY.used_by(["selection"])
    (finding,) = checked({ASKED: replace(perfect()[ASKED], leaderless=1)}, selection)
    assert (finding.aspect, finding.fault) == ("leader", False)


def test_a_partition_without_a_leader_is_a_fault_that_may_pass() -> None:
    """Right after its creation, or while a broker is away."""
    (fault,) = checked({ASKED: replace(perfect()[ASKED], leaderless=1)})

    assert (fault.aspect, fault.topics, fault.fault, fault.passing) == ("leader", (ASKED,), True, True)


def test_an_odd_partition_count_on_the_circle_is_a_fault() -> None:
    """A query's records would not meet in one partition; the sentence names each count."""
    (fault,) = counted(topics.FEEDBACK, 3)

    assert (fault.aspect, fault.fault, fault.passing) == ("partitions", True, False)
    assert "sky.queries has 4" in fault.message
    assert "sky.feedback has 3" in fault.message


def test_another_partition_count_than_configured_is_one_fault_for_the_whole_circle() -> None:
    """The settings may simply say the wrong number."""
    circle = {name: replace(perfect()[name], partitions=8) for name in TOPOLOGY.copartitioned[0]}
    (fault,) = checked(circle)

    assert fault.fault
    assert "has 8 partitions, but the settings say 4" in fault.message
    assert "set `partitions` to that" in fault.message


def test_a_model_topic_with_too_few_partitions_is_a_fault_with_the_command_that_mends_it() -> None:
    """Selection writes to all of them."""
    (fault,) = counted(ASKED, 2)

    assert fault.fault
    assert fault.message == (
        f"sky.{ASKED} has 2 partitions instead of 4, and all are written to; add them: skysail topics create"
    )


def test_a_model_topic_with_too_many_partitions_is_a_warning() -> None:
    """It works; a replica may sit on partitions that stay empty."""
    (warning,) = counted(ASKED, 6)

    assert (warning.aspect, warning.fault) == ("partitions", False)
    assert "set `worker.partitions` to 6 for this model" in warning.message


def test_a_model_topic_of_one_partition_may_have_more() -> None:
    """A small model's topic: what is not written to costs nothing."""
    small = build(["knn"], model_partitions={"knn": 1}, window_ms=600_000)
    (warning,) = checked({ASKED: replace(perfect()[ASKED], partitions=2)}, small)

    assert (warning.aspect, warning.fault) == ("partitions", False)


@pytest.mark.parametrize("name", [topics.APPLICATIONS, topics.MODELS, topics.REPORTS])
def test_partitions_that_were_added_to_a_topic_of_one_are_told_and_stop_nothing(name: str) -> None:
    """Only the first is written."""
    (warning,) = counted(name, 2)

    assert (warning.aspect, warning.fault) == ("partitions", False)
    assert "recreate it" in warning.message


@pytest.mark.parametrize("name", TOPOLOGY.copartitioned[0])
def test_partitions_that_were_added_to_one_topic_of_the_circle_are_told_and_stop_nothing(name: str) -> None:
    """The first ones are served; the sentence says how many, and what waits in the others."""
    (warning,) = checked({name: replace(perfect()[name], partitions=6, waiting=3)})

    assert (warning.aspect, warning.fault) == ("partitions", False)
    assert f"sky.{name} has 6 partitions (3 records wait beyond the first 4)" in warning.message
    assert "the first 4 are served" in warning.message
    assert "Skysail's client keeps to them" in warning.message


def test_partitions_that_were_added_to_all_topics_after_the_first_answers_stop_nothing() -> None:
    """Answers lie in the first ones alone, so these were served; a client cannot see that, and must be told."""
    circle = {name: replace(perfect()[name], partitions=6, used=4) for name in TOPOLOGY.copartitioned[0]}
    (warning,) = checked(circle)

    assert not warning.fault
    assert "Client(..., partitions=4)" in warning.message


@pytest.mark.parametrize("role", ["selection", "joiner", "learner", "worker.knn"])
def test_each_role_alone_sees_that_partitions_were_added(role: str) -> None:
    """By what was written to the topics that it touches."""
    part = TOPOLOGY.used_by([role])
    circle = {name: replace(perfect()[name], partitions=6, used=2) for name in part.copartitioned[0]}
    (warning,) = checked(circle, part)

    assert not warning.fault


def test_settings_that_name_fewer_partitions_than_have_been_served_are_a_fault() -> None:
    """Answers lie in all eight: queries in four of them would wait for ever."""
    circle = {name: replace(perfect()[name], partitions=8, used=8) for name in TOPOLOGY.copartitioned[0]}
    (fault,) = checked(circle)

    assert fault.fault
    assert "set `partitions` to that" in fault.message


def test_dead_letters_may_have_more_partitions() -> None:
    """They are written to the first and read from all."""
    assert counted("queries.dlq", 4) == []


def test_fewer_copies_than_asked_for_are_a_warning_by_number_of_copies() -> None:
    """One sentence for all topics that have as many."""
    few = {name: replace(perfect()[name], replicas=2) for name in (topics.QUERIES, topics.FEEDBACK)}
    (warning,) = checked(few)

    assert (warning.aspect, warning.fault) == ("replication", False)
    assert "copies of each partition: 2 for sky.queries, sky.feedback; `replication` asks for 3" in warning.message


def test_single_copies_are_a_warning_even_if_no_more_were_asked_for() -> None:
    """A default is no decision; the sentence says what production needs."""
    single = {name: replace(found, replicas=1) for name, found in perfect().items()}
    (warning,) = check(TOPOLOGY, single, replication=1, prefix="sky")

    assert not warning.fault
    assert "all topics of sky" in warning.message
    assert "`replication: 3`" in warning.message


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_log_that_is_compacted_is_a_fault(policy: str) -> None:
    """Queries of one context would take each other's place."""
    (fault,) = configured(topics.QUERIES, "cleanup.policy", policy)

    assert fault.fault
    assert "--entity-name sky.queries --add-config cleanup.policy=delete" in fault.message


def test_configuration_that_is_deleted_by_age_is_a_fault() -> None:
    """Applications would be gone after a week."""
    (fault,) = configured(topics.APPLICATIONS, "cleanup.policy", "compact,delete")

    assert fault.fault
    assert "would be deleted when it gets old" in fault.message


@pytest.mark.parametrize(
    ("name", "retention_ms", "fault"),
    [
        (topics.QUERIES, 1_000, False),
        (topics.PREDICTIONS, 600_000, False),
        (topics.PREDICTIONS, 599_999, True),
        (topics.OBSERVATIONS, 1_260_000, False),
        (topics.OBSERVATIONS, 1_259_999, True),
    ],
)
def test_a_short_retention_is_a_fault_only_where_roles_read_back(name: str, retention_ms: int, fault: bool) -> None:
    """A window for the joiner, two and a minute for the learner; elsewhere outages have less time."""
    (finding,) = configured(name, "retention.ms", str(retention_ms))

    assert (finding.aspect, finding.fault) == ("retention.ms", fault)


@pytest.mark.parametrize(
    ("held", "why"), [(-1, "more of the brokers' disks"), (1 << 31, "more of the"), (1 << 20, "before their time")]
)
def test_a_bound_on_bytes_is_set_where_it_is_meant(held: int, why: str) -> None:
    """One that nobody has asked for is nobody's business."""
    bounded = build(["knn"], window_ms=600_000, most_bytes={topics.QUERIES: 4 << 30})
    found = perfect(bounded)[topics.QUERIES]
    other = {topics.QUERIES: replace(found, config={**found.config, "retention.bytes": str(held)})}
    (finding,) = checked(other, bounded)
    assert (finding.aspect, finding.fault, finding.value) == ("retention.bytes", False, str(1 << 30))
    assert why in finding.message
    assert configured(topics.QUERIES, "retention.bytes", str(held)) == []


@pytest.mark.parametrize("retention_ms", [-1, 400 * DAY_MS])
def test_a_longer_retention_is_nobodys_business(retention_ms: int) -> None:
    """For ever is longer, too."""
    assert configured(topics.OBSERVATIONS, "retention.ms", str(retention_ms)) == []


def test_observations_without_the_brokers_time_are_a_fault() -> None:
    """Whether an observation is a repetition must not depend on the reading."""
    (fault,) = configured(topics.OBSERVATIONS, "message.timestamp.type", "CreateTime")

    assert fault.fault
    assert "message.timestamp.type=LogAppendTime" in fault.message


def test_other_records_without_their_senders_time_are_a_warning() -> None:
    """Deadlines then run from the broker."""
    (warning,) = configured(topics.QUERIES, "message.timestamp.type", "LogAppendTime")

    assert (warning.aspect, warning.fault) == ("message.timestamp.type", False)
    assert configured("queries.dlq", "message.timestamp.type", "LogAppendTime") == []


def test_a_topic_that_does_not_take_the_largest_record_is_a_fault() -> None:
    """Its query would go unanswered; Kafka's own default is enough."""
    (fault,) = configured(topics.PREDICTIONS, "max.message.bytes", str(LARGEST - 1))

    assert fault.fault
    assert configured(topics.PREDICTIONS, "max.message.bytes", str(LARGEST)) == []


def test_a_deployment_that_takes_larger_inputs_needs_larger_topics() -> None:
    """Each topic that was made for the usual ones is a fault, with the command that mends it in place."""
    large = build(["knn"], record_bytes=4 << 20)
    fault, *others = check(large, perfect(), replication=3, prefix="sky")
    names = {name for finding in (fault, *others) if finding.fault for name in finding.topics}

    assert names == {*TOPOLOGY.nodes[0].consumes, *names} - {topics.REPORTS, topics.CANDIDATES, topics.PROMOTIONS}
    assert ASKED in names
    assert f"--add-config max.message.bytes={(4 << 20) + ROOM_BYTES}" in fault.message
    assert "max_input_kib" in fault.message
    assert check(large, perfect(large), replication=3, prefix="sky") == []


@pytest.mark.parametrize("kind", ["producer", "zstd", "gzip"])
@pytest.mark.parametrize("name", [topics.QUERIES, topics.FEEDBACK])
def test_a_topic_of_clients_that_keeps_what_comes_compressed_is_a_fault(name: str, kind: str) -> None:
    """A few kilobytes of it may be gigabytes for every role that reads it; also where the topic was there before."""
    (fault,) = configured(name, "compression.type", kind)

    assert (fault.aspect, fault.fault, fault.topics) == ("compression.type", True, (name,))
    assert f"--entity-name sky.{name} --add-config compression.type=uncompressed" in fault.message
    assert configured(topics.PREDICTIONS, "compression.type", kind) == []


@pytest.mark.parametrize(("kind", "is_told"), [("producer", True), ("uncompressed", True), ("gzip", False)])
def test_observations_that_are_stored_as_they_are_written_are_a_warning(kind: str, *, is_told: bool) -> None:
    """They are kept for a year."""
    found = configured(topics.OBSERVATIONS, "compression.type", kind)
    assert [(one.aspect, one.fault) for one in found] == [("compression.type", False)] * is_told
    assert all("--add-config compression.type=zstd" in one.message for one in found)


def test_a_dead_letter_fits_beside_what_is_wrong_with_it() -> None:
    """Its topic takes twice what its source takes, and clients' topics what any client library sends in one batch."""
    limits = {name: topic.max_bytes for name, topic in TOPOLOGY.topics.items()}

    assert limits[topics.QUERIES] == limits[topics.FEEDBACK] == 1_048_588 > LARGEST
    assert all(limits[f"{name}.dlq"] == 2 * limits[name] for name in limits if f"{name}.dlq" in limits)


def test_a_dead_letter_topic_that_takes_less_than_its_source_cuts_off() -> None:
    """A warning, until not even what was cut off fits."""
    (warning,) = configured("queries.dlq", "max.message.bytes", "1048587")
    (fault,) = configured("queries.dlq", "max.message.bytes", "65536")

    assert (warning.fault, fault.fault) == (False, True)


def test_a_broker_that_tells_no_configuration_is_a_warning() -> None:
    """Existence and partitions are checked all the same."""
    silent = {name: replace(found, config={}) for name, found in perfect().items()}
    silent[ASKED] = replace(silent[ASKED], partitions=1)
    fault, warning = checked(silent)

    assert (fault.aspect, warning.aspect) == ("partitions", "configuration")
    assert "DescribeConfigs" in warning.message


def test_faults_come_first() -> None:
    """Whoever reads only the first line reads the worst."""
    found = perfect()
    found[topics.QUERIES] = replace(found[topics.QUERIES], replicas=1)
    del found[ASKED]

    assert [finding.fault for finding in check(TOPOLOGY, found, replication=3)] == [True, False]


def test_a_part_of_the_topology_is_checked_alone() -> None:
    """A role that is started by itself minds only what it touches."""
    part = TOPOLOGY.used_by(["joiner"])
    there = perfect(part)
    assert check(part, there, replication=3) == []

    there[topics.FEEDBACK] = replace(there[topics.FEEDBACK], partitions=5)
    (fault,) = check(part, there, replication=3)
    assert set(fault.topics) == {topics.PREDICTIONS, topics.SHADOWS, topics.FEEDBACK, topics.OBSERVATIONS}


WRONG = {
    "cleanup.policy": ["compact", "delete", "compact,delete"],
    "retention.ms": ["60000", "1"],
    "message.timestamp.type": ["CreateTime", "LogAppendTime"],
    "max.message.bytes": ["1000", "200000", str(LARGEST - 1), str(40 << 20)],
    "compression.type": ["gzip", "uncompressed", "producer"],
    "min.insync.replicas": ["4"],
}


@pytest.mark.parametrize("name", TOPOLOGY.topics)
@pytest.mark.parametrize("key", WRONG)
def test_what_a_finding_says_to_set_is_no_finding_afterwards(name: str, key: str) -> None:
    """Of each topic and property, also where a topic takes more than its dead letters."""
    for value in WRONG[key]:
        found = perfect()
        found[name] = replace(found[name], config={**found[name].config, key: value})
        findings = check(TOPOLOGY, found, replication=3, prefix="sky")
        for finding in findings:
            assert finding.value, finding
            assert f"has {finding.aspect} {finding.value} " not in finding.message, "it changes nothing"
            assert finding.message.endswith(f"{finding.aspect}={finding.value}")
            assert "skysail topics check --mend" in finding.message
            (topic,) = finding.topics
            found[topic] = replace(found[topic], config={**found[topic].config, finding.aspect: finding.value})
        assert check(TOPOLOGY, found, replication=3, prefix="sky") == []


def test_dead_letters_of_a_topic_that_takes_more_are_to_take_as_much() -> None:
    """The topic was created without a size, so it takes what the broker does."""
    found = perfect()
    found[topics.QUERIES] = replace(found[topics.QUERIES], config={"max.message.bytes": "8388608"})
    dead = f"{topics.QUERIES}.dlq"
    (finding,) = [one for one in check(TOPOLOGY, found, replication=3) if one.topics == (dead,)]
    assert "has max.message.bytes 2097176 instead of 8388608" in finding.message
