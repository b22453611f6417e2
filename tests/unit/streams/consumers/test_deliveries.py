"""What a consumer hands out, and what may be committed of it."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import topics
from schemas.codec import Codec
from schemas.records import Prediction, Status
from streams.consumers.deliveries import Deliveries
from streams.operators.contract import Record

CODEC = Codec()
PLACE = (topics.PREDICTIONS, 0)


def prediction(query_id: str, application: str = "digits", token: str = "t") -> Prediction:
    """Return a prediction."""
    return Prediction(query_id, application, None, None, Status.COMPLETE, None, 3, 1.0, (), 1, 2, 3, 4, token)


def record(offset: int, value: bytes | Prediction | None, partition: int = 0) -> Record:
    """Return a record of `predictions`."""
    value = CODEC.encode(value) if isinstance(value, Prediction) else value
    return Record(topics.PREDICTIONS, partition, offset, 0, None, value)


def owning(*places: tuple[str, int], application: str | None = "digits", remembered: int = 100) -> Deliveries:
    """Return deliveries of partitions that begin with 0."""
    deliveries = Deliveries(CODEC, application, remembered)
    deliveries.assigned(dict.fromkeys(places or (PLACE,), 0))
    return deliveries


def test_what_is_in_hand_is_not_committable_until_it_is_handled() -> None:
    """Nor is what stands behind it, although nobody wants it."""
    deliveries = owning()
    deliveries.take([record(0, prediction("a")), record(1, prediction("b", "fraud")), record(2, prediction("c"))])
    assert [one.query_id for one in deliveries.hand_out(1)] == ["a"]
    assert deliveries.committable() == {}
    deliveries.handled()
    assert deliveries.committable() == {PLACE: 1}
    assert [one.query_id for one in deliveries.hand_out(5)] == ["c"]
    assert deliveries.committable() == {PLACE: 2}


@pytest.mark.parametrize("value", [None, b"", b"{}", CODEC.encode(prediction("a"))[:-1]])
def test_what_is_no_prediction_is_passed_over_and_counted(value: bytes | None) -> None:
    """It stops nothing: its offset is committed with the others."""
    deliveries = owning()
    deliveries.take([record(0, value), record(1, prediction("b"))])
    assert [one.query_id for one in deliveries.hand_out(9)] == ["b"]
    deliveries.handled()
    assert (deliveries.undecodable, deliveries.committable()) == (1, {PLACE: 2})


def test_an_id_may_be_used_with_another_token() -> None:
    """Two clients that choose one id get an answer each, and neither is a repetition, whatever their order."""
    deliveries = owning()
    deliveries.take([record(at, prediction("a", token=token)) for at, token in enumerate("xyxyx")])
    assert [one.reply_token for one in deliveries.hand_out(9)] == ["x", "y"]
    assert deliveries.repeated == 3


def test_what_was_in_hand_when_a_partition_went_is_no_repetition_when_it_comes_back() -> None:
    """Else it would be lost; what had been handled stays one."""
    deliveries = owning(PLACE, (topics.PREDICTIONS, 1))
    deliveries.take([record(0, prediction("a")), record(0, prediction("b", token="u"), partition=1)])
    assert len(deliveries.hand_out(1)) == 1
    deliveries.handled()
    assert [one.query_id for one in deliveries.hand_out(1)] == ["b"]
    deliveries.revoked([PLACE, (topics.PREDICTIONS, 1)])
    deliveries.drop_hand()
    deliveries.assigned({PLACE: 0, (topics.PREDICTIONS, 1): 0})
    deliveries.take([record(0, prediction("a")), record(0, prediction("b", token="u"), partition=1)])
    assert [one.query_id for one in deliveries.hand_out(9)] == ["b"]


def test_the_memory_of_ids_is_bounded_over_all_partitions() -> None:
    """So a repetition from long ago is handed out again: the table that it is written to must take it."""
    deliveries = owning(PLACE, (topics.PREDICTIONS, 1), remembered=8)
    ids = [f"q-{number}" for number in range(20)]
    deliveries.take([record(at, prediction(name)) for at, name in enumerate([*ids, ids[0], ids[-1]])])
    assert [one.query_id for one in deliveries.hand_out(99)] == [*ids, ids[0]]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abcd"), st.sampled_from(["digits", "fraud"]))))
def test_the_first_of_each_id_is_handed_out_and_everything_is_committed_in_the_end(
    written: list[tuple[int, str, str]],
) -> None:
    """Compared with a set, over any mix of partitions, ids and applications, in any batches."""
    places = [(topics.PREDICTIONS, partition) for partition in range(3)]
    deliveries, offsets = owning(*places), {partition: count() for partition in range(3)}
    deliveries.take([record(next(offsets[p]), prediction(name, to), p) for p, name, to in written])
    found = []
    while batch := deliveries.hand_out(2):
        found += [one.query_id for one in batch]
        deliveries.handled()
    expected = dict.fromkeys((p, name) for p, name, to in written if to == "digits")
    assert found == [name for _, name in expected]
    ends = {(topics.PREDICTIONS, p): sum(q == p for q, *_ in written) for p in range(3)}
    assert deliveries.committable() == {place: end for place, end in ends.items() if end}
