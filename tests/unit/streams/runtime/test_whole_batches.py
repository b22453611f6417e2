"""Whole record batches: which of what a broker sends stay whole, and what they are taken apart into."""

from __future__ import annotations

import struct

import pytest
from aiokafka.errors import CorruptRecordException
from hypothesis import given
from hypothesis import strategies as st

from streams.operators.contract import Batch, Emit, EmitBatch, Position, Record, Span
from streams.runtime.corrupt import CorruptBatch
from streams.runtime.kafka.fast.record_batches import split, unpack
from streams.runtime.kafka.fast.whole_batches import batch_of, emits_of, finished, gathered, records_of
from tests.batches import TWO, AnswerColumn, batch, compressed, with_checksum

TEXT = st.binary(max_size=9)
SAID = st.tuples(
    TEXT | st.none(), TEXT | st.none(), st.lists(st.tuples(st.text(max_size=3), TEXT | st.none()), max_size=2)
)
MARK, WITHIN, BY_BROKER = 0x20, 0x10, 0x08  # attributes: a transaction's mark, a part of one, the broker's time


def with_attributes(data: bytes, attributes: int) -> bytes:
    """Set attributes of a batch."""
    return with_checksum(data[:22] + bytes([data[22] | attributes]) + data[23:])


def taken_apart(found: list[Record | Batch]) -> list[Record]:
    """Return the same records one by one."""
    return [record for one in found for record in (records_of(one) if isinstance(one, Batch) else [one])]


@given(
    st.lists(st.tuples(st.lists(SAID, min_size=1, max_size=4), st.sampled_from([0, 0, 0, 4]), st.booleans())),
    st.integers(0, 9),
    st.integers(95, 120),
    st.integers(0, 5),
)
def test_batches_that_stay_whole_hold_the_records_that_there_would_have_been(
    sent: list[tuple[list[AnswerColumn], int, bool]], skipped: int, whole_from: int, cut: int
) -> None:
    """All do from an offset on, compressed ones inflated; order, position and what was cut off are the same."""
    data, base, plain = b"", 100, set()
    for said, compression, is_stamped in sent:
        made = batch(base, said, compression)
        data += with_attributes(made, BY_BROKER) if is_stamped else made
        plain |= {base} if base >= whole_from else set()
        base += len(said)
    data, start = data[: len(data) - cut], 100 + skipped
    found, end = split(data, "t", 3, start, whole_from)
    assert (taken_apart(found), end) == unpack(data, "t", 3, start)
    wholes = [one for one in found if isinstance(one, Batch)]
    assert {one.offset for one in wholes} <= {max(base, start) for base in plain}
    assert all(record.offset < whole_from or record.offset < base for record in found if isinstance(record, Record))
    if whole_from <= 100:
        assert len(wholes) == len(found)


@pytest.mark.parametrize("attributes", [MARK, WITHIN, MARK | WITHIN])
def test_what_belongs_to_a_transaction_does_not_stay_whole(attributes: int) -> None:
    """Its mark is no record, and its records come as they always did."""
    data = with_attributes(batch(7, TWO), attributes)
    assert split(data, "t", 0, 7, 0) == unpack(data, "t", 0, 7)


@pytest.mark.parametrize(("count", "last"), [(1, 1), (3, 1), (2, 2), (0, -1), (-1, -2), (2**31 - 1, 2**31 - 2), (9, 8)])
def test_a_batch_whose_header_cannot_be_true_is_unpacked(count: int, last: int) -> None:
    """Compacted batches have gaps; and a count that the bytes cannot hold would be delivered without a record."""
    data = bytearray(batch(0, TWO))
    data[23:27], data[57:61] = struct.pack(">i", last), struct.pack(">i", count)
    spoilt = with_checksum(bytes(data))
    found, end = split(spoilt, "t", 0, 0, 0)
    assert not any(isinstance(one, Batch) for one in found)
    assert (found, end) == unpack(spoilt, "t", 0, 0)


def test_a_batch_before_the_wanted_offset_only_moves_the_position() -> None:
    """A broker sends the whole batch that an offset lies in, and a foreign one may send more."""
    assert split(batch(0, TWO) + batch(2, TWO), "t", 0, 2, 0) == ([Batch("t", 0, 2, 4, batch(2, TWO))], 4)


def test_a_wrong_checksum_behind_a_whole_batch_is_left_for_the_next_fetch() -> None:
    """That of the whole one is its taker's matter; the other is looked at here."""
    second = bytearray(compressed(2, TWO, 4))
    second[-1] ^= 1
    found, end = split(batch(0, TWO) + bytes(second), "t", 0, 0, 0)
    assert ([type(one) for one in found], end) == ([Batch], 2)
    with pytest.raises(CorruptRecordException):
        split(bytes(second), "t", 0, 2, 0)


@given(st.lists(SAID, min_size=1, max_size=6), st.data())
def test_a_slice_of_a_batch_holds_its_own_records_alone(said: list[AnswerColumn], data: st.DataObject) -> None:
    """From `offset` on, before `end`."""
    begin = data.draw(st.integers(0, len(said) - 1))
    end = data.draw(st.integers(begin + 1, len(said)))
    whole = Batch("t", 1, 40 + begin, 40 + end, batch(40, said))
    assert [(r.offset, (r.key, r.value, [*r.headers])) for r in records_of(whole)] == [
        (40 + at, said[at]) for at in range(begin, end)
    ]


