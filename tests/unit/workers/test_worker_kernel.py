"""The worker's kernel: records in, effects out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import ModelPredictions, ModelQueries, Outcome, Tensor
from streams.operators.contract import DeadLetter, Effects, Emit, Load, Loaded, Position, Predicted, Ran, Record, Skip
from tests.samples import model_query
from tests.workers import MS, NOW, answer, batch_of, emits, load, model, start, worker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from workers.kernel.model.worker import ModelWorker

CODEC = Codec()
TOPIC = topics.model_queries("digits")
OK, EXPIRED, FAILED, INVALID = Outcome.OK, Outcome.EXPIRED, Outcome.FAILED, Outcome.INVALID


def asked(offset: int, reply: int = 0, slack_us: int = 50 * MS, value: bytes | None = None) -> Record:
    """Make the record of query `q<offset>`."""
    query = model_query(f"q{offset}", reply, NOW + slack_us, Tensor.of(np.zeros(2, dtype=np.float32)))
    return Record(TOPIC, 1, offset, NOW, None, CODEC.encode(query) if value is None else value)


def numbered(*answers: int, outcomes: tuple[Outcome, ...] = ()) -> Predicted:
    """Make results with integer labels."""
    return Predicted(outcomes or (OK,) * len(answers), np.array(answers, dtype=np.int64))


def decoded(effects: Effects) -> dict[int, ModelPredictions]:
    """Return the emitted records by partition."""
    found = {}
    for effect in emits(effects):
        assert (effect.topic, effect.key) == (topics.MODEL_PREDICTIONS, None)
        found[effect.partition] = CODEC.decode(ModelPredictions, effect.value)
    return found


def answers(batch: ModelPredictions) -> list[int]:
    """Return integer answers."""
    assert isinstance(batch.answers, Tensor)
    return batch.answers.numpy().tolist()  # type: ignore[no-any-return]


def test_a_batch_becomes_one_record_for_each_reply_partition() -> None:
    """Rows find their own partition, with their own answers, and complete their own positions."""
    kernel = worker()
    assert kernel.on_records([asked(0, 2), asked(1, 3), asked(2, 2)], NOW) == []
    take = start(kernel, NOW + MS)
    effects = answer(kernel, take, numbered(10, 11, 12), 5 * MS)
    found = decoded(effects)
    assert found[2].query_ids == ("q0", "q2")
    assert answers(found[2]) == [10, 12]
    assert (found[3].query_ids, answers(found[3])) == (("q1",), [11])
    assert [emit.completes for emit in emits(effects)] == [
        (Position(TOPIC, 1, 0), Position(TOPIC, 1, 2)),
        (Position(TOPIC, 1, 1),),
    ]


def test_a_record_says_how_its_batch_was_made() -> None:
    """Model, version, worker, waiting, duration, rows of the whole batch, cap, what stayed behind and why it began."""
    kernel = worker(cap=2)
    kernel.on_records([asked(0), asked(1, 1), asked(2)], NOW)
    take = start(kernel, NOW + MS)
    batch = decoded(answer(kernel, take, numbered(1, 2), 5 * MS))[0]
    assert (batch.model, batch.version, batch.worker) == ("digits", "7", "worker-1")
    assert (batch.waited_us, batch.predict_us) == ((MS,), 5 * MS)
    assert (batch.batch_rows, batch.batch_cap, batch.queue_rows, batch.released) == (2, 2, 1, "cap")


def test_a_record_says_when_its_batch_could_start_and_when_it_had_to() -> None:
    """It had to start early enough for its most urgent row, by what the last one took."""
    kernel = worker(cap=1)
    kernel.on_records([asked(0)], NOW)
    answer(kernel, start(kernel, NOW), numbered(1), 5 * MS)
    take = batch_of(kernel.on_records([asked(1, slack_us=80 * MS)], NOW + 10 * MS))
    batch = decoded(answer(kernel, take, numbered(1), 5 * MS))[0]
    assert (batch.earliest_us, batch.latest_us) == (NOW + 10 * MS, NOW + 75 * MS)


def test_large_rows_count_for_several_where_the_reader_asks_how_many_wait() -> None:
    """So that it stops for bytes as it does for rows; the figures tell how many there are."""
    kernel = worker(settings=WorkerSettings(queue_rows=1, queue_bytes=3))
    kernel.on_records([asked(0), asked(1)], NOW)
    statistics = kernel.statistics()
    assert kernel.held == -(-statistics["queue_bytes{model=digits}"] // 3) > statistics["queue_rows{model=digits}"] == 2


def test_a_row_that_is_refused_carries_its_message_to_whoever_asked() -> None:
    """In the record of its own partition, at its own place; where no row has one there is none."""
    kernel = worker()
    kernel.on_records([asked(0, 2), asked(1, 3), asked(2, 2), asked(3, 3), asked(4, 2, slack_us=0)], NOW)
    take = start(kernel, NOW + MS)
    messages = {2: "model digits takes float32[4], got float32[5]"}
    predicted = Predicted((OK, OK, INVALID, OK), np.zeros(4, np.int64), reasons={2: "shape"}, messages=messages)
    found = decoded(answer(kernel, take, predicted, MS))
    assert dict(zip(found[2].query_ids, found[2].messages, strict=True)) == {"q0": "", "q2": messages[2], "q4": ""}
    assert found[3].messages == ()


def test_expired_rows_go_into_the_records_of_their_batch() -> None:
    """Whoever waits learns at once that this answer will not come."""
    kernel = worker()
    kernel.on_records([asked(0, slack_us=MS), asked(1)], NOW)
    take = start(kernel, NOW + 2 * MS)
    batch = decoded(answer(kernel, take, numbered(5), MS))[0]
    assert dict(zip(batch.query_ids, batch.outcomes, strict=True)) == {"q1": OK, "q0": EXPIRED}
    assert (answers(batch)[0], batch.batch_rows, batch.released) == (5, 1, "eager")


@pytest.mark.parametrize("texts", [True, False])
def test_expired_rows_are_padded_in_every_column(texts: bool) -> None:
    """String labels and scores, too, have an entry for each row."""
    kernel = worker()
    kernel.on_records([asked(0, slack_us=MS), asked(1)], NOW)
    take = start(kernel, NOW + 2 * MS)
    scores = None if texts else np.array([[0.25, 0.75]])
    predicted = Predicted((OK,), ("cat",) if texts else np.array([1]), scores)
    batch = decoded(answer(kernel, take, predicted, MS))[0]
    assert len(batch.answers.numpy() if isinstance(batch.answers, Tensor) else batch.answers) == 2
    assert texts or (batch.scores is not None and batch.scores.shape == (2, 2))


def test_a_take_with_nothing_but_expired_rows_is_told() -> None:
    """No batch runs, and the queries are complete nevertheless."""
    kernel = worker()
    kernel.on_records([asked(0, slack_us=MS)], NOW)
    effects = load(kernel, NOW + 2 * MS)
    assert emits(effects) == effects
    assert decoded(effects)[0].outcomes == (EXPIRED,)
    assert decoded(effects)[0].released == ""
    assert kernel.statistics()["rows_total{model=digits,outcome=expired}"] == 1


def test_what_the_queue_refuses_is_expired_at_once() -> None:
    """Backpressure failed: those due last are told, and complete."""
    kernel = worker(limit=1)
    effects = kernel.on_records([asked(0, slack_us=90 * MS), asked(1)], NOW)
    assert (decoded(effects)[0].query_ids, decoded(effects)[0].released) == (("q0",), "")
    assert kernel.statistics()["refused_total{model=digits}"] == 1
    assert len(start(kernel).rows) == 1


def test_an_undecodable_record_is_dead_and_its_neighbours_are_not() -> None:
    """Garbage and missing values have a cause; the rest of the poll is queued."""
    kernel = worker()
    effects = kernel.on_records([asked(0, value=b"garbage"), asked(1), asked(2, value=b"")], NOW)
    assert [effect.cause for effect in effects if isinstance(effect, DeadLetter)] == ["unknown_schema", "empty"]
    assert len(start(kernel).rows) == 1


def test_a_reply_partition_that_does_not_exist_is_dead() -> None:
    """It could never be produced, and would be retried for ever."""
    (effect,) = worker().on_records([asked(0, reply=4)], NOW)
    assert isinstance(effect, DeadLetter)
    assert effect.cause == "reply_partition"


def test_rows_that_failed_or_do_not_fit_are_told_as_such() -> None:
    """Each row has its own outcome, and each is counted."""
    kernel = worker()
    kernel.on_records([asked(0), asked(1), asked(2)], NOW)
    predicted = Predicted((OK, INVALID, FAILED), np.array([1, 0, 0]), reasons={1: "shape"}, fault="ValueError: no")
    batch = decoded(answer(kernel, start(kernel), predicted))[0]
    assert batch.outcomes == (OK, INVALID, FAILED)
    statistics = kernel.statistics()
    assert statistics["rows_total{model=digits,outcome=failed}"] == 1
    assert statistics["invalid_total{model=digits,reason=shape}"] == 1


def test_a_batch_too_large_for_one_record_is_halved() -> None:
    """Many classes times many rows: several records, the same rows."""
    kernel = worker(codec=Codec(max_bytes=4_000))
    kernel.on_records([asked(offset) for offset in range(8)], NOW)
    predicted = Predicted((OK,) * 8, np.arange(8), np.zeros((8, 200)))
    effects = answer(kernel, start(kernel), predicted)
    batches = [CODEC.decode(ModelPredictions, effect.value) for effect in effects if isinstance(effect, Emit)]
    assert len(batches) > 1
    assert [query_id for batch in batches for query_id in batch.query_ids] == [f"q{i}" for i in range(8)]
    assert [label for batch in batches for label in answers(batch)] == list(range(8))


def test_a_row_too_large_for_any_record_fails() -> None:
    """Its query is answered without it."""
    kernel = worker(codec=Codec(max_bytes=4_000))
    kernel.on_records([asked(0)], NOW)
    predicted = Predicted((OK,), np.array([1]), np.zeros((1, 2_000)))
    batch = decoded(answer(kernel, start(kernel), predicted))[0]
    assert (batch.outcomes, batch.scores) == ((FAILED,), None)


def test_a_query_id_that_no_answer_has_room_for_is_a_dead_letter() -> None:
    """Answers carry the ids of their queries."""
    query = model_query("i" * 500_000, 0, NOW, "x")
    (effect,) = worker().on_records([asked(0, value=CODEC.encode(query))], NOW)
    assert isinstance(effect, DeadLetter)
    assert effect.cause == "invalid"


def test_a_record_is_complete_with_its_last_row() -> None:
    """Rows of one record may be answered in several batches; only the last one completes its position."""
    kernel = worker(cap=2)
    inputs = Tensor.of(np.arange(6, dtype=np.float32).reshape(3, 2))
    queries = ModelQueries(("a", "b", "c"), 2, (NOW + 50 * MS,) * 3, inputs)
    kernel.on_records([asked(0, value=CODEC.encode(queries))], NOW)
    assert kernel.held == 3
    take = start(kernel, NOW)
    assert [row.numpy().tolist() for row in take.rows] == [[0, 1], [2, 3]]  # type: ignore[union-attr]
    effects = answer(kernel, take, numbered(1, 2), MS)
    (first,) = emits(effects)
    (last,) = answer(kernel, batch_of(effects), numbered(3))
    assert isinstance(last, Emit)
    assert (first.partition, first.completes) == (2, ())
    assert (last.partition, last.completes) == (2, (Position(TOPIC, 1, 0),))


def test_a_record_without_rows_is_complete_at_once() -> None:
    """It asks nothing."""
    value = CODEC.encode(ModelQueries((), 0, (), ()))
    assert worker().on_records([asked(7, value=value)], NOW) == [Skip((Position(TOPIC, 1, 7),), "")]


def test_rows_of_no_elements_are_rows() -> None:
    """A shape may hold a zero."""
    kernel = worker()
    queries = ModelQueries(("a", "b"), 0, (NOW + 50 * MS,) * 2, Tensor("float32", (2, 0), b""))
    kernel.on_records([asked(0, value=CODEC.encode(queries))], NOW)
    assert [*start(kernel).rows] == [Tensor("float32", (0,), b"")] * 2


def test_revoked_partitions_are_forgotten() -> None:
    """Their new owner answers them."""
    kernel = worker()
    kernel.on_records([asked(0)], NOW)
    kernel.on_partitions({0: None})
    assert kernel.statistics()["queue_rows{model=digits}"] == 1
    kernel.on_partitions({1: None})
    assert load(kernel) == []


def test_the_report_shows_cap_queue_and_objective() -> None:
    """Gauges carry the model as their label; counters end in _total."""
    kernel = worker(cap=3)
    kernel.on_records([asked(0), asked(1)], NOW)
    take = start(kernel, NOW)
    answer(kernel, take, numbered(1, 2), 5 * MS)
    statistics = kernel.statistics()
    assert statistics["batch_cap{model=digits}"] == 3
    assert statistics["objective_us{model=digits}"] == 20 * MS
    assert statistics["estimated_wait_seconds{model=digits}"] == 0
    assert statistics["model_seconds_count{model=digits}"] == 2
    assert statistics["batches_total{model=digits,reason=eager}"] == 1
    assert statistics["predict_us_total{model=digits}"] == 5 * MS
    assert statistics["rows_total{model=digits,outcome=ok}"] == 2
    assert statistics["model_p50_us{model=digits}"] >= 5 * MS


def test_priorities_reach_the_queue_row_by_row() -> None:
    """With room for one, the row of the higher priority stays, whichever record it came in."""
    kernel = worker(limit=1)
    inputs = Tensor.of(np.zeros((2, 2), dtype=np.float32))
    ranked = ModelQueries(("a", "b"), 0, (NOW + 50 * MS,) * 2, inputs, (0, 3))
    effects = kernel.on_records([asked(0), Record(TOPIC, 1, 1, NOW, None, CODEC.encode(ranked))], NOW)
    assert decoded(effects)[0].query_ids == ("q0", "a")
    assert len(start(kernel).rows) == 1


def test_a_late_row_of_a_canary_is_tried_for_as_long_as_one_of_the_version_that_serves() -> None:
    """How long an answer may still be of use is said once, for all versions."""
    kernel = worker()
    canary = has_canary(kernel, NOW)
    query = model_query("q", 0, NOW + 50 * MS, Tensor.of(np.zeros(2, dtype=np.float32)))
    busy = batch_of(kernel.on_records([asked(0, slack_us=500 * MS)], NOW))
    assert busy.version == canary
    kernel.on_records([asked(1, value=CODEC.encode(query._replace(spare_us=20 * MS)))], NOW)
    late = answer(kernel, busy, numbered(1), MS, NOW + 60 * MS)
    assert len(batch_of(late).rows) == 1


def test_answers_are_written_after_the_model_has_its_next_rows() -> None:
    """It need not wait for them, and nobody waits for longer than for the next turn."""
    kernel = worker(cap=1)
    kernel.on_records([asked(0), asked(1)], NOW)
    effects = kernel.on_predicted(start(kernel).batch_id, Ran(numbered(1), MS), NOW)
    assert [type(effect).__name__ for effect in effects] == ["Predict"]
    assert kernel.next_deadline() == NOW
    assert decoded(kernel.on_timer(NOW))[0].query_ids == ("q0",)


def test_what_kept_everything_from_being_read_is_answered_before_the_next_batch() -> None:
    """That one would keep the answers, too."""
    kernel = worker(cap=1)
    kernel.on_records([asked(0), asked(1)], NOW)
    effects = kernel.on_predicted(start(kernel).batch_id, Ran(numbered(1), MS, is_blocking=True), NOW)
    assert sorted(type(effect).__name__ for effect in effects) == ["Emit", "Predict"]
    assert kernel.next_deadline() is None


def test_a_model_that_is_lost_gets_its_next_rows_when_it_is_loaded_again() -> None:
    """Its batch is answered at once."""
    kernel = worker(cap=1)
    kernel.on_records([asked(0), asked(1)], NOW)
    effects = kernel.on_predicted(start(kernel).batch_id, Ran(Predicted.failed(1, "hung"), MS, is_lost=True), NOW)
    assert decoded(effects)[0].outcomes == (FAILED,)
    assert len(emits(effects)) == len(effects)
    assert len(start(kernel).rows) == 1


class Breaking(Codec):
    """Breaks over the first answers."""

    broken = False

    def encode(self, record: object) -> bytes:
        """Break once."""
        if not self.broken:
            self.broken = True
            raise ZeroDivisionError
        return super().encode(record)


@pytest.mark.parametrize("is_blocking", [True, False])
def test_a_model_goes_on_after_answers_that_broke_the_kernel(is_blocking: bool) -> None:
    """What it was to do next is not lost with them."""
    kernel = worker(cap=1, codec=Breaking())
    kernel.on_records([asked(0), asked(1)], NOW)
    batch = start(kernel)
    with pytest.raises(ZeroDivisionError):
        answer(kernel, batch, numbered(1)) if not is_blocking else kernel.on_predicted(
            batch.batch_id, Ran(numbered(1), MS, is_blocking=True), NOW
        )
    if is_blocking:
        batch = batch_of(kernel.on_timer(NOW))
        assert len(batch.rows) == 1


def has_canary(kernel: ModelWorker, now_us: int) -> str:
    """Have version 8 answer everything as a canary."""
    load(kernel)
    share = replace(model("digits"), shares={"8": 1.0})
    for key, record in ((b"digits@8", model("digits", "8")), (b"digits", share)):
        kernel.on_records([Record(topics.MODELS, 0, 0, now_us, key, CODEC.encode(record))], now_us)
    (asked_for,) = [effect for effect in kernel.on_timer(now_us + 300 * MS) if isinstance(effect, Load)]
    kernel.on_loaded(Loaded.of(asked_for), now_us)
    return "8"


def test_priorities_that_are_not_one_a_row_are_a_dead_letter() -> None:
    """They cannot be told apart."""
    value = CODEC.encode(ModelQueries(("a",), 0, (NOW,), ("text",), (3,)))
    [letter] = worker().on_records([asked(0, value=value.replace(b"\x02\x06\x00", b"\x04\x06\x06\x00"))], NOW)
    assert isinstance(letter, DeadLetter)
    assert (letter.cause, "priorities has 2" in letter.message) == ("invalid", True)


def test_a_model_can_be_asked_beside_its_queue_whether_or_not_a_batch_is_with_it() -> None:
    """Its executor knows whether it bears that now. Without the model nobody can be asked."""
    kernel = worker()
    assert kernel.direct(NOW) is None
    load(kernel)
    before = kernel.direct(NOW)
    assert before is not None
    batch_of(kernel.on_records([asked(0)], NOW))
    assert kernel.direct(NOW) == before
