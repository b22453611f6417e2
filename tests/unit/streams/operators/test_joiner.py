"""The joiner: every prediction and every feedback has exactly one outcome."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.losses import loss
from schemas import topics
from schemas.records import (
    Feedback,
    JoinStatus,
    Model,
    ModelOutput,
    Observation,
    Observations,
    Outcome,
    Prediction,
    Tensor,
    VersionLoss,
)
from streams.operators.contract import DeadLetter, Emit, Record, Skip
from streams.operators.ids import SeenIds
from streams.operators.join.buffer import Ending
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.tape.taped import Taped
from streams.testing import Crash, Delay
from tests.loops import CODEC, Loop, digits, model_predictions

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


def both_asked(**changes: object) -> Loop:
    """Return a loop in which two applications have been asked with one id."""
    loop = Loop(dict(GOOD), digits(policy="single", window_s=60.0, **changes))
    loop.configure(replace(digits(policy="single", window_s=60.0, **changes), name="fraud"))
    loop.driver.run(0.1)
    loop.query("one-id")
    loop.driver.run(0.1)
    loop.query("one-id", application="fraud")
    loop.driver.run(0.1)
    return loop


def test_feedback_on_an_id_that_two_applications_were_asked_with_teaches_neither() -> None:
    """Nobody can tell whose it is: a dead letter, however often, and no default loss stands in for it."""
    loop = both_asked(default_loss=1.0)
    assert {(each.query_id, each.application) for each in loop.predictions()} == {
        ("one-id", "digits"),
        ("one-id", "fraud"),
    }
    for label in (7, 3):
        loop.feedback("one-id", label=label)
        loop.driver.run(0.1)
    loop.driver.run(200)

    assert loop.observations() == []
    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["ambiguous_id"] * 2
    assert loop.driver.skipped["ambiguous_id"] == 1
    assert loop.driver.committed("joiner", topics.PREDICTIONS, 0) == 2
    assert loop.driver.operator("joiner").statistics()["predictions_waiting"] == 0


def test_feedback_that_came_before_both_predictions_of_an_id_teaches_neither() -> None:
    """Both predictions are read in one go."""
    joiner = alone()
    assert joiner.on_records([told("q", 0)], 0) == []
    other = record(topics.PREDICTIONS, 1, CODEC.decode(Prediction, prediction("q", 1).value)._replace(application="x"))
    effects = joiner.on_records([prediction("q", 0), other], 0)

    assert [effect.cause for effect in effects if isinstance(effect, DeadLetter)] == ["ambiguous_id"]
    assert not [effect for effect in effects if isinstance(effect, Emit)]


def test_an_id_of_another_application_after_its_feedback_takes_nothing_back() -> None:
    """What was joined stays, and what follows teaches nobody."""
    loop, query_id = answered()
    loop.configure(replace(digits(policy="single", window_s=60.0), name="fraud"))
    loop.feedback(query_id, label=7)
    loop.driver.run(0.1)
    loop.query(query_id, application="fraud")
    loop.driver.run(0.1)
    loop.feedback(query_id, label=3)
    loop.driver.run(1)

    assert [seen.application for _, seen in loop.observations()] == ["digits"]


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


def test_feedback_for_a_removed_application_is_judged_by_its_own_loss() -> None:
    """Its windows run on: half a unit off costs a half, and is not simply wrong."""
    loop = Loop({"good": lambda _: 0.5, "bad": lambda _: 0.0}, digits(policy="single", window_s=60.0, loss="absolute"))
    query_id = loop.query()
    loop.driver.run(0.1)
    loop.driver.produce(topics.APPLICATIONS, 0, None, b"digits")
    loop.driver.run(30)
    loop.feedback(query_id, label=1.0)
    loop.driver.run(0.1)

    assert loop.observations()[0][1].losses == (0.5, None)


def test_a_label_for_a_removed_application_that_takes_losses_is_still_wrong() -> None:
    """What it asked of its feedback holds as long as its windows run."""
    loop, query_id = answered(loss="given")
    loop.driver.produce(topics.APPLICATIONS, 0, None, b"digits")
    loop.driver.run(30)
    loop.feedback(query_id, label=7)
    loop.driver.run(0.1)

    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["invalid_feedback"]
    assert loop.observations() == []


def test_the_windows_of_a_removed_application_end_with_its_default_loss() -> None:
    """After the last of them nothing is kept of it."""
    loop, query_id = answered(default_loss=0.5)
    loop.driver.produce(topics.APPLICATIONS, 0, None, b"digits")
    loop.driver.run(70)

    ((_, seen),) = loop.observations()
    assert (seen.query_id, seen.losses) == (query_id, (0.5, None))


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
    late.on_partitions({0: 0})
    late.on_records([prediction], hour_later_us)

    assert late.on_timer(hour_later_us) == []
    (joined,) = late.on_records([feedback], hour_later_us + 1)
    assert isinstance(joined, Emit)


def test_what_is_told_long_after_the_window_is_late_though_its_prediction_waits_once_more() -> None:
    """Read again after an outage, the prediction may have been joined before, and the learner has forgotten that."""
    joiner = alone()
    long_after_us = JoinerSettings(1, 60_000_000, 5_000_000).memory_us + 1
    answered_us = CODEC.decode(Prediction, prediction("q", 0).value).answered_us
    first, second = told("a", 0), told("q", 1)._replace(timestamp_us=answered_us + long_after_us)
    now_us = answered_us + long_after_us
    joiner.on_records([prediction("a", 0), prediction("q", 1)], now_us)
    effects = joiner.on_records([first, second], now_us)

    assert [effect.cause for effect in effects if isinstance(effect, DeadLetter)] == ["late"]
    assert [effect.completes[1] for effect in effects if isinstance(effect, Emit)] == [first.position]


def alone(**changes: int) -> Joiner:
    """Return a joiner without applications: every window is a minute."""
    given = {"partitions": 1, "window_us": 60_000_000, "early_us": 5_000_000, **changes}
    return Joiner(CODEC, JoinerSettings(**given))


def record(topic: str, offset: int, value: object, at_us: int = 0) -> Record:
    """Make a record of partition 0."""
    return Record(topic, 0, offset, at_us, None, CODEC.encode(value))  # type: ignore[arg-type]


def prediction(query_id: str, offset: int, at_us: int = 0) -> Record:
    """Make the record of an answered query."""
    loop, asked = answered()
    return record(topics.PREDICTIONS, offset, loop.answer(asked)._replace(query_id=query_id), at_us)


def told(query_id: str, offset: int, label: object = 7, at_us: int = 0) -> Record:
    """Make a record of feedback."""
    return record(topics.FEEDBACK, offset, Feedback(query_id, label, None, 0), at_us)  # type: ignore[arg-type]


def test_what_is_joined_at_once_and_teaches_one_state_is_one_record() -> None:
    """In the order of the feedback; it completes all predictions and feedback that went into it."""
    joiner = alone()
    asked = [prediction(name, offset) for offset, name in enumerate("abc")]
    joiner.on_records(asked, 0)
    answers = [told("c", 0, 3), told("a", 1)]
    (emit,) = joiner.on_records(answers, 0)

    assert isinstance(emit, Emit)
    seen = CODEC.decode(Observations, emit.value).items
    assert [(each.query_id, each.loss) for each in seen] == [("c", 1.0), ("a", 0.0)]
    assert set(emit.completes) == {asked[2].position, answers[0].position, asked[0].position, answers[1].position}


def test_wrong_feedback_among_right_is_refused_alone() -> None:
    """The rest is joined, in the order of the feedback."""
    joiner = alone()
    names = [f"q{number:02}" for number in range(20)]
    joiner.on_records([prediction(name, offset) for offset, name in enumerate(names)], 0)
    answers = [told(name, offset, "seven" if name == "q07" else 7) for offset, name in enumerate(names)]
    effects = joiner.on_records(answers, 0)

    emits = [effect for effect in effects if isinstance(effect, Emit)]
    joined = [seen.query_id for emit in emits for seen in CODEC.decode(Observations, emit.value).items]
    assert joined == [name for name in names if name != "q07"]
    assert len(emits) < 6
    assert [effect.record for effect in effects if isinstance(effect, DeadLetter)] == [answers[7]]


def test_what_teaches_another_state_is_a_record_of_its_own() -> None:
    """Its key and partition are that state's."""
    joiner = alone()
    for offset, context in enumerate(["ann", "bob", "ann"]):
        one = prediction(f"q{offset}", offset)
        value = CODEC.decode(Prediction, one.value)
        assert value.decision is not None
        decision = value.decision._replace(state=f"digits/{context}")
        joiner.on_records([record(topics.PREDICTIONS, offset, value._replace(context=context, decision=decision))], 0)
    emits = joiner.on_records([told(f"q{offset}", offset) for offset in range(3)], 0)

    found = {
        emit.key: [seen.query_id for seen in CODEC.decode(Observations, emit.value).items]
        for emit in emits
        if isinstance(emit, Emit)
    }
    assert found == {b"digits/ann": ["q0", "q2"], b"digits/bob": ["q1"]}


