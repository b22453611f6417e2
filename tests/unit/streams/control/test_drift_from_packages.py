"""A new model is compared from its first minutes with its package's rows: when that tells, and how seldom by chance."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import Decision, Model, ModelOutput, Outcome, Prediction, Query, StageOutput, Status
from streams.control.carry.packaged import PackagedRows
from streams.control.carry.sensing import Sensing
from streams.control.drift.evidence import log_evidence
from streams.control.drift.kept import packed, unpacked
from streams.control.drift.tally import DriftTally
from streams.control.drift.trail import USUAL_AFTER, DriftTrail
from streams.control.drift.watch import MINUTE_US, DriftWatch
from streams.control.drift.windows import FEW_MINUTES
from streams.operators.contract import Record
from streams.runtime.errors import BrokerUnavailableError
from streams.usual.columns import DriftColumn
from streams.usual.rows import FEWEST, MOST, UsualColumn, UsualRows, read, usual_of, written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

AMOUNT: Final = DriftColumn("", "amount")
DECISION: Final = Decision((0,), 0, "fraud", "single()", ("forest", "linear"), (1.0, 0.0))
MODEL: Final = Model("forest", "1", "sklearn", "/models/forest", "0" * 64, "label", None, ())
CODEC: Final = Codec()
RANDOM: Final = np.random.default_rng(9)


def usual_amounts(values: Sequence[float]) -> UsualColumn:
    """Return what a package says of rows with these amounts."""
    columns = usual_of([{"amount": value} for value in values])
    return read(written({"inputs": columns, "answers": []})).inputs["amount"]


def first_told(
    values: Callable[[int], NDArray[np.float64]],
    rows: Sequence[float],
    minutes: int = 30,
    every: int = 1,
) -> tuple[int | None, DriftTrail]:
    """Count values minute by minute of a column that begins with rows; return when something was told."""
    trail, usual, told = DriftTrail(), usual_amounts(rows), None
    for minute in range(minutes):
        for value in values(minute).tolist():
            trail.take({AMOUNT: value}, minute, lambda _: usual)
        if minute % every == 0:
            trail.judge(minute)
        told = minute if told is None and trail.moved else told
    return told, trail


def test_what_is_as_the_rows_of_its_package_is_not_told() -> None:
    """Nor later: the rows are part of what was before."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        rows = random.normal(40.0, 10.0, FEWEST).tolist()
        told, trail = first_told(lambda _, random=random: random.normal(40.0, 10.0, 40), rows, 60)  # type: ignore[misc]
        assert told is None
        assert max(trail.evidence.values()) < 1.0


def test_what_is_not_as_the_rows_of_its_package_is_told_within_minutes_and_says_so() -> None:
    """Half an hour before anything could be told without them."""
    random = np.random.default_rng(1)
    rows = random.normal(40.0, 10.0, 200).tolist()
    told, trail = first_told(lambda _: random.normal(80.0, 10.0, 40), rows)
    assert told is not None
    assert 2 <= told < FEW_MINUTES / 2
    assert trail.onset == 0
    (moved,) = trail.moved
    assert moved.before.startswith("median ")
    assert moved.before.endswith(" in its package")
    assert float(moved.now) == pytest.approx(80.0, abs=5.0)


def test_minutes_that_differ_say_less_against_the_rows_than_minutes_that_do_not() -> None:
    """Each has a level of its own, which the rows have, too."""
    for seed in range(4):
        random = np.random.default_rng(seed)
        rows = (random.normal(40.0, 20.0, 400) + random.normal(0.0, 3.0, 400)).tolist()
        levels = random.normal(40.0, 20.0, 20)
        told, _ = first_told(lambda minute, levels=levels: RANDOM.normal(levels[minute], 3.0, 40), rows, 20)  # type: ignore[misc]
        assert told is None


@pytest.mark.parametrize("sized", [FEWEST, 1_000])
def test_evidence_against_rows_is_seldom_large_by_chance_at_any_time(sized: int) -> None:
    """Of 300 packages at most one in twenty has ever evidence of twenty, though its rows made the bins."""
    random, found = np.random.default_rng(3), 0
    for _ in range(300):
        usual = usual_amounts(random.normal(0.0, 1.0, sized).tolist())
        places = [usual.bins.place(value) for value in random.normal(0.0, 1.0, 600).tolist()]
        live = np.eye(len(usual.counts), dtype=np.int64)[places].cumsum(axis=0)[9::10]
        found += bool((log_evidence(np.array(usual.counts), live) >= np.log(20.0)).any())
    assert found <= 15


def test_a_new_model_of_a_known_application_is_compared_with_its_own_rows() -> None:
    """Its answers alone: the inputs have been seen for hours."""
    random, trail = np.random.default_rng(4), DriftTrail()
    answer, usual = DriftColumn("new", "answer"), usual_amounts(random.normal(0.0, 1.0, 300).tolist())
    for minute in range(320):
        for value in random.normal(0.0, 1.0, 20).tolist():
            late = {answer: value + 2.0} if minute >= 300 else {}
            trail.take({AMOUNT: value, **late}, minute, lambda column: usual if column == answer else None)
        if minute >= 300 or minute % 10 == 0:
            trail.judge(minute)
        assert minute >= 300 or not trail.moved
    (moved,) = trail.moved
    assert (moved.column, trail.onset) == (answer, 300)


