"""The rows of the crash matrix, and what its traffic asks and tells."""

from __future__ import annotations

import pytest

from load.matrix.setting import INSTANCES, KINDS
from load.matrix.traffic import EVERY, GARBAGE, LATE, NEVER, STRAY, TWICE_ASKED, TWICE_TOLD, truth
from load.scenarios.operation import matrix

WAYS = ("SIGTERM", "SIGKILL", "SIGSTOP")


def test_every_role_is_broken_in_three_ways_three_times() -> None:
    """Eight roles, and each way in rounds: the same one never twice in a row."""
    for role in INSTANCES:
        rows = matrix.chosen((role,), is_short=False)[role]
        assert [row.name for row in rows] == [f"{role} {way}" for way in WAYS] * 3


def test_every_broker_is_stopped_and_killed_and_the_leader_chased_five_times() -> None:
    """One after the other."""
    names = [row.name for row in matrix.chosen(("brokers",), is_short=False)["brokers"]]
    assert names.count("leader killed") == 5
    assert {f"broker@{number} {way}" for number in (1, 2, 3) for way in ("stopped", "killed")} <= {*names}


def test_all_parts_are_run_unless_some_are_chosen_and_names_are_told_apart() -> None:
    """What `--only` takes is what there is."""
    assert tuple(matrix.chosen((), is_short=False)) == matrix.PARTS
    assert len({row.name for row in matrix.ROWS}) == len(matrix.ROWS)


def test_the_short_form_is_a_row_of_a_role_that_is_killed_one_that_stands_still_and_a_broker() -> None:
    """On one deployment."""
    (rows,) = matrix.chosen((), is_short=True).values()
    assert [row.part for row in rows] == ["selection", "learner", "brokers"]


@pytest.mark.parametrize("turns", [(GARBAGE, STRAY, TWICE_ASKED, TWICE_TOLD, *NEVER, *LATE)])
def test_what_is_special_about_a_query_is_one_thing_and_meets_every_application(turns: tuple[int, ...]) -> None:
    """Of fifty; three applications take turns, and have no factor in common with that."""
    assert len({*turns}) == len(turns)
    assert EVERY % len(KINDS) != 0


def test_one_truth_in_five_is_neither_model_s_answer_alone() -> None:
    """So losses are no zeros: `right` answers the row, `wrong` one more."""
    noisy = [number for number in range(1_600) if truth(number) != number % 16]
    assert len(noisy) == 320
    assert all(truth(number) == number % 16 + 1 for number in noisy)
