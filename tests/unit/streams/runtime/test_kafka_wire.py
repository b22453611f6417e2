"""Fetch and produce, byte for byte, against aiokafka's own layouts."""

from __future__ import annotations

from io import BytesIO

import pytest
from aiokafka.protocol.fetch import FetchRequest_v11, FetchResponse_v11
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from hypothesis import given
from hypothesis import strategies as st

from streams.runtime.kafka.fast.protocol import (
    FETCH,
    PRODUCE,
    Fetched,
    fetch_request,
    header,
    produce_request,
    read_fetch,
    read_produce,
)

INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
PLACES = st.tuples(st.text(max_size=9), INT)
CORRELATION = b"\x00\x00\x00\x07"


@given(st.dictionaries(PLACES, LONG, max_size=6), INT, INT, INT, INT)
def test_a_fetch_is_written_as_aiokafka_reads_it(
    wanted: dict[tuple[str, int], int], wait_ms: int, least: int, most: int, each: int
) -> None:
    """All partitions, grouped by topic, and the bounds."""
    read = FetchRequest_v11.decode(BytesIO(fetch_request(wanted.items(), wait_ms, least, most, each)))
    assert (read.max_wait_time, read.min_bytes, read.max_bytes, read.isolation_level) == (wait_ms, least, most, 0)
    assert (read.session_id, read.session_epoch, read.forgotten_topics_data, read.rack_id) == (0, -1, [], "")
    found = {(topic, p[0]): p[2] for topic, partitions in read.topics for p in partitions}
    assert found == wanted
    assert all((p[1], p[3], p[4]) == (-1, -1, each) for _, partitions in read.topics for p in partitions)


@given(
    st.dictionaries(
        st.text(max_size=9),
        st.lists(
            st.tuples(INT, st.integers(-1, 100), LONG, st.lists(LONG, max_size=2) | st.none(), st.binary(max_size=9))
        ),
        max_size=4,
    ),
    st.integers(-1, 100),
)
def test_a_fetch_answer_is_read_as_aiokafka_writes_it(
    said: dict[str, list[tuple[int, int, int, list[int] | None, bytes]]], code: int
) -> None:
    """Aborted transactions are passed over; records are bytes."""
    topics = [
        (
            topic,
            [
                (p, fault, mark, 0, 0, pairs and [(a, a) for a in pairs], -1, data)
                for p, fault, mark, pairs, data in parts
            ],
        )
        for topic, parts in said.items()
    ]
    frame = CORRELATION + FetchResponse_v11(0, code, 77, topics).encode()
    expected = [Fetched((t, p), fault, mark, data) for t, parts in said.items() for p, fault, mark, _, data in parts]
    assert read_fetch(frame) == (code, expected, 77)


@given(st.dictionaries(PLACES, st.binary(max_size=20), max_size=6), st.integers(-1, 1), INT)
def test_a_produce_request_is_written_as_aiokafka_reads_it(
    batches: dict[tuple[str, int], bytes], acks: int, timeout_ms: int
) -> None:
    """All batches, grouped by topic."""
    read = ProduceRequest_v7.decode(BytesIO(produce_request(batches.items(), acks, timeout_ms)))
    assert (read.transactional_id, read.required_acks, read.timeout) == (None, acks, timeout_ms)
    assert {(topic, p): data for topic, parts in read.topics for p, data in parts} == batches


@given(st.dictionaries(PLACES, st.integers(-1, 100), max_size=6))
def test_a_produce_answer_is_read_as_aiokafka_writes_it(codes: dict[tuple[str, int], int]) -> None:
    """One error code a partition."""
    topics = [(topic, [(p, code, 5, -1, 0)]) for (topic, p), code in codes.items()]
    assert read_produce(CORRELATION + ProduceResponse_v7(topics, 0).encode()) == codes


def test_a_cut_off_answer_is_an_error() -> None:
    """The connection is closed over it; half an answer is none."""
    fetched = CORRELATION + FetchResponse_v11(0, 0, 0, [("t", [(0, 0, 1, 1, 0, [], -1, b"abc")])]).encode()
    produced = CORRELATION + ProduceResponse_v7([("t", [(0, 0, 5, -1, 0)])], 0).encode()
    for end in range(len(CORRELATION), len(fetched)):
        with pytest.raises(ValueError, match="fetch response"):
            read_fetch(fetched[:end])
    for end in range(len(CORRELATION), len(produced) - 4):
        with pytest.raises(ValueError, match="produce response"):
            read_produce(produced[:end])


def test_a_header_names_request_version_number_and_client() -> None:
    """As in Kafka's request header v1."""
    assert header(FETCH, 7, b"me") == b"\x00\x01\x00\x0b\x00\x00\x00\x07\x00\x02me"
    assert header(PRODUCE, 8, b"") == b"\x00\x00\x00\x07\x00\x00\x00\x08\x00\x00"
