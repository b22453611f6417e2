"""Stories from the records of a loop in virtual time: the driver knows what is true of each query."""

from __future__ import annotations

import json

import pytest

from schemas import topics
from schemas.records import Outcome, Status
from streams.operators.learn.fold import fold
from streams.story.gathering import is_row_of
from streams.story.learning import StateFold
from streams.story.words import document, lines
from tests.graphs import loop as graph_loop
from tests.graphs import picture
from tests.loops import Loop, Slow, Sure, digits
from tests.stories import WINDOW_US, told

MS = 1_000
CALL_US, ROW_US = 1_000, 100  # of its workers: what a batch takes, and each of its rows


def one_model(answer: object, **more: object) -> Loop:
    """Make a loop around one model with a real worker."""
    application = digits(models=("m",), policy="single", **more)
    return Loop({"m": lambda _: answer}, application, has_workers=True)


def test_a_plain_query_s_legs_are_what_the_driver_made_of_them() -> None:
    """Nothing is on its way for long; the batch takes what the script says; the query is answered when it is done."""
    loop = one_model(7)
    began_us = loop.driver.now_us
    name = loop.query()
    loop.driver.run(1.0)
    found = told(loop, name)
    (leg,) = found.legs
    assert leg.batch is not None
    assert (leg.model, leg.version, leg.outcome, leg.answer) == ("m", "1", Outcome.OK, 7)
    assert (leg.batch.predict_us, leg.batch.rows) == (CALL_US + ROW_US, 1)
    assert leg.asked_us == began_us
    assert leg.written_us == began_us + leg.batch.waited_us + CALL_US + ROW_US
    assert (leg.on_way_us, leg.spare_us, leg.is_late) == (0, 0, False)
    assert [one.said.query_id for one in found.queries] == [name]
    assert found.answers[0].said == loop.answer(name)
    assert found.late == ()
    assert found.notes == ()


def test_who_was_late_is_named_with_how_late() -> None:
    """An ensemble is answered by its deadline without the slow model, whose output comes half a second later."""
    models = {"good": lambda _: 7, "bad": lambda _: Slow(3, 600 * MS)}
    loop = Loop(models, digits(policy="exp4", slo_ms=100.0), has_workers=True)
    name = loop.query()
    loop.driver.run(3.0)
    answer, found = loop.answer(name), told(loop, name)
    assert answer.status is Status.PARTIAL
    (late,) = found.late
    (output,) = [batch for batch in loop.outputs() if batch.model == "bad"]
    assert late.model == "bad"
    assert late.batch is not None
    assert late.batch.predict_us == output.predict_us == 600 * MS + CALL_US + ROW_US
    assert late.written_us == answer.received_us + late.batch.waited_us + late.batch.predict_us
    assert late.spare_us == answer.answered_us - late.written_us
    fates = {leg.model: leg.is_late for leg in found.legs}
    assert fates == {"good": False, "bad": True}
    assert any("LATE" in line and "bad" in line for line in lines(found))


def test_a_model_that_says_nothing_is_late_without_a_time() -> None:
    """It hangs: the default was answered, and no record tells when it would have come."""
    loop = Loop({"good": lambda _: None, "bad": lambda _: None}, digits(slo_ms=50.0))
    name = loop.query()
    loop.driver.run(1.0)
    found = told(loop, name)
    assert loop.answer(name).status is Status.DEFAULT
    assert [(leg.is_late, leg.written_us, leg.spare_us) for leg in found.legs] == [(True, None, None)]
    assert any("nothing has come of it" in line for line in lines(found))


@pytest.mark.parametrize("count", [1, 5, 30])
def test_the_state_before_and_after_is_the_fold_s(count: int) -> None:
    """The whole log, folded as the learner does, ends where the last story says; the one before where it began."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits())
    names = []
    for _ in range(count):
        names.append(loop.query())
        loop.driver.run(0.2)
        loop.feedback(names[-1], label=7)
        loop.driver.run(0.2)
    last = told(loop, names[-1]).change
    assert last is not None
    assert last.after == fold(loop.observations(), WINDOW_US)["digits"]
    assert last.before == fold(loop.observations()[:-1], WINDOW_US).get("digits")
    assert last.folded == count
    decided_by = loop.answer(names[-1]).decision
    assert decided_by is not None
    assert (last.decided.version if last.decided else 0) == decided_by.state_version


def test_the_loss_and_the_feedback_are_those_of_the_log() -> None:
    """Right costs nothing, wrong costs one; the feedback stands beside it."""
    loop = one_model(3)
    name = loop.query()
    loop.driver.run(0.5)
    loop.feedback(name, label=7)
    loop.driver.run(0.5)
    found = told(loop, name)
    assert [one.said.label for one in found.feedback] == [7]
    assert [one.said.loss for one in found.observations] == [1.0]
    assert any(line.startswith("loss       1 by feedback") for line in lines(found))


def test_what_it_cost_is_told_in_the_unit_with_its_weight() -> None:
    """Beside the loss, which is a part of the worst mistake."""
    loop = one_model(3, loss='{"cost":{"3":{"7":40},"7":{"3":10}},"unit":"EUR"}', max_weight=4.0)
    name = loop.query()
    loop.driver.run(0.5)
    loop.feedback(name, label=7, weight=2.0)
    loop.driver.run(0.5)
    found = [*lines(told(loop, name))]
    assert any(line.startswith("feedback   label 7 of weight 2, after") for line in found)
    assert "           it cost 10, where a loss of 1 costs 40; it teaches as 0.5 of a whole lesson" in found


def test_a_context_s_state_is_its_own() -> None:
    """What other contexts learnt is not in it."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(per_context=True))
    names = {}
    for context in ("ann", "bob", "ann"):
        names[context] = loop.query(context=context)
        loop.driver.run(0.2)
        loop.feedback(names[context], label=7)
        loop.driver.run(0.2)
    found = told(loop, names["ann"]).change
    assert found is not None
    assert (found.name, found.folded) == ("digits/ann", 2)
    assert found.after == fold(loop.observations(), WINDOW_US)["digits/ann"]


