"""Feedback that may be corrected: the last record about a query counts, and is learnt once."""

from __future__ import annotations

from random import Random

import pytest

from schemas import topics
from schemas.records import Feedback, KeyedFeedback
from streams.operators.contract import Emit, Record
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.testing import Crash
from tests.loops import CODEC, Loop, digits

GOOD = {"good": lambda _: 7, "bad": lambda _: 3}
WINDOW_S = 20.0


def corrected(*faults: object, columns: bool = False, **changes: object) -> Loop:
    """Return a loop of one application, and a query that has been answered."""
    packed = Random(3) if columns else None
    application = digits(policy="single", window_s=WINDOW_S, **changes)
    loop = Loop(dict(GOOD), application, faults, packed=packed, columns=columns)  # type: ignore[arg-type]
    loop.query("q")
    loop.driver.run(1)
    return loop


def told(loop: Loop, label: int | None, query_id: str = "q") -> None:
    """Tell something that may be corrected."""
    feedback = KeyedFeedback("", "digits", query_id, 0, label, None, loop.driver.now_us, revises=True)
    loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(feedback), query_id.encode())


def learnt(loop: Loop) -> list[tuple[str, float | None]]:
    """Return which queries something was learnt about, and what."""
    return [(seen.query_id, seen.loss) for _, seen in loop.observations()]


@pytest.mark.parametrize("columns", [False, True])
def test_the_last_record_counts_and_nothing_is_learnt_before_the_windows_end(*, columns: bool) -> None:
    """The answer was 7: first it is said to be wrong, then right."""
    loop = corrected(columns=columns)
    told(loop, 3)
    loop.driver.run(5)
    told(loop, 7)
    loop.driver.run(10)
    assert learnt(loop) == []
    loop.driver.run(20)
    assert learnt(loop) == [("q", 0.0)]
    assert CODEC.decode(Feedback, loop.driver.read(topics.FEEDBACK)[-1].value)[:2] == ("q", 7)


def test_a_record_that_tells_nothing_takes_back_what_was_told() -> None:
    """The window ends as if nobody had said anything."""
    loop = corrected(default_loss=0.25)
    told(loop, 3)
    loop.driver.run(2)
    told(loop, None)
    loop.driver.run(40)
    assert learnt(loop) == [("q", 0.25)]


def test_a_window_waits_for_feedback_that_is_on_its_way() -> None:
    """A default loss is learnt only where nothing was told; here what is written is read after the window's end."""
    loop = corrected(default_loss=0.25)
    told(loop, 7)
    (first,) = loop.driver.read(topics.FEEDBACK)
    joiner, read_us = Joiner(CODEC, JoinerSettings(1, 60_000_000)), loop.driver.now_us
    joiner.on_partitions({0: 0})
    joiner.on_records([*loop.driver.read(topics.APPLICATIONS), *loop.driver.read(topics.PREDICTIONS), first], read_us)
    over_us = read_us + 21_000_000  # the role stood still: feedback is written when the window is over already
    (written,) = [each for at in range(4) for each in joiner.on_timer(over_us + at * 1_000_000)]
    assert isinstance(written, Emit)
    assert written.topic == topics.FEEDBACK
    read = Record(topics.FEEDBACK, 0, first.offset + 1, over_us, written.key, written.value)
    joiner.on_records([read], over_us + 4_000_000)
    seen = [each for at in range(4, 9) for each in joiner.on_timer(over_us + at * 1_000_000)]
    assert [each.topic for each in seen if isinstance(each, Emit)] in ([], [topics.OBSERVATIONS])
    assert joiner.statistics()["joined_total{application=digits}"] == 1


def test_feedback_waits_as_long_as_the_window_of_its_query_whoever_tells() -> None:
    """A mapping of another application, of a longer window or of none, keeps nothing open, and teaches nothing."""
    loop = corrected(default_loss=0.25)
    feedback = KeyedFeedback("", "another", "q", 0, 7, None, loop.driver.now_us, revises=True)
    loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(feedback), b"q")
    loop.driver.run(45)
    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["other_application"]
    assert learnt(loop) == [("q", 0.25)]


@pytest.mark.parametrize("is_first", [False, True])
def test_who_may_teach_another_application_replaces_nothing(*, is_first: bool) -> None:
    """The query's own is learnt; his is a dead letter, or comes when the query has been learnt about."""
    loop = corrected(default_loss=0.25)
    stranger = KeyedFeedback("", "another", "q", 0, 3, None, loop.driver.now_us, revises=True)
    for mine in (not is_first, is_first):
        if mine:
            told(loop, 7)
        else:
            loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(stranger), b"q")
        loop.driver.run(2)
    loop.driver.run(45)
    assert learnt(loop) == [("q", 0.0)]
    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["other_application"] * (not is_first)


def test_a_correction_after_the_window_changes_nothing() -> None:
    """What was learnt stays."""
    loop = corrected()
    told(loop, 7)
    loop.driver.run(25)
    told(loop, 3)
    loop.driver.run(15)
    assert learnt(loop) == [("q", 0.0)]
    assert loop.dead(topics.FEEDBACK) == []
    loop.query("other")
    loop.driver.run(25)
    told(loop, 3, "other")
    loop.driver.run(5)
    assert learnt(loop) == [("q", 0.0)]
    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["late"]


def test_feedback_on_a_query_that_nobody_predicted_is_unmatched() -> None:
    """As without corrections."""
    loop = corrected()
    told(loop, 7, "nobody")
    loop.driver.run(30)
    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["unmatched"]


@pytest.mark.parametrize("at_us", [2_500_000, 6_500_000, 18_000_000, 19_000_000, 20_000_000])
def test_a_crash_changes_nothing(at_us: int) -> None:
    """The last record is read again."""
    loop = corrected(Crash(at_us=at_us, role="joiner"))
    told(loop, 3)
    loop.driver.run(4)
    told(loop, 7)
    loop.driver.run(60)
    assert learnt(loop) == [("q", 0.0)]


def test_a_correction_that_has_not_been_read_yet_counts_all_the_same() -> None:
    """After an outage the window is over before the second record is read: it was told in time."""
    loop = corrected()
    told(loop, 3)
    loop.driver.run(1)
    told(loop, 7)
    first, second = loop.driver.read(topics.FEEDBACK)
    joiner, late_us = Joiner(CODEC, JoinerSettings(1, 60_000_000)), loop.driver.now_us + 30_000_000
    joiner.on_partitions({0: 0})
    joiner.on_records([*loop.driver.read(topics.APPLICATIONS), *loop.driver.read(topics.PREDICTIONS), first], late_us)
    for second_of in range(1, 4):
        assert not joiner.on_timer(late_us + second_of * 1_000_000, {(topics.FEEDBACK, 0): 1})
    joiner.on_records([second], late_us + 4_000_000)
    written = [each for at in (5, 6, 7) for each in joiner.on_timer(late_us + at * 1_000_000)]

    assert [type(each) for each in written] == [Emit]
    assert CODEC.decode(Feedback, written[0].value)[:2] == ("q", 7)  # type: ignore[union-attr]
