"""Inputs and outputs that are no longer as they were: when it is told, in which words, and how seldom by chance."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

from schemas import topics
from schemas.records import Decision, ModelOutput, NamedTensors, Outcome, Prediction, Query, Status, Tensor
from streams.control.carry.sensing import ROUND, ROUND_BYTES, Sensing
from streams.control.drift.column_bins import ColumnBins
from streams.control.drift.evidence import dispersion, log_evidence, sure
from streams.control.drift.kept import packed, unpacked
from streams.control.drift.shares import KEPT_FREE, MOST_COLUMNS
from streams.control.drift.trail import MOST_NAMED, USUAL_AFTER, DriftTrail
from streams.control.drift.watch import DAY, MINUTE_US, MOST_APPLICATIONS, PER_MINUTE, Drifted, DriftWatch
from streams.control.drift.windows import FEW_MINUTES
from streams.control.page.drifting import drifting, left_out
from streams.operators.contract import Record
from streams.runtime.errors import BrokerUnavailableError
from streams.usual.bins import BINS, FIRST, MISSING, bins_of
from streams.usual.columns import MOST_OF_ARRAY, DriftColumn, of_prediction, of_query
from tests.loops import CODEC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AMOUNT, WORD = DriftColumn("", "amount"), DriftColumn("forest", "answer")
RANDOM = np.random.default_rng(7)
DECISION = Decision((0,), 0, "fraud", "single()", ("forest",), (1.0,))


class Stream:
    """Minutes of one application, drawn value by value."""

    def __init__(self, per_minute: int = 40, seed: int = 1) -> None:
        self.trail, self.minute = DriftTrail(), 0
        self.random, self.per_minute = np.random.default_rng(seed), per_minute

    def go_on(
        self, minutes: int, middle: float = 40.0, often: float = 0.1, level: Callable[[int], float] = lambda _: 0.0
    ) -> int | None:
        """Count so many minutes; return after how many of them something was told, the first time."""
        told = None
        for after in range(1, minutes + 1):
            for _ in range(self.per_minute):
                amount = float(self.random.normal(middle + level(self.minute), 10.0))
                word = "yes" if self.random.random() < often else "no"
                self.trail.take({AMOUNT: amount, WORD: word}, self.minute)
            self.trail.judge(self.minute)
            self.minute += 1
            told = told or (after if self.trail.onset is not None else None)
        return told


def test_what_stays_as_it_is_is_never_told() -> None:
    """Two days of it, and most evidence is far from what is sure."""
    stream = Stream(per_minute=10)
    assert stream.go_on(2_880) is None
    assert max(stream.trail.evidence.values()) < 0.5


def test_a_column_that_moves_is_told_within_minutes_with_what_it_was_and_is() -> None:
    """The one that did not move is not named."""
    stream = Stream()
    assert stream.go_on(120) is None
    told = stream.go_on(10, middle=80.0)
    assert told is not None
    assert told <= 2
    (moved,) = stream.trail.moved
    assert moved.column == AMOUNT
    assert moved.before == "median 40" or moved.before.startswith(("median 39", "median 4"))
    assert float(moved.now) == pytest.approx(80.0, abs=5.0)


def test_answers_of_a_model_that_become_frequent_are_told_by_their_share() -> None:
    """Words have no median."""
    stream = Stream()
    stream.go_on(120)
    stream.go_on(15, often=0.6)
    (moved,) = stream.trail.moved
    assert moved.column == WORD
    assert moved.before.startswith(("yes ", "no "))
    assert moved.now.endswith("%")


def test_a_shift_of_little_is_not_told_however_sure_it_is() -> None:
    """A fifth of a standard deviation, of a busy application."""
    stream = Stream(per_minute=400)
    stream.go_on(150)
    assert stream.go_on(30, middle=42.0) is None


def test_what_is_again_as_it_was_is_told_no_more() -> None:
    """And what came meanwhile has not become what is usual."""
    stream = Stream()
    stream.go_on(120)
    stream.go_on(15, middle=80.0)
    assert stream.trail.moved
    stream.go_on(15)
    assert stream.trail.onset is None
    assert stream.go_on(10, middle=80.0) is not None


def test_after_a_day_what_has_moved_is_how_it_is() -> None:
    """It is told no more, and what was before would be told now."""
    stream = Stream(per_minute=20)
    stream.go_on(120)
    stream.go_on(USUAL_AFTER + 60, middle=80.0)
    assert stream.trail.onset is None
    assert stream.go_on(30, middle=40.0) is not None


@pytest.mark.parametrize(
    "level",
    [lambda minute: 5.0 * np.sin(2.0 * np.pi * minute / DAY), lambda minute: 10.0 * (minute % DAY >= 960)],
    ids=["sinus", "nights"],
)
def test_what_comes_each_day_is_told_in_the_first_two_alone(level: Callable[[int], float]) -> None:
    """What went by itself is usual then, half a standard deviation up and down, or one each night; faults are told."""
    trail, random = DriftTrail(), np.random.default_rng(1)
    told = []
    for minute in range(7 * DAY):
        for value in random.normal(40.0 + level(minute), 10.0, 10).tolist():
            trail.take({AMOUNT: value}, minute)
        if minute % 10 == 0:
            trail.judge(minute)
            told += [minute // DAY] if trail.moved else []
    assert set(told) <= {0, 1}
    for minute in range(7 * DAY, 7 * DAY + 60):
        for value in random.normal(80.0, 10.0, 10).tolist():
            trail.take({AMOUNT: value}, minute)
        trail.judge(minute)
    assert trail.moved


def crept(stream: Stream) -> None:
    """Let a column creep by four standard deviations in a week, unseen; then it stays for a day."""
    for minute in range(0, 8 * DAY, 5):
        value = 40.0 + min(minute / (7 * DAY), 1.0) * 40.0 + float(stream.random.normal(0.0, 10.0))
        stream.trail.take({AMOUNT: value}, minute)
        if minute % 60 == 0:
            stream.trail.judge(minute)
            assert stream.trail.onset is None
    stream.minute = 8 * DAY


def test_a_column_that_has_crept_into_its_outermost_bin_gets_bins_of_its_last_day() -> None:
    """Beyond it all would be alike: what moves on from there is told."""
    stream = Stream()
    crept(stream)
    bins = stream.trail.columns()[0][2]
    assert bins is not None
    assert bins.middle == pytest.approx(75.0, abs=10.0)
    assert sum(int(counts[0].sum()) for counts in stream.trail.usual()) < 2 * DAY / 5  # those of before count no more
    assert stream.go_on(60, middle=80.0) is None
    assert stream.go_on(30, middle=120.0) is not None


def test_bins_that_are_made_anew_take_the_evidence_of_their_column_alone() -> None:
    """They raise no alarm, and other columns stay as they were; a number as frequent as half keeps its bin."""
    columns = {name: ColumnBins() for name in ("creeps", "stays", "is often zero")}
    for minute in range(0, 27 * 60, 15):
        drawn = RANDOM.normal(0.0, 1.0, 60)
        for value in drawn.tolist():
            columns["creeps"].place(value + 9.0 * (minute > 0), minute)
            columns["stays"].place(value, minute)
            columns["is often zero"].place(max(0.0, value - 0.5), minute)
    assert [name for name, bins in columns.items() if bins.make_anew()] == ["creeps"]
    assert not columns["creeps"].make_anew()
    stream = Stream()
    stream.go_on(100)
    before = stream.trail.usual()
    stream.trail._tally.forget(0)
    stream.trail.judge(100)
    assert stream.trail.evidence[""] == 0.0
    assert not any(counts[0].any() for counts in stream.trail.usual())
    assert [counts[1].tolist() for counts in stream.trail.usual()] == [counts[1].tolist() for counts in before]


def test_what_comes_while_something_is_told_makes_no_bins() -> None:
    """It is not as usual, and may go back."""
    stream = Stream()
    stream.go_on(120)
    stream.go_on(40, middle=80.0)
    assert stream.trail.onset is not None
    assert [len(bins.day) for bins in stream.trail._columns] == [0, 0]


def test_evidence_goes_on_for_what_moves_after_something_has() -> None:
    """A second model's answers, half an hour after the first one's; it falls when they are as before."""
    trail, random = DriftTrail(), np.random.default_rng(1)
    other = DriftColumn("linear", "answer")
    first = 0.0
    for minute in range(200):
        for _ in range(40):
            one, two = random.normal(0.0, 1.0, 2).tolist()
            moved = 5.0 * (120 <= minute < 170), 5.0 * (150 <= minute < 170)
            trail.take({WORD: one + moved[0], other: two + moved[1]}, minute)
        trail.judge(minute)
        first = trail.evidence["linear"] if minute == 140 else first
        if minute == 169:
            assert min(trail.evidence.values()) >= 1.0
    assert first < 1.0
    assert max(trail.evidence.values()) < 1.0


def test_nothing_is_told_before_enough_was_seen() -> None:
    """The first minutes make bins, the next ones say how much minutes vary."""
    stream = Stream()
    assert stream.go_on(FEW_MINUTES - 5) is None
    assert stream.go_on(5, middle=200.0) is None


def test_values_that_come_in_runs_are_not_taken_for_a_change() -> None:
    """Each quarter of an hour has a level of its own; as independent values these would be told."""
    levels = RANDOM.normal(0.0, 8.0, 500)
    assert Stream().go_on(1_000, level=lambda minute: float(levels[minute // 15])) is None


@pytest.mark.parametrize(
    "shares", [(0.2,) * 5 + (0.0,), (0.9, 0.1, 0.0, 0.0, 0.0, 0.0), (0.5, 0.3, 0.1, 0.05, 0.03, 0.02)]
)
def test_evidence_is_seldom_large_by_chance_at_any_time(shares: tuple[float, ...]) -> None:
    """Of 400 sequences at most one in twenty has ever evidence of twenty, wherever one looks."""
    found = 0
    for _ in range(400):
        blocks = RANDOM.multinomial(10, shares, 60).cumsum(axis=0)
        before = blocks[9]
        found += bool((log_evidence(before, blocks[10:] - before) >= np.log(20.0)).any())
    assert found <= 20


def test_a_year_of_all_columns_counts_in_what_is_sure() -> None:
    """The more columns, the more evidence each needs: ten times as many as much as ten times fewer false alarms."""
    assert sure(40) == pytest.approx(sure(4) + np.log(10.0))
    assert sure(1) == pytest.approx(np.log(365 * 1_440 * 5 / 0.01))


def test_blocks_of_independent_values_vary_as_such_and_others_more() -> None:
    """By a factor of about 1, and about 26: a level of its own for each block of 100."""
    plain = RANDOM.multinomial(100, (0.5, 0.5), 500)[:, None, :]
    levels = np.where(RANDOM.random(500) < 0.5, 0.25, 0.75)
    uneven = np.array([RANDOM.multinomial(100, (level, 1.0 - level)) for level in levels])[:, None, :]
    assert dispersion(plain)[0] == pytest.approx(1.0, abs=0.2)
    assert dispersion(uneven)[0] == pytest.approx(26.0, abs=4.0)


def test_bins_are_fifths_of_numbers_and_the_most_frequent_words() -> None:
    """What is missing, or of another kind, has a bin of its own."""
    numbers = bins_of([float(number) for number in range(100)])
    assert [numbers.place(float(value)) for value in (0, 25, 50, 75, 99)] == [0, 1, 2, 3, 4]
    assert numbers.place(None) == numbers.place("x") == MISSING
    words = bins_of(["a"] * 50 + ["b"] * 30 + ["c", "d", "e", "f"] * 5)
    assert [words.place(word) for word in ("a", "b", "z")] == [0, 1, 4]
    assert words.place(1.0) == MISSING
    assert bins_of([None] * FIRST).place(None) == MISSING
    assert BINS == MISSING + 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Tensor.of(np.array([1.5, np.nan])), {"input[0]": 1.5, "input[1]": None}),
        (Tensor.of(np.array(3)), {"input": 3.0}),
        (json.dumps({"amount": 3, "land": "at", "none": None}), {"amount": 3.0, "land": "at", "none": None}),
        ("{no row", {"input length": 7.0}),
        (b"abc", {"input length": 3.0}),
        (
            NamedTensors.named({"age": np.array(7), "at": np.array([1.0, 2.0])}),
            {"age": 7.0, "at[0]": 1.0, "at[1]": 2.0},
        ),
    ],
)
def test_a_query_has_columns(given: object, expected: dict[str, object]) -> None:
    """By the names that its sender gave, or by places."""
    found = of_query(Query("q", "fraud", given))  # type: ignore[arg-type]
    assert {column.name: value for column, value in found.items()} == expected
    assert {column.model for column in found} == {""}


@pytest.mark.parametrize(("top", "lower"), [(1.0, 0.3), (5.0, 0.0)])
def test_a_column_that_lies_at_its_top_is_seen_to_fall(top: float, lower: float) -> None:
    """As the confidence of a model that was always sure: what falls below it has a bin of its own."""
    bins = bins_of([top] * (FIRST - 10) + [top - 0.1] * 10)
    assert bins.place(lower) != bins.place(top)
    assert bins_of([top] * FIRST).place(lower) != bins_of([top] * FIRST).place(top)
    assert len(bins.edges) < MISSING


def test_names_and_words_of_clients_are_text_that_json_has() -> None:
    """Half a character in a key of a row must not take down the page that shows it."""
    found = of_query(Query("q", "fraud", '{"amount\\ud800": "much\\ud800"}'))
    ((column, word),) = found.items()
    assert orjson.dumps([column.name, word])


def test_a_row_nested_too_deep_has_a_length_alone() -> None:
    """Its sender stops nobody's drift."""
    row = '{"a":' + "[" * 200_000 + "]" * 200_000 + "}"
    assert of_query(Query("q", "fraud", row)) == {DriftColumn("", "input length"): float(len(row))}


