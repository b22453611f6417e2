"""What a process may have written that its tape does not tell: as little as its end leaves open."""

from __future__ import annotations

import pytest

from streams.tape.ends import LOST_US, WRITING_US, TapeEnd, ends_of

SECOND_US = 1_000_000
KILLED = TapeEnd("joiner", 100 * SECOND_US, None, is_stopped=False, begun_us=0)
NEXT = TapeEnd("joiner", 300 * SECOND_US, None, is_stopped=True, begun_us=200 * SECOND_US)


@pytest.mark.parametrize(
    ("at_us", "is_open"),
    [
        (KILLED.last_us - LOST_US - 1, False),  # its tape tells
        (KILLED.last_us, True),
        (135 * SECOND_US, False),  # who lives calls, and its tape goes on
        (195 * SECOND_US, True),  # it may have stood still, gone on, and been killed before its next call
        (NEXT.begun_us + 1, False),  # another one is its role now, and that one's tape tells
    ],
)
def test_a_process_that_was_killed_may_have_written_at_its_end_and_just_before_the_next_one_of_its_role(
    at_us: int, *, is_open: bool
) -> None:
    """And not before the end of its tape."""
    assert ends_of({"a": KILLED, "b": NEXT}, 0).may_have_written("joiner", at_us) is is_open


def test_one_that_had_nothing_to_do_may_have_written_just_before_any_later_one_of_its_role() -> None:
    """Another process was killed and replaced meanwhile: the next one of the role is not in its place."""
    other = NEXT._replace(last_us=900 * SECOND_US)
    successor = NEXT._replace(begun_us=800 * SECOND_US, last_us=900 * SECOND_US)
    ends = ends_of({"idle": KILLED, "other": other, "successor": successor}, 0)
    assert ends.may_have_written("joiner", 795 * SECOND_US)
    assert not ends.may_have_written("joiner", 500 * SECOND_US)


def test_without_another_one_it_may_have_written_as_long_as_a_write_is_tried() -> None:
    """Nobody excuses the rest of a trace."""
    ends = ends_of({"a": KILLED}, 0)
    assert ends.may_have_written("joiner", KILLED.last_us + WRITING_US)
    assert not ends.may_have_written("joiner", KILLED.last_us + WRITING_US + 1)


def test_a_process_that_stopped_in_order_leaves_nothing_open_and_another_role_has_no_part_in_it() -> None:
    """Its tape is whole."""
    stopped = KILLED._replace(is_stopped=True)
    learner = KILLED._replace(role="learner", is_stopped=True)
    assert not ends_of({"a": stopped, "b": NEXT}, 0).may_have_written("joiner", 195 * SECOND_US)
    assert not ends_of({"a": KILLED, "b": learner}, 0).may_have_written("learner", KILLED.last_us)