def test_wrong_feedback_that_came_early_does_not_stand_in_for_right_feedback() -> None:
    """The first right one is joined, the wrong one before it is refused, equal and later ones are duplicates."""
    joiner = alone()
    early = [told("q", 0, "seven"), told("q", 1), told("q", 2), told("q", 3, 8)]
    first = joiner.on_records(early, 0)
    then = joiner.on_records([prediction("q", 0)], 1)

    assert first == [Skip((early[2].position,), "duplicate_feedback")]
    refused, joined, again = then
    assert isinstance(refused, DeadLetter)
    assert (refused.record, refused.cause) == (early[0], "invalid_feedback")
    assert isinstance(joined, Emit)
    assert joined.completes[1] == early[1].position
    assert again == Skip((early[3].position,), "duplicate_feedback")


@pytest.mark.parametrize("feedback_first", [False, True])
def test_what_has_met_leaves_nothing_that_waits(*, feedback_first: bool) -> None:
    """Otherwise ids would be kept until windows end, and until early feedback's time is over: 100 bytes each."""
    joiner, (loop, asked) = alone(), answered()
    joiner.on_partitions({0: 0})
    given = loop.answer(asked)
    for number in range(5_000):
        waits = record(topics.PREDICTIONS, number, given._replace(query_id=str(number), answered_us=0))
        both = [waits, told(str(number), number)]
        (joined,) = joiner.on_records(both[:: -1 if feedback_first else 1], 0)
        assert isinstance(joined, Emit)
    assert len(joiner._partitions[0].wheel) <= 4_001
    assert len(joiner._partitions[0].early_wheel) <= 4_001
    assert joiner._partitions[0].ended.find("0", 59_999_999) == (Ending.JOINED, 60_000_000)
    assert joiner._partitions[0].ended.find("0", 60_000_000) is None