def test_a_wide_row_has_a_few_sums_that_move_with_any_of_its_numbers() -> None:
    """Each number is in one sum, with a sign of its own."""
    row = np.zeros(784)
    before = of_query(Query("q", "digits", Tensor.of(row)))
    assert len(before) == MOST_OF_ARRAY
    for place in (0, 17, 783):
        changed = row.copy()
        changed[place] = 1.0
        after = of_query(Query("q", "digits", Tensor.of(changed)))
        assert sorted(abs(after[column] - before[column]) for column in before)[-2:] == [0.0, 1.0]  # type: ignore[operator]


def prediction(answer: float | str = "yes", application: str = "fraud") -> Prediction:
    """Return an answer of one model."""
    outputs = (
        ModelOutput("forest", "1", Outcome.OK, answer, Tensor.of(np.array([0.25, 0.75]))),
        ModelOutput("linear", "1", Outcome.MISSING, None),
    )
    return Prediction("q", application, None, DECISION, Status.COMPLETE, None, answer, 0.5, outputs, 0, 0, 0, 0)


def test_a_prediction_has_its_answer_and_confidence_and_those_of_each_model_that_answered() -> None:
    """One that said nothing has no columns."""
    assert of_prediction(prediction()) == {
        DriftColumn("", "answer"): "yes",
        DriftColumn("", "confidence"): 0.5,
        DriftColumn("forest", "answer"): "yes",
        DriftColumn("forest", "confidence"): 0.75,
    }


