"""Ids seen lately."""

from __future__ import annotations

from streams.operators.recent import RecentIds


def test_an_id_is_new_once_in_each_partition() -> None:
    """What was added is known, in its own partition alone."""
    recent = RecentIds(10)
    assert recent.add(0, "a")
    assert not recent.add(0, "a")
    assert recent.add(1, "a")


def test_the_last_ids_are_known_and_twice_as_many_are_forgotten() -> None:
    """Memory is bounded: at least the capacity is remembered, at most twice that."""
    recent = RecentIds(10)
    for number in range(100):
        assert recent.add(0, str(number))
    assert not any(recent.add(0, str(number)) for number in range(90, 100))
    assert all(recent.add(0, str(number)) for number in range(80))


def test_copies_take_no_room_from_other_ids() -> None:
    """A client that sends all again must not push out what came just before."""
    recent = RecentIds(10)
    for number in range(10):
        assert recent.add(0, str(number))
    assert not any(recent.add(0, str(number)) for number in range(9))
    assert recent.add(0, "another")
    assert not recent.add(0, "9")


def test_a_partition_that_is_gone_is_forgotten() -> None:
    """Its next owner remembers for itself."""
    recent = RecentIds(10)
    recent.add(0, "a")
    recent.drop([0])
    assert recent.add(0, "a")


def test_an_id_with_another_token_is_new_and_a_copy_of_it_is_not() -> None:
    """Who asks is told apart; generations go on as ever."""
    recent = RecentIds(10)
    assert recent.add(0, "a", "mine")
    assert recent.add(0, "a", "other")
    assert not recent.add(0, "a", "other")
    assert recent.add(0, "a")
    for number in range(30):
        assert recent.add(0, str(number), "mine")
    assert recent.add(0, "a")
