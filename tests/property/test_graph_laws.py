"""Laws of graphs, in a whole loop in virtual time: whatever goes wrong, each query has one answer, and it is right.

A query's answer is right where each row has what its model says of its item; and where a row is missing the answer says
so. What was logged is repeated bit for bit by the same kernels.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.conditions import parse
from policies.items import InputError, Item, cropped, items_of, part_of
from schemas import topics
from schemas.records import Outcome, Stage, Status, Tensor
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.graph.walk import ROOM
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.testing import Crash, Duplicate, Reorder
from streams.topology import worker_role
from tests.graphs import CARS, DETECT, FACES, MODELS, kind_of, loop, number_of, picture, seen, traffic
from tests.loops import CODEC, Slow
from tests.traces import trace_of

if TYPE_CHECKING:
    from schemas.records import Prediction, Value
    from streams.testing import Fault
    from tests.loops import Loop, Row

pictures = st.lists(st.lists(st.integers(0, 40), max_size=4), min_size=1, max_size=12)
accidents = st.lists(
    st.one_of(
        st.builds(
            Crash,
            st.integers(50_000, 900_000),
            st.sampled_from(["selection", worker_role("detector"), worker_role("car-net")]),
        ),
        st.builds(
            Duplicate,
            st.sampled_from([topics.QUERIES, topics.MODEL_PREDICTIONS, topics.model_queries("car-net")]),
        ),
        st.builds(Reorder, st.sampled_from([topics.MODEL_PREDICTIONS])),
    ),
    max_size=4,
)


def strange(row: Row) -> Value | Outcome:
    """Answer about a car; fail on some, and be late with others."""
    number = number_of(row.input)
    return Outcome.FAILED if number % 10 == 4 else Slow(kind_of(row), 600_000) if number % 10 == 8 else kind_of(row)  # type: ignore[return-value]  # a label may be text


def played(asked: list[list[int]], faults: list[Fault], *, is_strange: bool, **more: object) -> Loop:
    """Ask about pictures, one after the other, with feedback."""
    models = {"car-net": strange} if is_strange else {}
    its = loop(models, traffic(window_s=5.0), faults, has_workers=True, **more)  # type: ignore[arg-type]
    for numbers in asked:
        query_id = its.query(input=picture(*numbers))
        its.driver.run(0.07)
        its.feedback(query_id, label="[]")
    its.driver.run(20.0)
    return its


def is_right(answer: Prediction, numbers: list[int]) -> bool:
    """Tell whether every row that is there has what its model says, and no item is forgotten or asked twice."""
    detected = answer.stages[0]
    if detected.outcome is not Outcome.OK:
        return answer.status is Status.DEFAULT and len(answer.stages) == 1
    kinds = {row.item: row for row in answer.stages[1:]}
    said = [None if row.answer is None else f"kind {numbers[item]}" for item, row in kinds.items()]
    cars = [row.answer for row in answer.stages if row.stage == "cars"]
    return (
        detected.answer == seen(numbers)
        and kinds.keys() == {*range(len(numbers))}
        and len(answer.stages) == 1 + len(numbers)
        and [row.answer for row in kinds.values()] == said
        and all((row.stage == "faces") == bool(numbers[item] % 2) for item, row in kinds.items())
        and json.loads(str(answer.answer)) == cars
        and (answer.status is Status.COMPLETE) == all(row.outcome is Outcome.OK for row in answer.stages)
    )


@settings(max_examples=30, deadline=None)
@given(pictures, accidents, st.booleans(), st.sampled_from([0, 1 << 20]), st.booleans())
def test_every_query_is_answered_rightly_and_the_log_is_repeated_bit_for_bit(
    asked: list[list[int]], faults: list[Fault], is_strange: bool, cache_bytes: int, admission: bool
) -> None:
    """Crashes, copies, other orders, models that fail or are late; with a cache and admission, or without."""
    its = played(asked, faults, is_strange=is_strange, cache_bytes=cache_bytes, admission=admission)
    answers = {one.query_id: one for one in its.predictions()}
    assert answers.keys() == {f"q{number + 1}" for number in range(len(asked))}
    for number, numbers in enumerate(asked):
        answer = answers[f"q{number + 1}"]
        assert answer.reason == "expired" or is_right(answer, numbers)
        if not faults and not is_strange:
            assert answer.status is Status.COMPLETE
    told = [(one.query_id, one.stages) for one in its.predictions()]  # a crash may answer a query again
    assert all((seen.query_id, seen.stages) in told for _, seen in its.observations())
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    deployment = RecordedDeployment(SelectionSettings(1, cache_bytes=cache_bytes, admission=admission), joiner)
    report = replay(trace_of(its.driver), deployment, CODEC)
    assert report.differences == []
    assert report.checked["predictions"] >= len(its.predictions()) - report.unchecked["call_missing"]


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 64))
@settings(max_examples=20, deadline=None)
def test_a_query_asks_no_more_rows_than_there_is_room_for(items: int, depth: int, most: int) -> None:
    """However many items each answer has: what is too much is left out, and counted."""
    said = json.dumps([{"label": "car"}] * items)
    chain = [Stage("s0", "detector", most=most)]
    chain += [Stage(f"s{number}", "detector", after=f"s{number - 1}", most=most) for number in range(1, depth)]
    last = Stage("last", "", after=chain[-1].name, most=most)
    its = loop({"detector": lambda _: said}, traffic((*chain, last)))
    query_id = its.query(input=picture(1))
    its.driver.run(1.0)
    answer = its.answer(query_id)
    asked = [row for row in answer.stages if not row.left_out]
    assert len(asked) <= ROOM * (depth + 1)
    behind = [row for row in answer.stages if row.stage == "last"]
    above = [row for row in answer.stages if row.stage == chain[-1].name and row.outcome is Outcome.OK]
    assert sum(row.left_out or 1 for row in behind) == items * len(above)


texts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


@pytest.mark.filterwarnings("ignore:column")  # what cannot travel of an item is left out
@given(st.text(max_size=40) | texts.map(json.dumps), st.sampled_from(["", "label", "box"]))
def test_whatever_a_model_says_is_items_or_a_label(said: str, field: str) -> None:
    """Nothing that it says breaks: what is no input, or no box, is refused."""
    items, _ = items_of(said)
    for item in items:
        parse("label == car and score >= 0.5").holds(item.fields)
        with suppress(InputError):
            part_of(item, field)
        with suppress(InputError):
            cropped(picture(1), item, field)


@given(st.integers(-5, 12), st.integers(-5, 12), st.integers(-5, 12), st.integers(-5, 12), st.booleans())
def test_a_crop_is_the_part_of_the_image_in_the_box(
    left: int, top: int, right: int, bottom: int, is_resized: bool
) -> None:
    """What lies outside of the image is left out; a box without a pixel is refused; the size is the one asked for."""
    image = np.arange(8 * 10 * 2, dtype=np.int32).reshape(8, 10, 2)
    item = Item({}, {"box": [left, top, right, bottom]})
    part = image[max(0, top) : max(0, bottom), max(0, left) : max(0, right)]
    try:
        found = cropped(Tensor.of(image), item, "box", (3, 4) if is_resized else ()).numpy()
    except InputError:
        assert not part.size
        return
    if is_resized:
        assert found.shape == (3, 4, 2)
        assert {*found.ravel().tolist()} <= {*part.ravel().tolist()}
    else:
        assert (found == part).all()


def test_the_names_of_the_models_are_those_of_the_stages() -> None:
    """The loop above asks what it means to ask."""
    assert {*traffic().asks} == {*MODELS}
    assert [stage.name for stage in (DETECT, CARS, FACES)] == ["detect", "cars", "faces"]