FEEDBACK, PREDICTIONS = (topics.FEEDBACK, 0), (topics.PREDICTIONS, 0)


def test_what_is_ahead_is_left_unread_while_the_other_topic_is_behind() -> None:
    """Feedback first: predictions are what both wait for. Where nothing is behind, all is read."""
    found = []
    for unread in ({PREDICTIONS: 9}, {FEEDBACK: 9}, {FEEDBACK: 9, PREDICTIONS: 9}, {}):
        joiner = alone(predictions=4, feedback=4)
        joiner.on_records([told("later", 0), prediction("q", 0)], 0)
        joiner.on_timer(0, unread)
        found.append(joiner.needs().paused)
    assert found == [{topics.FEEDBACK}, {topics.PREDICTIONS}, {topics.FEEDBACK}, set()]


def test_predictions_are_left_unread_until_the_feedback_that_was_there_has_been_read() -> None:
    """Feedback that comes all the time is unread at every moment: that alone must not keep predictions unread."""
    joiner, found = alone(predictions=4), []
    joiner.on_records([prediction("q", 0)], 0)
    joiner.on_timer(0, {FEEDBACK: 1_000})
    for second in range(1, 5):
        joiner.on_records([told("later", 400 * second)], second * 1_000_000)
        joiner.on_timer(second * 1_000_000, {FEEDBACK: max(10, 1_000 - 400 * second)})
        found.append(bool(joiner.needs().paused))
    assert found == [True, True, False, False]


def test_predictions_that_are_left_unread_are_behind_and_feedback_waits_for_them_in_turn() -> None:
    """After an outage both are behind: the room of early feedback must not fill while predictions are paused."""
    joiner, found = alone(predictions=4, feedback=8), []
    joiner.on_records([prediction("q", 0)], 0)
    for second in range(3):
        joiner.on_timer(second * 1_000_000, {FEEDBACK: 1_000, PREDICTIONS: 1_000})
        found.append(joiner.needs().paused)
        joiner.on_records([told(f"later{second}", second)], second * 1_000_000)
    assert found == [{topics.PREDICTIONS}, {topics.PREDICTIONS}, {topics.FEEDBACK}]


