"""The client: ask, await the prediction, send feedback.

    async with Client("127.0.0.1:9092") as client:
        prediction = await client.predict("digits", row)
        await client.feedback(prediction, label=3)

Queries and feedback go to the partition that Java's client would choose for their key (the context, else the query id);
predictions are read from all partitions without a consumer group, so any number of clients may listen.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import uuid
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.features import as_features
from schemas.framing import peek_id
from schemas.records import Feedback, Input, Prediction, Query, Tensor, Value
from schemas.tables import named_row
from streams.link import KafkaLink
from streams.murmur2 import partition_of
from streams.runtime.clock import SystemClock
from streams.runtime.errors import BrokerUnavailableError, StreamError
from streams.runtime.kafka_client import KafkaConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from streams.operators.contract import Record
    from streams.runtime.clock import Clock

_log = logging.getLogger(__name__)

# A query is answered by its deadline, whatever happens; an answer that is this late is not coming.
TIMEOUT_S = 10.0
_CONTEXTS = 65_536  # partitions remembered: a context is hashed once (4 us) and looked up after that (0.1 us)


class UnansweredError(StreamError, TimeoutError):
    """Nothing came back in time; the message says what to check."""


class Transport(Protocol):
    """What the client needs of Kafka. Topics are logical names."""

    async def start(self, follow: Sequence[str]) -> Mapping[str, int]:
        """Connect and stand at the present end of the followed topics; returns how many partitions each has."""
        ...

    async def send(self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Produce (key, value) pairs in order; returns when they are acknowledged."""
        ...

    async def read(self) -> Sequence[Record]:
        """Return what has arrived on the followed topics, waiting for at least one record."""
        ...

    async def close(self) -> None:
        """Send what is pending and disconnect."""
        ...


