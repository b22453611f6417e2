"""Stages that wait for several others: each row has the answers that belong to its item, and the rest is as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from policies.items import items_of
from schemas import topics
from schemas.records import Outcome, Prediction, Stage, Status
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.graph.walk import row_id
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from tests.graphs import DETECT, loop, number_of, picture, traffic
from tests.loops import CODEC, Slow
from tests.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.loops import Loop, Row

SCENE = Stage("scene", "face-net")
CARS = Stage("cars", "", after="detect", input="detect.number, scene.mood", where="label == car")
HALF = '{"mood": [0.5, 0.25]}'  # what is said of a scene


def given(row: Row) -> str:
    """Answer what a model was given."""
    return row.input if isinstance(row.input, str) else str(row.input.numpy().tolist())  # type: ignore[union-attr]


def asked(
    stages: tuple[Stage, ...], models: Mapping[str, Callable[[Row], Any]], *numbers: int, **more: Any
) -> tuple[Prediction, Loop]:
    """Ask about a picture; the answer, and the loop, whose replay has no difference."""
    its = loop({"car-net": given, **models}, traffic(stages), has_workers=True, **more)
    query_id = its.query(input=picture(*numbers))
    its.driver.run(5.0)
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    report = replay(trace_of(its.driver), RecordedDeployment(SelectionSettings(1, **more), joiner), CODEC)
    assert report.differences == []
    assert report.checked["predictions"] == 1
    return its.answer(query_id), its


@pytest.mark.parametrize("delays_us", [(0, 0), (100_000, 0), (0, 100_000)])
def test_each_item_is_asked_with_the_answer_of_the_other_stage_whichever_comes_first(
    delays_us: tuple[int, int],
) -> None:
    """Numbers stand one behind the other, in the order in which `input` names them."""
    first, second = delays_us
    detect, scene = loop().models["detector"], lambda _: Slow(HALF, second)
    models = {"detector": lambda row: Slow(detect(row), first), "face-net": scene}
    answer, _ = asked((DETECT, SCENE, CARS), models, 4, 5, 8)
    assert answer.answer == '["[4.0, 0.5, 0.25]", "[8.0, 0.5, 0.25]"]'
    assert answer.status is Status.COMPLETE
    told = [(row.stage, row.before, row.beside, row.item) for row in answer.stages]
    assert told == [("detect", -1, (), 0), ("cars", 0, (3,), 0), ("cars", 0, (3,), 2), ("scene", -1, (), 0)]
    assert all(row.at_us >= answer.stages[3].at_us + answer.stages[3].took_us for row in answer.stages[1:3])


def test_answers_about_the_same_item_belong_together() -> None:
    """Two models look at each item; the third is given what both say of it."""
    one = Stage("one", "detector", after="detect", input="detect.number")
    two = Stage("two", "face-net", after="detect", input="detect.number")
    both = Stage("both", "", input="two, one")
    detect = loop().models["detector"]
    models = {
        "detector": lambda row: detect(row) if number_of(row.input) > 60 else number_of(row.input) + 1,
        "face-net": lambda row: 10 * number_of(row.input),
    }
    answer, _ = asked((DETECT, one, two, both), models, 4, 8)
    assert answer.answer == '["[40, 5]", "[80, 9]"]'


def test_texts_are_a_line_each() -> None:
    """A model of texts is given both."""
    stages = Stage("one", "detector"), Stage("two", "face-net"), Stage("both", "", input="one, two")
    answer, _ = asked(stages, {"detector": lambda _: "a car", "face-net": lambda _: "at night"}, 1)
    assert answer.answer == "a car\nat night"


def test_the_query_itself_may_be_one_of_several_inputs() -> None:
    """Features of the query stand before what a model says of it."""
    stages = Stage("one", "detector"), Stage("both", "", input="query, one")
    answer, _ = asked(stages, {"detector": lambda _: 7}, 1)
    assert answer.answer == "[2.0, 7.0]"


def test_a_text_and_numbers_are_no_input_and_the_message_says_so() -> None:
    """Whoever writes `input` finds out which stage cannot be asked."""
    stages = Stage("one", "detector"), Stage("two", "face-net"), Stage("both", "", input="one, two.mood")
    answer, _ = asked(stages, {"detector": lambda _: "a car", "face-net": lambda _: HALF}, 1)
    assert (answer.status, answer.reason, answer.answer) == (Status.PARTIAL, "invalid_input", "a car")
    assert "stage both: its parts are numbers and texts" in answer.message


def test_several_answers_where_one_is_needed_are_refused_and_the_message_says_what_to_write() -> None:
    """A stage about the scene cannot take all items of the detector at once."""
    stages = DETECT, SCENE, Stage("both", "", input="scene.mood, detect.number")
    answer, _ = asked(stages, {"face-net": lambda _: HALF}, 4, 8)
    assert answer.stages[2].outcome is Outcome.INVALID
    assert "detect has 2 items, and one is needed; to ask about each, write `after: detect`" in answer.message


@pytest.mark.parametrize("said", [None, Outcome.FAILED])
def test_what_is_not_there_is_not_waited_for_beyond_the_deadline(said: Outcome | None) -> None:
    """The scene is late, or fails: no car can be asked about, each is null, and the record says that it was not."""
    answer, _ = asked((DETECT, SCENE, CARS), {"face-net": lambda _: said}, 4, 8)
    assert (answer.status, answer.answer) == (Status.PARTIAL, "[null, null]")
    assert answer.reason == ("deadline" if said is None else "model_failed")
    assert [(row.outcome, row.at_us) for row in answer.stages[1:3]] == [(Outcome.MISSING, 0)] * 2
    assert answer.answered_us <= answer.deadline_us


def test_the_answer_before_stands_in_where_the_other_stage_is_late() -> None:
    """A chain without a list: what is there is answered."""
    stages = Stage("coarse", "detector"), SCENE, Stage("fine", "", after="coarse", input="coarse, scene")
    answer, _ = asked(stages, {"detector": lambda _: "vehicle", "face-net": lambda _: None}, 4)
    assert (answer.status, answer.answer, answer.confidence) == (Status.PARTIAL, "vehicle", 0.0)


def test_an_item_that_the_other_stage_leaves_out_is_left_out_here_too() -> None:
    """Only cars have a colour, so only cars are asked about with it; nothing is missing."""
    colour = Stage("colour", "face-net", after="detect", input="detect.number", where="label == car")
    both = Stage("both", "", after="detect", input="detect.number, colour")
    answer, _ = asked((DETECT, colour, both), {"face-net": lambda _: 3}, 4, 5, 8)
    assert (answer.status, answer.answer) == (Status.COMPLETE, '["[4.0, 3.0]", "[8.0, 3.0]"]')
    assert [row.item for row in answer.stages if row.stage == "both"] == [0, 2]


def test_an_empty_list_beside_leaves_nothing_to_ask() -> None:
    """There is no answer to go with."""
    stages = Stage("one", "detector"), SCENE, Stage("both", "", after="one", input="one, scene")
    answer, _ = asked(stages, {"detector": lambda _: "a car", "face-net": lambda _: "[]"}, 1)
    assert (answer.status, answer.reason, answer.answer) == (Status.DEFAULT, "nothing_to_ask", "?")


@pytest.mark.parametrize(
    "stages",
    [
        (DETECT, SCENE, CARS),
        (DETECT, CARS._replace(input="detect.number, light.mood"), SCENE, Stage("light", "face-net", after="scene")),
    ],
)
def test_the_cache_answers_rows_that_wait_for_others(stages: tuple[Stage, ...]) -> None:
    """The same picture again asks nobody; all answers come at one time, and are replayed in an order that can be."""
    detect = loop().models["detector"]
    models = {"car-net": given, "face-net": lambda _: HALF, "detector": detect}
    its = loop(models, traffic(stages), has_workers=True, cache_bytes=1 << 20)
    for _ in range(3):
        its.query(input=picture(4, 8))
        its.driver.run(0.5)
    assert sum(len(batch.query_ids) for batch in its.outputs()) == 4
    assert {answer.answer for answer in its.predictions()} == {'["[4.0, 0.5, 0.25]", "[8.0, 0.5, 0.25]"]'}
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    settings = SelectionSettings(1, cache_bytes=1 << 20)
    report = replay(trace_of(its.driver), RecordedDeployment(settings, joiner), CODEC)
    assert report.differences == []
    assert report.checked["predictions"] == 3


def test_rows_find_each_other_where_two_applications_ask_under_one_id() -> None:
    """The second one's rows are asked under another id, all of them."""
    its = loop({"car-net": given, "face-net": lambda _: HALF}, traffic((DETECT, SCENE, CARS)), has_workers=True)
    its.configure(replace(traffic((DETECT, SCENE, CARS)), name="other"))
    its.driver.run(0)
    for name in ("traffic", "other"):
        its.query("same", application=name, input=picture(4, 8))
    its.driver.run(5.0)
    answers = {answer.application: answer for answer in its.predictions()}
    assert answers.keys() == {"traffic", "other"}
    assert {answer.answer for answer in answers.values()} == {'["[4.0, 0.5, 0.25]", "[8.0, 0.5, 0.25]"]'}


