"""Applications with a graph: stages are asked one after the other, and one record tells what each has answered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from schemas.records import Outcome, Stage, Status
from tests.graphs import CARS, DETECT, loop, picture, seen, traffic

if TYPE_CHECKING:
    from schemas.records import Prediction
    from tests.loops import Loop


def asked(loop: Loop, *numbers: int) -> Prediction:
    """Ask about a picture, and return the answer."""
    query_id = loop.query(input=picture(*numbers))
    loop.driver.run(2.0)
    return loop.answer(query_id)


def test_the_second_stage_is_asked_about_the_answer_of_the_first() -> None:
    """The chain detect, then cars: two cars, two answers, in the order of the picture."""
    answer = asked(loop(application=traffic((DETECT, CARS))), 4, 8)
    assert (answer.status, answer.answer) == (Status.COMPLETE, '["kind 4", "kind 8"]')
    assert [(row.stage, row.before, row.item, row.answer) for row in answer.stages] == [
        ("detect", -1, 0, seen((4, 8))),
        ("cars", 0, 0, "kind 4"),
        ("cars", 0, 1, "kind 8"),
    ]


def test_items_go_where_the_conditions_say() -> None:
    """Every car goes to one model, every face to another."""
    answer = asked(loop(), 4, 5, 7, 8)
    assert answer.answer == '["kind 4", "kind 8"]'
    told = [(row.stage, row.item, row.model, row.answer) for row in answer.stages[1:]]
    assert told == [
        ("cars", 0, "car-net", "kind 4"),
        ("cars", 3, "car-net", "kind 8"),
        ("faces", 1, "face-net", "kind 5"),
        ("faces", 2, "face-net", "kind 7"),
    ]


def test_a_picture_without_a_car_has_an_empty_answer_that_is_complete() -> None:
    """Nothing is missing where there is nothing to ask."""
    answer = asked(loop(), 5)
    assert (answer.status, answer.answer) == (Status.COMPLETE, "[]")


def test_a_late_stage_answers_with_what_is_there() -> None:
    """The second car never comes: the first is answered by the deadline, and the record says which is missing."""
    models = {"car-net": lambda row: None if row.input.numpy()[0] == 8 else "seen"}
    answer = asked(loop(models), 4, 8, 5)
    assert (answer.status, answer.reason, answer.answer) == (Status.PARTIAL, "deadline", '["seen", null]')
    assert [row.outcome for row in answer.stages] == [Outcome.OK, Outcome.OK, Outcome.MISSING, Outcome.OK]
    assert answer.confidence == 0.5
    assert answer.answered_us <= answer.deadline_us


def test_a_late_first_stage_answers_by_default() -> None:
    """Nothing is there."""
    answer = asked(loop({"detector": lambda _: None}), 4)
    assert (answer.status, answer.reason, answer.answer) == (Status.DEFAULT, "deadline", "?")


def test_where_the_last_of_a_chain_is_late_the_answer_before_it_stands_in() -> None:
    """A coarse label instead of a fine one."""
    chain = Stage("coarse", "detector"), Stage("fine", "", after="coarse")
    models = {"detector": lambda _: "vehicle", "car-net": lambda _: None}
    answer = asked(loop(models, traffic(chain)), 4)
    assert (answer.status, answer.answer, answer.confidence) == (Status.PARTIAL, "vehicle", 0.0)


def test_a_plain_chain_answers_what_its_last_stage_does() -> None:
    """No list, no list: the answer is the label itself, and its model learns from feedback."""
    chain = Stage("coarse", "detector"), Stage("fine", "", after="coarse", where="label == vehicle")
    its = loop({"detector": lambda _: "vehicle", "car-net": lambda _: "bus"}, traffic(chain))
    query_id = its.query(input=picture(4))
    its.driver.run(1.0)
    assert (its.answer(query_id).status, its.answer(query_id).answer) == (Status.COMPLETE, "bus")
    its.feedback(query_id, label="tram")
    its.driver.run(1.0)
    ((_, observation),) = its.observations()
    assert observation.losses == (1.0,)
    assert [row.stage for row in observation.stages] == ["coarse", "fine"]


def test_a_stage_without_an_item_of_its_kind_leaves_the_default() -> None:
    """The chain ends where the condition says so."""
    chain = Stage("coarse", "detector"), Stage("fine", "", after="coarse", where="label == vehicle")
    answer = asked(loop({"detector": lambda _: "dog"}, traffic(chain)), 4)
    assert (answer.status, answer.reason, answer.answer) == (Status.DEFAULT, "nothing_to_ask", "?")


def test_more_items_than_a_stage_takes_are_left_out_and_counted() -> None:
    """Two of four cars are asked about."""
    answer = asked(loop(application=traffic((DETECT, CARS._replace(most=2)))), 2, 4, 6, 8)
    assert (answer.status, answer.reason) == (Status.PARTIAL, "too_many_items")
    assert json.loads(str(answer.answer)) == ["kind 2", "kind 4"]
    assert (answer.stages[-1].item, answer.stages[-1].left_out) == (2, 2)


def test_an_item_without_the_field_that_is_asked_for_is_invalid_and_the_message_says_so() -> None:
    """The other items are answered."""
    said = json.dumps([{"label": "car"}, {"label": "car", "number": [6.0]}])
    answer = asked(loop({"detector": lambda _: said}, traffic((DETECT, CARS))), 4)
    assert (answer.status, answer.reason, answer.answer) == (Status.PARTIAL, "invalid_input", '[null, "kind 6"]')
    assert answer.message == "stage cars: the answer has no field 'number'"


def test_a_duplicate_of_a_query_is_not_walked_again() -> None:
    """One prediction, and each model is asked once a row."""
    its = loop()
    for _ in range(2):
        its.query("q", input=picture(4, 5))
    its.driver.run(1.0)
    assert len(its.predictions()) == 1
    assert sum(len(batch.query_ids) for batch in its.outputs()) == 3