@given(st.lists(SAID, min_size=1, max_size=3), st.data())
def test_a_flipped_bit_is_never_records(said: list[AnswerColumn], data: st.DataObject) -> None:
    """Anywhere in what the checksum covers, and in the checksum; the length and the magic number were looked at."""
    whole, end = batch(5, said), 5 + len(said)
    at = data.draw(st.integers(17, len(whole) - 1))
    spoilt = whole[:at] + bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))]) + whole[at + 1 :]
    with pytest.raises((CorruptRecordException, ValueError)):
        records_of(Batch("t", 0, 5, end, spoilt))


def test_a_batch_that_is_not_what_its_header_says_is_refused_as_a_whole() -> None:
    """Its checksum is right, its records are not one an offset: whoever was given it must read it again."""
    with pytest.raises(ValueError, match="t-0 has no records 0 to 1"):
        records_of(Batch("t", 0, 0, 2, with_checksum(batch(0, TWO)[:-1] + b"\1")))
    three = batch(0, [*TWO, (None, b"c", [])])
    with pytest.raises(ValueError, match="t-0 has no records 0 to 3"):
        records_of(Batch("t", 0, 0, 4, three))


@given(st.lists(SAID, min_size=1, max_size=6), st.integers(0, 2**40))
def test_records_are_packed_and_unpacked_without_loss(said: list[AnswerColumn], first: int) -> None:
    """What simulations hand out is what a broker would."""
    records = [
        Record("t", 2, first + at, (1_000 + at) * 1_000, key, value, tuple(headers))  # type: ignore[arg-type]
        for at, (key, value, headers) in enumerate(said)
    ]
    whole = batch_of(records)
    assert (whole[:4], records_of(whole)) == (("t", 2, first, first + len(said)), records)
    assert split(whole.data, "t", 2, 0, 0) == ([whole], whole.end)


def test_records_with_gaps_are_not_packed() -> None:
    """They would get other offsets."""
    with pytest.raises(ValueError, match="gaps"):
        batch_of([Record("t", 0, offset, 0, None, b"") for offset in (1, 3)])


def test_a_finished_batch_becomes_records_of_which_the_last_completes_all() -> None:
    """The others are a part of what it completes, so none of them is dropped."""
    emits = [Emit("out", 1, key, b"%d" % at, (), (("h", b"v"),)) for at, key in enumerate((b"k", None, b""))]
    made = emits_of(finished(emits, 5_000, (Span("in", 0, 3, 5), Span("other", 2, 9, 10))))
    assert [emit._replace(completes=(), is_part=False) for emit in made] == emits
    assert [emit.is_part for emit in made] == [True, True, False]
    assert [emit.completes for emit in made] == [
        (),
        (),
        (Position("in", 0, 3), Position("in", 0, 4), Position("other", 2, 9)),
    ]


def test_a_finished_batch_that_completes_nothing_becomes_records_that_may_be_dropped() -> None:
    """As any that nobody waits for."""
    made = emits_of(finished([Emit("out", 0, None, b"a"), Emit("out", 0, None, b"b")], 5_000))
    assert made == [Emit("out", 0, None, b"a"), Emit("out", 0, None, b"b")]


def test_a_corrupt_batch_is_not_among_the_records_of_a_batch() -> None:
    """It would complete its last offset alone, and the others were delivered, too."""
    spoilt = with_checksum(batch(0, TWO)[:-2] + b"\xff\xff")
    assert CorruptBatch in map(type, unpack(spoilt, "t", 0, 0)[0])
    with pytest.raises(ValueError, match="no records"):
        records_of(Batch("t", 0, 0, 2, spoilt))
    alone = with_checksum(batch(0, TWO[:1])[:-2] + b"\xff\xff")
    with pytest.raises(ValueError, match="no records"):
        records_of(Batch("t", 0, 0, 1, alone))


@given(st.lists(st.tuples(st.booleans(), st.lists(SAID, min_size=1, max_size=3)), min_size=1, max_size=5))
def test_what_is_gathered_is_one_batch_of_the_same_records(said: list[tuple[bool, list[AnswerColumn]]]) -> None:
    """In order, whoever has made them; what they complete is known to who gathers them."""
    parts: list[Emit | EmitBatch] = [finished([Emit("t", 3, None, b"first")], 1_000)]
    for is_batch, records in said:
        emits = [
            Emit("t", 3, key, value or b"", (), tuple((name, given or b"") for name, given in headers))
            for key, value, headers in records
        ]
        parts += [finished(emits, 2_000)] if is_batch else emits
    found = gathered(parts)
    alone = [emit for one in parts for emit in (emits_of(one) if isinstance(one, EmitBatch) else [one])]
    assert (emits_of(found), found.count, found.completes) == (alone, len(alone), ())
    assert found[:2] == ("t", 3)
