"""A dead letter read again is the record that was refused, and says all that was said of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.dead_letters.letter import ATTEMPTS, Letter, Receipt, ranges, read, receipts
from streams.operators.contract import DeadLetter, Emit, Record
from streams.runtime.role.dead_letters import DeadLetters

WRITER = DeadLetters("joiner", "1.2")
some_bytes = st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=8), some_bytes), max_size=3).map(tuple)
sources = st.builds(
    Record,
    st.sampled_from(["queries", "feedback", "/orders"]),
    st.integers(0, 7),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 52),
    st.none() | some_bytes,
    st.none() | some_bytes,
    headers,
)


def stored(emit: Emit, offset: int = 5, written_us: int = 9_000) -> Record:
    """Return what is read of a letter that was written."""
    return Record(emit.topic, 0, offset, written_us, emit.key, emit.value, emit.headers)


@given(sources, st.text(max_size=12), st.text(max_size=12))
def test_the_record_comes_back_as_it_was_whatever_it_was(record: Record, cause: str, message: str) -> None:
    """Key, value, its absence, headers and place; and why it was refused."""
    letter = read(stored(WRITER.emit(DeadLetter(record, cause, message))))
    assert isinstance(letter, Letter)
    assert (letter.key, letter.value, letter.headers) == (record.key, record.value, record.headers)
    assert (letter.source, letter.partition, letter.source_offset) == record.position
    assert (letter.record_us, letter.group, letter.cut) == (record.timestamp_us, "joiner", 0)
    assert letter.cause == cause.encode(errors="backslashreplace")[:64].decode(errors="replace")
    assert (letter.written_us, letter.offset) == (9_000, 5)


def test_a_letter_that_was_cut_says_how_long_its_record_was() -> None:
    """Nobody takes a part for the whole."""
    letter = read(stored(WRITER.too_large(Emit("predictions", 1, b"k", b"x" * 100_000))))
    assert isinstance(letter, Letter)
    assert (letter.cut, letter.partition, letter.source) == (100_000, None, "predictions")


def test_how_often_a_record_was_sent_again_comes_back_with_it() -> None:
    """The header is among the record's own; what is no number counts nothing."""
    for text, attempts in ((b"2", 2), (b"-1", 0), (b"\xff", 0), (b"", 0), (b"9" * 400, 0)):
        record = Record("feedback", 0, 1, 2, b"k", b"v", ((ATTEMPTS, text),))
        letter = read(stored(WRITER.emit(DeadLetter(record, "late", ""))))
        assert isinstance(letter, Letter)
        assert letter.attempts == attempts


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_receipts_name_the_letters_that_they_were_made_of_and_no_others(sent: set[int], asked: set[int]) -> None:
    """However many there are; ranges are those of the sorted numbers."""
    found = [read(Record("feedback.dlq", 0, 40, 7, None, b"", (header,))) for header in receipts(sent)]
    assert all(isinstance(each, Receipt) for each in found)
    for offset in sent | asked:
        assert any(isinstance(each, Receipt) and offset in each for each in found) == (offset in sent)


def test_many_letters_apart_take_several_receipts() -> None:
    """No header grows without bound."""
    apart = range(0, 5_000, 2)
    made = receipts(apart)
    assert len(made) == 3
    assert sum(len(part.split(b",")) for _, part in made) == len(ranges(apart)) == 2_500


def test_a_record_that_only_looks_like_a_receipt_is_a_letter() -> None:
    """A client's header of that name is one of its own: ours stand behind it."""
    record = Record("queries", 0, 1, 2, b"k", b"v", (("skysail.receipt", b"0-99"),))
    assert isinstance(read(stored(WRITER.emit(DeadLetter(record, "invalid", "")))), Letter)