def test_an_application_counts_no_more_than_its_share_of_a_minute_and_no_more_columns_than_there_is_room_for() -> None:
    """Nor are there more applications than that."""
    watch = DriftWatch()
    for _ in range(FIRST + PER_MINUTE * 2):
        watch.prediction(prediction(), 0)
    for number in range(MOST_APPLICATIONS + 5):
        watch.query(Query("q", f"nobody{number}", "x"), 0)
        watch.prediction(prediction(application=f"app{number}"), 0)
    trail, room = watch._trails["fraud"], len(watch._trails)
    assert not any(name.startswith("nobody") for name in watch.applications)
    watch.prediction(prediction(application="late"), (DAY + 1) * MINUTE_US)
    assert "late" in watch.applications
    assert trail._tally.minutes[-1][1].sum(axis=-1).max() == PER_MINUTE - FIRST
    assert room == MOST_APPLICATIONS
    stream = DriftTrail()
    for model in ("", "forest"):
        for name in ("c", "answer"):
            stream.take({DriftColumn(model, f"{name}{number}"): 1.0 for number in range(MOST_COLUMNS + 9)}, 0)
    assert len(stream._columns) == MOST_COLUMNS


def test_what_there_is_no_room_for_is_named_on_the_page_and_counted() -> None:
    """Columns by application, and applications; of many names the first ones."""
    watch = DriftWatch()
    row = json.dumps({f"c{number}": 1 for number in range(20)})
    watch.prediction(prediction(), 0)
    watch.query(Query("q", "fraud", row, features=tuple([1.0] * 16)), 0)
    for number in range(20):
        wide = {DriftColumn("forest", f"answer[{place}]"): 1.0 for place in range(20)}
        watch._trails["fraud"].take(wide, number)
    for number in range(MOST_APPLICATIONS + 2 * MOST_NAMED):
        watch.prediction(prediction(application=f"app{number}"), 0)
    columns = watch.left_out().columns["fraud"]
    assert columns
    figures = watch.statistics()
    assert figures["drift_columns_left_out{application=fraud}"] == len(columns)
    assert figures["drift_columns_left_out{application=app0}"] == 0.0
    assert figures["drift_applications_left_out"] == MOST_NAMED
    of_fraud, nobodies = left_out(watch.left_out())
    assert of_fraud.startswith(f"of fraud {columns[0].name}")
    assert nobodies.startswith("all of the applications app63, app64")
    assert nobodies.endswith("or others")
    assert left_out(DriftWatch().left_out()) == left_out(None) == []


