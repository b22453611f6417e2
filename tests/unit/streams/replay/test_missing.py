"""A replay misses what was not written, finds what nobody has made, and says what it cannot know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas import topics
from schemas.framing import peek_id
from schemas.records import Observations, Prediction
from streams.operators.contract import DeadLetter, Emit, Record
from streams.operators.ids import SECOND_US
from streams.replay.letters import WrittenLetters
from streams.replay.report import LETTERS, ReplayReport
from streams.runtime.role.dead_letters import DeadLetters
from streams.tape.ends import TapeEnd, TapeEnds
from streams.trace.manifest import TraceError
from tests.loops import CODEC, Loop, digits
from tests.property.test_replay_laws import replayed
from tests.traces import trace_of

if TYPE_CHECKING:
    from typing import Any

    from streams.replay.recording import MemoryTrace

# Of ten queries: told late, told nonsense, never told, asked twice.
LATE, NONSENSE, NEVER, TWICE = 3, 5, (7, 8), 1
QUERIES = 160


def recorded(topic: str = "", *unwritten: str) -> MemoryTrace:
    """Ask twice a second; much goes wrong, and all of it has an outcome, but for what is never written."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(window_s=20.0, default_loss=1.0))
    lose(loop, topic, unwritten)
    for number in range(QUERIES):
        query_id = loop.query(f"q{number}")
        if number % 10 == TWICE:
            loop.query(query_id)
        loop.driver.run(0.1)
        if number % 10 not in (*NEVER, LATE):
            loop.feedback(query_id, label="seven" if number % 10 == NONSENSE else 7)
            if number % 10 == TWICE:
                loop.feedback(query_id, label=7)
        if number % 10 == LATE and number >= 60:
            loop.feedback(f"q{number - 60}", label=7)
        loop.driver.run(0.4)
    return trace_of(loop.driver)


def lose(loop: Loop, topic: str, ids: tuple[str, ...]) -> None:
    """Have the driver forget to write some records, which count as written."""
    driver: Any = loop.driver
    emit, perform = driver._emit, driver._perform

    def kept(role: Any, effect: Emit) -> None:
        if effect.topic == topic and name(topic, effect.value) in ids:
            driver._complete(role, effect.completes)
        else:
            emit(role, effect)

    def performed(role: Any, effects: Any) -> None:
        perform(role, [one for one in effects if not is_lost(one)])

    def is_lost(one: Any) -> bool:
        return topic == LETTERS and isinstance(one, DeadLetter) and peek_id(one.record.value) in ids

    driver._emit, driver._perform = kept, performed


def name(topic: str, value: bytes) -> str:
    """Return the id of the query that a record is about; of observations that of the first."""
    return CODEC.decode(Observations, value).items[0].query_id if topic == topics.OBSERVATIONS else peek_id(value)


def missed(report: ReplayReport, kind: str) -> list[str]:
    """Return the ids of what is missing."""
    return [each.id for each in report.differences if each.kind == kind and each.recorded == "nothing"]


def test_nothing_is_missed_where_everything_has_its_outcome() -> None:
    """Copies, late feedback, nonsense and silence are no faults."""
    report = replayed(recorded())

    assert report.differences == []
    assert not report.unchecked
    assert not report.waiting
    assert report.checked[LETTERS] > QUERIES // 10


@pytest.mark.parametrize("topic", [topics.PREDICTIONS, topics.OBSERVATIONS])
def test_what_was_never_written_is_missed(topic: str) -> None:
    """By the id of its query, and nothing else."""
    report = replayed(recorded(topic, "q100", "q106"))

    assert report.missing == {topic: 2}
    assert missed(report, topic) == ["q100", "q106"]
    assert not report.different


def test_a_dead_letter_that_was_never_written_is_missed() -> None:
    """By where its record stands."""
    report = replayed(recorded(LETTERS, "q55"))

    assert report.missing == {LETTERS: 1}
    assert missed(report, LETTERS)[0].startswith("feedback-0@")


def test_the_last_answers_of_a_trace_may_not_be_written_yet() -> None:
    """They are counted."""
    report = replayed(recorded(topics.PREDICTIONS, f"q{QUERIES - 1}"))

    assert report.is_equal
    assert report.waiting == {"unwritten": 1}