def test_feedback_that_cannot_be_read_does_not_keep_predictions_unread() -> None:
    """Its partition has no leader: to wait for it would stop all applications."""
    joiner = alone(predictions=4)
    joiner.on_records([told("later", 0), prediction("q", 0)], 0)
    joiner.on_timer(0, {FEEDBACK: 10})
    assert joiner.needs().paused == {topics.PREDICTIONS}
    joiner.on_timer(1_000_000, {FEEDBACK: 10})
    assert joiner.needs().paused == set()


def test_feedback_is_not_given_up_while_predictions_are_left_unread() -> None:
    """Its prediction may be the next one to be read."""
    joiner = alone(predictions=4)
    joiner.on_timer(0, {FEEDBACK: 1})
    joiner.on_records([prediction("q", 0), told("later", 0)], 0)
    assert joiner.on_timer(20_000_000, {FEEDBACK: 1}) == []
    ended = joiner.on_timer(60_000_000)
    assert [type(effect) for effect in ended if not isinstance(effect, DeadLetter)] == [Skip]


def test_feedback_is_not_given_up_while_older_predictions_are_being_read() -> None:
    """After an outage the predictions of its time come a while later."""
    joiner = alone()
    joiner.on_records([told("later", 0, at_us=990_000_000)], 1_000_000_000)
    for second in range(0, 20, 2):
        joiner.on_records([prediction(f"old{second}", second, 980_000_000)], 1_000_000_000 + second * 1_000_000)
        assert joiner.on_timer(1_000_000_000 + second * 1_000_000) == []
    found = [effect for second in range(20, 40) for effect in joiner.on_timer((1_000 + second) * 1_000_000)]

    assert [e.cause for e in found if isinstance(e, DeadLetter)] == ["unmatched"]


def test_one_call_ends_so_many_windows_and_the_next_is_due_at_once() -> None:
    """Records and acknowledgements get their turn in between."""
    joiner = alone()
    template = prediction("q", 0)
    value = CODEC.decode(Prediction, template.value)
    joiner.on_records([record(topics.PREDICTIONS, n, value._replace(query_id=f"q{n}")) for n in range(150)], 0)
    assert len(joiner.on_timer(60_000_000)) == 128
    due = joiner.next_deadline()
    assert due is not None
    assert due <= 60_000_000
    assert len(joiner.on_timer(60_000_000)) == 22


def test_a_prediction_that_cannot_be_read_is_forgotten_in_the_end() -> None:
    """Its feedback is late for one more window, as any other's, and then nobody's."""
    joiner = alone()
    whole = prediction("q", 0)
    assert whole.value is not None
    joiner.on_records([whole._replace(value=whole.value[:-1])], 0)
    assert [type(effect) for effect in joiner.on_timer(60_000_000)] == [DeadLetter]
    for now_us in (61_000_000, 119_999_999):
        late, *_ = joiner.on_records([told("q", 0)], now_us)
        assert isinstance(late, DeadLetter)
        assert late.cause == "late"

    assert joiner.next_deadline() is None
    assert joiner.on_records([told("q", 1)], 120_000_000) == []
    assert joiner.statistics()["feedback_waiting"] == 1


@pytest.mark.parametrize("outage_s", [30, 100, 1000])
def test_an_outage_longer_than_a_window_counts_no_query_twice(outage_s: int) -> None:
    """The learner knows the feedback's observation, or the window ended too long ago for its default loss."""
    settings = JoinerSettings(1, 60_000_000, 5_000_000)
    value = CODEC.decode(Prediction, prediction("q", 0).value)
    loop, _ = answered(default_loss=0.5)
    applications = [Record(r.topic, 0, r.offset, 0, r.key, r.value) for r in loop.driver.read(topics.APPLICATIONS)]
    asked = record(topics.PREDICTIONS, 0, value, value.answered_us)
    seen = SeenIds(settings.memory_us)
    joined_us = value.answered_us + 1_000_000
    seen.add("q", joined_us)
    back_us = joined_us + outage_s * 1_000_000
    joiner = Joiner(CODEC, settings)
    joiner.on_records([*applications, asked], back_us)
    due = joiner.next_deadline()
    assert due is not None
    for effect in joiner.on_timer(due):
        assert isinstance(effect, Skip) or not seen.add("q", due)


