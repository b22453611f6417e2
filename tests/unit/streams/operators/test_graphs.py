"""Applications with a graph: stages are asked one after the other, and one record tells what each has answered."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from policies.items import items_of
from schemas import topics
from schemas.records import Outcome, Stage, Status, Tensor
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.graph.answer import plain
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.replay.what_if.changes import ChangeError, changed
from tests.graphs import CARS, DETECT, detected, loop, picture, seen, traffic
from tests.loops import CODEC, Slow, version
from tests.traces import trace_of

if TYPE_CHECKING:
    from schemas.records import Prediction
    from streams.replay.report import ReplayReport
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


def replayed(its: Loop, **settings: Any) -> ReplayReport:
    """Replay what a loop has logged."""
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    return replay(trace_of(its.driver), RecordedDeployment(SelectionSettings(1, **settings), joiner), CODEC)


def outcomes(its: Loop, stage: str) -> Counter[Outcome]:
    """Count what became of a stage's rows."""
    return Counter(row.outcome for answer in its.predictions() for row in answer.stages if row.stage == stage)


def test_admission_refuses_rows_that_would_be_late_and_the_rest_is_answered() -> None:
    """A car takes 30 ms, and 300 come at once: what is refused stands in the answers, and is replayed."""
    its = loop({"car-net": lambda row: Slow("seen", 30_000)}, traffic((DETECT, CARS)), has_workers=True, admission=True)
    for turn in range(4):
        for _ in range(3 if turn < 2 else 150):
            its.query(input=picture(2, 4))
        its.driver.run(0.25)
    its.driver.run(2.0)
    found = outcomes(its, "cars")
    assert found[Outcome.OVERLOADED] > 50
    assert found[Outcome.OK] > 8
    assert {answer.reason for answer in its.predictions()} >= {None, "overloaded"}
    assert all(row.took_us == 0 for a in its.predictions() for row in a.stages if row.outcome is Outcome.OVERLOADED)
    assert replayed(its, admission=True).differences == []


def test_a_stage_whose_model_usually_takes_longer_than_is_left_is_not_asked() -> None:
    """The detector may take 40 ms of 400 and takes 100: soon it is not asked any more, but now and then to try."""
    stages = DETECT._replace(share=0.1), CARS
    its = loop({"detector": lambda row: Slow(detected(row), 100_000)}, traffic(stages), has_workers=True)
    for number in range(40):
        its.query(input=picture(2 * number))
        its.driver.run(0.12)
    its.driver.run(2.0)
    found = outcomes(its, "detect")
    assert found[Outcome.OVERLOADED] > 20
    assert found[Outcome.OK] + found[Outcome.EXPIRED] > 2
    assert {answer.status for answer in its.predictions() if answer.reason == "overloaded"} == {Status.DEFAULT}
    assert replayed(its).differences == []


def test_the_cache_answers_rows_of_stages() -> None:
    """The same picture and the same car again ask no model."""
    its = loop(cache_bytes=1 << 20)
    for _ in range(3):
        its.query(input=picture(4, 5))
        its.driver.run(0.1)
    assert sum(len(batch.query_ids) for batch in its.outputs()) == 3
    assert [answer.answer for answer in its.predictions()] == ['["kind 4"]'] * 3
    assert replayed(its, cache_bytes=1 << 20).differences == []


def test_the_policy_learns_which_model_of_the_last_stage_is_right() -> None:
    """It chooses among `models` for that stage alone; feedback on the answer teaches it, and the log has the rest."""
    models = {"car-net": lambda _: "bus", "old-net": lambda _: "tram", "detector": lambda _: "vehicle"}
    chain = Stage("coarse", "detector"), Stage("fine", "", after="coarse")
    its = loop(models, traffic(chain, models=("car-net", "old-net"), policy="exp3", parameters={"eta": 0.5}))
    for _ in range(60):
        query_id = its.query(input=picture(4))
        its.driver.run(0.05)
        its.feedback(query_id, label="tram")
        its.driver.run(0.2)
    chosen = [answer.stages[1].model for answer in its.predictions()]
    assert {*chosen[:30]} == {"car-net", "old-net"}
    assert chosen[-20:].count("old-net") > 15
    for _, observation in its.observations():
        assert sorted(loss is None for loss in observation.losses) == [False, True]
    assert replayed(its).differences == []


