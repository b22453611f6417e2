"""The judge's messenger: what it sends by templates is what codecs write, and what it peeks is what they read."""

from __future__ import annotations

import json
import sys
import time
from itertools import islice
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.harness.workload import Rows
from load.research.harness.templates import ID_BYTES, ids, template
from load.research.peers.contenders import CONTENDERS, DIRECT
from load.research.peers.loadgen_case import Case
from load.research.peers.wire_formats import V2, Avro, Echo
from schemas import topics
from schemas.codec import Codec
from schemas.definitions import CURRENT
from schemas.errors import DecodeError
from schemas.records import Decision, Feedback, ModelOutput, Outcome, Prediction, Query, Status, Tensor
from tests import strategies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from load.research.peers.loadgen_process import Courier

CODEC = Codec()
IDS = st.text("0123456789abcdef", min_size=ID_BYTES, max_size=ID_BYTES)
TIMES = st.integers(1 << 48, (1 << 55) - 1)  # us: 1978 to 3111
ROWS = st.lists(st.integers(0, 255), min_size=1, max_size=70).flatmap(
    lambda row: st.sampled_from((np.array(row, np.float32), np.array(row, np.uint8)))
)
FORMATS = list({type(each.wire_format): each.wire_format for each in (*CONTENDERS, DIRECT)}.values())
PREDICTIONS = strategies.values(CURRENT["Prediction"].record)


def test_every_format_of_a_contender_is_tried_here() -> None:
    """One that comes to them comes to the laws below."""
    assert {type(each) for each in FORMATS} == {Avro, Echo, V2}


@pytest.mark.parametrize("wire_format", FORMATS, ids=lambda each: type(each).__name__)
@given(row=ROWS, query_id=IDS, time_us=TIMES, slo_ms=st.none() | st.floats(0.1, 1e6))
def test_a_template_makes_the_bytes_of_the_codec(
    wire_format: Any, row: Any, query_id: str, time_us: int, slo_ms: float | None
) -> None:
    """Whatever the row, the id and the time."""
    query = Query("", "digits", Tensor.of(row), slo_ms=slo_ms)
    made = wire_format.template(query)(query_id.encode(), time_us)
    assert made == wire_format.query(query._replace(query_id=query_id, sent_us=time_us))


@given(label=st.integers(-(2**40), 2**40) | st.text(max_size=70), query_id=IDS, time_us=TIMES)
def test_feedback_is_made_as_the_codec_writes_it(label: int | str, query_id: str, time_us: int) -> None:
    """A label of any kind."""
    tell = template(lambda name, at_us: CODEC.encode(Feedback(name, label=label, sent_us=at_us)))
    assert tell(query_id.encode(), time_us) == CODEC.encode(Feedback(query_id, label=label, sent_us=time_us))


def test_what_depends_on_an_id_in_two_places_has_no_template() -> None:
    """Nor what has it nowhere, or a digest of it, or its time twice."""
    encoders = (
        lambda name, _: (name + name).encode(),
        lambda _name, _us: b"nothing",
        lambda name, us: name.encode() + bytes((us % 251,)),
        lambda name, us: CODEC.encode(Feedback(name, sent_us=us)) + CODEC.encode(Feedback("other", sent_us=us)),
    )
    for encode in encoders:
        with pytest.raises(ValueError, match="a record"):
            template(encode)


def test_ids_differ_and_follow_from_the_seed() -> None:
    """Digits alone, over the end of what is drawn at once."""
    drawn = list(islice(ids(7), 2_000))
    assert len(set(drawn)) == 2_000
    assert drawn == list(islice(ids(7), 2_000))
    assert set(drawn).isdisjoint(islice(ids(8), 2_000))
    assert all(len(each) == ID_BYTES and set(each.decode()) <= set("0123456789abcdef") for each in drawn)


