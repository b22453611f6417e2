"""Feedback by context and time is about the last answer that the context had by then, and about nothing else."""

from __future__ import annotations

import json
from random import Random

import pytest

from schemas import topics
from schemas.records import Feedback, KeyedFeedback
from streams.operators.contract import Emit
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.operators.join.keyed import KeyedFeedbackIndex
from streams.operators.join.shared_buffer import SharedBuffer
from streams.testing import Crash, Delay
from tests.loops import CODEC, Loop, digits

GOOD = {"good": lambda _: 7, "bad": lambda _: 3}
CLICKS = json.dumps({"feedback": [{"topic": "clicks", "key": "user", "within": "30s", "loss": "0"}]})
WITHIN_US = 30_000_000


def keyed(*faults: object, columns: bool = False, **changes: object) -> Loop:
    """Return a loop whose application has feedback by key."""
    packed = Random(3) if columns else None
    application = digits(policy="single", window_s=60.0, mapping=CLICKS, **changes)
    return Loop(dict(GOOD), application, faults, packed=packed, columns=columns)  # type: ignore[arg-type]


def told(loop: Loop, context: str, label: int = 7, *, ago_us: int = 0, application: str = "digits") -> None:
    """Tell something about the last answer of a context."""
    feedback = KeyedFeedback("", application, context, WITHIN_US, label, None, loop.driver.now_us - ago_us)
    loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(feedback), context.encode())


def learnt(loop: Loop) -> list[tuple[str, float | None]]:
    """Return which queries something was learnt about, and what."""
    return [(seen.query_id, seen.loss) for _, seen in loop.observations()]


@pytest.mark.parametrize("columns", [False, True])
def test_the_last_answer_of_the_context_is_meant(*, columns: bool) -> None:
    """Neither an earlier one, nor that of another context; both ways of joining take it."""
    loop = keyed(columns=columns)
    for query_id, context in (("a1", "ann"), ("b1", "bob"), ("a2", "ann"), ("b2", "bob")):
        loop.query(query_id, context=context)
        loop.driver.run(1)
    told(loop, "ann")
    loop.driver.run(5)

    assert learnt(loop) == [("a2", 0.0)]


def test_the_time_that_is_told_decides_which_one_was_the_last() -> None:
    """The context has been asked about again since."""
    loop = keyed()
    for query_id in ("a1", "a2"):
        loop.query(query_id, context="ann")
        loop.driver.run(4)
    told(loop, "ann", ago_us=6_000_000)
    loop.driver.run(5)

    assert learnt(loop) == [("a1", 0.0)]


def test_an_answer_that_is_read_after_the_feedback_is_found_all_the_same() -> None:
    """Timestamps decide, and not what was read first: feedback waits while predictions of its time are unread."""
    loop = keyed()
    for query_id in ("a1", "a2"):
        loop.query(query_id, context="ann")
        loop.driver.run(1)
    told(loop, "ann")
    first, last = loop.driver.read(topics.PREDICTIONS)
    joiner, now_us = Joiner(CODEC, JoinerSettings(1)), loop.driver.now_us
    joiner.on_partitions({0: 0})
    joiner.on_records([*loop.driver.read(topics.APPLICATIONS), first, *loop.driver.read(topics.FEEDBACK)], now_us)
    unread = {(topics.PREDICTIONS, 0): 1}
    for second in range(1, 6):
        assert not joiner.on_timer(now_us + second * 1_000_000, unread)
    joiner.on_records([last], now_us + 6_000_000)
    (found,) = joiner.on_timer(now_us + 7_000_000)

    assert isinstance(found, Emit)
    assert CODEC.decode(Feedback, found.value).query_id == "a2"


def test_feedback_on_no_answer_or_an_old_one_teaches_nothing() -> None:
    """It is counted, and is no dead letter: a click without an answer before it is nobody's fault."""
    loop = keyed()
    loop.query("a1", context="ann")
    loop.driver.run(31)
    told(loop, "ann")
    told(loop, "eve")
    loop.driver.run(5)

    assert (learnt(loop), loop.dead(topics.FEEDBACK)) == ([], [])
    assert [CODEC.decode(KeyedFeedback, one.value).context for one in loop.driver.read(topics.FEEDBACK)] == [
        "ann",
        "eve",
    ]


def test_what_is_found_is_written_as_feedback_by_id() -> None:
    """Replay and evaluation read that; a second click on one answer changes nothing."""
    loop = keyed()
    loop.query("a1", context="ann")
    loop.driver.run(1)
    at_us = loop.driver.now_us
    told(loop, "ann")
    loop.driver.run(3)
    told(loop, "ann", label=3)
    loop.driver.run(3)
    written = loop.driver.read(topics.FEEDBACK)[1]

    assert (written.key, CODEC.decode(Feedback, written.value)) == (
        b"ann",
        Feedback("a1", 7, None, at_us, None, "digits"),
    )
    assert learnt(loop) == [("a1", 0.0)]


def test_an_application_without_such_feedback_refuses_it() -> None:
    """Nobody remembers its answers."""
    loop = keyed()
    told(loop, "ann", application="other")
    loop.driver.run(3)

    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["not_keyed"]


@pytest.mark.parametrize("at_us", [1_000_000, 5_200_000, 6_000_000, 7_000_000])
def test_a_crash_changes_nothing(at_us: int) -> None:
    """What waits is read again, and so are the answers of a window; what was found twice is learnt once."""
    loop = keyed(Crash(at_us=at_us, role="joiner"), Delay(topics.PREDICTIONS, 500_000))
    for query_id in ("a1", "a2"):
        loop.query(query_id, context="ann")
        loop.driver.run(2.5)
    told(loop, "ann")
    loop.driver.run(20)

    assert learnt(loop) == [("a2", 0.0)]


def test_beyond_its_bytes_the_index_forgets_the_oldest_and_finds_none_in_their_place() -> None:
    """An answer that was forgotten is not mistaken for one before it."""
    loop = keyed()
    for number in range(20):
        loop.query(f"q{number}", context="ann" if number < 2 else f"c{number}")
        loop.driver.run(0.2)
    index = KeyedFeedbackIndex(CODEC, 4_500, 60_000_000, SharedBuffer(10, 10_000))
    index.follow([(loop.application, 60_000_000)])
    index.note(loop.driver.read(topics.PREDICTIONS), loop.driver.now_us)
    now_us = loop.driver.now_us
    for context in ("ann", "c19"):
        feedback = KeyedFeedback("", "digits", context, WITHIN_US, 7, None, now_us)
        loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(feedback), context.encode())
    effects: list[object] = []
    for record in loop.driver.read(topics.FEEDBACK):
        index.take(record, CODEC.decode(KeyedFeedback, record.value), effects)  # type: ignore[arg-type]
    index.settle({0: (now_us + 2_000_000, now_us)}, effects)  # type: ignore[arg-type]

    assert index.statistics()["keyed_bytes"] <= 4_500
    assert index.statistics()["keyed_forgotten_total"] == 20 - index.statistics()["keyed_answers"]
    assert [type(effect).__name__ for effect in effects] == ["Skip", "Emit"]


def test_nobody_else_meets_the_index() -> None:
    """Without `within` no prediction is shown to it, and no figure is reported."""
    loop = Loop(dict(GOOD), digits(policy="single", mapping=CLICKS.replace("within", "sent")))
    loop.query("a1", context="ann")
    loop.driver.run(1)
    index = KeyedFeedbackIndex(CODEC, 1, 1, SharedBuffer(1, 1))
    index.follow([(loop.application, 1)])

    assert (index.is_used, index.statistics()) == (False, {})
