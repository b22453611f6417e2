"""Ids seen lately."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from streams.operators.ids import RecentIds


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


def test_tokens_are_told_apart_alike_in_every_process() -> None:
    """Some pairs are not, one in 4,096: which ones, depends on no process's seed."""
    program = "from tests.unit.streams.operators.test_recent_ids import taken_for_copies; print(taken_for_copies())"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[4],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{taken_for_copies()}\n"}
    assert taken_for_copies()


def taken_for_copies() -> list[int]:
    """Return which of many queries with other tokens are taken for copies."""
    recent = RecentIds(50_000)
    asked = range(20_000)
    for number in asked:
        recent.add(0, str(number), f"one{number}")
    return [number for number in asked if not recent.add(0, str(number), f"one{number * 7919}")]
