"""A replay misses what should have been written and was not, and nothing that has an outcome of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas import topics
from schemas.framing import peek_id
from streams.operators.contract import Record
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.replay.coverage import SecondLook
from tests.loops import CODEC, Loop, digits
from tests.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streams.replay.memory import MemoryTrace
    from streams.replay.report import ReplayReport

SETTINGS = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
# Of ten queries: told late, told nonsense, never told, asked twice.
LATE, NONSENSE, NEVER, TWICE = 3, 5, (7, 8), 1


def recorded() -> MemoryTrace:
    """Ask twice a second for four minutes; much goes wrong, and all of it has an outcome."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(window_s=20.0, default_loss=1.0))
    late: list[tuple[int, str]] = []
    for number in range(480):
        query_id = loop.query(f"q{number}")
        if number % 10 == TWICE:
            loop.query(query_id)
        loop.driver.run(0.1)
        if number % 10 == LATE:
            late.append((number, query_id))
        elif number % 10 not in NEVER:
            loop.feedback(query_id, label="seven" if number % 10 == NONSENSE else 7)
            if number % 10 == TWICE:
                loop.feedback(query_id, label=7)
        for _, told in [one for one in late if one[0] == number - 60]:
            loop.feedback(told, label=7)
        loop.driver.run(0.4)
    return trace_of(loop.driver)


TRACE = recorded()


def without(topic: str, *ids: str) -> MemoryTrace:
    """Return the trace as it would be if some records of a topic had never been written."""
    trace = TRACE.copy()
    trace.logs[topic, 0] = renumbered(record for record in trace.logs[topic, 0] if peek_id(record.value) not in ids)
    return trace


def renumbered(records: Iterable[Record]) -> list[Record]:
    """Return records with offsets from 0 on."""
    return [record._replace(offset=offset) for offset, record in enumerate(records)]


def replayed(trace: MemoryTrace) -> ReplayReport:
    """Replay a trace of one partition."""
    return replay(trace, RecordedDeployment(SelectionSettings(1, 1), SETTINGS), CODEC)


def missed(report: ReplayReport, kind: str) -> list[str]:
    """Return the ids of what is missing."""
    return [each.id for each in report.differences if each.kind == kind and each.recorded == "nothing"]


def test_nothing_is_missed_where_everything_has_its_outcome() -> None:
    """Copies, late feedback, nonsense and silence are no faults; where the trace ends is counted."""
    report = replayed(TRACE)

    assert report.is_equal
    assert report.differences == []
    assert 0 < report.waiting["unobserved"] < 60
    assert {*report.waiting} == {"unobserved"}


def test_an_answer_that_was_never_written_is_missed() -> None:
    """By the id of its query."""
    report = replayed(without(topics.PREDICTIONS, "q100", "q101"))

    assert not report.is_equal
    assert report.missing["answers"] == 2
    assert missed(report, "answers") == ["q100", "q101"]


def test_the_last_queries_of_a_trace_may_have_no_answer_yet() -> None:
    """They are counted."""
    report = replayed(without(topics.PREDICTIONS, "q478", "q479"))

    assert report.missing["answers"] == 0
    assert report.waiting["unanswered"] == 2


def test_feedback_that_was_never_learnt_is_missed() -> None:
    """Told in time, and in no observation; the states after it differ, too."""
    report = replayed(without(topics.OBSERVATIONS, "q100"))

    assert report.missing["observations"] == 1
    assert missed(report, "observations") == ["q100"]


def test_a_window_that_taught_nothing_is_missed() -> None:
    """Its application has a default loss."""
    report = replayed(without(topics.OBSERVATIONS, "q107"))

    assert missed(report, "observations") == ["q107"]


def test_an_answer_that_nobody_asked_for_is_missed() -> None:
    """A query must be in a trace that has all queries."""
    report = replayed(without(topics.QUERIES, "q100"))

    assert report.missing["queries"] == 1
    assert missed(report, "queries") == ["q100"]


def test_an_observation_of_no_answer_is_missed() -> None:
    """So is the answer itself."""
    report = replayed(without(topics.PREDICTIONS, "q100"))

    assert missed(report, "predictions") == ["q100"]
    assert missed(report, "answers") == ["q100"]


def test_dead_letters_are_outcomes_and_without_them_nothing_is_said() -> None:
    """A dead letter that was not written is missed: its feedback has no outcome."""
    trace, without_topic = TRACE.copy(), TRACE.copy()
    letters = trace.logs[topics.dead_letters(topics.FEEDBACK), 0]
    gone = next(n for n, one in enumerate(letters) if peek_id(one.value) == "q105")
    del letters[gone]
    del without_topic.logs[topics.dead_letters(topics.FEEDBACK), 0]
    without_topic.empty = frozenset()

    assert SecondLook(trace, CODEC).dead(topics.FEEDBACK)[1] >= {"q115", "q103"}
    assert missed(replayed(trace), "observations") == []  # its window has taught
    assert replayed(without_topic).is_equal


def test_where_offsets_are_left_out_nothing_is_said() -> None:
    """Kafka may have deleted records before they were recorded."""
    trace = TRACE.copy()
    del trace.logs[topics.PREDICTIONS, 0][100]
    report = replayed(trace)

    assert report.missing.total() == 0
    assert report.waiting["torn"] >= 1


def test_a_trace_that_begins_in_the_middle_misses_nothing_that_came_before() -> None:
    """Neither copies of earlier queries, nor feedback on earlier answers."""
    trace = TRACE.copy()
    begin_us = trace.logs[topics.QUERIES, 0][200].timestamp_us
    for place, log in trace.logs.items():
        if place[0] not in (topics.APPLICATIONS, topics.MODELS):
            trace.logs[place] = [record for record in log if record.timestamp_us >= begin_us]
    report = replayed(trace)

    assert report.missing.total() == 0
    assert report.is_equal


def test_dead_letters_of_other_programs_end_no_replay() -> None:
    """Their headers may say anything, or nothing: Kafka has headers without a value."""
    trace = TRACE.copy()
    place = {"topic": b"queries", "partition": b"0", "offset": b"1"}
    log = trace.logs[topics.dead_letters(topics.QUERIES), 0]
    for change in ({"offset": b"x"}, {"topic": b"\xff"}, {"topic": None}):
        headers = tuple((f"skysail.error.{name}", value) for name, value in (place | change).items())
        log.append(Record(topics.dead_letters(topics.QUERIES), 0, len(log), 0, None, None, headers))  # type: ignore[arg-type]

    assert SecondLook(trace, CODEC).dead(topics.QUERIES) == (set(), set())
    assert replayed(trace).is_equal
