"""The topology: one description, from which topics are made, checked and drawn."""

from __future__ import annotations

import pytest

from schemas import topics
from streams.topology import CONTROL_TABLE, application_of, build, describe, state_name, state_partition


def test_every_consumed_topic_has_a_dead_letter_topic() -> None:
    """A record that cannot be used always has a place to go."""
    topology = build(["knn"])
    consumed = {name for node in topology.nodes for name in node.consumes if node.role != "control"}

    assert {topics.dead_letters(name) for name in consumed} <= topology.topics.keys()


def test_every_edge_ends_in_a_topic() -> None:
    """No role reads or writes what is not created."""
    topology = build(["knn", "forest"])
    named = {name for node in topology.nodes for name in (*node.consumes, *node.produces, *node.follows)}

    assert named <= topology.topics.keys()


def test_the_part_that_a_role_touches_holds_what_it_reads_and_writes_and_their_dead_letters() -> None:
    """A worker needs nothing of feedback; its dead letters are its own."""
    part = build(["knn", "forest"]).used_by(["worker.knn"])

    assert part.topics.keys() == {
        "models.knn.queries",
        "models.knn.queries.dlq",
        topics.MODEL_PREDICTIONS,
        topics.dead_letters(topics.MODEL_PREDICTIONS),
        topics.SHADOWS,
        topics.dead_letters(topics.SHADOWS),
        topics.MODELS,
        topics.dead_letters(topics.MODELS),
        topics.REPORTS,
    }
    assert part.copartitioned == ((topics.MODEL_PREDICTIONS, topics.SHADOWS),)


def test_what_is_kept_is_enough_for_what_is_read_back() -> None:
    """With the longest window that the settings allow."""
    topology = build(["knn"], window_ms=604_800_000)

    assert all(topic.needed_ms <= topic.retention_ms for topic in topology.topics.values())


def test_the_drawing_shows_every_role_and_topic() -> None:
    """What is drawn is what is built."""
    topology = build(["knn"])
    drawing = describe(topology)

    assert all(node.role in drawing for node in topology.nodes)
    assert all(name in drawing for node in topology.nodes for name in node.consumes)


def test_an_unknown_role_is_an_error() -> None:
    """Nothing is guessed."""
    with pytest.raises(KeyError):
        build([]).node("nobody")


def test_a_context_has_a_state_of_its_own_in_its_application_s_partition() -> None:
    """CRC-32 of the application's name, so that every process agrees, and contexts are learnt where they start from."""
    assert (state_name("digits", None), state_name("digits", "u7")) == ("digits", "digits/u7")
    assert {state_partition(state_name("digits", context), 4) for context in (None, "", "u7", "a/b")} == {2}
    assert [state_partition(f"app-{number}", 4) for number in range(4)] == [3, 1, 3, 1]


def test_spread_contexts_lie_in_all_partitions_and_their_names_say_so() -> None:
    """Whoever meets a name knows its partition and its application, whatever is in the context."""
    odd = ("", "u7", "a/b", "a:b", ":", "/")
    spread = [state_name("digits", context, is_spread=True) for context in odd]
    together = [state_name("digits", context) for context in odd]
    assert spread[1] == "digits:u7"
    assert len({*spread, *together}) == 2 * len(odd)
    assert {application_of(name) for name in (*spread, *together, "digits")} == {"digits"}
    assert {state_partition(name, 1 << 20) for name in together} == {state_partition("digits", 1 << 20)}
    users = [state_partition(state_name("digits", f"u{n}", is_spread=True), 4) for n in range(1_000)]
    assert all(200 < users.count(number) < 300 for number in range(4))


def test_a_long_context_is_named_by_its_hash() -> None:
    """Of one length, longer than any context that stands for itself, so that no two contexts can share a state."""
    short, long, accented = "a" * 127, "a" * 128, "ü" * 64
    assert state_name("digits", short) == f"digits/{short}"
    assert len(state_name("digits", long)) == len(state_name("digits", "a" * 4_000)) == len("digits/") + 128
    assert len({state_name("digits", context) for context in (short, long, accented, long + "a")}) == 4
    assert state_name("digits", accented).isascii()
    assert state_partition(state_name("digits", long), 4) == state_partition("digits", 4)


def test_only_topics_of_models_have_small_indexes() -> None:
    """There may be a thousand, and a broker maps each whole; after 170 MiB it begins another segment."""
    found = {name: topic.config().get("segment.index.bytes") for name, topic in build(("m",)).topics.items()}
    assert {name for name, size in found.items() if size} == {topics.model_queries("m")}
    assert found[topics.model_queries("m")] == str(512 * 1024)


def test_who_reads_a_compacted_topic_from_its_beginning_reads_little_of_what_was_overwritten() -> None:
    """Kafka never compacts the newest segment; it has a GiB by default, which takes a page a quarter of an hour."""
    found = {topic.name: topic.config() for topic in build(("m",)).topics.values()}
    compacted = {name: config for name, config in found.items() if config["cleanup.policy"] == "compact"}
    assert CONTROL_TABLE in compacted
    assert all(int(config["segment.bytes"]) <= 16 << 20 for config in compacted.values())
    assert all(int(config["segment.bytes"]) > int(config["max.message.bytes"]) for config in compacted.values())