def test_figures_name_the_columns_that_moved_and_how_far() -> None:
    """A share of their values, and of many columns the farthest."""
    watch, stream = DriftWatch(), Stream()
    watch._trails["fraud"] = stream.trail
    stream.go_on(120)
    stream.go_on(15, middle=80.0, often=0.6)
    moved = {name: far for name, far in watch.statistics().items() if name.startswith("drift_moved")}
    assert moved["drift_moved{application=fraud,model=,column=amount}"] == pytest.approx(0.78, abs=0.1)
    assert moved["drift_moved{application=fraud,model=forest,column=answer}"] == pytest.approx(0.5, abs=0.1)


def test_many_columns_of_answers_leave_room_for_inputs_also_after_a_start() -> None:
    """Predictions are read first, and three models with twenty classes would take all."""
    models = {DriftColumn(model, f"answer[{place}]"): 1.0 for model in ("", "a", "b", "c") for place in range(20)}
    inputs = [DriftColumn("", f"c{place}") for place in range(20)]
    trail = DriftTrail()
    for _ in range(FIRST):
        trail.take(models, 0)
    trail = unpacked(packed(trail))
    trail.take(dict.fromkeys(inputs, 1.0), 1)
    assert [column for column, _, _ in trail.columns()][-16:] == inputs[: KEPT_FREE["inputs"]]


