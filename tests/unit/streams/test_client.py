"""The client against a transport that is a list."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.errors import OversizedError, SchemaError
from schemas.inputs import as_input, as_label
from schemas.records import Feedback, MetricFeedback, Prediction, Query, Status, Tensor
from streams.client import Client, UnansweredError
from streams.operators.contract import Record
from streams.runtime.errors import BrokerUnavailableError, RecordTooLargeError
from streams.sync import SyncClient
from streams.topology import partition_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

PARTITIONS = 4
NOW_US = 1_700_000_000_000_000
CODEC = Codec()


class FrozenClock:
    """A clock that stands still."""

    def now_us(self) -> int:
        """Return the one time there is."""
        return NOW_US


class FakeTransport:
    """Keeps what is sent; `answer` says what comes back for a query."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, bytes, bytes]] = []
        self.headers: tuple[tuple[str, bytes], ...] = ()
        self.arrivals: asyncio.Queue[Sequence[Record] | Exception] = asyncio.Queue()
        self.answer: Callable[[Query], Prediction | None] = lambda _query: None
        self.closed = False
        self.counts: dict[str, int] = {}

    async def start(self, follow: Sequence[str]) -> Mapping[str, int]:
        """Know four partitions of each topic, or what `counts` says."""
        self.arrivals = asyncio.Queue()
        return self.counts or dict.fromkeys(follow, PARTITIONS)

    async def send(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes]],
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        """Keep the records and answer queries."""
        self.headers = headers
        for key, value in records:
            self.sent.append((topic, partition, key, value))
            prediction = self.answer(CODEC.decode(Query, value)) if topic == topics.QUERIES else None
            if prediction is not None:
                self.arrive(CODEC.encode(prediction), partition=partition)

    async def read(self) -> Sequence[Record]:
        """Return the next arrivals, or raise what was put there."""
        arrived = await self.arrivals.get()
        if isinstance(arrived, Exception):
            raise arrived
        return arrived

    async def close(self) -> None:
        """Note it."""
        self.closed = True

    def arrive(self, *values: bytes, partition: int = 0) -> None:
        """Let prediction records arrive in one poll."""
        arrived = [Record(topics.PREDICTIONS, partition, i, NOW_US, None, v) for i, v in enumerate(values)]
        self.arrivals.put_nowait(arrived)


@pytest.fixture
def transport() -> FakeTransport:
    """A transport without a system behind it."""
    return FakeTransport()


@pytest.fixture
async def client(transport: FakeTransport) -> AsyncIterator[Client]:
    """A connected client with seeded ids."""
    async with Client("nowhere:1", transport=transport, clock=FrozenClock(), seed=1) as connected:
        yield connected


def _prediction(query: Query, answer: int = 3) -> Prediction:
    return Prediction(
        query_id=query.query_id,
        application=query.application,
        context=query.context,
        decision=None,
        status=Status.COMPLETE,
        reason=None,
        answer=answer,
        confidence=1.0,
        outputs=(),
        sent_us=query.sent_us,
        received_us=0,
        deadline_us=0,
        answered_us=0,
        reply_token=query.reply_token,
    )


async def test_a_prediction_comes_back_to_its_query(client: Client, transport: FakeTransport) -> None:
    """The query carries the row, the context, the objective and the time; the answer is the decoded prediction."""
    transport.answer = _prediction
    row = np.arange(4, dtype=np.float32)
    prediction = await client.predict("digits", row, context="ann", slo_ms=50)
    query = CODEC.decode(Query, transport.sent[0][3])
    assert (prediction.answer, prediction.query_id) == (3, query.query_id)
    assert len(query.reply_token) == 16
    expected = Query(query.query_id, "digits", Tensor.of(row), "ann", NOW_US, 50.0, reply_token=query.reply_token)
    assert query == expected


async def test_headers_travel_with_the_query(client: Client, transport: FakeTransport) -> None:
    """As a trace's does that it belongs to; feedback has none."""
    transport.answer = _prediction
    headers = (("traceparent", b"00-1"),)
    prediction = await client.predict("digits", [1.0], headers=headers)
    assert transport.headers == headers
    await client.feedback(prediction, label=3)
    assert transport.headers == ()