def test_what_a_graph_holds_is_let_go_of_with_its_answer() -> None:
    """Rows that never come back count with their query while it waits, and no longer."""
    its = loop({"car-net": lambda _: None})
    for _ in range(5):
        its.query(input=picture(2, 4, 6))
    its.driver.run(0.1)
    held = its.driver.operator("selection").statistics()
    assert (held["pending"], held["held{application=traffic}"]) == (20.0, 25.0)  # itself, and four rows that were asked
    its.driver.run(1.0)
    left = its.driver.operator("selection").statistics()
    assert (left["pending"], left["held{application=traffic}"]) == (0.0, 0.0)


def test_a_row_that_no_worker_has_written_is_found_by_the_replay() -> None:
    """One answer of a stage is changed in the record: the answer that is made of the worker's rows is another one."""
    its = loop()
    its.query(input=picture(4, 5))
    its.driver.run(30.0)
    trace = trace_of(its.driver)
    log = trace.logs[topics.PREDICTIONS, 0]
    (known,) = its.predictions()
    faces = known.stages[2]._replace(answer="kind 7")
    log[0] = log[0]._replace(value=CODEC.encode(known._replace(stages=(*known.stages[:2], faces))))
    report = replay(trace, RecordedDeployment(SelectionSettings(1)), CODEC)
    assert {difference[0] for difference in report.differences} == {topics.PREDICTIONS}


def test_what_another_policy_would_do_with_a_graph_is_not_played() -> None:
    """Its stages ask about answers that a trace does not have."""
    with pytest.raises(ChangeError, match="has stages"):
        changed(traffic(), {"slo_ms": "50"})


def test_a_duplicate_of_a_query_is_not_walked_again() -> None:
    """One prediction, and each model is asked once a row."""
    its = loop()
    for _ in range(2):
        its.query("q", input=picture(4, 5))
    its.driver.run(1.0)
    assert len(its.predictions()) == 1
    assert sum(len(batch.query_ids) for batch in its.outputs()) == 3


def test_the_score_of_an_item_may_be_of_any_type_of_number() -> None:
    """Votes of trees are whole numbers, and such an answer is an item as any other."""
    votes = Tensor.of(np.array([1, 3], np.int64))
    assert items_of("car", votes)[0][0].fields == {"label": "car", "score": 3.0}
    assert items_of("car", Tensor.of(np.array([], np.int64)))[0][0].fields["score"] == -inf


def test_a_text_cannot_be_cut_to_a_box_and_the_message_says_so() -> None:
    """A model of texts has no shape to bring a part to."""
    stages = Stage("detect", "detector"), Stage("cars", "", after="detect", crop="box")
    its = loop({"detector": lambda _: '[{"box": [0, 0, 1, 1]}]'}, traffic(stages))
    its.driver.produce(topics.MODELS, 0, CODEC.encode(replace(version("car-net"), dtype=None, shape=())), b"car-net")
    query_id = its.query(input="no picture")
    its.driver.run(2.0)
    answer = its.answer(query_id)
    assert answer.stages[1].outcome is Outcome.INVALID
    assert "only arrays of two dimensions" in (answer.message or "")


def test_half_a_surrogate_of_a_text_is_no_input_and_the_message_says_so() -> None:
    """JSON may hold what no text can: the item is not asked about, the others are."""
    stages = Stage("detect", "detector"), Stage("cars", "", input="detect")
    models = {"detector": lambda _: '["car", "\\ud800"]', "car-net": lambda row: f"a {row.input}"}
    answer = asked(loop(models, traffic(stages), cache_bytes=1 << 20), 4)
    assert answer.answer == '["a car", null]'
    assert answer.stages[2].outcome is Outcome.INVALID


def test_what_is_no_number_is_null_in_a_list_of_answers() -> None:
    """JSON has no NaN and no infinity."""
    answers = (Tensor.of(np.array([1.5, np.nan])), Tensor.of(np.array([1, 2])), inf, 2.5, "a", None)
    assert [plain(answer) for answer in answers] == [[1.5, None], [1, 2], None, 2.5, "a", None]