def test_rows_of_a_package_are_kept_until_something_has_moved_for_a_day() -> None:
    """A process that is started anew goes on with them; what is outgrown comes back with no new column."""
    random = np.random.default_rng(5)
    rows = random.normal(40.0, 10.0, 200).tolist()
    _, trail = first_told(lambda _: random.normal(40.0, 10.0, 4), rows, 3)
    trail = unpacked(packed(trail))
    assert trail.rows()[0].sum() == 100
    told, trail = first_told(lambda _: random.normal(80.0, 10.0, 4), rows, USUAL_AFTER + 90, 10)
    assert told is not None
    assert not trail.moved
    assert not trail.rows().any()
    assert unpacked(packed(trail)).is_outgrown
    assert unpacked(packed(DriftTrail())).is_outgrown is False


def test_a_text_of_before_has_no_rows() -> None:
    """It was written by a version that knew none."""
    begun = DriftTrail.begun([], [])
    assert not begun.rows().any()
    tally = DriftTally([], np.ones((48, 6), np.int64))
    tally.forget(3)
    assert not tally.whole(48)[3].any()


def test_few_rows_say_nothing_and_of_many_some_count_spread_over_all() -> None:
    """Every second one makes bins."""
    assert usual_of([{"amount": 1.0}] * (FEWEST - 1)) == []
    usual = usual_amounts([float(number) for number in range(10 * MOST)])
    assert sum(usual.counts) == MOST // 2
    assert max(usual.counts) < MOST // 8 * 5
    assert usual.bins.middle == pytest.approx(1_000.0, abs=50.0)


@pytest.mark.parametrize(
    "text",
    ["no", "[]", "{}", '{"inputs": [[1]], "answers": []}', '{"inputs": [["a", [], [], null, [1]]], "answers": []}'],
)
def test_what_says_nothing_of_rows_is_refused(text: str) -> None:
    """Of another version, or of another author."""
    with pytest.raises(ValueError, match=r"no columns|Expecting|not enough|no counts"):
        read(text)


def prediction(*, stages: bool = False) -> Prediction:
    """Return an answer of one model, or of a graph."""
    outputs = (ModelOutput("forest", "1", Outcome.OK, 3.0),)
    found = Prediction("q", "fraud", None, DECISION, Status.COMPLETE, None, 3.0, 0.5, outputs, 0, 0, 0, 0)
    return found._replace(stages=(StageOutput("first", "forest", "1", Outcome.OK, 3.0),)) if stages else found


@pytest.mark.parametrize(("stages", "known"), [(False, {"amount", "answer"}), (True, {"answer"})])
def test_inputs_begin_with_the_rows_of_the_first_model_that_has_them_and_answers_with_those_of_their_own(
    stages: bool, known: set[str]
) -> None:
    """A graph's models are not asked about the query as it is; the application's own answer is nobody's."""
    watch, usual = DriftWatch(), usual_amounts([float(number) for number in range(200)])
    watch.rows = {"forest": UsualRows({"other": usual}, {"answer": usual}), "linear": UsualRows({"amount": usual}, {})}
    watch.prediction(prediction(stages=stages), 0)
    watch.query(Query("q", "fraud", json.dumps({"amount": 1.0, "else": 2.0})), 0)
    begun = {column for column, _, bins in watch._trails["fraud"].columns() if bins is not None}
    assert {column.name for column in begun} == known
    assert DriftColumn("forest", "answer") in begun


def record(name: str, usual: str | None, place: int = 0) -> Record:
    """Return a record of the topic of models; None = the model is removed."""
    value = None if usual is None else CODEC.encode(replace(MODEL, usual=usual))
    return Record(topics.MODELS, 0, place, 0, name.encode(), value)


def test_rows_are_read_from_the_records_of_the_models_that_serve() -> None:
    """Other versions, and what cannot be read, count as nothing; a model that is removed takes its rows along."""
    usual = written({"inputs": usual_of([{"amount": 1.0}] * FEWEST), "answers": []})
    followed = Followed(record("forest", usual), record("forest@2", usual), record("linear", "no"), record("x", ""))
    packages = PackagedRows(lambda names, since_us: followed, CODEC)
    sensing = Sensing(Nothing(), CODEC, packages)
    asyncio.run(sensing.tick(MINUTE_US))
    assert set(sensing.watch.rows) == {"forest"}
    followed.records = [record("forest", None)]
    asyncio.run(sensing.tick(2 * MINUTE_US))
    assert not sensing.watch.rows
    asyncio.run(sensing.stop())
    assert followed.is_stopped


class Followed:
    """What is followed: records, once."""

    def __init__(self, *records: Record, is_away: bool = False) -> None:
        self.records = [*records]
        self.is_away, self.caught_up, self.is_stopped = is_away, False, False

    async def start(self) -> None:
        """Find Kafka, or nobody."""
        if self.is_away:
            raise BrokerUnavailableError("away")

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what is new."""
        found, self.records = self.records, []
        self.caught_up = not found
        return found

    async def stop(self, timeout_s: float) -> None:
        """Note it."""
        self.is_stopped = True


class Nothing:
    """Topics without records."""

    def __init__(self) -> None:
        self.asked = 0

    async def last(self, topic: str, count: int) -> Sequence[Record]:
        """Return none."""
        self.asked += 1
        return []


def test_no_column_begins_before_the_rows_have_been_read() -> None:
    """While Kafka is away nothing is taken; the next round follows anew."""
    away, there, recent = Followed(is_away=True), Followed(record("x", "")), Nothing()
    opened = [away, there]
    sensing = Sensing(recent, CODEC, PackagedRows(lambda names, since_us: opened.pop(0), CODEC))
    asyncio.run(sensing.tick(MINUTE_US))
    assert (away.is_stopped, recent.asked) == (True, 0)
    asyncio.run(sensing.tick(2 * MINUTE_US))
    assert (there.is_stopped, recent.asked) == (False, 2)
