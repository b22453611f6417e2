"""Laws of stages that wait for several others, over graphs of any form, in a whole loop in virtual time.

Whatever comes first and whatever goes wrong, each row was given the answers that belong to its own items, nothing is
asked twice or forgotten, and the log is repeated bit for bit.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.graph import QUERY, Graph, faults, sources
from schemas import topics
from schemas.records import Outcome, Stage, Status, Tensor
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.testing import Crash, Duplicate, Reorder
from tests.graphs import loop, number_of, picture, traffic
from tests.loops import CODEC, Slow
from tests.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Prediction, StageOutput, Value
    from streams.testing import Fault
    from tests.loops import Row

MODELS = ("detector", "face-net", "face-net", "face-net")
accidents = st.lists(
    st.one_of(
        st.builds(Crash, st.integers(50_000, 900_000), st.just("selection")),
        st.builds(Duplicate, st.sampled_from([topics.QUERIES, topics.MODEL_PREDICTIONS])),
        st.builds(Reorder, st.just(topics.MODEL_PREDICTIONS)),
    ),
    max_size=3,
)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Stage, ...]:
    """Return six stages, most with the answers of several before them; one of them answers."""
    stages = [Stage("s0", "detector")]
    answering = draw(st.integers(2, 5))
    for number in range(1, 6):
        names = [stage.name for stage in stages]
        its: list[str] = draw(st.lists(st.sampled_from(names), min_size=min(2, number), max_size=3, unique=True))
        if number == 1 and draw(st.booleans()):
            its = []
        given = ", ".join([*(["query"] if draw(st.booleans()) or not its else []), *[f"{name}.n" for name in its]])
        after = draw(st.sampled_from(its)) if its and draw(st.booleans()) else "s0" if "s0" in its else ""
        where = draw(st.sampled_from(["", "", "kind == a"])) if after else ""
        model = "" if number == answering else draw(st.sampled_from(MODELS))
        most = draw(st.sampled_from([2, 4, 4]))
        stages.append(Stage(f"s{number}", model, after=after, input=given, where=where, most=most))
    return tuple(draw(st.permutations(stages)))


def said(total: int, *, is_list: bool) -> str:
    """Return what a model says of numbers with this sum: an object, or the detector a list of up to three."""
    items = [{"n": [float((total * 7 + place) % 50)], "kind": "ab"[(total + place) % 2]} for place in range(4)]
    return json.dumps(items[: total % 4] if is_list else items[3])


def answered(row: Row) -> Value | Outcome:
    """Answer by the sum of the input; fail on some, and be late with others."""
    return _answered(row, is_list=False)


def detected(row: Row) -> Value | Outcome:
    """Answer a list likewise."""
    return _answered(row, is_list=True)


def _answered(row: Row, *, is_list: bool) -> Value | Outcome:
    assert isinstance(row.input, Tensor)
    total = int(row.input.numpy().sum())
    late = Slow(said(total, is_list=is_list), 600_000 if total % 29 == 7 else 1_000 * (total % 5))
    return Outcome.FAILED if total % 23 == 3 else late  # type: ignore[return-value]


def item_of(row: StageOutput, item: int) -> int:
    """Return the number of an item of a row's answer."""
    read = json.loads(str(row.answer))
    return int((read if isinstance(read, list) else [read])[item]["n"][0])


def way(rows: Sequence[StageOutput], place: int) -> list[StageOutput]:
    """Return the rows on the way to one, itself last."""
    found = [rows[place]]
    while found[0].before >= 0:
        found.insert(0, rows[found[0].before])
    return found


def expected(graph: Graph, rows: Sequence[StageOutput], place: int, query: int) -> int:
    """Return the sum of what a row must have been given."""
    to_here = way(rows, place)
    total = 0
    for name, _ in sources(graph.stages[rows[place].stage]):
        if name == QUERY:
            total += query
            continue
        on_way = [item_of(row, after.item) for row, after in pairwise(to_here) if row.stage == name]
        total += on_way[0] if on_way else item_of(beside(rows, place, name), 0)
    return total


def beside(rows: Sequence[StageOutput], place: int, name: str) -> StageOutput:
    """Return the row of a stage that is noted as given, after a look at whether it belongs to the same items."""
    (found,) = [each for each in rows[place].beside if rows[each].stage == name]
    for one, other in zip(way(rows, place), way(rows, found), strict=False):
        assert one.item == other.item
        if one.stage != other.stage:
            break
    return rows[found]


def is_right(graph: Graph, answer: Prediction, query: int) -> bool:
    """Tell whether each row has what its model says of what it must have been given, and none is there twice."""
    rows = answer.stages
    keys = [tuple((row.stage, row.item) for row in way(rows, place)) for place in range(len(rows))]
    good = [place for place, row in enumerate(rows) if row.outcome is Outcome.OK]
    return (
        len({*keys}) == len(keys)
        and all(
            rows[place].answer == said(expected(graph, rows, place, query), is_list=rows[place].model == "detector")
            for place in good
        )
        and all(
            rows[place].at_us >= rows[each].at_us + rows[each].took_us for place in good for each in rows[place].beside
        )
        and all(rows[row.before].outcome is Outcome.OK for row in rows if row.before >= 0)
        and (answer.status is Status.COMPLETE) <= (len(good) == len(rows))
    )


@settings(max_examples=40, deadline=None)
@given(graphs(), st.lists(st.integers(0, 9), min_size=1, max_size=6), accidents, st.sampled_from([0, 1 << 20]))
def test_each_row_is_given_the_answers_of_its_own_items_and_the_log_is_repeated_bit_for_bit(
    stages: tuple[Stage, ...], asked: list[int], accidents: list[Fault], cache_bytes: int
) -> None:
    """Crashes, copies, other orders, models that fail or are late; with a cache, or without."""
    assert faults(stages) == []
    models = {"detector": detected, "face-net": answered, "car-net": answered}
    its = loop(models, traffic(stages, window_s=5.0), accidents, has_workers=True, cache_bytes=cache_bytes)
    for number in asked:
        its.query(input=picture(number))
        its.driver.run(0.07)
    its.driver.run(20.0)
    answers = {one.query_id: one for one in its.predictions()}
    assert answers.keys() == {f"q{place + 1}" for place in range(len(asked))}
    for place, number in enumerate(asked):
        answer = answers[f"q{place + 1}"]
        assert answer.reason == "expired" or is_right(Graph(stages), answer, number_of(picture(number)))
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    report = replay(
        trace_of(its.driver), RecordedDeployment(SelectionSettings(1, cache_bytes=cache_bytes), joiner), CODEC
    )
    assert report.differences == []
    assert report.checked["predictions"] >= len(its.predictions()) - report.unchecked["call_missing"]