@given(
    predictions=st.lists(PREDICTIONS, min_size=1, max_size=4),
    others=st.lists(strategies.TEXT | st.text("aé", min_size=30, max_size=70), max_size=3),
)
def test_peeking_equals_decoding_for_any_prediction(predictions: list[Prediction], others: list[str]) -> None:
    """Any order of them, and with other ids too: what is remembered of one says nothing false about the next."""
    wire_format = Avro()
    told = [one._replace(query_id=name) for one in predictions for name in (one.query_id, *others)]
    told += [one._replace(status=status) for one in told for status in Status]
    for prediction in (*told, *reversed(told)):
        value = CODEC.encode(prediction)
        decoded = CODEC.decode(Prediction, value)
        assert wire_format.peek(value) == (decoded.query_id, decoded.status is Status.DEFAULT)


def prediction(query_id: str, version: int = 0, status: Status = Status.COMPLETE, arm: int = 0) -> Prediction:
    """Return what a policy of two arms has decided by the state of this version."""
    decision = Decision((arm,), version, "digits", "exp3", ("logistic", "ridge"), (0.75, 0.25))
    outputs = (ModelOutput("logistic", "1", Outcome.OK, 7),)
    return Prediction(query_id, "digits", None, decision, status, None, 7, 1.0, outputs, 1, 2, 3, 4)