@pytest.mark.parametrize(
    ("counts", "partitions"),
    [
        ({topics.QUERIES: 9, topics.FEEDBACK: 4, topics.PREDICTIONS: 4}, None),
        ({topics.QUERIES: 4, topics.FEEDBACK: 9, topics.PREDICTIONS: 9}, None),
        ({topics.PREDICTIONS: 4}, None),
        ({topics.QUERIES: 9, topics.FEEDBACK: 9, topics.PREDICTIONS: 9}, 4),
    ],
)
async def test_queries_and_feedback_keep_to_the_partitions_that_are_served(
    transport: FakeTransport, counts: dict[str, int], partitions: int | None
) -> None:
    """Wherever somebody has added some: those that the topics have in common, or that the deployment names."""
    transport.counts = counts
    contexts = [f"user-{number}" for number in range(64)]
    async with Client("nowhere:1", transport=transport, clock=FrozenClock(), partitions=partitions) as client:
        await client.send([Query(context, "digits", "text", context) for context in contexts])
        await client.send_feedback([(Feedback(context, 1), context) for context in contexts])
    found = {(topic, key): partition for topic, partition, key, _ in transport.sent}
    expected = {context: partition_of(context.encode(), 4) for context in contexts}
    for topic in (topics.QUERIES, topics.FEEDBACK):
        assert {context: found[topic, context.encode()] for context in contexts} == expected


async def test_an_objective_that_was_cut_is_logged_once_for_each_application(
    client: Client, transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    """It is seen by the deadline that the answer tells; what was not cut is not."""
    transport.answer = lambda query: _prediction(query)._replace(deadline_us=query.sent_us + 2_000_000)
    with caplog.at_level("WARNING"):
        for application in ("digits", "digits", "fraud"):
            await client.predict(application, [1.0], slo_ms=20_000)
        await client.predict("other", [1.0], slo_ms=2_000)
        await client.predict("other", [1.0])
    assert [record.getMessage() for record in caplog.records] == [
        f"{name}: asked for 20000 ms, allowed are 2000 ms (max_slo_ms)" for name in ("digits", "fraud")
    ]


async def test_ids_of_candidates_travel_with_the_query(client: Client, transport: FakeTransport) -> None:
    """As a list; what are no ids is refused before it is sent."""
    transport.answer = _prediction
    await client.predict("ratings", 0, candidates=["film-1", "film-2"], top=2)
    asked = CODEC.decode(Query, transport.sent[0][3])
    assert (asked.candidates, asked.top) == (("film-1", "film-2"), 2)
    with pytest.raises(SchemaError, match="differ"):
        await client.predict("ratings", 0, candidates=["film-1", "film-1"])


async def test_features_travel_with_the_query(client: Client, transport: FakeTransport) -> None:
    """Anything that iterates over numbers will do; what is none of them is refused before it is sent."""
    transport.answer = _prediction
    await client.predict("digits", "x", features=np.array([0.5, 1.0], np.float32))
    assert CODEC.decode(Query, transport.sent[0][3]).features == (0.5, 1.0)
    with pytest.raises(SchemaError, match="features"):
        await client.predict("digits", "x", features=[np.inf])
    assert len(transport.sent) == 1


async def test_concurrent_queries_get_their_own_answers(client: Client, transport: FakeTransport) -> None:
    """Answers are matched by id, in whatever order they come."""
    transport.answer = lambda query: _prediction(query, answer=int(query.input))  # type: ignore[arg-type]
    predictions = await asyncio.gather(*(client.predict("numbers", str(i)) for i in range(20)))
    assert [p.answer for p in predictions] == list(range(20))


@pytest.mark.parametrize("context", [None, "ann", "björn"])
async def test_query_and_feedback_land_where_java_would_put_their_key(
    client: Client, transport: FakeTransport, context: str | None
) -> None:
    """The key is the context, else the query id; feedback follows its query."""
    transport.answer = _prediction
    prediction = await client.predict("digits", "x", context=context, query_id="q-1")
    await client.feedback(prediction, label=3)
    key = (context or "q-1").encode()
    placed = [(topic, partition, key) for topic, partition, key, _ in transport.sent]
    expected = partition_of(key, PARTITIONS)
    assert placed == [(topics.QUERIES, expected, key), (topics.FEEDBACK, expected, key)]


async def test_feedback_carries_a_label_or_a_loss(client: Client, transport: FakeTransport) -> None:
    """Either of them, with the time."""
    prediction = _prediction(Query("q-1", "digits", "x"))
    await client.feedback(prediction, label="seven")
    await client.feedback(prediction, loss=0.25)
    sent = [CODEC.decode(Feedback, value) for *_, value in transport.sent]
    assert sent == [Feedback("q-1", "seven", None, NOW_US), Feedback("q-1", None, 0.25, NOW_US)]


async def test_a_metric_is_told_by_its_name(client: Client, transport: FakeTransport) -> None:
    """Where its query's feedback goes; only finite numbers are values."""
    await client.measure(_prediction(Query("q-1", "digits", "x")), "revenue", 12.5)
    await client.measure("q-2", "revenue", -1, context="ann")
    sent = [CODEC.decode(MetricFeedback, value) for *_, value in transport.sent]
    assert sent == [MetricFeedback("q-1", "revenue", 12.5, NOW_US), MetricFeedback("q-2", "revenue", -1.0, NOW_US)]
    assert transport.sent[1][1] == partition_of(b"ann", PARTITIONS)
    for value in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="finite"):
            await client.measure("q-1", "revenue", value)