def test_what_waits_for_an_item_beyond_the_most_says_that_there_are_too_many() -> None:
    """No deadline has passed: more time would not help."""
    colour = Stage("colour", "face-net", after="detect", input="detect.number", most=2)
    both = Stage("both", "", after="detect", input="detect.number, colour")
    answer, _ = asked((DETECT, colour, both), {"face-net": lambda _: 3}, 4, 8, 10)
    assert (answer.status, answer.reason) == (Status.PARTIAL, "too_many_items")
    assert answer.answer == '["[4.0, 3.0]", "[8.0, 3.0]", null]'


def test_what_each_of_many_stages_waits_for_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stage needs all before it, and the first is late: the ways between them are beyond counting."""
    names = [f"s{number}" for number in range(15)]
    inputs = [", ".join(["detect.number", *names[:place]]) for place in range(15)]
    stages = [Stage(name, "face-net", "detect", its) for name, its in zip(names, inputs, strict=True)]
    looked_up = Mock(wraps=row_id)
    monkeypatch.setattr("streams.operators.selection.graph.inputs.row_id", looked_up)
    answer, _ = asked((DETECT, *stages[:-1], stages[-1]._replace(model="")), {"face-net": lambda _: None}, 4)
    assert answer.reason == "deadline"
    assert looked_up.call_count < 4 * 15 * 15  # in selection and in the replay


def test_rows_that_wait_for_others_count_for_their_room() -> None:
    """None of them has been asked, and each is held until the query is answered."""
    its = loop({"face-net": lambda _: None}, traffic((DETECT, SCENE, CARS)), has_workers=True)
    its.query(input=picture(4, 8, 10))
    its.driver.run(0.1)
    held = "held{application=traffic}"
    assert its.driver.operator("selection").statistics()[held] == 1 + len(("detect", "scene", "cars", "cars", "cars"))
    its.driver.run(1.0)
    assert its.driver.operator("selection").statistics()[held] == 0


@pytest.mark.parametrize("changed", [{"before": 2}, {"before": 99}, {"beside": (0,)}, {"beside": (1, 99)}])
def test_a_replay_of_indices_that_cannot_be_tells_of_a_difference(changed: dict[str, Any]) -> None:
    """Anybody may have written a prediction."""
    its = loop({"car-net": given, "face-net": lambda _: HALF}, traffic((DETECT, SCENE, CARS)), has_workers=True)
    its.query(input=picture(4, 8))
    its.driver.run(5.0)
    trace = trace_of(its.driver)
    log = next(log for (topic, _), log in trace.logs.items() if topic == topics.PREDICTIONS)
    answer = CODEC.decode(Prediction, log[0].value)
    stages = answer.stages[0]._replace(**changed), answer.stages[1]._replace(beside=(0, 3)), *answer.stages[2:]
    log[0] = log[0]._replace(value=CODEC.encode(answer._replace(stages=stages)))
    report = replay(trace, RecordedDeployment(SelectionSettings(1), JoinerSettings(1, 60_000_000)), CODEC)
    assert not report.is_equal


def test_an_answer_is_read_once_however_many_rows_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be long, and there may be hundreds of rows."""
    read = Mock(wraps=items_of)
    monkeypatch.setattr("streams.operators.selection.graph.walk.items_of", read)
    its = loop({"car-net": given, "face-net": lambda _: HALF}, traffic((DETECT, SCENE, CARS)), has_workers=True)
    its.query(input=picture(4, 8, 10))
    its.driver.run(5.0)
    assert read.call_count == len(("detect", "scene"))
