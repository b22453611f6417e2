"""The rows of the crash matrix, and what its traffic asks and tells."""

from __future__ import annotations

import pytest

from load.matrix.runner import Row
from load.matrix.setting import INSTANCES, KINDS
from load.matrix.traffic import (
    CLEAN,
    EVERY,
    GARBAGE,
    LATE,
    NEVER,
    STRAY,
    TWICE_ASKED,
    TWICE_TOLD,
    Promised,
    Traffic,
    are_served,
    is_query,
    truth,
)
from load.scenarios.operation import matrix
from schemas.records import Status

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


def test_silence_is_no_service() -> None:
    """Nine of ten queries without an answer, or one partition of four: nobody would call that served."""
    numbers = [number for number in range(2 * CLEAN) if is_query(number)]
    answers = {number: number % 4 for number in numbers}
    assert are_served(answers, 0, 2 * CLEAN, 4)
    assert not are_served(dict.fromkeys(numbers, 0), 0, 2 * CLEAN, 4)
    assert not are_served({number: at for number, at in answers.items() if number % 10 == 0}, 0, 2 * CLEAN, 4)
    assert not are_served(answers, 0, CLEAN - 1, 4)


def test_a_query_without_an_answer_is_not_answered_completely() -> None:
    """One answer to a hundred queries is a hundredth, whatever is garbage among them."""
    traffic = Traffic("127.0.0.1:1", "none", KINDS, 60.0, 5.0, Promised(2.0, 4))
    traffic.first[0] = Status.COMPLETE
    asked = sum(map(is_query, range(100)))
    assert (asked, traffic.share_complete(0, 100)) == (96, 1 / 96)
    assert not traffic.has_answered(0, 2)
    assert traffic.has_answered(0, 1)


def test_a_row_that_was_never_served_again_is_not_the_best_one() -> None:
    """It is said, and the figure shows at least how long was waited."""
    row = Row("selection SIGKILL", "selection", 0.5, None, 6.0, 0.1, {}, ("not served again within 90 s",))
    assert matrix._line(row.plain())[2] == "never"
