"""Who is sampled: by the caller's flag, else by a rate."""

from __future__ import annotations

import pytest

from schemas import topics
from schemas.records import Decision, Prediction, Status
from streams.operators.contract import Record
from streams.runtime.kafka.fast.whole_batches import batch_of, sound_records_of
from streams.telemetry.context import TraceContext, told
from streams.telemetry.joins import MOST, AwaitedJoins
from streams.telemetry.sampling import Sampling
from streams.telemetry.values import LegContext, SampledQuery
from tests.loops import CODEC

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = TraceContext(int(TRACE, 16), int(PARENT, 16))
SAID = Prediction("q", "digits", None, None, Status.DEFAULT, "x", 0, 0.0, (), 1, 2, 3, 4)
VALUE = CODEC.encode(SAID)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (f"00-{TRACE}-{PARENT}-01", (CONTEXT, True)),
        (f"00-{TRACE}-{PARENT}-00", (CONTEXT, False)),
        (f"00-{TRACE}-{PARENT}-03", (CONTEXT, True)),
        (f"cc-{TRACE}-{PARENT}-01-what-will-be", (CONTEXT, True)),
        (f"cc-{TRACE}-{PARENT}-01.what-will-be", (None, False)),
        (f"00-{TRACE}-{PARENT}-01-more", (None, False)),
        (f"ff-{TRACE}-{PARENT}-01", (None, False)),
        (f"00-{'0' * 32}-{PARENT}-01", (None, False)),
        (f"00-{TRACE}-{'0' * 16}-01", (None, False)),
        (f"00-{TRACE.upper()}-{PARENT}-01", (None, False)),
        (f"00-{TRACE}-{PARENT}", (None, False)),
        ("", (None, False)),
    ],
)
def test_the_header_is_read_as_w3c_writes_it(value: str, found: tuple[TraceContext | None, bool]) -> None:
    """The cases of its recommendation; what is wrong counts as if it were not there."""
    assert told((("other", b"x"), ("traceparent", value.encode()))) == found


def test_null_headers_and_none_are_no_trace() -> None:
    """Clients may write anything."""
    assert told(()) == told((("traceparent", None),)) == (None, False)


def record(offset: int, flags: str = "") -> Record:
    """Return a prediction's record; with flags it has a header."""
    headers = (("traceparent", f"00-{TRACE}-{PARENT}-{flags}".encode()),) if flags else ()
    return Record(topics.PREDICTIONS, 1, offset, 5_000, b"q", VALUE, headers)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.25, 1.0])
@pytest.mark.parametrize("step", [1, 100])
def test_the_rate_is_the_share_that_is_sampled_of_any_regular_part_too(rate: float, step: int) -> None:
    """Of a client whose query is every hundredth of the log as of all."""
    sampling = Sampling(CODEC, sound_records_of, rate)
    offsets = [offset for offset in range(0, 20_000 * step, step) if [*sampling.of(record(offset))]]
    assert len(offsets) / 20_000 == pytest.approx(rate, rel=0.1)
    assert offsets == [at for at in offsets if [*sampling.of(record(at))]], "the same ones again"


def test_a_header_decides_whatever_the_rate_is() -> None:
    """Its caller has decided for all parts of the trace."""
    every, none = (Sampling(CODEC, sound_records_of, rate) for rate in (1.0, 0.0))
    assert [*every.of(record(7, "00"))] == []
    (found,) = none.of(record(7, "01"))
    assert found.context == CONTEXT


def test_whole_batches_are_sampled_as_their_records_are() -> None:
    """With a header in the middle, and by the rate."""
    records = [record(offset, "01" if offset == 105 else "") for offset in range(100, 300)]
    sampling = Sampling(CODEC, sound_records_of, 0.05)
    single = [found.place for each in records for found in sampling.of(each)]
    assert [found.place for found in sampling.of(batch_of(records))] == single
    assert 105 in [place.offset for place in single]
    assert 5 < len(single) < 15


def test_a_batch_without_any_is_not_unpacked() -> None:
    """It costs a look through its bytes."""

    def unpack(batch: object) -> list[Record]:
        raise AssertionError(batch)

    assert [*Sampling(CODEC, unpack, 0.0).of(batch_of([record(offset) for offset in range(50)]))] == []


def test_awaited_joins_are_bounded() -> None:
    """Feedback that never comes holds nothing for ever."""
    decided = SAID._replace(decision=Decision((0,), 1, "digits", "single()", ("good",), (1.0,)))
    joins = AwaitedJoins(sound_records_of)
    for number in range(MOST + 50):
        place = record(number).position
        joins.expect(
            SampledQuery(CONTEXT, LegContext(1, number + 1), place, 1, decided._replace(query_id=f"q-{number}"))
        )
    assert len(joins) == MOST