def test_an_application_that_was_loaded_is_not_forgotten_before_a_day_is_over() -> None:
    """Nobody knows when it was asked last: a new one does not take its place at once."""
    first, second = DriftWatch(), DriftWatch()
    first.prediction(prediction(), 0)
    now_us = 7 * DAY * MINUTE_US
    for number in range(MOST_APPLICATIONS):
        second.load(f"app{number}", first.kept("fraud"), now_us)
    second.prediction(prediction(application="late"), now_us + MINUTE_US)
    assert len(second.applications) == MOST_APPLICATIONS
    assert "late" not in second.applications
    second.prediction(prediction(application="late"), now_us + (DAY + 1) * MINUTE_US)
    assert "late" in second.applications


class Ends:
    """Ends of topics, as they are set."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = {topics.QUERIES: [], topics.PREDICTIONS: []}
        self.is_away = False
        self.counts: list[int] = []

    def add(self, count: int, answer: float) -> None:
        """Write queries and predictions."""
        for topic, made in ((topics.QUERIES, Query("q", "fraud", "x")), (topics.PREDICTIONS, prediction(answer))):
            records = self.records[topic]
            value = CODEC.encode(made)
            records += [Record(topic, 0, len(records) + place, 0, None, value) for place in range(count)]
        self.records[topics.QUERIES].append(
            Record(topics.QUERIES, 0, len(self.records[topics.QUERIES]), 0, None, b"no")
        )

    async def last(self, topic: str, count: int) -> Sequence[Record]:
        """Return the last records."""
        if self.is_away:
            raise BrokerUnavailableError("away")
        self.counts.append(count)
        return self.records[topic][-count:]


def test_rounds_read_no_record_twice_and_tell_what_moved_with_its_metric_and_its_alert() -> None:
    """Also across a minute without Kafka, and past what is no record."""
    ends = Ends()
    sensing, now_us = Sensing(ends, CODEC), 0
    for minute in range(60):
        ends.is_away = minute == 20
        ends.add(30, float(RANDOM.normal(3.0 if minute < 50 else 30.0)))
        for record in (ends.records[topics.PREDICTIONS])[-30:]:
            assert record.topic == topics.PREDICTIONS
        now_us = minute * MINUTE_US
        asyncio.run(sensing.tick(now_us))
    seen = sensing.watch._trails["fraud"]._tally.minutes
    assert sum(int(counts.sum(axis=-1).max()) for _, counts in seen) == 60 * 30 - FIRST
    figures = sensing.watch.statistics()
    assert set(figures) >= {
        "drift_evidence{application=fraud,model=}",
        "drift_evidence{application=fraud,model=forest}",
    }


class Seen(DriftWatch):
    """Watches, and knows which queries it was given; one text breaks it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def query(self, query: Query, now_us: int) -> None:
        """Note it."""
        if query.input == "breaks":
            raise ArithmeticError
        self.seen.append(query.input)


