"""The client: ask, await the prediction, send feedback.

    async with Client("127.0.0.1:9092") as client:
        prediction = await client.predict("digits", row)
        await client.feedback(prediction, label=3)

Without `async`, in a script: `streams.sync.SyncClient`. In a notebook, whose cells may await: `await client.connect()`
in one cell, `await client.close()` in the last.

Queries and feedback go to the partition that Java's client would choose for their key (the context, else the query id).
Predictions are read from all partitions without a consumer group, so any number of clients may listen. An answer counts
only from the query's own partition, with its application, context and random token: others may use its id.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import secrets
from itertools import islice, repeat
from math import inf, isfinite
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from schemas import topics
from schemas.codec import MAX_TEXT, Codec, over_text
from schemas.errors import DecodeError, OversizedError, SchemaError
from schemas.framing import peek_id
from schemas.ids import DRAWN_BITS
from schemas.ids import query_id as drawn_id
from schemas.inputs import Row, as_candidates, as_features, as_input, as_label
from schemas.records import Features, Feedback, KeyedFeedback, MetricFeedback, Prediction, Query
from schemas.rows import each_input
from schemas.sizes import MAX_BYTES
from schemas.told import as_places
from streams.client_transport import KafkaClientTransport
from streams.runtime.clock import SystemClock
from streams.runtime.errors import BrokerUnavailableError, RecordRefusedError, StreamError
from streams.runtime.kafka.connection import KafkaConnection
from streams.topology import partition_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import NoReturn, Self

    from schemas.records import Input
    from schemas.rows import Rows
    from streams.operators.contract import Record
    from streams.runtime.clock import Clock

_log = logging.getLogger(__name__)
# A script without logging must not see every retry of a lost broker on its terminal.
logging.getLogger("streams").addHandler(logging.NullHandler())

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
# A query is answered by its deadline; after this time no answer will come.
TIMEOUT_S = 10.0
# Rows under way at the same time: a cheap model answers them in tens of milliseconds.
AT_ONCE = 500
_TOKEN_BYTES = 8  # too long to be guessed while the query is under way
# Partitions remembered: a key is hashed once (4 us) and looked up after that (0.1 us). An id is looked up twice, by who
# waits for its answer and by who sends it.
_CONTEXTS, _IDS, _USUAL_BYTES = 65_536, 8_192, 256


class UnansweredError(StreamError, TimeoutError):
    """No answer came in time; the message says what to check."""


class _Awaited(NamedTuple):
    """A query that waits, and where its answer is expected."""

    query: Query
    partition: int
    future: asyncio.Future[Prediction]

    def takes(self, record: Record, prediction: Prediction) -> bool:
        """Tell whether a prediction answers this query, not another one with its id."""
        asked = self.query.application, self.query.context, self.query.reply_token
        return record.partition == self.partition and (*prediction[1:3], prediction.reply_token) == asked

    def outcome(self) -> Prediction | Exception | None:
        """Return its answer, or what has become of it; None = there is none yet."""
        if not self.future.done():
            return None
        fault = self.future.exception()
        return fault if isinstance(fault, Exception) else self.future.result()


class _Home(NamedTuple):
    """Where a client is connected: its sockets serve no other process, and its futures no other event loop."""

    process: int
    loop: asyncio.AbstractEventLoop

    @classmethod
    def here(cls) -> _Home:
        """Return the process and loop that run."""
        return cls(os.getpid(), asyncio.get_running_loop())


class ClientTransport(Protocol):
    """The client's way to Kafka. Topics are logical names."""

    async def start(self, follow: Sequence[str]) -> Mapping[str, int]:
        """Connect at the present end of the followed topics.

        Returns:
            how many partitions each has, and `queries` and `feedback`, as far as that is known.
        """
        ...

    async def send(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]], headers: Headers = ()
    ) -> None:
        """Produce (key, value) pairs in order, all with these headers; returns when they are acknowledged."""
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
        seed: makes ids repeatable, but for the time in them; without it they are random.
        transport: the way to Kafka; tests bring their own.
        clock: stamps what is sent.
        max_input_kib: the largest query, as the deployment's setting of this name; a `codec` has its own bound.
        partitions: as the deployment's setting of this name. Without it, those that `queries`, `feedback` and
            `predictions` have in common: the same, unless somebody has added partitions to all three.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str = "skysail",
        properties: Mapping[str, object] | None = None,
        *,
        codec: Codec | None = None,
        seed: int | None = None,
        transport: ClientTransport | None = None,
        clock: Clock | None = None,
        max_input_kib: int = MAX_BYTES >> 10,
        partitions: int | None = None,
    ) -> None:
        self._codec = codec or Codec(max_bytes=max_input_kib << 10)
        self._name = f"{prefix!r} on {bootstrap}"
        place = KafkaConnection(bootstrap, prefix, properties or {}, record_bytes=self._codec.max_bytes)
        self._transport = transport or KafkaClientTransport(place)
        self._clock = clock or SystemClock()
        self._ids = None if seed is None else random.Random(seed)  # noqa: S311 - ids, not secrets
        self._served = partitions
        self._cut = set[str]()  # applications that allow less time than was asked for
        self._partitions = 0
        self._bootstrap = bootstrap
        self._waiting: dict[str, _Awaited] = {}
        self._listeners: list[Callable[[Sequence[Record]], None]] = []
        self._reader: asyncio.Task[None] | None = None
        self._home: _Home | None = None
        self._context_partition = functools.lru_cache(_CONTEXTS)(self._partition)
        self._id_partition = functools.lru_cache(_IDS)(self._partition)

    async def __aenter__(self) -> Self:
        """Connect."""
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what is pending and disconnect."""
        await self.close()

    def __enter__(self) -> NoReturn:
        """Say what to write instead."""
        raise TypeError("this client is asynchronous: write `async with Client(...)`, or take SyncClient")

    def __exit__(self, *_: object) -> None:
        """Do nothing; Python wants it before it calls `__enter__`."""

    @property
    def waiting(self) -> int:
        """How many queries wait for their answers."""
        return len(self._waiting)

    async def connect(self) -> None:
        """Connect; from here on no prediction is missed.

        Raises:
            BrokerUnavailableError: no broker answers.
            MisconfiguredError: the broker refuses, or lacks, something that only a person can change.
        """
        try:
            counts = await self._transport.start((topics.PREDICTIONS,))
        except BrokerUnavailableError:
            message = f"no Kafka broker answers at {self._bootstrap}; see `skysail doctor`, `skysail kafka start`"
            raise BrokerUnavailableError(message) from None  # the libraries' own tracebacks tell a user nothing more
        self._home = _Home.here()
        # Others may have more than are served: somebody has added some.
        self._partitions = min(count for count in (*counts.values(), self._served) if count)
        self._reader = asyncio.create_task(self._read(), name="client.reader")
        self._reader.add_done_callback(self._reader_ended)

    async def close(self) -> None:
        """Send what is pending and disconnect."""
        self._home = None
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        await self._transport.close()

    async def predict(
        self,
        application: str,
        x: Row,
        *,
        context: str | None = None,
        features: Iterable[float] = (),
        slo_ms: float | None = None,
        priority: int = 0,
        version: str | None = None,
        candidates: Row | Sequence[str] | None = None,
        top: int = 1,
        query_id: str | None = None,
        episode: str = "",
        timeout_s: float = TIMEOUT_S,
        headers: Headers = (),
    ) -> Prediction:
        """Ask one query and await its prediction.

        Args:
            application: which application is asked.
            x: one row: an array or list of numbers, a pandas Series or row of a data frame, a string or bytes; for a
                model of a data frame's columns also a mapping of their names to values, and for one of several tensors
                a mapping of their names to arrays. Several tensors as an answer have `arrays()`, too.
            context: the user, session or region whose policy state decides.
            features: numbers for contextual policies (`linucb`, `linear_thompson`): of about 1, always in the same
                order.
            slo_ms: the objective of this query instead of the application's, at most its `max_slo_ms` (by default ten
                times its `slo_ms`). A longer one is cut: the prediction's message says so, and a warning, once.
            priority: an overloaded model refuses queries of the lowest priority first.
            version: the version that must answer, or its label (`stable`, `canary`, or your own), for each model asked.
                `MODEL@VERSION` names it for one model; an application that asks one model alone then asks this one. If
                no model runs it, the answer is the default with the reason `unknown_version`.
            candidates: rows of features, or ids by which the application's sources look these up, for the policy
                `ridge`: the answer has the places of the best, the best first, and of ids `best` has them. No model is
                asked, and `x` is not looked at. For `two_speed`: ids of its items. Feedback is about the first.
            top: how many of them.
            query_id: an id of your own; a query asked twice is answered twice, and learnt from once.
            episode: several queries that one feedback is about, such as a visit: `feedback_on_episode`. All of them
                have the same context, or none.
            timeout_s: how long to wait at most.
            headers: of the query's record, such as `traceparent`; the prediction's record has them, too.

        Raises:
            UnansweredError: nothing came in time.
            BrokerUnavailableError: Kafka did not take the query in time, or predictions can no longer be read.
            TypeError: `x` is no input.
            SchemaError: the query is larger than `max_input_kib`; id, application, context and version together have
                more than 4,096 bytes; a feature is not finite, or there are too many.
        """
        now_us, row, given = self._clock.now_us(), as_input(x), as_features(features)
        name, token = query_id or self._new_id(), secrets.token_hex(_TOKEN_BYTES)
        ranked = None if candidates is None else as_candidates(candidates)
        query = Query(name, application, row, context, now_us, slo_ms, priority, given, version, token, ranked, top)
        query = query._replace(episode=episode) if episode else query
        future, is_taken = self._expect(query), False
        try:
            async with asyncio.timeout(timeout_s):
                await self.send((query,), headers)
                is_taken = True
                prediction = await asyncio.shield(future)
        except TimeoutError:
            if not is_taken:
                raise BrokerUnavailableError(self._not_taken(query, timeout_s)) from None
            raise UnansweredError(self._advice(query, timeout_s)) from None
        finally:
            self._waiting.pop(query.query_id, None)
        if slo_ms is not None:
            self._warn_if_cut(slo_ms, prediction)
        return prediction

    async def predict_many(
        self,
        application: str,
        rows: Rows,
        *,
        contexts: Sequence[str | None] | None = None,
        query_ids: Sequence[str] | None = None,
        slo_ms: float | None = None,
        priority: int = 0,
        version: str | None = None,
        at_most: int = AT_ONCE,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Prediction | Exception]:
        """Ask about many rows and await all predictions.

        Rows are sent together, so that workers batch them. A million rows are no task for a client: load the model
        (`skysail.load_package`) and call it.

        Args:
            application: which application is asked.
            rows: a data frame of pandas or polars, an array, arrays by name whose first dimension is rows, or any
                iterable of rows as `predict` takes them.
            contexts: one a row, None where it has none.
            query_ids: one a row.
            slo_ms: the objective of each query, from when it is sent.
            priority: of all; a low one lets others pass.
            version: as of `predict`.
            at_most: rows under way at the same time. More than the models answer within the objective get the default.
            timeout_s: how long to wait at most for rows that are under way together.

        Returns:
            One a row, in order: its prediction, or the exception that `predict` would raise. Nothing of this is raised.
            Once Kafka does not take rows in time, all further ones have that `BrokerUnavailableError`.

        Raises:
            ValueError: contexts or ids are not as many as rows, or an id is there twice.
            TypeError: `rows` is one row.
        """
        self._check_here()
        now_us, given = self._clock.now_us, self._given(each_input(rows), contexts, query_ids)
        found: list[Prediction | Exception] = []
        while chunk := [*islice(given, max(1, at_most))]:
            blank = Query("", application, "", None, now_us(), slo_ms, priority, version=version)
            queries = [
                x if isinstance(x, Exception) else self._filled(blank, name, x, context) for name, context, x in chunk
            ]
            answers, is_taken = await self._ask_together(queries, timeout_s)
            found += answers
            lost = None if is_taken else next((one for one in answers if isinstance(one, BrokerUnavailableError)), None)
            if lost is not None:
                return found + [lost] * sum(1 for _ in given)
        if slo_ms is not None:
            for answer in found:
                if isinstance(answer, Prediction):
                    self._warn_if_cut(slo_ms, answer)
        return found

    def _filled(self, blank: Query, name: str, given: Input, context: str | None) -> Query:
        return blank._replace(query_id=name, input=given, context=context, reply_token=secrets.token_hex(_TOKEN_BYTES))

    def _given(
        self,
        inputs: Iterable[Input | Exception],
        contexts: Sequence[str | None] | None,
        query_ids: Sequence[str] | None,
    ) -> Iterator[tuple[str, str | None, Input | Exception]]:
        """Yield id, context and input of each row."""
        if query_ids is not None and len({*query_ids}) < len(query_ids):
            raise ValueError("query_ids: one is there twice")
        beside = [
            (what, those) for what, those in (("contexts", contexts), ("query_ids", query_ids)) if those is not None
        ]
        inputs = [*inputs] if beside else inputs
        for what, those in beside:
            if len(those) != len(inputs):  # type: ignore[arg-type] # a list by now
                raise ValueError(f"{what}: {len(those)} for {len(inputs)} rows")  # type: ignore[arg-type]
        named = iter(self._new_id, None) if query_ids is None else query_ids
        return zip(named, repeat(None) if contexts is None else contexts, inputs, strict=False)

    async def _ask_together(
        self, queries: Sequence[Query | Exception], timeout_s: float
    ) -> tuple[list[Prediction | Exception], bool]:
        """Return what becomes of each query, and whether Kafka has taken them."""
        asked, records = self._begun(queries)
        is_taken, refused = False, dict[int, RecordRefusedError]()
        try:
            async with asyncio.timeout(timeout_s):
                refused = await self._post(topics.QUERIES, records)
                is_taken = True
                if futures := [one.future for one in asked if isinstance(one, _Awaited)]:
                    await asyncio.wait(futures)
        except TimeoutError:
            pass
        finally:
            for one in asked:
                if isinstance(one, _Awaited):
                    self._waiting.pop(one.query.query_id, None)
        tell = self._advice if is_taken else self._not_taken
        kind = UnansweredError if is_taken else BrokerUnavailableError
        return [
            one
            if isinstance(one, Exception)
            else one.outcome() or refused.get(one.partition) or kind(tell(one.query, timeout_s))
            for one in asked
        ], is_taken

    def _begun(
        self, queries: Sequence[Query | Exception]
    ) -> tuple[list[_Awaited | Exception], list[tuple[bytes, str | None, bytes]]]:
        """Expect answers; return who waits, or what is wrong with a query, and key, context and value of those sent."""
        asked: list[_Awaited | Exception] = []
        records: list[tuple[bytes, str | None, bytes]] = []
        for query in queries:
            if isinstance(query, Exception):
                asked.append(query)
                continue
            try:
                value = self._encoded(query)
                self._expect(query)
            except (SchemaError, ValueError, BrokerUnavailableError) as error:
                asked.append(error)
            else:
                asked.append(self._waiting[query.query_id])
                home = _home(query)
                records.append((_key(query.query_id, home), home, value))
        return asked, records

    def _warn_if_cut(self, slo_ms: float, prediction: Prediction) -> None:
        """Log, once for each application, that a query had less time than it asked for."""
        had_us, name = prediction.deadline_us - prediction.sent_us, prediction.application
        if 0 < had_us < int(slo_ms * 1_000) and name not in self._cut:
            self._cut.add(name)
            _log.warning("%s: asked for %g ms, allowed are %g ms (max_slo_ms)", name, slo_ms, had_us / 1_000)

    async def feedback(
        self,
        prediction: Prediction | str,
        *,
        label: object = None,
        loss: float | None = None,
        context: str | None = None,
        weight: float | None = None,
        places: Iterable[Mapping[str, object]] = (),
    ) -> None:
        """Report the true label, or the loss in [0, 1] of the answer.

        Args:
            prediction: the answer, or the id of its query, as from another process.
            label: a number or text, or scores.
            loss: instead of a label.
            places: of a ranking, instead of both: what is known of any of its places, all at once, as mappings with
                `position` (from 0) or `item` (an id), and `label` or `loss`. The application's `examination` says which
                places teach.
            context: beside an id: the query's context, if it had one. Without it, or with another, feedback goes where
                it finds no prediction, and ends on `feedback.dlq` as `unmatched`.
            weight: how much it counts beside other feedback, above 0 and at most the application's `max_weight`; by
                default 1.

        Raises:
            ValueError: neither or both are given, the loss is outside [0, 1], the weight is no positive number, or the
                context is not the prediction's.
            TypeError: the label is none, or `prediction` neither a prediction nor an id.
        """
        told = as_places(places)
        if told and (label is not None or loss is not None):
            raise ValueError("give either label= or loss=, or places=")
        if not told:
            _check_told(label, loss)
        if weight is not None and not 0 < weight < inf:
            raise ValueError(f"a weight is a number above 0, not {weight}")
        query_id, known = _asked(prediction, context)
        true = None if label is None else as_label(label)
        record = Feedback(query_id, true, loss, self._clock.now_us(), weight, places=told)
        await self.send_feedback(((record, known),))

    async def feedback_on_episode(
        self,
        application: str,
        episode: str,
        *,
        label: object = None,
        loss: float | None = None,
        context: str | None = None,
        within_s: float = 604_800.0,
    ) -> None:
        """Report what an episode came to: each of its answers whose window has not ended gets the whole of it.

        Args:
            application: that was asked, with `episodes` on.
            episode: as its queries name it.
            label: a number or text, or scores.
            loss: instead of a label, in [0, 1].
            context: that its queries had; None = none.
            within_s: how old an answer is at most.

        Raises:
            ValueError: neither or both are given, the loss is outside [0, 1], or no episode is named.
            TypeError: the label is none.
        """
        if not episode:
            raise ValueError("name the episode")
        _check_told(label, loss)
        true = None if label is None else as_label(label)
        home, now_us = episode if context is None else context, self._clock.now_us()
        told = KeyedFeedback("", application, context or "", int(within_s * 1e6), true, loss, now_us, episode=episode)
        await self._produce(topics.FEEDBACK, ((told, home),))

    async def measure(
        self, prediction: Prediction | str, metric: str, value: float, *, context: str | None = None
    ) -> None:
        """Report what a metric of the application came to, beside the label or loss: nobody learns from it.

        Args:
            prediction: the answer, or the id of its query, as from another process.
            metric: its name, as `metrics` of the application has it.
            value: in the metric's unit.
            context: as in `feedback`.

        Raises:
            ValueError: the value is no finite number, or the context is not the prediction's.
            TypeError: `prediction` is neither a prediction nor an id.
        """
        if not isfinite(value):
            raise ValueError(f"a metric's value is a finite number, not {value}")
        query_id, known = _asked(prediction, context)
        await self.send_feedback(((MetricFeedback(query_id, metric, float(value), self._clock.now_us()), known),))

    async def set_features(self, source: str, features: Mapping[str, Iterable[float]]) -> None:
        """Write features of an application's source to their topic, by key; returns when they are acknowledged.

        Args:
            source: its name.
            features: the numbers of each key (as the source says, of a context, a text or a query's id), at most 256.

        Raises:
            SchemaError: they are not finite numbers, or too many.
        """
        self._check_here()
        records = [
            (topics.feature_key(source, key).encode(), self._codec.encode(Features(as_features(values))))
            for key, values in features.items()
        ]
        await self._transport.send(topics.FEATURES, 0, records)

    async def ask(
        self, queries: Sequence[Query], timeout_s: float = TIMEOUT_S, headers: Headers = ()
    ) -> list[Prediction]:
        """Ask queries that are made already, in one batch for each partition, and await all their predictions.

        Args:
            queries: with ids that differ, and a reply token each.
            timeout_s: how long to wait for the last one at most.
            headers: of all of their records.

        Returns:
            predictions in the order of the queries.

        Raises:
            UnansweredError: one of them was not answered in time.
            BrokerUnavailableError: Kafka did not take them in time, or predictions can no longer be read.
            SchemaError: one of them is too large; none was sent then.
        """
        futures, is_taken = list[asyncio.Future[Prediction]](), False
        try:
            for query in queries:
                futures.append(self._expect(query))
            async with asyncio.timeout(timeout_s):
                await self.send(queries, headers)
                is_taken = True
                return [await future for future in futures]
        except TimeoutError:
            if not is_taken:
                raise BrokerUnavailableError(self._not_taken(queries[0], timeout_s)) from None
            late = next(
                q for q, future in zip(queries, futures, strict=True) if future.cancelled() or not future.done()
            )
            raise UnansweredError(self._advice(late, timeout_s)) from None
        finally:
            for query, future in zip(queries, futures, strict=False):
                self._waiting.pop(query.query_id, None)
                if not future.cancel() and not future.cancelled():
                    future.exception()  # it is seen: the first one has been raised

    async def lost(self) -> str:
        """Return why, when predictions can no longer be read: then a new client is needed."""
        if self._reader is not None:
            await asyncio.wait([self._reader])
        return self._unread(self._reader)

    async def send(self, queries: Iterable[Query], headers: Headers = ()) -> None:
        """Send many queries, one batch for each partition; returns when they are acknowledged."""
        await self._produce(topics.QUERIES, ((query, _home(query)) for query in queries), headers)

    async def send_feedback(self, feedback: Iterable[tuple[Feedback | MetricFeedback, str | None]]) -> None:
        """Send many feedbacks, each with the context that its query had; returns when they are acknowledged."""
        await self._produce(topics.FEEDBACK, feedback)

    def subscribe(self, listener: Callable[[Sequence[Record]], None]) -> Callable[[], None]:
        """Pass every poll's prediction records, undecoded, to `listener`; returns a function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def _produce(
        self,
        topic: str,
        items: Iterable[tuple[Query | Feedback | KeyedFeedback | MetricFeedback, str | None]],
        headers: Headers = (),
    ) -> None:
        self._check_here()
        made = [(_key(record.query_id, context), context, self._encoded(record)) for record, context in items]
        for fault in (await self._post(topic, made, headers)).values():
            raise fault

    async def _post(
        self, topic: str, records: Iterable[tuple[bytes, str | None, bytes]], headers: Headers = ()
    ) -> dict[int, RecordRefusedError]:
        """Send values with their keys and contexts, one batch for each partition; return who has refused a record."""
        batches: dict[int, list[tuple[bytes, bytes]]] = {}
        for key, context, value in records:
            batches.setdefault(self._place(key, context), []).append((key, value))
        sent = [self._transport.send(topic, partition, pairs, headers) for partition, pairs in batches.items()]
        if len(sent) == 1:  # as of one query: a task of its own takes 8 us
            return await _refusals(sent[0], *batches)
        refused: dict[int, RecordRefusedError] = {}
        for partition, told in zip(batches, await asyncio.gather(*sent, return_exceptions=True), strict=True):
            if isinstance(told, RecordRefusedError):
                refused[partition] = told
            elif told is not None:
                raise told
        return refused

    def _encoded(self, record: Query | Feedback | KeyedFeedback | MetricFeedback) -> bytes:
        try:
            value = self._codec.encode(record)
        except OversizedError as error:
            raise OversizedError(
                f"{error}. Raise `max_input_kib` in the deployment's settings and in Client(max_input_kib=...), or send"
                " the address of the input (`worker.references`)"
            ) from None
        if len(value) > MAX_TEXT and isinstance(record, Query) and (fault := over_text(record)):
            raise OversizedError(fault)  # it would become a dead letter, and nobody would answer
        return value

    def _place(self, key: bytes, context: str | None) -> int:
        if len(key) > _USUAL_BYTES:
            return self._partition(key)
        return self._id_partition(key) if context is None else self._context_partition(key)

    def _partition(self, key: bytes) -> int:
        return partition_of(key, self._partitions)

    def _expect(self, query: Query) -> asyncio.Future[Prediction]:
        self._check_here()
        if self._reader is None or self._reader.done():
            raise BrokerUnavailableError(self._unread(self._reader))
        if query.query_id in self._waiting:
            raise ValueError(f"query {query.query_id} is already being asked; ids must differ")
        future = asyncio.get_running_loop().create_future()
        home = _home(query)
        partition = self._place(_key(query.query_id, home), home)
        self._waiting[query.query_id] = _Awaited(query, partition, future)
        return future

    def _check_here(self) -> None:
        """Raise BrokerUnavailableError unless it is connected in this process and event loop."""
        home = self._home
        if home is None:
            why = "is not connected; use it inside `async with`"
        elif home.process != os.getpid():
            why = "was connected in another process: connect after the fork, one client a process"
        elif home.loop is not asyncio.get_running_loop():
            why = "was connected in another event loop: connect inside this `asyncio.run`, or take SyncClient"
        else:
            return
        raise BrokerUnavailableError(f"the client of {self._name} {why}")

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
                awaited = self._waiting.get(peek_id(record.value))
                if awaited is None or awaited.future.done():
                    continue
                prediction = self._codec.decode(Prediction, record.value)
                if awaited.takes(record, prediction):
                    awaited.future.set_result(prediction)
            except DecodeError as error:
                _log.warning("skipped a record that is no prediction, at %s: %s", record.position, error)

    def _reader_ended(self, reader: asyncio.Task[None]) -> None:
        """Fail all waiting queries when the reader has ended."""
        for awaited in self._waiting.values():
            if not awaited.future.done():
                awaited.future.set_exception(BrokerUnavailableError(self._unread(reader)))

    def _unread(self, reader: asyncio.Task[None] | None) -> str:
        """Return why predictions can no longer be read, once their reader has ended."""
        fault = None if reader is None or reader.cancelled() else reader.exception()
        why = "the client was closed" if fault is None else str(fault) or type(fault).__name__
        return f"predictions of {self._name} can no longer be read: {why}; open a new client"

    def _new_id(self) -> str:
        drawn = secrets.randbits(DRAWN_BITS) if self._ids is None else self._ids.getrandbits(DRAWN_BITS)
        return drawn_id(self._clock.now_us(), drawn)

    def _not_taken(self, query: Query, timeout_s: float) -> str:
        return (
            f"Kafka at {self._bootstrap} did not take query {query.query_id} within {timeout_s:g} s: there is no"
            " connection to it, or it does not answer; see `skysail doctor`. The query may still be sent"
        )

    def _advice(self, query: Query, timeout_s: float) -> str:
        return (
            f"no prediction for query {query.query_id} to application {query.application!r} within {timeout_s:g} s from"
            f" {self._name}. If its objective is longer, wait longer (`timeout_s`, `--timeout`). Else check that the"
            " selection role runs there (`skysail doctor`), with the same prefix, that"
            " the topics fit (`skysail topics check`; where partitions were added, name those that are served:"
            " Client(..., partitions=...)), and what arrived (`skysail tail queries`)"
        )


