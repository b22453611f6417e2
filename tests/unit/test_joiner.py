"""The joiner: every prediction and every feedback has exactly one outcome."""

from __future__ import annotations

import pytest

from schemas import topics
from schemas.records import JoinStatus
from streams.testing import Crash, Delay
from tests.loops import Loop, digits

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
