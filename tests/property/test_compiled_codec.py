"""Laws of the compiled readers and writers: they differ from the Python ones in speed only."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import decoders, encoders
from schemas.compiling import IS_COMPILED, reader, writer
from schemas.definitions import CURRENT, RECORDS, readable
from schemas.records import Promotion
from tests.samples import ALL
from tests.strategies import ANY_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas import avsc

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="the extension was not built: no C compiler at installation")

HEAD = b"0123456789"
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)


def outcome(call: Callable[[], object]) -> object:
    """Return what a call returns, or the kind and text of what it raises."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - whichever it is, both must raise it
        return type(error).__name__, getattr(error, "cause", None), str(error)


def both_read(schema: avsc.Schema, record: type, value: bytes, at: int = 0) -> tuple[object, object]:
    """Return what either reader makes of bytes; an end past theirs only says that they are too few."""

    def ended(read: Callable[[bytes, int], tuple[Any, int]]) -> object:
        decoded, end = read(value, at)
        return (decoded, end) if end <= len(value) else "too few"

    return (
        outcome(lambda: ended(reader(schema, record, is_compiled=True))),
        outcome(lambda: ended(decoders.reader(schema, record))),
    )


@given(ANY_RECORD)
def test_both_write_the_same_bytes_and_read_the_same_record(record: Any) -> None:
    """Whatever the schemas have a place for; a second time, too, when its shared parts are known."""
    schema = CURRENT[type(record).__name__]
    written = encoders.writer(schema.record)(record, HEAD)
    for _ in range(2):
        assert writer(schema.record, is_compiled=True)(record, HEAD) == written
        compiled, python = both_read(schema, type(record), written, len(HEAD))
        assert compiled == python == (record, len(written))
    if isinstance(record, tuple) and not isinstance(record, Promotion):  # its guards are a dictionary
        assert hash(compiled[0]) == hash(record)


@settings(max_examples=300)
@given(st.sampled_from(ALL), st.data())
def test_both_refuse_spoilt_bytes_with_the_same_words(record: Any, data: st.DataObject) -> None:
    """Bytes changed, cut out, put in or cut off: the same record or the same error."""
    schema = CURRENT[type(record).__name__]
    value = bytearray(encoders.writer(schema.record)(record, b""))
    for _ in range(data.draw(st.integers(1, 3))):
        at, width = data.draw(st.integers(0, len(value))), data.draw(st.integers(0, 2))
        value[at : at + width] = data.draw(st.binary(max_size=11))
    compiled, python = both_read(schema, type(record), bytes(value[: data.draw(st.integers(0, len(value)))]))
    assert compiled == python


@given(st.sampled_from(RECORDS), st.binary(max_size=200))
def test_both_take_noise_alike(record: type, noise: bytes) -> None:
    """Under every schema that is readable, released ones included."""
    for schema in readable(record.__name__):
        compiled, python = both_read(schema, record, noise)
        assert compiled == python


@given(ANY_RECORD.filter(lambda record: isinstance(record, tuple)), st.data())
def test_both_refuse_values_that_do_not_fit_alike(record: Any, data: st.DataObject) -> None:
    """One field of a record is replaced by anything: the same bytes or the same error."""
    name = data.draw(st.sampled_from(record._fields))
    spoilt = record._replace(**{name: data.draw(ANYTHING)})
    schema = CURRENT[type(record).__name__].record
    compiled = outcome(lambda: writer(schema, is_compiled=True)(spoilt, HEAD))
    assert compiled == outcome(lambda: encoders.writer(schema)(spoilt, HEAD))


def test_what_is_shared_is_one_object() -> None:
    """A decision that many predictions carry is read once: who keeps routes by identity finds it again."""
    record = next(one for one in ALL if type(one).__name__ == "Prediction" and one.decision is not None)
    schema = CURRENT["Prediction"]
    value = encoders.writer(schema.record)(record, b"")
    read = reader(schema, type(record), is_compiled=True)
    assert read(value, 0)[0].decision is read(value, 0)[0].decision


@pytest.mark.parametrize("record", [one for one in ALL if isinstance(one, tuple)], ids=lambda one: type(one).__name__)
def test_reading_and_writing_hold_on_to_nothing(record: Any) -> None:
    """A thousand times over, whole and spoilt bytes alike, takes no more memory than once."""
    schema = CURRENT[type(record).__name__]
    read, write = reader(schema, type(record), is_compiled=True), writer(schema.record, is_compiled=True)
    value = write(record, HEAD)

    def once() -> None:
        write(read(value, len(HEAD))[0], HEAD)
        outcome(lambda: read(value[:-1], len(HEAD)))

    once()
    before = sys.getallocatedblocks()
    for _ in range(1_000):
        once()
    gc.collect()  # errors refer to themselves
    assert sys.getallocatedblocks() - before < 200


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_large_part_that_is_shared_is_not_held(is_compiled: bool) -> None:
    """A decision names what a client may have written, and a thousand are recognised."""
    record = next(one for one in ALL if type(one).__name__ == "Prediction" and one.decision is not None)
    write = writer(CURRENT["Prediction"].record, is_compiled=is_compiled)
    small, large = record.decision._replace(), record.decision._replace(state="s" * 3_000)
    before = sys.getrefcount(small), sys.getrefcount(large)
    write(record._replace(decision=small), HEAD)
    write(record._replace(decision=large), HEAD)
    assert (sys.getrefcount(small), sys.getrefcount(large)) == (before[0] + 1, before[1])


def test_a_writer_that_is_called_while_it_writes_writes_both() -> None:
    """Memory may be collected between two fields: a finalizer writes, or another thread comes to its turn."""
    record = next(one for one in ALL if type(one).__name__ == "Prediction" and one.decision is not None)
    schema = CURRENT["Prediction"].record
    expected, write = encoders.writer(schema)(record, HEAD), writer(schema, is_compiled=True)
    new = [record._replace(decision=record.decision._replace()) for _ in range(20)]  # not one that is shared

    def meanwhile(phase: str, _: object) -> None:
        gc.callbacks.remove(meanwhile)
        write(record._replace(query_id="another"), b"")

    before = gc.get_threshold()
    held = [(number, number) for number in range(5_000)]  # else tuples are used again, and nothing is collected
    try:
        gc.set_threshold(1, 1, 1)
        for one in new:
            gc.callbacks.append(meanwhile)
            assert write(one, HEAD) == expected
    finally:
        gc.set_threshold(*before)
        gc.callbacks[:] = [each for each in gc.callbacks if each is not meanwhile]
    assert held