async def test_feedback_carries_its_weight(client: Client, transport: FakeTransport) -> None:
    """A positive number; the joiner knows how large it may be."""
    prediction = _prediction(Query("q-1", "digits", "x"))
    await client.feedback(prediction, label=3, weight=2.5)
    assert [CODEC.decode(Feedback, value).weight for *_, value in transport.sent] == [2.5]
    for weight in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="a weight is a number above 0"):
            await client.feedback(prediction, label=3, weight=weight)


@pytest.mark.parametrize("given", [{}, {"label": 1, "loss": 0.5}, {"loss": 1.5}, {"loss": float("nan")}])
async def test_feedback_that_says_nothing_or_too_much_is_refused(client: Client, given: dict[str, float]) -> None:
    """At the call, not by the joiner a minute later."""
    with pytest.raises(ValueError, match=r"label=|loss lies"):
        await client.feedback(_prediction(Query("q-1", "digits", "x")), **given)  # type: ignore[arg-type]


async def test_silence_is_an_error_that_says_what_to_check(client: Client) -> None:
    """It is a TimeoutError and names application, prefix, broker and the commands that help."""
    advice = r"'digits'.*'skysail' on nowhere:1.*skysail doctor.*skysail topics check"
    with pytest.raises(UnansweredError, match=advice):
        await client.predict("digits", "x", timeout_s=0.01)