@pytest.mark.parametrize("topic", [topics.OBSERVATIONS, LETTERS])
def test_what_waits_for_a_partition_without_a_leader_goes_away_with_its_process(topic: str) -> None:
    """However long before its end that began; a record that was written meanwhile tells that there was a leader."""
    slow = (*NEVER, LATE, NONSENSE)
    last = {f"q{number}" for number in range(QUERIES) if number >= QUERIES // 4 or number % 10 in slow}
    report = replayed(recorded(topic, *last))

    assert report.is_equal
    assert report.waiting["unwritten"] > 0
    assert report.waiting.keys() == {"unwritten"}
    assert replayed(recorded(topic, *last - {"q140", "q145"})).missing[topic] > 0


def test_a_record_that_is_a_dead_letter_already_becomes_no_other() -> None:
    """Of a partition that is read again: the first letter was on its way."""
    record = Record(topics.FEEDBACK, 0, 9, 0, b"k", b"v")
    trace = recorded()
    log = trace.logs[topics.dead_letters(topics.FEEDBACK), 0]
    log.append(log[-1]._replace(offset=len(log), headers=letter(record, "late"), timestamp_us=SECOND_US))

    for made_us, is_missed in ((3 * SECOND_US, False), (0, True)):
        report, letters = ReplayReport(), WrittenLetters(trace)
        letters.made("joiner", made_us, DeadLetter(record, "unmatched", "nobody asked"))
        letters.end(TapeEnds({"joiner": TapeEnd("joiner", 100 * SECOND_US, None, is_stopped=True)}, 0), report)
        assert (report.missing[LETTERS], report.waiting["complete"]) == (is_missed, not is_missed)


def letter(record: Record, cause: str) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a dead letter."""
    return DeadLetters("joiner").emit(DeadLetter(record, cause, "")).headers


def test_what_nobody_has_made_is_a_difference() -> None:
    """Whoever has written it."""
    trace = recorded()
    log = trace.logs[topics.PREDICTIONS, 0]
    forged = CODEC.decode(Prediction, log[50].value)._replace(query_id="forged")
    log.append(log[100]._replace(offset=len(log), value=CODEC.encode(forged)))
    report = replayed(trace)

    assert report.different == {topics.PREDICTIONS: 1}
    assert (report.differences[0].id, report.differences[0].replayed) == ("forged", "'nothing'")


def test_the_same_bytes_twice_are_no_difference() -> None:
    """Somebody has tried again."""
    trace = recorded()
    log = trace.logs[topics.PREDICTIONS, 0]
    log.append(log[100]._replace(offset=len(log)))
    report = replayed(trace)

    assert report.is_equal
    assert report.inferred == {"copies": 1}


def test_where_offsets_are_left_out_nothing_is_said() -> None:
    """Kafka may have deleted records before they were recorded."""
    trace = recorded()
    del trace.logs[topics.PREDICTIONS, 0][100]
    report = replayed(trace)

    assert report.missing.total() == 0
    assert report.waiting == {"torn": 1}
    assert report.unchecked["input_missing"] == 1  # the joiner had read it


def test_a_trace_that_begins_in_the_middle_says_that_calls_are_missing() -> None:
    """What a kernel remembers of before is in none of its calls."""
    trace = recorded()
    begin_us = trace.logs[topics.QUERIES, 0][100].timestamp_us
    for place, log in trace.logs.items():
        if place[0] not in (topics.APPLICATIONS, topics.MODELS):
            trace.logs[place] = [record for record in log if record.timestamp_us >= begin_us]
    report = replayed(trace)

    assert report.is_equal
    assert report.unchecked["tape_missing"] == len(("selection", "joiner", "learner"))
    assert report.checked.total() == 0


def test_calls_that_were_lost_end_a_tape() -> None:
    """All before them is checked."""
    trace = recorded()
    log = trace.logs[topics.CALLS, 0]
    gone = [place for place, record in enumerate(log) if record.key == b"joiner"][20]
    del log[gone]
    report = replayed(trace)

    assert report.is_equal
    assert report.unchecked["tape_missing"] == 1
    assert 0 < report.checked[topics.OBSERVATIONS] < report.checked[topics.PREDICTIONS] - 20


def test_calls_that_were_written_twice_are_made_once() -> None:
    """A producer has tried again."""
    trace = recorded()
    log = trace.logs[topics.CALLS, 0]
    log.insert(12, log[9])
    report = replayed(trace)

    assert report.is_equal
    assert not report.unchecked


def test_a_trace_without_calls_is_refused_plainly() -> None:
    """It says what it is good for, and how to have calls."""
    trace = recorded()
    del trace.logs[topics.CALLS, 0]
    with pytest.raises(TraceError, match=r"record\.calls: true"):
        replayed(trace)


def test_dead_letters_of_other_programs_end_no_replay() -> None:
    """Their headers may say anything, or nothing: Kafka has headers without a value."""
    trace = recorded()
    place = {"topic": b"queries", "partition": b"0", "offset": b"1"}
    log = trace.logs[topics.dead_letters(topics.QUERIES), 0]
    for change in ({"offset": b"x"}, {"topic": b"\xff"}, {"topic": None}):
        headers = tuple((f"skysail.error.{name}", value) for name, value in (place | change).items())
        log.append(Record(topics.dead_letters(topics.QUERIES), 0, len(log), 0, None, None, headers))  # type: ignore[arg-type]

    assert replayed(trace).is_equal