def asked(*inputs: str, first: int = 0, times: Sequence[int] = ()) -> list[Record]:
    """Return queries, at offsets from the first on, as they come: by their senders' clocks."""
    found = [
        Record(
            topics.QUERIES, 0, first + place, times[place] if times else 0, None, CODEC.encode(Query("q", "a", text))
        )
        for place, text in enumerate(inputs)
    ]
    return sorted(found, key=lambda record: record.timestamp_us)


def seen_in(*rounds: list[Record]) -> list[object]:
    """Return what a watch is given in rounds, one each minute."""
    ends = Ends()
    sensing = Sensing(ends, CODEC)
    sensing.watch = watch = Seen()
    for minute, records in enumerate(rounds):
        ends.records[topics.QUERIES] = records
        asyncio.run(sensing.tick(minute * MINUTE_US))
    return watch.seen


def test_a_sender_whose_clock_is_slow_is_in_the_sample_as_any_other() -> None:
    """Its records come first in a round though their offsets are high; the next round knows them."""
    records = asked("a", "b", "slow", "c", times=(5, 6, 1, 7))
    assert sorted(seen_in(records, records + asked("d", first=4))) == ["a", "b", "c", "d", "slow"]  # type: ignore[type-var]


def test_a_topic_that_was_made_anew_is_read_from_its_start() -> None:
    """Its offsets lie below those that were read."""
    assert seen_in(asked("a", "b", "c"), asked("x", "y")) == ["a", "b", "c", "x", "y"]