async def test_a_query_that_kafka_does_not_take_is_no_silence(
    client: Client, transport: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection is left: nobody needs to look at the roles."""

    async def send(*_: object) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(transport, "send", send)
    with pytest.raises(BrokerUnavailableError, match=r"Kafka at nowhere:1 did not take query .*skysail doctor"):
        await client.predict("digits", "x", timeout_s=0.01)


def test_a_script_without_logging_reads_nothing_of_what_is_tried_again(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither ours nor the Kafka library's: errors are raised, and whoever sets logging up sees all."""
    script = (
        "import logging, streams.client; streams.client.Client('b:9092');"
        "logging.getLogger('aiokafka.producer').error('lost');"
        "logging.getLogger('streams.runtime.role.accumulator').warning('tries again')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert capfd.readouterr().err == ""


async def test_many_queries_go_in_one_batch_a_partition(client: Client, transport: FakeTransport) -> None:
    """Order within a partition is the order given."""
    queries = [Query(f"q-{i}", "digits", "x") for i in range(50)]
    await client.send(queries)
    by_partition = {p: [k for _, q, k, _ in transport.sent if q == p] for p in range(PARTITIONS)}
    assert sum(map(len, by_partition.values())) == 50
    for partition, keys in by_partition.items():
        assert keys == [q.query_id.encode() for q in queries if partition_of(q.query_id.encode(), 4) == partition]


async def test_listeners_get_whole_polls_undecoded(client: Client, transport: FakeTransport) -> None:
    """Until they say that they have heard enough."""
    heard: list[int] = []
    transport.answer = _prediction
    end = client.subscribe(lambda records: heard.append(len(records)))
    await client.predict("digits", "x")
    end()
    await client.predict("digits", "x")
    assert heard == [1]


async def test_other_clients_answers_and_garbage_are_passed_over(client: Client, transport: FakeTransport) -> None:
    """A record that does not decode costs a log line, not the reader."""
    stranger = CODEC.encode(_prediction(Query("stranger", "digits", "x")))

    def answer(query: Query) -> Prediction:
        transport.arrive(b"garbage", b"", stranger)
        return _prediction(query)

    transport.answer = answer
    assert (await client.predict("digits", "x")).answer == 3


async def test_a_reader_that_fails_fails_whoever_waits(client: Client, transport: FakeTransport) -> None:
    """At once, now and later, instead of by a timeout."""
    transport.arrivals.put_nowait(BrokerUnavailableError("gone"))
    with pytest.raises(BrokerUnavailableError, match="can no longer be read: gone"):
        await client.predict("digits", "x")
    with pytest.raises(BrokerUnavailableError, match="can no longer be read: gone"):
        await client.predict("digits", "x")


async def test_an_id_can_be_asked_once_at_a_time(client: Client, transport: FakeTransport) -> None:
    """Two awaiting calls with one id could not tell their answers apart."""
    waiting = asyncio.create_task(client.predict("digits", "x", query_id="q-1", timeout_s=5))
    for _ in range(3):
        await asyncio.sleep(0)
    with pytest.raises(ValueError, match="already being asked"):
        await client.predict("digits", "y", query_id="q-1")
    _, partition, _, value = transport.sent[0]
    transport.arrive(CODEC.encode(_prediction(CODEC.decode(Query, value))), partition=partition)
    assert (await waiting).query_id == "q-1"


async def test_seeded_ids_repeat(transport: FakeTransport) -> None:
    """Two clients with one seed ask under the same ids; without a seed they differ."""
    transport.answer = _prediction

    async def first_id(seed: int | None) -> str:
        async with Client("nowhere:1", transport=transport, clock=FrozenClock(), seed=seed) as client:
            return (await client.predict("digits", "x")).query_id

    assert await first_id(7) == await first_id(7)
    assert await first_id(None) != await first_id(None)
    assert transport.closed


@pytest.mark.parametrize(
    "changes",
    [{"application": "napapp"}, {"context": "bob"}, {"reply_token": ""}, {"reply_token": "0" * 16}],
    ids=["application", "context", "no-token", "token"],
)
async def test_an_answer_in_anothers_name_is_passed_over(
    client: Client, transport: FakeTransport, changes: dict[str, str]
) -> None:
    """Whoever reads the queries knows their ids; the first prediction with one need not be its answer."""

    def answer(query: Query) -> Prediction:
        partition = partition_of(b"ann", PARTITIONS)
        forged = _prediction(query, answer=1)
        transport.arrive(CODEC.encode(forged._replace(**changes)), partition=partition)  # type: ignore[arg-type]
        transport.arrive(CODEC.encode(forged), partition=(partition + 1) % PARTITIONS)
        return _prediction(query)

    transport.answer = answer
    assert (await client.predict("digits", "x", context="ann")).answer == 3


async def test_feedback_may_come_from_another_process(client: Client, transport: FakeTransport) -> None:
    """Who knows id and context needs no prediction; numpy's numbers are numbers."""
    await client.feedback("q-1", context="ann", label=np.int64(3))
    (topic, partition, key, value) = transport.sent[0]
    assert (topic, partition, key) == (topics.FEEDBACK, partition_of(b"ann", PARTITIONS), b"ann")
    assert CODEC.decode(Feedback, value) == Feedback("q-1", 3, None, NOW_US)


async def test_feedback_that_cannot_be_meant_is_refused(client: Client, transport: FakeTransport) -> None:
    """Another context than the prediction's would send it where nobody waits."""
    prediction = _prediction(Query("q-1", "digits", "x", "ann"))
    with pytest.raises(ValueError, match="'ann', not 'bob'"):
        await client.feedback(prediction, label=1, context="bob")
    with pytest.raises(TypeError, match="the id of a query, not int"):
        await client.feedback(7, label=1)  # type: ignore[arg-type]
    assert not transport.sent


async def test_a_broker_that_is_not_there_is_said_in_one_sentence(transport: FakeTransport) -> None:
    """Not in the words of the library underneath."""

    async def refuse(_follow: Sequence[str]) -> Mapping[str, int]:
        raise BrokerUnavailableError("KafkaConnectionError('Unable to bootstrap')")

    transport.start = refuse  # type: ignore[assignment,method-assign]
    with pytest.raises(BrokerUnavailableError, match=r"^no Kafka broker answers at nowhere:1; see `skysail doctor`"):
        await Client("nowhere:1", transport=transport).connect()


def test_a_client_used_without_async_says_what_to_write(transport: FakeTransport) -> None:
    """Instead of Python's words about context managers."""
    with pytest.raises(TypeError, match="async with"), Client("nowhere:1", transport=transport):
        pass


def test_a_script_needs_no_event_loop(transport: FakeTransport) -> None:
    """The same calls, which return when they are done; what fails is raised where it was called."""
    transport.answer = _prediction
    with SyncClient("nowhere:1", transport=transport, clock=FrozenClock()) as client:
        prediction = client.predict("digits", [1.0, 2.0])
        client.feedback(prediction, label=3)
        with pytest.raises(TypeError, match="an input is"):
            client.predict("digits", object())
    assert (prediction.answer, [topic for topic, *_ in transport.sent]) == (3, [topics.QUERIES, topics.FEEDBACK])
    assert transport.closed
    with pytest.raises(RuntimeError, match="not connected"):
        client.predict("digits", "x")


def test_a_script_may_connect_again(transport: FakeTransport) -> None:
    """With the same object, once it has been closed, or when the broker was away; not while it is connected."""
    transport.answer = _prediction
    client = SyncClient("nowhere:1", transport=transport, clock=FrozenClock())
    start = transport.start
    transport.start = _refused  # type: ignore[assignment,method-assign]
    with pytest.raises(BrokerUnavailableError):
        client.__enter__()
    transport.start = start  # type: ignore[method-assign]
    for _ in range(2):
        with client:
            assert client.predict("digits", [1.0]).answer == 3
            with pytest.raises(RuntimeError, match="connected already"):
                client.__enter__()


async def _refused(_follow: Sequence[str]) -> Mapping[str, int]:
    raise BrokerUnavailableError("away")


class Frame:
    """What of pandas is looked at: `to_numpy` and `to_dict`."""

    def __init__(self, array: object, named: object = None) -> None:
        self._array, self._named = array, named

    def to_numpy(self) -> object:
        """Return the values."""
        return self._array

    def to_dict(self) -> object:
        """Return them by name."""
        return self._named


OBJECTS = np.array([41, "nurse"], dtype=object)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ("text", "text"),
        (b"bytes", b"bytes"),
        ([1.0, 2.0], Tensor.of(np.array([1.0, 2.0]))),
        ([1, 2], Tensor.of(np.array([1, 2]))),
        ((True, False), Tensor.of(np.array([True, False]))),
        (7, Tensor.of(np.array(7))),
        (np.float32(1.5), Tensor.of(np.array(1.5, np.float32))),
        (np.ones(2, np.uint8), Tensor.of(np.ones(2, np.uint8))),
        (np.ones(2, ">f4"), Tensor.of(np.ones(2, np.float32))),
        (np.ones(2, np.float16), Tensor.of(np.ones(2, np.float32))),
        (np.ones(2, np.longdouble), Tensor.of(np.ones(2))),
        (Frame(np.ones(2)), Tensor.of(np.ones(2))),
        (Frame(np.array([1, 2.5], dtype=object)), Tensor.of(np.array([1, 2.5]))),
        (Frame(OBJECTS, {"age": np.int64(41), "job": "nurse"}), '{"age": 41, "job": "nurse"}'),
        (Frame(OBJECTS[None], {"age": {9: 41}, "job": {9: "nurse"}}), '{"age": 41, "job": "nurse"}'),
        ({"age": np.float64(41), "job": "nurse"}, '{"age": 41.0, "job": "nurse"}'),
    ],
)
def test_inputs_are_what_a_user_has_at_hand(x: object, expected: object) -> None:
    """Numbers travel as tensors, named columns as a JSON text, strings and bytes as they are."""
    assert as_input(x) == expected


