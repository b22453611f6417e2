"""Legs of sampled queries, read from the log of a whole loop in virtual time: what took how long is known there."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from schemas import topics
from schemas.records import Query
from streams.runtime.kafka.fast.whole_batches import batch_of, sound_records_of
from streams.telemetry.kernel import KEPT_US, SETTLE_US, LegReader
from tests.loops import CODEC, START_US, Loop, digits, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import Batch, Record
    from streams.telemetry.values import TimedLeg

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = (("traceparent", f"00-{TRACE}-{PARENT}-01".encode()),)
READ = (topics.PREDICTIONS, topics.MODEL_PREDICTIONS, topics.OBSERVATIONS)
MS = 1_000


def asked(loop: Loop, query_id: str, headers: tuple[tuple[str, bytes], ...] = SAMPLED, **more: Any) -> None:
    """Send a query with headers."""
    query = Query(query_id, "digits", row(), sent_us=loop.driver.now_us - 3 * MS, **more)
    loop.driver.produce(topics.QUERIES, 0, CODEC.encode(query), query_id.encode(), headers)


def log_of(loop: Loop) -> dict[str, list[Record]]:
    """Return what the role reads, by topic."""
    return {topic: loop.driver.read(topic) for topic in (*READ, *map(topics.model_queries, loop.models))}


def packed(log: dict[str, list[Record]]) -> list[Record | Batch]:
    """Return it in whole batches of a few records."""
    return [batch_of(all_[at : at + 3]) for all_ in log.values() for at in range(0, len(all_), 3)]


def reader(rate: float = 0.0) -> LegReader:
    """Return a reader; names on the broker have the prefix `shop`."""
    return LegReader(CODEC, sound_records_of, lambda name: f"shop.{name}", rate)


def read_by(its: LegReader, fetched: Sequence[Record | Batch], now_us: int = START_US) -> list[TimedLeg]:
    """Return all legs of what was fetched at once."""
    its.take(fetched, now_us)
    return [leg for late in (1, 2, 3) for leg in its.due(now_us + late * SETTLE_US)]


def loop_of(**more: Any) -> Loop:
    """Return a loop with two models, whose batches take a millisecond and a tenth for each row."""
    answers = {"good": lambda _: 7, "bad": lambda _: 3}
    loop = Loop(answers, digits(**more), has_workers=True)
    loop.driver.run(0.1)
    return loop


@pytest.mark.parametrize("form", ["records", "batches", "shuffled"])
def test_a_sampled_query_has_a_leg_for_each_part_of_its_way(form: str) -> None:
    """Of the right length, in the right trace, under the right parent, by the role whose work it was."""
    loop = loop_of(policy="exp4")
    asked(loop, "q-1")
    asked(loop, "q-2", ())  # nobody said that it is sampled
    loop.driver.run(0.2)
    loop.feedback("q-1", label=7)
    loop.driver.run(1)
    log = log_of(loop)
    fetched: list[Record | Batch] = packed(log) if form == "batches" else [one for all_ in log.values() for one in all_]
    if form == "shuffled":
        Random(5).shuffle(fetched)
    legs = read_by(reader(), fetched)
    said = loop.answer("q-1")
    by_name: dict[str, list[TimedLeg]] = {}
    for leg in legs:
        by_name.setdefault(leg.name, []).append(leg)
    (whole,) = by_name.pop("answer shop.queries")
    assert (f"{whole.at.trace_id:032x}", f"{whole.parent_id:016x}") == (TRACE, PARENT)
    assert (whole.begin_us, whole.end_us) == (said.sent_us, said.answered_us)
    batches = [by_name.pop(f"batch shop.models.{name}.queries") for name in ("bad", "good")]
    assert {leg.at.trace_id for its in by_name.values() for leg in its} == {whole.at.trace_id}
    assert {leg.parent_id for its in by_name.values() for leg in its} == {whole.at.leg_id}
    assert sorted(by_name) == [
        "join shop.observations",
        "predict shop.models.bad.queries",
        "predict shop.models.good.queries",
        "queue shop.queries",
        "return shop.model-predictions",
        "select shop.queries",
        "wait shop.models.bad.queries",
        "wait shop.models.good.queries",
    ]
    (queue,), (select,) = by_name["queue shop.queries"], by_name["select shop.queries"]
    assert (queue.end_us - queue.begin_us, queue.role) == (3 * MS, "selection")
    assert select.end_us - select.begin_us == 0
    for name, (batch,) in zip(("bad", "good"), batches, strict=True):
        (predict,) = by_name[f"predict shop.models.{name}.queries"]
        assert (predict.end_us - predict.begin_us, predict.role, predict.instance) == (1_100, f"worker.{name}", "w")
        assert (batch.links, predict.links) == ((predict.at,), (batch.at,))
        assert (batch.parent_id, batch.attributes["messaging.batch.message_count"]) == (0, 1)
        assert batch.at.trace_id != predict.at.trace_id
        (wait,) = by_name[f"wait shop.models.{name}.queries"]
        assert wait.end_us == predict.begin_us
    for back in by_name["return shop.model-predictions"]:
        assert back.end_us == said.answered_us
    ((observed_us, seen),) = loop.observations()
    (join,) = by_name["join shop.observations"]
    assert (join.begin_us, join.end_us, join.role) == (said.answered_us, observed_us, "joiner")
    assert join.attributes["skysail.loss"] == seen.loss
    assert len({leg.at for leg in legs}) == len(legs)


def test_a_batch_of_several_sampled_queries_is_one_leg_with_links_to_all() -> None:
    """A span has one parent, a batch has many rows: so it links."""
    loop = loop_of(models=("good",))
    for number in range(5):
        asked(loop, f"q-{number}")
    loop.driver.run(0.2)
    legs = read_by(reader(), packed(log_of(loop)))
    ran = [leg for leg in legs if leg.name.startswith("batch")]
    predicted = {leg.at for leg in legs if leg.name.startswith("predict")}
    assert len(predicted) == 5
    assert sum(len(leg.links) for leg in ran) == 5
    assert {at for leg in ran for at in leg.links} == predicted
    assert sum(int(leg.attributes["messaging.batch.message_count"]) for leg in ran) == 5
    assert len(ran) < 5


def test_legs_are_the_same_ones_when_they_are_read_again() -> None:
    """So a collector that has them already finds nothing new."""
    loop = loop_of()
    asked(loop, "q-1")
    asked(loop, "q-2", ())
    loop.driver.run(0.2)
    first, again = (read_by(reader(1.0), packed(log_of(loop))) for _ in range(2))
    assert first == again
    assert len({leg.at.trace_id for leg in first if leg.name.startswith("answer")}) == 2


def test_a_query_without_an_answer_in_time_has_its_fault_and_its_late_leg() -> None:
    """Answered by default; the model's output comes too late, and says so."""
    loop = Loop({"good": lambda _: None}, digits(models=("good",), slo_ms=50), has_workers=True)
    loop.driver.run(0.1)
    asked(loop, "q-1")
    loop.driver.run(0.2)
    legs = {leg.name.partition(" ")[0]: leg for leg in read_by(reader(), packed(log_of(loop)))}
    assert {*legs} == {"answer", "queue", "select"}, "the model hangs: the log knows no more of it"
    assert legs["answer"].fault == legs["answer"].attributes["error.type"] == "deadline"
    assert legs["answer"].attributes["skysail.status"] == "default"


def test_what_is_held_and_awaited_is_bounded_and_let_go() -> None:
    """A flood of sampled queries costs no more memory than was said."""
    loop = loop_of(models=("good",))
    for number in range(300):
        asked(loop, f"q-{number}")
        loop.driver.run(0.002)
    loop.driver.run(0.2)
    its = LegReader(CODEC, sound_records_of, str, 1.0, held_bytes=4_000)
    legs = read_by(its, packed(log_of(loop)))
    figures = its.statistics()
    assert figures["telemetry_held_bytes"] <= 4_000
    assert figures["telemetry_let_go_total"] > 0
    assert sum(leg.name.startswith("answer") for leg in legs) == 300, "legs that are missing are of batches that went"
    assert its.due(START_US + KEPT_US + 4 * SETTLE_US) == []
    assert its.statistics()["telemetry_held_bytes"] == 0
