"""Copies of observations: which are recognised, and what becomes of ids for which there is no room."""

from __future__ import annotations

from streams.operators.ids import ID_BYTES
from streams.promotion.copies import Copies
from tests.comparisons import SECOND_US, WINDOW_US


def test_a_copy_is_recognised_in_its_partition() -> None:
    """The same id of another partition is another query."""
    copies = Copies(WINDOW_US, 1 << 20)
    assert not copies.has("q", SECOND_US, 0)
    assert copies.has("q", 2 * SECOND_US, 0)
    assert not copies.has("q", 2 * SECOND_US, 1)


def test_after_the_window_an_id_is_new() -> None:
    """And takes no room any more."""
    copies = Copies(WINDOW_US, 1 << 20)
    copies.has("q", SECOND_US, 0)
    assert not copies.has("other", 2 * SECOND_US + WINDOW_US, 0)
    assert not copies.has("q", 2 * SECOND_US + WINDOW_US, 0)
    assert (copies.held, copies.forgotten) == (2, 0)


def test_without_room_the_oldest_second_of_who_has_most_is_forgotten() -> None:
    """The others keep theirs."""
    copies = Copies(WINDOW_US, 30 * ID_BYTES)
    copies.has("small", SECOND_US, 1)
    for number in range(40):
        copies.has(f"q{number}", (1 + number // 10) * SECOND_US, 0)
    assert (copies.held, copies.forgotten) == (31 - 10 + 0, 20)
    assert copies.has("small", SECOND_US, 1)
    assert copies.has("q39", 4 * SECOND_US, 0)
    assert not copies.has("q0", 4 * SECOND_US, 0)


def test_more_in_one_second_than_there_is_room_for_stays_bounded() -> None:
    """A clock that stands still is no way around the bound."""
    copies = Copies(WINDOW_US, 100 * ID_BYTES)
    for number in range(10_000):
        copies.has(f"q{number}", SECOND_US, 0)
        assert copies.held <= 100
    assert copies.forgotten >= 9_900
    assert not copies.has("later", 2 * SECOND_US, 0)
    assert copies.has("later", 2 * SECOND_US, 0)
