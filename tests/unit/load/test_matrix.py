"""The rows of the crash matrix, and what its traffic asks and tells."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import pytest

from deploy.cli.load_stage import settings_of
from deploy.state import desired
from load.matrix.kinds import EVERY, asked, kind_of, told, truth
from load.matrix.mixes import MIXED, PLAIN
from load.matrix.runner import Judged, Row
from load.matrix.setting import INSTANCES, deployment
from load.matrix.traffic import (
    CLEAN,
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
)
from load.results.results import Result
from load.scenarios.operation import matrix
from schemas.records import Prediction, Status

if TYPE_CHECKING:
    from pathlib import Path

    from load.harness.environment import Environment
    from load.matrix.mixes import Mix

WAYS = ("SIGTERM", "SIGKILL", "SIGSTOP")
MACHINE = cast("Environment", {"cores_usable": 2, "processor": "one"})


def test_every_role_is_broken_in_three_ways_three_times() -> None:
    """Nine roles, and each way in rounds: the same one never twice in a row."""
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


@pytest.mark.parametrize("mix", [PLAIN, MIXED])
def test_what_is_special_about_a_query_is_one_thing_and_meets_every_application(mix: Mix) -> None:
    """Of fifty, in which applications take turns."""
    turns = (GARBAGE, STRAY, TWICE_ASKED, TWICE_TOLD, *NEVER, *LATE)
    assert len({*turns}) == len(turns)
    for turn in turns:
        assert {kind_of(mix.kinds, number) for number in range(turn, 10 * EVERY, EVERY)} == {*mix.kinds}


@pytest.mark.parametrize("mix", [PLAIN, MIXED])
def test_what_is_asked_is_what_skysail_run_would_start(mix: Mix, tmp_path: Path) -> None:
    """Its models answer their sample, its graph and its mapping are sound, and their topics are the deployment's."""
    settings = settings_of(deployment(mix, "mine", tmp_path, "127.0.0.1:1", "redis://127.0.0.1:1", 1), "", "")
    assert {model.name for model in desired.models(settings)} == {*mix.functions}
    assert [record.name for record in desired.applications(settings)] == [kind.application for kind in mix.kinds]


def test_who_reads_others_topics_is_asked_and_told_in_json() -> None:
    """In the deployment's own names, so that two runs do not meet."""
    number = next(number for number in range(EVERY) if kind_of(MIXED.kinds, number).answers)
    assert asked(MIXED.kinds, number, 0).value == b'{"id": "q%d", "value": %d}' % (number, number % 16)
    assert told(MIXED.kinds, number, 0).value == b'{"id": "q%d", "label": %d}' % (number, truth(number))
    mapping = next(each.mapping for each in MIXED.placed("mine") if each.mapping)
    assert all(f'"mine.{topic}"' in mapping for topic in MIXED.topics)


def test_a_query_is_late_from_when_it_was_meant_to_be_sent() -> None:
    """What waits for a broker waits: the time counts, though it is handed to the client later."""
    traffic = Traffic("127.0.0.1:1", "none", PLAIN.kinds, 60.0, {}, Promised(2.0, 4, 30.0))
    traffic._start_us = time.time_ns() // 1000 - 60_000_000
    answer = Prediction("q60", "sums", None, None, Status.DEFAULT, None, -1, 0.0, (), 0, 0, 0, 0)
    traffic._answered(60, answer, 0)
    assert 58_000 < traffic.latencies_ms[0] < 62_000


@pytest.mark.parametrize(("ago_s", "is_late"), [(0, False), (20, False), (31, True)])
def test_feedback_on_an_answer_that_was_long_on_its_way_may_be_late(*, ago_s: int, is_late: bool) -> None:
    """A window runs from the answer, and a client whose connection fell silent reads that half a minute later."""
    traffic = Traffic("127.0.0.1:1", "none", PLAIN.kinds, 60.0, {}, Promised(2.0, 4, 30.0))
    traffic._told("q1", 1, time.time_ns() // 1000 - ago_s * 1_000_000)
    assert ("q1" in traffic.acknowledged.late) == is_late


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
    traffic = Traffic("127.0.0.1:1", "none", PLAIN.kinds, 60.0, {}, Promised(2.0, 4, 30.0))
    traffic.first[0] = Status.COMPLETE
    asked = sum(map(is_query, range(100)))
    assert (asked, traffic.share_complete(0, 100)) == (96, 1 / 96)
    assert not traffic.has_answered(0, 2)
    assert traffic.has_answered(0, 1)


def test_a_row_that_was_never_served_again_is_not_the_best_one() -> None:
    """It is said, and the figure shows at least how long was waited."""
    row = Row("selection SIGKILL", "selection", 0.5, None, 6.0, 0.1, {}, ("not served again within 90 s",))
    assert matrix._line(row.plain())[2] == "never"


def _result(*rows: Row) -> Result:
    """Return the result of rows that were run on one deployment."""
    its = Judged(rows, (), {}, dict.fromkeys(("records_behind", "queries", "feedback", "unacknowledged"), 0))
    figures = {f"short_{name}": 0.0 for name in (*matrix._COUNTED, *matrix._figures(its))}
    return Result(matrix.NAME, figures, {"form": "full"}, {"short": its.series()})


def test_what_a_blow_has_seen_is_on_the_page_and_what_was_not_reached_is_said() -> None:
    """A storm whose time was over before its queries; rows of results from before say nothing."""
    seen = {"queries": 4_000.0, "queries a second": 61.2, "started": 17.0}
    row = Row("workers come and go", "storm", 60.0, 1.0, 2.0, 0.8, {}, (), seen)
    shown = matrix.tables(result := _result(row))[-1]
    assert shown.title == matrix.SEEN
    assert ("workers come and go", "queries", "4,000") in shown.rows
    page = " ".join(matrix.SCENARIO.written(result, MACHINE).split())
    assert "17 starts while workers came and went: 4,000 queries, 61 a second; not the 500,000" in page
    plain = row.plain()
    del plain["seen"]
    before = Result(matrix.NAME, result.figures, result.parameters, {"short": [plain | {"part": "selection"}]})
    assert matrix.SEEN not in {table.title for table in matrix.tables(before)}
    assert "came and went" not in matrix.SCENARIO.written(before, MACHINE)