class Client:
    """An asyncio client of one deployment; use it as an async context manager.

    Args:
        bootstrap: `host:port` of the brokers.
        prefix: of the deployment's topics.
        properties: of the Kafka clients, in aiokafka's words (`security_protocol`, `sasl_mechanism`, ...).
        codec: of the records; without one, Avro single-object encoding.
        seed: makes the ids of a run repeatable; without one they are random.
        transport: how Kafka is reached; a test brings its own.
        clock: stamps what is sent.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str = "skysail",
        properties: Mapping[str, Any] | None = None,
        *,
        codec: Codec | None = None,
        seed: int | None = None,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._name = f"{prefix!r} on {bootstrap}"
        self._transport = transport or KafkaLink(KafkaConnection(bootstrap, prefix, properties or {}))
        self._clock = clock or SystemClock()
        self._codec = codec or Codec()
        self._ids = None if seed is None else random.Random(seed)  # noqa: S311 - ids, not secrets
        self._partitions = 0
        self._waiting: dict[str, asyncio.Future[Prediction]] = {}
        self._listeners: list[Callable[[Sequence[Record]], None]] = []
        self._reader: asyncio.Task[None] | None = None
        self._context_partition = functools.lru_cache(_CONTEXTS)(self._partition)

    async def __aenter__(self) -> Self:
        """Connect; from here on no prediction is missed."""
        counts = await self._transport.start((topics.PREDICTIONS,))
        self._partitions = counts[topics.PREDICTIONS]  # `queries` and `feedback` have as many: the topology says so
        self._reader = asyncio.create_task(self._read(), name="client.reader")
        self._reader.add_done_callback(self._reader_ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what is pending and disconnect."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        await self._transport.close()

    async def predict(
        self,
        application: str,
        x: Input | NDArray[np.generic] | Sequence[float] | Mapping[str, Any],
        *,
        context: str | None = None,
        features: Iterable[float] = (),
        slo_ms: float | None = None,
        priority: int = 0,
        version: str | None = None,
        query_id: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Prediction:
        """Ask one query and await its prediction.

        Args:
            application: which application is asked.
            x: one row: an array or a list of numbers, which is cast to what the model takes where nothing is lost; a
                string or bytes; or for a model of a data frame's rows, a mapping or a row of one.
            context: the user, session or region whose policy state decides.
            features: what contextual policies (`linucb`, `linear_thompson`) go by: numbers of about 1 that tell queries
                apart, in an order that stays.
            slo_ms: overrides the application's objective.
            priority: where a model is overloaded, queries of the lowest are refused first.
            version: that is to answer, or its label (`stable`, `canary`), of each model asked; of one: `MODEL@VERSION`.
                Where it does not run, that model's outcome is `unknown_version`.
            query_id: to ask under an id of your own; asking twice under one id gives one decision.
            timeout_s: how long to wait at most.

        Raises:
            UnansweredError: nothing came in time.
            BrokerUnavailableError: predictions can no longer be read; open a new client.
            TypeError: `x` is no input.
            SchemaError: a feature is not finite, or there are too many.
        """
        now_us, row, given = self._clock.now_us(), as_input(x), as_features(features)
        query = Query(query_id or self._new_id(), application, row, context, now_us, slo_ms, priority, given, version)
        future = self._expect(query.query_id)
        try:
            async with asyncio.timeout(timeout_s):
                await self.send((query,))
                return await asyncio.shield(future)
        except TimeoutError:
            raise UnansweredError(self._advice(query, timeout_s)) from None
        finally:
            self._waiting.pop(query.query_id, None)

    async def feedback(self, prediction: Prediction, *, label: Value | None = None, loss: float | None = None) -> None:
        """Tell what the truth was: the label, or the loss in [0, 1] of the answer that was given.

        Raises:
            ValueError: neither or both are given, or the loss is outside [0, 1].
        """
        if (label is None) == (loss is None):
            raise ValueError("give either label= or loss=")
        if loss is not None and not 0 <= loss <= 1:
            raise ValueError(f"a loss lies in [0, 1], not {loss}")
        record = Feedback(prediction.query_id, label, loss, self._clock.now_us())
        await self.send_feedback(((record, prediction.context),))

    async def send(self, queries: Iterable[Query]) -> None:
        """Send many queries, one batch for each partition; returns when they are acknowledged."""
        await self._produce(topics.QUERIES, ((query, query.context) for query in queries))

    async def send_feedback(self, feedback: Iterable[tuple[Feedback, str | None]]) -> None:
        """Send many feedbacks, each with the context that its query had; returns when they are acknowledged."""
        await self._produce(topics.FEEDBACK, feedback)

    def subscribe(self, listener: Callable[[Sequence[Record]], None]) -> Callable[[], None]:
        """Have every poll's prediction records, undecoded, handed to `listener`; returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def _produce(self, topic: str, items: Iterable[tuple[Query | Feedback, str | None]]) -> None:
        batches: dict[int, list[tuple[bytes, bytes]]] = {}
        for record, context in items:
            key = (record.query_id if context is None else context).encode()
            partition = self._partition(key) if context is None else self._context_partition(key)
            batches.setdefault(partition, []).append((key, self._codec.encode(record)))
        await asyncio.gather(*(self._transport.send(topic, p, records) for p, records in batches.items()))

    def _partition(self, key: bytes) -> int:
        return partition_of(key, self._partitions)

    def _expect(self, query_id: str) -> asyncio.Future[Prediction]:
        if self._reader is None or self._reader.done():
            raise BrokerUnavailableError(f"the client of {self._name} is not connected; use it inside `async with`")
        if query_id in self._waiting:
            raise ValueError(f"query {query_id} is already being asked; ids must differ")
        return self._waiting.setdefault(query_id, asyncio.get_running_loop().create_future())

    async def _read(self) -> None:
        while True:
            records = await self._transport.read()
            for listener in tuple(self._listeners):
                listener(records)
            if self._waiting:
                self._answer(records)

    def _answer(self, records: Sequence[Record]) -> None:
        for record in records:
            try:
                future = self._waiting.get(peek_id(record.value))
                if future is not None and not future.done():
                    future.set_result(self._codec.decode(Prediction, record.value))
            except DecodeError as error:
                _log.warning("skipped a record that is no prediction, at %s: %s", record.position, error)

    def _reader_ended(self, reader: asyncio.Task[None]) -> None:
        """Nobody shall wait for a reader that is gone."""
        fault = None if reader.cancelled() else reader.exception()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(BrokerUnavailableError(f"predictions of {self._name} cannot be read: {fault!r}"))

    def _new_id(self) -> str:
        if self._ids is None:
            return uuid.uuid4().hex
        return uuid.UUID(int=self._ids.getrandbits(128), version=4).hex

    def _advice(self, query: Query, timeout_s: float) -> str:
        return (
            f"no prediction for query {query.query_id} to application {query.application!r} within {timeout_s:g} s from"
            f" {self._name}. Check that the selection role runs there (`skysail doctor`), with the same prefix, that"
            " the topics fit (`skysail topics check`), and what arrived (`skysail tail queries`)"
        )


def as_input(x: Input | NDArray[np.generic] | Sequence[float] | Mapping[str, Any]) -> Input:
    """Make one input row of what a user has at hand; lists become the array that numpy makes of them.

    Raises:
        TypeError: it is not numbers, a string or bytes.
    """
    if isinstance(x, (Tensor, str, bytes)):
        return x
    text = named_row(x)
    if text is not None:
        return text
    array = np.asarray(x)
    if array.dtype.kind not in "biuf":
        kind = f"{type(x).__name__} of {array.dtype}"
        raise TypeError(f"an input is an array or list of numbers, a string or bytes, or a mapping, not {kind}")
    return Tensor.of(array)