def test_rounds_of_large_records_are_shorter() -> None:
    """And become as long as before where records are small again."""
    ends = Ends()
    sensing = Sensing(ends, CODEC)
    for records in (asked(*["x" * (ROUND_BYTES // 100)] * 200), [], [], []):
        ends.records[topics.QUERIES] = records
        asyncio.run(sensing.tick(0))
    assert max(ends.counts) == ROUND
    assert ends.counts[1::2] == [ROUND, pytest.approx(100, abs=2), pytest.approx(200, abs=4), pytest.approx(400, abs=8)]


def test_the_loop_goes_on_between_the_records_of_a_round_and_between_trails_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page answers meanwhile: where one takes a turn no two are taken, and no two packed, in one."""
    monkeypatch.setattr("streams.control.carry.fairly.TURN_S", 0.0)
    ends = Ends()
    sensing = Sensing(ends, CODEC)
    sensing.watch = watch = Seen()
    watch.kept = lambda application: watch.seen.append(application) or ""  # type: ignore[method-assign,func-returns-value]
    ends.records[topics.PREDICTIONS] = [
        Record(topics.PREDICTIONS, 0, place, 0, None, CODEC.encode(prediction(application=name)))
        for place, name in enumerate("ab")
    ]
    ends.records[topics.QUERIES] = asked("x", "y", "z")

    async def most_in_a_turn() -> int:
        ticking, most, before = asyncio.ensure_future(sensing.tick(0)), 0, 0
        while not ticking.done():
            await asyncio.sleep(0)
            most, before = max(most, len(watch.seen) - before), len(watch.seen)
        return most

    assert asyncio.run(most_in_a_turn()) == 1
    assert watch.seen == ["x", "y", "z", "a", "b"]


def test_a_record_that_breaks_a_round_is_passed_over() -> None:
    """Others in it count."""
    assert seen_in(asked("a", "breaks", "b")) == ["a", "b"]


def test_the_alert_says_which_columns_of_which_model_moved_and_what_to_do() -> None:
    """In one sentence for each application, of the farthest columns."""
    stream = Stream()
    stream.go_on(120)
    stream.go_on(15, middle=80.0, often=0.9)
    moved = tuple(stream.trail.moved)
    (alert,) = drifting([Drifted("fraud", 120 * MINUTE_US, moved)])
    assert alert["level"] == "warn"
    assert alert["text"].startswith("fraud is asked or answers otherwise than before, since 02:00 UTC: ")
    assert "amount: median " in alert["text"]
    assert "answer of forest: " in alert["text"]
    assert alert["command"].endswith("app show fraud")


def test_what_is_usual_outlives_the_process() -> None:
    """Told a few minutes after a start, by the same bins; a shift before it has not become what is usual."""
    stream = Stream()
    stream.go_on(300)
    stream.go_on(15, middle=80.0)
    assert stream.trail.moved
    stream.trail = unpacked(packed(stream.trail))
    assert stream.trail.onset is None
    told = stream.go_on(5, middle=80.0)
    assert told is not None
    assert told <= 2
    (moved,) = stream.trail.moved
    assert moved.column == AMOUNT


@pytest.mark.parametrize(
    "text", ["", "no", "bm8=", base64.b64encode(zlib.compress(b'{"columns": [[1]], "hours": []}')).decode()]
)
def test_what_is_no_trail_is_refused(text: str) -> None:
    """Of another version, or cut off."""
    with pytest.raises(ValueError, match=r"no trail|Expecting|not enough|reshape"):
        unpacked(text)


def test_a_table_keeps_what_is_usual_beside_other_keys() -> None:
    """A new process takes it from there; what cannot be read counts as nothing, and what nobody follows is deleted."""
    ends, table = Ends(), {"17": "a minute", "drift other": "no trail"}
    first = Sensing(ends, CODEC)
    first.keep_in(table)
    for minute in range(11):
        ends.add(30, float(minute % 7))
        asyncio.run(first.tick(minute * MINUTE_US))
    assert {*table} == {"17", "drift fraud"}
    second = Sensing(Ends(), CODEC)
    second.keep_in(table)
    asyncio.run(second.tick(12 * MINUTE_US))
    assert second.watch.applications == ("fraud",)