@pytest.mark.parametrize("is_feedback_first", [False, True])
def test_an_observation_that_is_in_the_log_is_not_made_again(*, is_feedback_first: bool) -> None:
    """Offsets were refused for longer than the learner remembers, and the joiner begins with what it did before."""
    first, hour_us = alone(), 3_600_000_000
    asked, feedback = prediction("q", 0, hour_us), told("q", 0, at_us=hour_us)
    (made,) = first.on_records([asked, feedback], hour_us)
    assert isinstance(made, Emit)
    written = Record(topics.OBSERVATIONS, 0, 0, hour_us, made.key, made.value)
    second, later_us = alone(), 2 * hour_us
    second.on_partitions({0: 0})
    second.on_records([written, written._replace(offset=1, value=b"damaged")], later_us)
    again = [feedback, asked] if is_feedback_first else [asked, feedback]
    effects = [effect for each in again for effect in second.on_records([each], later_us)]

    assert {type(effect) for effect in effects} == {Skip}
    assert sorted(position for effect in effects for position in effect.completes) == sorted(made.completes)  # type: ignore[union-attr]


def test_feedback_that_is_read_before_its_complete_prediction_is_no_dead_letter() -> None:
    """Of two pairs the later feedback was committed: the earlier one is read again, and only its prediction is told."""
    joiner, hour_us = alone(), 3_600_000_000
    joiner.on_partitions({0: 1})
    feedback = told("q", 0, at_us=hour_us)
    effects = [*joiner.on_records([feedback], hour_us), *joiner.on_records([prediction("q", 0, hour_us)], hour_us)]

    assert effects == [Skip((feedback.position,), "duplicate_feedback")]
    assert joiner.statistics()["feedback_waiting"] == 0


