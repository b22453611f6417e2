"""The joiner: every prediction and every feedback has exactly one outcome."""

from __future__ import annotations

import pytest

from schemas import topics
from schemas.records import JoinStatus
from streams.operators.contract import Emit
from streams.operators.joiner import Joiner, JoinerSettings
from streams.testing import Crash, Delay
from tests.loops import CODEC, Loop, digits

GOOD = {"good": lambda _: 7, "bad": lambda _: 3}


def answered(**changes: object) -> tuple[Loop, str]:
    """Return a loop in which one query has been answered by the good model."""
    loop = Loop(dict(GOOD), digits(policy="single", window_s=60.0, **changes))
    query_id = loop.query()
    loop.driver.run(0.1)
    return loop, query_id


def test_a_label_becomes_the_loss_of_every_asked_model() -> None:
    """Models that were not asked have no loss."""
    loop, query_id = answered()
    loop.feedback(query_id, label=3)
    loop.driver.run(0.1)
    ((_, seen),) = loop.observations()

    assert (seen.losses, seen.loss, seen.status) == ((1.0, None), 1.0, JoinStatus.JOINED)


def test_a_given_loss_belongs_to_the_models_that_gave_the_served_answer() -> None:
    """In an ensemble, members that said something else learn nothing from it."""
    loop, query_id = answered(loss="given")
    loop.feedback(query_id, loss=0.25)
    loop.driver.run(0.1)

    assert loop.observations()[0][1].losses == (0.25, None)


def test_a_model_that_gave_no_answer_has_the_full_loss() -> None:
    """Silence costs the user the answer, so the policy hears of it."""
    loop = Loop({"good": lambda _: None, "bad": lambda _: 3}, digits(policy="single"))
    query_id = loop.query()
    loop.driver.run(1)
    loop.feedback(query_id, label=7)
    loop.driver.run(0.1)

    assert loop.observations()[0][1].losses == (1.0, None)


def test_feedback_may_come_before_its_prediction() -> None:
    """It waits for it."""
    loop = Loop(dict(GOOD), digits(), faults=[Delay(topics.PREDICTIONS, 2_000_000)])
    query_id = loop.query()
    loop.driver.run(0.1)
    loop.feedback(query_id, label=7)
    loop.driver.run(5)

    assert len(loop.observations()) == 1


def test_feedback_given_twice_counts_once() -> None:
    """The second is skipped and counted."""
    loop, query_id = answered()
    loop.feedback(query_id, label=7)
    loop.feedback(query_id, label=7)
    loop.driver.run(0.1)

    assert (len(loop.observations()), loop.driver.skipped["duplicate_feedback"]) == (1, 1)


def test_feedback_after_the_window_is_a_dead_letter() -> None:
    """Its cause is `late`."""
    loop, query_id = answered()
    loop.driver.run(70)
    loop.feedback(query_id, label=7)
    loop.driver.run(0.1)

    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["late"]


def test_feedback_for_an_unknown_query_is_a_dead_letter_in_the_end() -> None:
    """It waits for its prediction first."""
    loop, _ = answered()
    loop.feedback("nobody-asked", label=7)
    loop.driver.run(1)
    assert not loop.dead(topics.FEEDBACK)
    loop.driver.run(10)

    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["unmatched"]


@pytest.mark.parametrize("wrong", [{"label": "seven"}, {"loss": 1.5}, {}])
def test_wrong_feedback_is_a_dead_letter_and_the_prediction_waits_on(wrong: dict[str, object]) -> None:
    """Right feedback that follows is still joined."""
    loop, query_id = answered()
    loop.feedback(query_id, **wrong)  # type: ignore[arg-type]
    loop.feedback(query_id, label=7)
    loop.driver.run(0.1)

    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["invalid_feedback"]
    assert len(loop.observations()) == 1


def test_the_window_ends_by_itself_with_the_default_loss() -> None:
    """No further record is needed for a window to end."""
    loop, query_id = answered(default_loss=0.5)
    loop.driver.run(70)
    ((_, seen),) = loop.observations()

    assert (seen.query_id, seen.losses, seen.status) == (query_id, (0.5, None), JoinStatus.DEFAULT)