@pytest.mark.parametrize("x", [None, object(), ["a", "b"], {"a": object()}, [[1], [1, 2]], np.ones(2, complex)])
def test_other_inputs_are_refused(x: object) -> None:
    """With what would be accepted."""
    with pytest.raises(TypeError, match=r"an input is an array or list of numbers|texts and None can travel"):
        as_input(x)


@pytest.mark.parametrize(
    ("label", "expected"),
    [(np.float32(0.5), 0.5), (np.str_("yes"), "yes"), (np.bool_(True), True), (np.array(3), 3),
     ([0.25, 0.75], Tensor.of(np.array([0.25, 0.75])))],
)  # fmt: skip
def test_labels_are_what_a_user_has_at_hand(label: object, expected: object) -> None:
    """Numpy's numbers and texts are numbers and texts, a list is of scores."""
    found = as_label(label)
    assert found == expected
    assert type(found) is type(expected)


def test_what_is_no_label_is_refused() -> None:
    """At the call, not by the joiner."""
    with pytest.raises(TypeError, match="a label is a number"):
        as_label(object())
    with pytest.raises(TypeError, match="tensor a: numbers are needed"):
        as_label({"a": object()})


def test_a_list_of_texts_is_called_so() -> None:
    """Not by the name that numpy gives to its letters."""
    with pytest.raises(TypeError, match=r"not a list of texts$"):
        as_input(["a", "b"])