def _check_told(label: object, loss: float | None) -> None:
    """Raise ValueError unless one of them is told, and is one."""
    if (label is None) == (loss is None):
        raise ValueError("give either label= or loss=")
    if loss is not None and not 0 <= loss <= 1:
        raise ValueError(f"a loss lies in [0, 1], not {loss}")


def _key(query_id: str, context: str | None) -> bytes:
    """Return the key of a query's records."""
    return (query_id if context is None else context).encode()


def _home(asked: Query | Prediction) -> str | None:
    """Return what a query lies by in the topics, as all that belongs with it does; None = its id."""
    return asked.episode or None if asked.context is None else asked.context


async def _refusals(sending: Awaitable[None], partition: int) -> dict[int, RecordRefusedError]:
    """Send a batch; return the refusal of one of its records, by its partition."""
    try:
        await sending
    except RecordRefusedError as fault:
        return {partition: fault}
    return {}


def _asked(prediction: Prediction | str, context: str | None) -> tuple[str, str | None]:
    """Return id and context of the query that feedback is about."""
    if isinstance(prediction, str):
        return prediction, context
    if not isinstance(prediction, Prediction):
        raise TypeError(f"feedback is about a prediction, or the id of a query, not {type(prediction).__name__}")
    if context not in {None, prediction.context}:
        raise ValueError(f"the prediction's context is {prediction.context!r}, not {context!r}")
    return prediction.query_id, _home(prediction)