def test_a_prediction_is_complete_only_when_joined_or_over() -> None:
    """What waits is read again after a crash and still joined."""
    loop = Loop(dict(GOOD), digits(), faults=[Crash(10_000_000, "joiner")])
    query_id = loop.query()
    loop.driver.run(5)
    assert loop.driver.committed("joiner", topics.PREDICTIONS, 0) == 0
    loop.driver.run(10)
    loop.feedback(query_id, label=7)
    loop.driver.run(1)

    assert len(loop.observations()) == 1
    assert loop.driver.committed("joiner", topics.PREDICTIONS, 0) == 1


def test_feedback_read_again_after_a_crash_is_no_dead_letter() -> None:
    """Predictions completed before the start are read back, so that their feedback is known to be joined."""
    loop = Loop(dict(GOOD), digits(), faults=[Crash(3_000_000, "joiner")])
    first, second = loop.query(), loop.query()
    loop.driver.run(0.1)
    loop.feedback("stranger", label=7)
    loop.feedback(first, label=7)
    loop.feedback(second, label=7)
    loop.driver.run(30)

    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["unmatched"]
    assert len(loop.observations()) == 2


def test_wrong_feedback_before_its_prediction_does_not_shorten_the_window() -> None:
    """The time of early feedback runs out without taking the waiting prediction with it."""
    loop = Loop(dict(GOOD), digits(), faults=[Delay(topics.PREDICTIONS, 2_000_000)])
    query_id = loop.query()
    loop.driver.run(0.1)
    loop.feedback(query_id, label="seven")
    loop.driver.run(20)
    loop.feedback(query_id, label=7)
    loop.driver.run(1)

    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["invalid_feedback"]
    assert len(loop.observations()) == 1


def test_a_prediction_that_is_none_is_a_dead_letter_at_the_end_of_its_window() -> None:
    """Its first fields were enough until then; the joiner goes on, and its partition moves on."""
    loop, query_id = answered(default_loss=0.5)
    value = loop.driver.read(topics.PREDICTIONS)[0].value
    assert value is not None
    broken = value.replace(query_id.encode(), b"x" * len(query_id))[:-2]
    loop.driver.produce(topics.PREDICTIONS, 0, broken, b"x")
    loop.driver.run(70)

    assert loop.dead(topics.PREDICTIONS) == [("truncated", broken)]
    assert [seen.query_id for _, seen in loop.observations()] == [query_id]
    assert loop.driver.committed("joiner", topics.PREDICTIONS, 0) == 2


def test_a_label_too_large_for_its_observation_is_wrong_feedback() -> None:
    """The prediction waits on for one that fits."""
    loop = Loop({"good": lambda _: "seven", "bad": lambda _: "three"}, digits(policy="single"))
    query_id = loop.query()
    loop.driver.run(0.1)
    loop.feedback(query_id, label="x" * 524_200)
    loop.feedback(query_id, label="seven")
    loop.driver.run(0.1)

    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["invalid_feedback"]
    assert [seen.loss for _, seen in loop.observations()] == [0.0]


def test_a_prediction_read_after_its_window_still_waits_for_feedback_to_be_read() -> None:
    """After an outage longer than the window, the feedback stands in the log behind the prediction."""
    loop, query_id = answered()
    prediction = loop.driver.read(topics.PREDICTIONS)[0]
    loop.feedback(query_id, label=7)
    feedback = loop.driver.read(topics.FEEDBACK)[0]
    late = Joiner(CODEC, JoinerSettings(partitions=1, window_us=60_000_000))
    hour_later_us = loop.driver.now_us + 3_600_000_000
    late.on_assigned({0: 0})
    late.on_records([prediction], hour_later_us)

    assert late.on_timer(hour_later_us) == []
    (joined,) = late.on_records([feedback], hour_later_us + 1)
    assert isinstance(joined, Emit)