async def test_a_text_that_would_become_a_dead_letter_is_refused_at_once(
    client: Client, transport: FakeTransport
) -> None:
    """Selection takes no context of 5,000 characters, and nobody should wait ten seconds to learn that."""
    with pytest.raises(
        SchemaError, match="id, application, context, version, token and episode have more than 4096 bytes"
    ):
        await client.predict("digits", [1.0], context="x" * 5_000)
    assert transport.sent == []


def test_a_client_of_an_event_loop_that_has_ended_says_so(transport: FakeTransport) -> None:
    """Two calls of `asyncio.run` share no client, and asking and feedback name the reason."""
    client = Client("nowhere:1", transport=transport, clock=FrozenClock())
    asyncio.run(client.connect())
    with pytest.raises(BrokerUnavailableError, match="was connected in another event loop"):
        asyncio.run(client.predict("digits", [1.0]))
    with pytest.raises(BrokerUnavailableError, match="was connected in another event loop"):
        asyncio.run(client.feedback("q", label=1))


async def test_a_client_that_was_never_connected_says_so_for_feedback_too(transport: FakeTransport) -> None:
    """What is sent before `connect` names the way, and is no assertion of the transport."""
    client = Client("nowhere:1", transport=transport, clock=FrozenClock())
    with pytest.raises(BrokerUnavailableError, match="is not connected; use it inside `async with`"):
        await client.feedback("q", label=1)