def test_a_doubtful_answer_s_second_question_is_told() -> None:
    """A cascade: two legs, of steps 0 and 1, and why the second was asked."""
    models = {"cheap": lambda _: Sure(3, 0.6), "dear": lambda _: Sure(7, 0.99)}
    loop = Loop(models, digits(policy="cascade", models=("cheap", "dear")), has_workers=True)
    name = loop.query()
    loop.driver.run(0.5)
    found = told(loop, name)
    assert [(leg.model, leg.step) for leg in found.legs] == [("cheap", 0), ("dear", 1)]
    assert any("escalate to dear" in line and "confidence 0.60" in line for line in lines(found))


def test_stages_have_legs_of_their_rows() -> None:
    """Rows of a graph have ids made of the query's; all of them are its legs, of nobody else's."""
    loop = graph_loop()
    first, second = loop.query(input=picture(4, 8)), loop.query(input=picture(5))
    loop.driver.run(2.0)
    for name in (first, second):
        found = told(loop, name)
        asked = [row.model for row in loop.answer(name).stages]
        assert sorted(leg.model for leg in found.legs) == sorted(asked)
        assert all(is_row_of(leg.row_id, name) for leg in found.legs)


def test_dead_letters_name_their_cause() -> None:
    """Feedback for a query that nobody asked."""
    loop = one_model(7)
    loop.feedback("nobody", label=7)
    loop.driver.run(20.0)
    found = told(loop, "nobody")
    assert loop.dead(topics.FEEDBACK)
    assert [(one.said.topic, one.said.cause) for one in found.dead] == [(topics.FEEDBACK, "unmatched")]
    assert not found.is_empty
    assert told(loop, "nobody else").is_empty


def test_ids_that_begin_alike_have_stories_of_their_own() -> None:
    """q1 is not q11."""
    loop = one_model(7)
    for _ in range(11):
        loop.query()
    loop.driver.run(1.0)
    found = told(loop, "q1")
    assert ([one.said.query_id for one in found.queries], len(found.legs), len(found.answers)) == (["q1"], 1, 1)
    assert [is_row_of(name, "q1") for name in ("q1", "q1@7", "q1/cars.0", "q11", "q")] == [True] * 3 + [False] * 2


def test_a_story_is_a_document_of_json() -> None:
    """Whatever is in it; and its lines name the query."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy="exp4"))
    name = loop.query(context="ann")
    loop.driver.run(0.2)
    loop.feedback(name, label=7)
    loop.driver.run(0.2)
    found = told(loop, name)
    made = json.loads(json.dumps(document(found)))
    assert (made["query_id"], made["answers"][0]["context"], made["change"]["after"]["version"]) == (name, "ann", 1)
    assert next(lines(found)).endswith(name)


def test_an_observation_that_is_made_again_is_folded_once() -> None:
    """After a crash of the joiner, as the learner does."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits())
    name = loop.query()
    loop.driver.run(0.2)
    loop.feedback(name, label=7)
    loop.driver.run(0.2)
    (time_us, seen), *_ = loop.observations()
    second = seen._replace(query_id="second")
    learns = StateFold(second, WINDOW_US)
    for one in (seen, seen, second):
        learns.take(one, time_us)
    assert learns.change is not None
    assert (learns.change.folded, learns.change.after and learns.change.after.version) == (2, 2)


def test_an_observation_that_teaches_nothing_says_why() -> None:
    """Its policy does not exist; the state before it is told."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits())
    name = loop.query()
    loop.driver.run(0.2)
    loop.feedback(name, label=7)
    loop.driver.run(0.2)
    ((time_us, seen),) = loop.observations()
    strange = seen._replace(query_id="strange", decision=seen.decision._replace(policy="nonesuch"))
    learns = StateFold(strange, WINDOW_US)
    learns.take(seen, time_us)
    learns.take(strange, time_us)
    assert learns.change is not None
    assert learns.change.before == fold(loop.observations(), WINDOW_US)["digits"]
    assert learns.change.after is None
    assert "nonesuch" in learns.change.refused


def test_what_the_cache_answered_has_no_question() -> None:
    """A note says that there is no record of one; the leg says in time."""
    loop = one_model(7)
    loop = Loop(loop.models, loop.application, has_workers=True, cache_bytes=1 << 20)
    loop.query()
    loop.driver.run(1.0)
    name = loop.query()
    loop.driver.run(1.0)
    found = told(loop, name)
    assert loop.answer(name).answer == 7
    assert [(leg.model, leg.asked_us, leg.is_late) for leg in found.legs] == [("m", None, False)]
    assert any("cache" in note for note in found.notes)


def test_a_query_that_nobody_answers_is_told_as_far_as_it_came() -> None:
    """Its record and its question are there; a note says that there is no answer yet."""
    loop = Loop({"good": lambda _: None, "bad": lambda _: None}, digits(slo_ms=500.0))
    name = loop.query()
    loop.driver.run(0.1)
    found = told(loop, name)
    assert (len(found.queries), found.answers, len(found.legs)) == (1, (), 1)
    assert [leg.is_late for leg in found.legs] == [False]
    assert any("no answer" in note for note in found.notes)
    assert [line.split()[0] for line in lines(found)][:2] == ["query", "asked"]