@pytest.mark.parametrize("is_read_back", [False, True])
def test_feedback_that_was_learnt_and_is_read_again_is_no_dead_letter(*, is_read_back: bool) -> None:
    """Its prediction was complete, and is read back, where it was late by the window, or not at all any more."""
    first, hour_us = alone(), 3_600_000_000
    asked, feedback = prediction("q", 0, hour_us), told("q", 0, at_us=hour_us + 3 * first.settings.window_us // 2)
    (made,) = first.on_records([asked, feedback], feedback.timestamp_us)
    assert isinstance(made, Emit)
    again = alone()
    again.on_partitions({0: 1})
    again.on_records([Record(topics.OBSERVATIONS, 0, 0, feedback.timestamp_us, made.key, made.value)], 2 * hour_us)
    if is_read_back:
        again.on_records([asked], feedback.timestamp_us)

    assert again.on_records([feedback], 2 * hour_us) == [Skip((feedback.position,), "duplicate_feedback")]
    assert again.statistics()["feedback_waiting"] == 0


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("is_feedback_first", [False, True])
def test_feedback_after_a_window_that_taught_its_default_loss_is_a_dead_letter_though_it_is_read_again(
    start: int, *, is_feedback_first: bool
) -> None:
    """Only what was joined is known by its observation; its prediction was committed before, or not."""
    joiner, hour_us = alone(), 3_600_000_000
    joiner.on_partitions({0: start})
    told_us = hour_us + 3 * joiner.settings.window_us // 2
    loop, query_id = answered(default_loss=0.5)
    loop.driver.run(70)
    (seen,) = loop.driver.read(topics.OBSERVATIONS)
    joiner.on_records([seen._replace(partition=0, offset=0, timestamp_us=told_us)], told_us)
    assert joiner.observed.find(query_id)
    asked, feedback = prediction(query_id, 0, hour_us), told(query_id, 0, at_us=told_us)
    order = [feedback, asked] if is_feedback_first else [asked, feedback]
    effects = [effect for each in order for effect in joiner.on_records([each], told_us)]

    assert [effect.cause for effect in effects if isinstance(effect, DeadLetter)] == ["late"]
    assert joiner.statistics()["feedback_waiting"] == 0


@pytest.mark.parametrize("is_feedback_first", [False, True])
def test_a_window_that_a_joiner_ahead_of_its_time_had_ended_is_over_for_its_successor(
    *, is_feedback_first: bool
) -> None:
    """Its feedback is a dead letter; that of a query which was learnt about by then comes again, and is skipped."""
    joiner, hour_us = alone(), 3_600_000_000
    joiner.on_partitions({0: 2})
    learnt, ended = prediction("learnt", 0, hour_us), prediction("ended", 1, hour_us + 1)
    (made,) = alone().on_records([learnt, told("learnt", 0, at_us=hour_us)], hour_us)
    assert isinstance(made, Emit)
    joiner.on_records([Record(topics.OBSERVATIONS, 0, 0, hour_us, made.key, made.value)], hour_us)
    now_us = hour_us + 2
    feedback = [told("learnt", 1, at_us=now_us), told("ended", 2, at_us=now_us)]
    order = [*feedback, learnt, ended] if is_feedback_first else [learnt, ended, *feedback]
    effects = [effect for each in order for effect in joiner.on_records([each], now_us)]

    assert [(e.cause, e.record.offset) for e in effects if isinstance(e, DeadLetter)] == [("late", 2)]
    assert Skip((feedback[0].position,), "duplicate_feedback") in effects
    assert joiner.statistics()["feedback_waiting"] == 0


def test_of_different_feedback_before_its_prediction_none_is_passed_over_in_silence() -> None:
    """Whoever was quicker with sixteen others: the next one is a dead letter."""
    joiner, now_us = alone(), 3_600_000_000
    feedback = [told("q", offset, label=offset, at_us=now_us) for offset in range(17)]
    effects = joiner.on_records(feedback, now_us)

    assert [(e.cause, e.record.offset) for e in effects if isinstance(e, DeadLetter)] == [("over_limit", 16)]


def test_what_was_learnt_from_feedback_stays_so_though_a_default_loss_was_written_after_it() -> None:
    """By a joiner that did not know yet that it had lost the partition; the learner takes the first."""
    joiner, hour_us = alone(), 3_600_000_000
    joiner.on_partitions({0: 0})
    asked, feedback = prediction("q", 0, hour_us), told("q", 0, at_us=hour_us)
    (made,) = alone().on_records([asked, feedback], hour_us)
    assert isinstance(made, Emit)
    (seen,) = CODEC.decode(Observations, made.value).items
    default = CODEC.encode(seen._replace(status=JoinStatus.DEFAULT))
    first = Record(topics.OBSERVATIONS, 0, 0, hour_us, made.key, made.value)
    joiner.on_records([first, first._replace(offset=1, value=default)], hour_us)
    effects = [effect for each in (asked, feedback) for effect in joiner.on_records([each], hour_us)]

    assert {type(effect) for effect in effects} == {Skip}


def test_what_was_observed_is_known_until_predictions_are_younger() -> None:
    """Each id takes memory, which nobody needs once the first minutes are over."""
    joiner, hour_us = alone(), 3_600_000_000
    joiner.on_partitions({0: 0})
    (made,) = alone().on_records([prediction("q", 0, hour_us), told("q", 0, at_us=hour_us)], hour_us)
    assert isinstance(made, Emit)
    joiner.on_records([Record(topics.OBSERVATIONS, 0, 0, hour_us, made.key, made.value)], hour_us)
    joiner.on_timer(hour_us)
    assert joiner.observed.find("q")
    joiner.on_records([prediction("p", 1, later_us := joiner.observed_us + 1)], later_us)
    joiner.on_timer(later_us)
    assert not joiner.observed.find("q")


def test_a_query_asked_after_all_that_was_recalled_is_joined_under_its_old_id() -> None:
    """A client counts from 1 again: what was observed under its ids long before says nothing."""
    first, hour_us = alone(), 3_600_000_000
    (made,) = first.on_records([prediction("q", 0, hour_us), told("q", 0, at_us=hour_us)], hour_us)
    assert isinstance(made, Emit)
    second, later_us = alone(), 2 * hour_us
    second.on_partitions({0: 1})
    second.on_records([Record(topics.OBSERVATIONS, 0, 0, hour_us, made.key, made.value)], later_us)
    (joined,) = second.on_records([prediction("q", 1, later_us), told("q", 1, at_us=later_us)], later_us)

    assert isinstance(joined, Emit)


def versions(shares: dict[str, float], offset: int = 0) -> Record:
    """Make the record of the model that answers, with other versions beside it."""
    model = Model("good", "1", "function", "", "", "label", "float32", (1,), shares=shares, partitions=1)
    return Record(topics.MODELS, 0, offset, 0, b"good", CODEC.encode(model))


def shadowed(query_id: str, offset: int, answer: int, version: str = "2", outcome: Outcome = Outcome.OK) -> Record:
    """Make the record of what a shadow answered."""
    batch = model_predictions("good", {query_id: answer}, outcome)
    return record(topics.SHADOWS, offset, batch._replace(version=version))


def scores(joiner: Joiner) -> dict[str, tuple[float, float]]:
    """Return how many outputs of each version were joined, and their losses' sum."""
    found = joiner.statistics()
    label = "{application=digits,model=good,version=%s}"
    names = [("version_joined_total" + label % v, "version_loss_total" + label % v) for v in "123"]
    return {v: (found[n], found[m]) for v, (n, m) in zip("123", names, strict=True) if n in found}


def test_a_shadow_is_scored_beside_the_version_that_answered_and_teaches_nothing() -> None:
    """Label 3 was not the 7 that was answered; the shadow had it right, which is noted and teaches nothing."""
    joiner = alone()
    joiner.on_records([versions({"2": 0.0})], 0)
    (skip,) = joiner.on_records([prediction("q", 0), shadowed("q", 0, 3)], 0)
    (emit,) = joiner.on_records([told("q", 0, 3)], 0)

    assert isinstance(skip, Skip)
    assert isinstance(emit, Emit)
    observation = CODEC.decode(Observation, emit.value)
    assert observation.losses == (1.0, None)
    assert observation.versions == (VersionLoss("good", "1", 1.0), VersionLoss("good", "2", 0.0))
    assert scores(joiner) == {"1": (1, 1.0), "2": (1, 0.0)}


def test_observations_of_a_model_with_one_version_say_nothing_of_versions() -> None:
    """Which is the usual case, and costs a byte."""
    joiner = alone()
    joiner.on_records([versions({}), prediction("q", 0)], 0)
    (emit,) = joiner.on_records([told("q", 0, 3)], 0)
    assert isinstance(emit, Emit)
    assert CODEC.decode(Observation, emit.value).versions == ()


def test_shadows_that_come_before_the_prediction_or_twice_count_once() -> None:
    """Topics are read side by side; an output that is written again is the same output."""
    joiner = alone()
    joiner.on_records([versions({"2": 0.0, "3": 0.0}), shadowed("q", 0, 3), shadowed("q", 1, 3)], 0)
    joiner.on_records([prediction("q", 0), shadowed("q", 2, 7, "3"), told("q", 0)], 0)

    assert scores(joiner) == {"1": (1, 0.0), "2": (1, 1.0), "3": (1, 0.0)}


def test_a_shadow_that_fails_or_was_too_slow_has_the_full_loss() -> None:
    """Had it served, nobody would have been answered; what comes after the feedback comes too late."""
    joiner = alone()
    joiner.on_records([versions({"2": 0.0, "3": 0.0}), prediction("q", 0)], 0)
    joiner.on_records([shadowed("q", 0, 0, "2", Outcome.FAILED), shadowed("q", 1, 0, "3", Outcome.EXPIRED)], 0)
    joiner.on_records([told("q", 0), shadowed("q", 2, 7, "3")], 0)

    assert scores(joiner) == {"1": (1, 0.0), "2": (1, 1.0), "3": (1, 1.0)}


def test_what_shadows_answer_is_bounded() -> None:
    """Of queries that nobody gives feedback for, the first are forgotten, and counted."""
    joiner = Joiner(CODEC, JoinerSettings(1, 60_000_000, 5_000_000, shadows=4))
    joiner.on_records([versions({"2": 0.0}), *(prediction(f"q{n}", n) for n in range(3))], 0)
    joiner.on_records([shadowed(f"q{n}", n, 7) for n in range(3)], 0)
    assert (joiner.statistics()["shadows_waiting"], joiner.statistics()["shadows_forgotten_total"]) == (2, 1)
    joiner.on_records([told(f"q{n}", n) for n in range(3)], 0)

    assert scores(joiner) == {"1": (3, 0.0), "2": (2, 0.0)}


def test_what_shadows_answer_to_a_query_that_nobody_predicts_is_forgotten_in_time() -> None:
    """Its window ended long ago, or what was answered is of no record any more."""
    joiner = Joiner(CODEC, JoinerSettings(1, 60_000_000, 5_000_000))
    joiner.on_records([versions({"2": 0.0}), shadowed("q", 0, 7)], 0)
    assert joiner.next_deadline() == 130_000_000
    joiner.on_timer(129_000_000)
    assert joiner.statistics()["shadows_waiting"] == 1
    joiner.on_timer(130_000_000)
    assert joiner.statistics()["shadows_waiting"] == 0
    assert joiner.next_deadline() is None


def test_what_shadows_answer_to_a_query_that_waits_for_nothing_is_forgotten_at_once() -> None:
    """There was no room for it, nothing had been decided, or it was joined before this joiner began."""
    joiner = Joiner(CODEC, JoinerSettings(1, 60_000_000, 5_000_000, predictions=2))
    joiner.on_partitions({0: 1})
    answered_without_decision = CODEC.decode(Prediction, prediction("undecided", 1).value)._replace(decision=None)
    undecided = record(topics.PREDICTIONS, 1, answered_without_decision)
    joiner.on_records([versions({"2": 0.0})], 0)
    joiner.on_records([shadowed(name, n, 7) for n, name in enumerate(("before", "undecided", "waits", "refused"))], 0)
    joiner.on_records([prediction("before", 0), undecided, prediction("waits", 2), prediction("refused", 3)], 0)
    assert joiner.statistics()["shadows_waiting"] == 1
    assert joiner.statistics()["predictions_waiting"] == 1


def test_a_shadow_that_waited_when_the_joiner_died_is_scored_all_the_same() -> None:
    """Its record is complete, and read again; what was joined before is not scored again."""
    loop = Loop({"good": lambda _: 7}, digits(models=("good",)), (Crash(5_000_000, "joiner"),))
    model = versions({"2": 0.0})
    loop.driver.produce(topics.MODELS, 0, model.value, model.key)
    asked = [loop.query() for _ in range(2)]
    loop.driver.run(1)
    for query_id in asked:
        loop.driver.produce(topics.SHADOWS, 0, shadowed(query_id, 0, 3).value)
    loop.driver.run(1)
    loop.feedback(asked[0], 7)
    loop.driver.run(8)
    joiner = loop.driver.operator("joiner")
    assert joiner.statistics()["shadows_waiting"] == 1
    loop.feedback(asked[1], 7)
    loop.driver.run(1)
    assert isinstance(joiner, Taped)
    assert isinstance(joiner.kernel, Joiner)
    assert scores(joiner.kernel) == {"1": (1, 0.0), "2": (1, 1.0)}


def test_a_model_in_one_version_is_not_scored_by_version() -> None:
    """The figures stand where there is something to compare."""
    joiner = alone()
    joiner.on_records([versions({}), prediction("q", 0), told("q", 0)], 0)

    assert scores(joiner) == {}


def test_each_version_is_held_against_its_own_classes() -> None:
    """Also a canary's, which is not the version that serves: its scores are of the classes it came with."""
    joiner = alone()
    two = Model("good", "2", "function", "", "", "label", "float32", (1,), ("7", "3"))
    joiner.on_records([Record(topics.MODELS, 0, 0, 0, b"good@2", CODEC.encode(two)), versions({"2": 0.5})], 0)
    loop, asked = answered(loss="log")
    applications = [Record(r.topic, 0, r.offset, 0, r.key, r.value) for r in loop.driver.read(topics.APPLICATIONS)]
    scores = Tensor.of(np.array([0.1, 0.9]))
    value = loop.answer(asked)._replace(
        query_id="q", outputs=(ModelOutput("good", "2", Outcome.OK, 3, scores),), answer=3
    )
    joiner.on_records([*applications, record(topics.PREDICTIONS, 0, value)], 0)
    (emit,) = joiner.on_records([told("q", 0, 3)], 0)

    assert isinstance(emit, Emit)
    assert CODEC.decode(Observation, emit.value).loss == loss("log", 3, 3, scores, ("7", "3"))