def test_a_client_of_the_parent_process_says_so_in_the_child(transport: FakeTransport) -> None:
    """A server that forks after it has connected gets a sentence, and not a closed thread's."""
    with SyncClient("nowhere:1", transport=transport, clock=FrozenClock()) as client:
        child = os.fork()
        if child == 0:
            try:
                client.predict("digits", [1.0])
            except RuntimeError as error:
                os._exit(0 if "connect after the fork" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_prediction_shows_its_answer_and_why_it_is_not_complete_first() -> None:
    """Whoever prints one reads a line, not a thousand characters."""
    query = Query("my-1", "digits", Tensor.of(np.zeros(64, np.float32)))
    late = _prediction(query)._replace(status=Status.DEFAULT, reason="deadline", confidence=0.0)
    shown = "Prediction('digits', answer=3, default (deadline), confidence=0.00, asked no model, query_id='my-1')"
    assert repr(late) == shown


def test_a_tensor_shows_its_numbers_where_they_are_few() -> None:
    """Bytes tell a person nothing."""
    assert repr(Tensor.of(np.array([3]))) == "Tensor(int64[1], [3])"
    assert repr(Tensor.of(np.zeros((8, 8), np.float32))) == "Tensor(float32[8, 8], 256 bytes)"


def _asked(count: int) -> list[Query]:
    return [Query(f"q{at}", "digits", "x", sent_us=NOW_US, reply_token=f"t{at}") for at in range(count)]


async def test_many_queries_are_asked_at_once_and_answered_in_their_order(
    client: Client, transport: FakeTransport
) -> None:
    """One batch for each partition, whatever the order in which answers come."""
    transport.answer = lambda query: _prediction(query, int(query.query_id[1:]))
    predictions = await client.ask(_asked(20))
    assert [prediction.answer for prediction in predictions] == [*range(20)]
    assert [prediction.query_id for prediction in predictions] == [f"q{at}" for at in range(20)]
    assert client._waiting == {}


async def test_of_many_queries_the_unanswered_one_is_named(client: Client, transport: FakeTransport) -> None:
    """None waits afterwards."""
    transport.answer = lambda query: None if query.query_id == "q1" else _prediction(query)
    with pytest.raises(UnansweredError, match="query q1 "):
        await client.ask(_asked(3), timeout_s=0.05)
    assert client._waiting == {}


async def test_an_id_under_way_is_not_asked_again(client: Client, transport: FakeTransport) -> None:
    """The one that is under way gets its answer all the same."""
    first = asyncio.create_task(client.ask(_asked(1)))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="q0 is already being asked"):
        await client.ask(_asked(2))
    assert {*client._waiting} == {"q0"}
    query = client._waiting["q0"]
    transport.arrive(CODEC.encode(_prediction(query.query)), partition=query.partition)
    assert (await first)[0].query_id == "q0"


async def test_a_client_tells_when_predictions_can_no_longer_be_read(client: Client, transport: FakeTransport) -> None:
    """All that wait fail then."""
    lost, asked = asyncio.create_task(client.lost()), asyncio.create_task(client.ask(_asked(3)))
    await asyncio.sleep(0)
    assert not lost.done()
    transport.arrivals.put_nowait(BrokerUnavailableError("gone"))
    await lost
    with pytest.raises(BrokerUnavailableError, match="gone"):
        await asked


def _of(prediction: Prediction | Exception) -> object:
    return prediction.answer if isinstance(prediction, Prediction) else type(prediction)


async def test_many_rows_are_asked_together_and_answered_in_order(client: Client, transport: FakeTransport) -> None:
    """One request a partition, whatever order the answers come in; what is no row has its error in its place."""
    transport.answer = lambda query: _prediction(query, int(query.input.numpy()[0]))  # type: ignore[union-attr]
    sends = transport.send
    requests: list[int] = []

    async def send(topic: str, partition: int, records: Sequence[tuple[bytes, bytes]], *_: object) -> None:
        requests.append(len(records))
        await sends(topic, partition, [*records][::-1])

    transport.send = send  # type: ignore[method-assign]
    rows: list[object] = [[number, 1] for number in range(40)]
    rows[7], rows[9] = object(), np.zeros(1 << 20)
    found = await client.predict_many("digits", rows)  # type: ignore[arg-type]
    expected: list[object] = [*range(40)]
    expected[7], expected[9] = TypeError, OversizedError
    assert [_of(one) for one in found] == expected
    assert (len(requests), sum(requests)) == (PARTITIONS, 38)


async def test_rows_that_get_no_answer_say_so_beside_those_that_do(client: Client, transport: FakeTransport) -> None:
    """Nothing is raised, so no answer is lost."""
    transport.answer = lambda query: None if query.query_id == "q-1" else _prediction(query)
    names = ["q-0", "q-1", "q-2"]
    found = await client.predict_many("digits", ["a", "b", "c"], query_ids=names, timeout_s=0.05)
    assert [_of(one) for one in found] == [3, UnansweredError, 3]
    transport.answer = _prediction
    assert (await client.predict("digits", "b", query_id="q-1")).answer == 3  # nobody waits for it any more


