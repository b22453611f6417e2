"""The topology: one description, from which topics are made, checked and drawn."""

from __future__ import annotations

import pytest

from schemas import topics
from streams.topology import build, check, describe, state_name, state_partition


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


def test_what_the_broker_has_is_accepted_when_it_is_the_topology() -> None:
    """No fault where there is none."""
    topology = build(["knn"])

    assert check(topology, topology.partition_counts()) == []


def test_a_missing_topic_is_a_fault_that_says_what_to_do() -> None:
    """The sentence names the command."""
    topology = build(["knn"])
    actual = topology.partition_counts()
    del actual["models.knn.queries"]
    (fault,) = check(topology, actual)

    assert "models.knn.queries" in fault
    assert "skysail topics create" in fault


def test_unequal_partition_counts_are_a_fault() -> None:
    """A query's records would not meet in one partition."""
    topology = build(["knn"])
    (fault,) = check(topology, topology.partition_counts() | {topics.FEEDBACK: 3})

    assert "equal partition counts" in fault


def test_another_number_of_partitions_than_configured_is_a_fault() -> None:
    """State names would map to other partitions than the ones that exist."""
    topology = build([], partitions=4)
    circle = dict.fromkeys(topology.copartitioned[0], 8)
    (fault,) = check(topology, topology.partition_counts() | circle)

    assert "8 partitions" in fault


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


def test_a_context_has_a_state_of_its_own_in_a_fixed_partition() -> None:
    """CRC-32 of the name, so that every process agrees."""
    assert (state_name("digits", None), state_name("digits", "u7")) == ("digits", "digits/u7")
    assert [state_partition(state_name("digits", f"u{n}"), 4) for n in range(4)] == [0, 2, 0, 2]