def test_what_one_state_has_decided_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After that only what begins in another way is: another version, arm or status."""
    wire_format, decoded = Avro(), list[str]()

    def decode(record: type[Prediction], value: bytes) -> Prediction:
        decoded.append(CODEC.decode(record, value).query_id[:1])
        return CODEC.decode(record, value)

    monkeypatch.setattr(wire_format, "_codec", SimpleNamespace(decode=decode, encode=CODEC.encode))
    given = (("a", 5), ("b", 6), ("c", 5, Status.COMPLETE, 1), ("d", 5, Status.DEFAULT))
    for _ in range(3):
        for name, *more in given:
            told = prediction(name * ID_BYTES, *more)  # type: ignore[arg-type]  # what they are stands above
            assert wire_format.peek(CODEC.encode(told)) == (name * ID_BYTES, name == "d")
    assert "".join(decoded) == "abcd"


def test_a_prediction_written_in_another_way_is_decoded_each_time() -> None:
    """An array's block may name its size; nothing is concluded from where such a one differs from the codec's."""
    wire_format, block = Avro(), len(b"head size") + 2 + ID_BYTES + len(" digits") + 2
    for status in (Status.COMPLETE, Status.DEFAULT, Status.PARTIAL):
        value = CODEC.encode(prediction("a" * ID_BYTES, status=status))
        assert value[block : block + 3] == b"\2\0\0"  # one arm, the first
        other = value[:block] + b"\1\2\0\0" + value[block + 3 :]
        assert CODEC.decode(Prediction, other) == CODEC.decode(Prediction, value)
        assert wire_format.peek(other) == ("a" * ID_BYTES, status is Status.DEFAULT)


def test_what_is_no_prediction_is_refused_by_the_decoder() -> None:
    """Another record, a newer schema or nothing at all cannot be peeked."""
    wire_format = Avro()
    wire_format.peek(CODEC.encode(prediction("a" * ID_BYTES)))
    for value in (b"", b"\xc3\x01" + bytes(60), CODEC.encode(Feedback("a" * ID_BYTES))):
        with pytest.raises(DecodeError):
            wire_format.peek(value)


@given(
    names=st.lists(st.text(max_size=40) | IDS, min_size=1, max_size=3),
    more=st.dictionaries(st.text(max_size=5) | st.sampled_from(("id", "model_name")), st.text(max_size=5), max_size=3),
)
def test_peeking_equals_decoding_for_any_response(names: list[str], more: dict[str, str]) -> None:
    """Texts that JSON escapes, a second `id` further in, spaces or none."""
    wire_format = V2("logistic")
    for name in names:
        response = {"model_name": "logistic", **more, "id": name, "parameters": more, "outputs": [{"data": [7]}]}
        for separators in ((", ", ": "), (",", ":")):
            value = json.dumps(response, separators=separators).encode()
            assert wire_format.peek(value) == (wire_format.answer(value).query_id, False)


def test_a_response_without_an_output_is_no_answer() -> None:
    """It is decoded, which says so."""
    with pytest.raises(KeyError):
        V2("logistic").peek(b'{"id": "a", "error": "none"}')


class Wire:
    """Keeps what is produced, and answers with what is put into `answers`."""

    def __init__(self, *_: object, **__: object) -> None:
        self.produced: list[tuple[str, bytes, bytes, bool]] = []
        self.answers: list[bytes] = []

    def follow(self, _topics: Sequence[str]) -> None:
        """There is nothing to wait for."""

    def produce(
        self, topic: str, key: bytes, value: bytes, _headers: Sequence[object] = (), *, patient: bool = False
    ) -> None:
        """Keep a record."""
        self.produced.append((topic, key, value, patient))

    def values(self, _timeout_s: float) -> list[bytes]:
        """Return all answers."""
        taken, self.answers = self.answers, []
        return taken


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """What LoadGen is told is complete; it has an environment of its own, so here is one that notes."""
    told: list[int] = []
    fake = ModuleType("mlperf_loadgen")
    fake.QuerySampleResponse = lambda sample_id, *_: sample_id  # type: ignore[attr-defined]
    fake.QuerySamplesComplete = told.extend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", fake)
    monkeypatch.delitem(sys.modules, "load.research.peers.loadgen_process", raising=False)
    yield told
    sys.modules.pop("load.research.peers.loadgen_process", None)


@pytest.fixture
def courier(completed: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Courier:
    """A courier of three rows with labels, over a wire that keeps."""
    from load.research.peers import loadgen_process

    monkeypatch.setattr(loadgen_process, "Wire", Wire)
    np.save(tmp_path / "rows.npy", np.eye(3, 64, dtype=np.float32))
    np.save(tmp_path / "labels.npy", np.array([4, 5, 6]))
    rows, labels, folder = (str(tmp_path / name) for name in ("rows.npy", "labels.npy", ""))
    where = {"bootstrap": "", "prefix": "", "sink": topics.PREDICTIONS, "application": "digits", "model": ""}
    asked = {"rate_per_s": 1.0, "seconds": 1.0, "objective_ms": 50.0, "seed": 3}
    return loadgen_process.Courier(Case(rows=rows, labels=labels, folder=folder, **where, **asked))  # type: ignore[arg-type]


def test_queries_are_those_that_rows_would_ask(courier: Courier) -> None:
    """Row after row, over and over, with the objective; each has an id and the time when it is sent."""
    before_us = time.time_ns() // 1_000
    courier.issue([SimpleNamespace(id=number) for number in range(5)])
    inputs = [Tensor.of(row) for row in np.eye(3, 64, dtype=np.float32)]
    rows = Rows("digits", inputs, slo_ms=50.0)
    wire: Any = courier._wire
    for index, (topic, key, value, patient) in enumerate(wire.produced):
        query = CODEC.decode(Query, value)
        assert (topic, key, patient) == (topics.QUERIES, query.query_id.encode(), False)
        assert before_us <= query.sent_us <= time.time_ns() // 1_000
        assert query == rows(index, query.sent_us).query._replace(query_id=query.query_id)
    assert len({key for _, key, _, _ in wire.produced}) == 5


def test_an_answer_completes_its_query_and_a_default_does_when_it_is_late(
    courier: Courier, completed: list[int]
) -> None:
    """Each is told the truth about its row, once; duplicates and strangers complete nothing."""
    courier.issue([SimpleNamespace(id=number) for number in (10, 11, 12)])
    wire: Any = courier._wire
    first, second, _ = [key.decode() for _, key, _, _ in wire.produced]
    wire.produced.clear()
    answers = (prediction(second), prediction(first, status=Status.DEFAULT), prediction(second), prediction("?" * 32))
    now_s = time.monotonic()
    assert list(courier._answers([CODEC.encode(each) for each in answers])) == [11]
    told = [(CODEC.decode(Feedback, value)[:2], patient) for _, _, value, patient in wire.produced]
    assert told == [((second, 5), True), ((first, 4), True)]
    assert courier.defaults == 1
    assert list(courier._too_late(now_s)) == []
    assert list(courier._too_late(time.monotonic() + 0.05)) == [10]
    assert completed == []