async def test_no_more_rows_are_under_way_than_allowed(client: Client, transport: FakeTransport) -> None:
    """Else those at the end wait longer than their objective; each is stamped when it is sent."""
    under_way: list[int] = []

    def answer(query: Query) -> Prediction:
        under_way.append(len(client._waiting))
        return _prediction(query)

    transport.answer = answer
    found = await client.predict_many("digits", (f"row {number}" for number in range(25)), at_most=10)
    assert [_of(one) for one in found] == [3] * 25
    assert max(under_way) == 10


async def test_rows_have_contexts_and_ids_of_their_own(client: Client, transport: FakeTransport) -> None:
    """One a row, or none at all."""
    transport.answer = _prediction
    found = await client.predict_many("digits", ["a", "b"], contexts=["ann", None], query_ids=["1", "2"])
    assert [(one.query_id, one.context) for one in found if isinstance(one, Prediction)] == [("1", "ann"), ("2", None)]
    for wrong in ({"contexts": ["ann"]}, {"query_ids": ["1"]}, {"query_ids": ["1", "1"]}):
        with pytest.raises(ValueError, match=r"1 for 2 rows|twice"):
            await client.predict_many("digits", ["a", "b"], **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", ["text", b"bytes", {"age": 41}, Tensor.of(np.ones(2)), 7])
async def test_one_row_is_not_taken_for_many(client: Client, rows: object) -> None:
    """A text would become a query a letter."""
    with pytest.raises(TypeError, match="rows are needed"):
        await client.predict_many("digits", rows)  # type: ignore[arg-type]


async def test_when_kafka_takes_no_rows_the_others_are_not_tried(client: Client, transport: FakeTransport) -> None:
    """Each chunk would wait as long; what was answered before stays."""
    transport.answer = _prediction
    sends = transport.send

    async def send(topic: str, partition: int, records: Sequence[tuple[bytes, bytes]], *_: object) -> None:
        if len(transport.sent) >= 2:
            await asyncio.Event().wait()
        await sends(topic, partition, records)

    transport.send = send  # type: ignore[method-assign]
    rows = [f"row {number}" for number in range(9)]
    found = await client.predict_many("digits", rows, contexts=["ann"] * 9, at_most=2, timeout_s=0.05)
    assert [_of(one) for one in found] == [3, 3, *[BrokerUnavailableError] * 7]


def test_a_script_asks_many_rows_too(transport: FakeTransport) -> None:
    """With the same words."""
    transport.answer = _prediction
    with SyncClient("nowhere:1", transport=transport, clock=FrozenClock()) as client:
        assert [_of(one) for one in client.predict_many("digits", np.ones((3, 2)))] == [3, 3, 3]


async def test_the_rows_that_are_not_tried_say_that_kafka_is_away(client: Client, transport: FakeTransport) -> None:
    """Not what was wrong with the last row that was tried."""

    async def send(*_: object) -> None:
        await asyncio.Event().wait()

    transport.send = send  # type: ignore[method-assign]
    found = await client.predict_many("digits", ["a", object(), "b"], at_most=2, timeout_s=0.05)  # type: ignore[list-item]
    assert [_of(one) for one in found] == [BrokerUnavailableError, TypeError, BrokerUnavailableError]


async def test_a_row_that_the_topic_refuses_takes_no_answer_from_others(
    client: Client, transport: FakeTransport
) -> None:
    """Those beside it were sent, and are answered; it says what the broker has said."""
    transport.answer = lambda query: None if query.query_id == "large" else _prediction(query)
    sends = transport.send

    async def send(topic: str, partition: int, records: Sequence[tuple[bytes, bytes]], *_: object) -> None:
        await sends(topic, partition, records)
        if any(key == b"large" for key, _ in records):
            raise RecordTooLargeError("queries does not take so much")

    transport.send = send  # type: ignore[method-assign]
    names = ["large", *(f"q-{number}" for number in range(20))]
    found = await client.predict_many("digits", ["x"] * 21, query_ids=names, timeout_s=0.05)
    assert [_of(one) for one in found] == [RecordTooLargeError, *[3] * 20]
