"""Asks again what was recorded, each query at its time divided by the speed, whatever became of those before it.

trace ─▶ read ahead ─▶ queries, by when they are due ─▶ Kafka
                   └─▶ feedback ─▶ waits for the answer of its query, then its recorded delay ─▶ Kafka
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_id
from schemas.records import Feedback, MetricFeedback, Prediction, Query
from streams.player.score import Score
from streams.runtime.errors import StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Record

# What is played of a trace, by timestamp; at one time in this order.
PLAYED: Final = (topics.QUERIES, topics.PREDICTIONS, topics.FEEDBACK)
LEAD_US: Final = 200_000  # before the first query: the first fetches are over by then
LOOK_US: Final = 2_000_000  # how far the trace is read ahead of the clock
AHEAD: Final = 20_000  # records read ahead, at most
ON_THE_WAY: Final = 20_000  # queries that Kafka has not acknowledged, at most
REMEMBERED: Final = 500_000  # queries that wait for answer or feedback; the oldest are forgotten, with their feedback
AT_ONCE: Final = 500
TURN_S: Final = 0.05


class QueryClient(Protocol):
    """The part of `streams.client.Client` that is needed."""

    async def send(self, queries: Iterable[Query]) -> None:
        """Send queries; returns when they are acknowledged."""
        ...

    async def send_feedback(self, feedback: Iterable[tuple[Feedback | MetricFeedback, str | None]]) -> None:
        """Send feedback, each with the context of its query."""
        ...

    def subscribe(self, listener: Callable[[Sequence[Record]], None]) -> Callable[[], None]:
        """Pass every poll's predictions to `listener`, until the function returned is called."""
        ...


@dataclass(frozen=True, slots=True)
class Play:
    """How a trace is played.

    Attributes:
        speed: time is divided by it.
        token: of all queries: answers carry it back.
        run: makes the queries' ids new; None = they are kept.
        drain_s: how long the last answers are waited for.
        slo_us: within it an answer is in time; None = by the deadline that the deployment has set.
    """

    speed: float
    token: str
    run: str | None = None
    drain_s: float = 10.0
    slo_us: int | None = None


@dataclass(slots=True)
class _PlayedQuery:
    """A query of the trace, and what is known of it.

    Attributes:
        recorded_us: when it was asked; once that is known, when it was answered.
        due_us: when it is meant to be sent now.
        is_sent: whether a query of this id has left.
        seen_us: when its answer came now.
        feedback: that waits for the answer, with its recorded time.
    """

    context: str | None
    recorded_us: int
    due_us: int
    is_sent: bool = False
    seen_us: int | None = None
    feedback: list[tuple[Feedback | MetricFeedback, int]] = field(default_factory=list)


class _Due(NamedTuple):
    at_us: int
    number: int
    feedback: Feedback | MetricFeedback
    context: str | None


class Player:
    """Plays one trace; one object, one run.

    Args:
        client: of the deployment.
        codec: of the records.
        records: of the topics in `PLAYED`, by timestamp.
        play: how.
        now_us: the clock.
    """

    def __init__(
        self, client: QueryClient, codec: Codec, records: Iterable[Record], play: Play, now_us: Callable[[], int]
    ) -> None:
        self._client = client
        self._codec = codec
        self._records: Iterator[Record] = iter(records)
        self._play = play
        self._now_us = now_us
        self._next: Record | None = None
        self._first_us = 0
        self._start_us = 0
        self._asked: dict[str, _PlayedQuery] = {}
        self._queries: deque[Query] = deque()
        self._due: list[_Due] = []
        self._number = 0
        self._on_the_way = 0
        self._waiting = 0
        self.score = Score()

    @property
    def position_us(self) -> int:
        """How much of the trace has been read, in the trace's own time."""
        return 0 if self._next is None else self._next.timestamp_us - self._first_us

    async def run(self, stop: asyncio.Event) -> Score:
        """Play the trace until its end, or until `stop` is set; then wait for the last answers."""
        self._next = next(self._records, None)
        if self._next is None:
            return self.score
        self._first_us, self._start_us = self._next.timestamp_us, self._now_us() + LEAD_US
        end = self._client.subscribe(self._heard)
        try:
            async with asyncio.TaskGroup() as tasks:
                while not stop.is_set() and self._has_more():
                    await self._turn(tasks)
                await self._drain(tasks, stop)
        finally:
            end()
        self.score.without_answer = sum(len(asked.feedback) for asked in self._asked.values())
        return self.score

    def _has_more(self) -> bool:
        return self._next is not None or bool(self._queries)

    async def _turn(self, tasks: asyncio.TaskGroup) -> None:
        """Read ahead, send what is due, and wait for what is due next."""
        now_us = self._now_us()
        self._read_ahead(now_us)
        self._send_feedback(tasks, now_us)
        if self._on_the_way < ON_THE_WAY:
            self._send_queries(tasks, now_us)
        await asyncio.sleep(self._wait_s())

    async def _drain(self, tasks: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        """Wait for the last answers for a while, and for feedback until it is due."""
        until_us = self._now_us() + int(self._play.drain_s * 1e6)
        while not stop.is_set() and (self._due or (self._waiting and self._now_us() < until_us)):
            self._send_feedback(tasks, self._now_us())
            await asyncio.sleep(TURN_S / 10)

    def _wait_s(self) -> float:
        now_us = self._now_us()
        if self._on_the_way >= ON_THE_WAY:
            return TURN_S / 10
        nexts = [self._queries[0].sent_us] if self._queries else []
        nexts += [self._due[0].at_us] if self._due else []
        return min([TURN_S, *(max(0, at_us - now_us) / 1e6 for at_us in nexts)])

    def _at(self, recorded_us: int) -> int:
        """Return when something that happened then is to happen now."""
        return self._start_us + int((recorded_us - self._first_us) / self._play.speed)

    def _read_ahead(self, now_us: int) -> None:
        while (record := self._next) is not None and len(self._queries) < AHEAD:
            if self._at(record.timestamp_us) > now_us + LOOK_US:
                return
            try:
                self._take(record)
            except DecodeError:
                self.score.left_out += 1
            self._next = next(self._records, None)

    def _take(self, record: Record) -> None:
        if record.topic == topics.QUERIES:
            self._ask(self._codec.decode(Query, record.value), record.timestamp_us)
            return
        recorded_id = peek_id(record.value)
        if not recorded_id:  # feedback by key: what it was about was written again, with the id
            return
        query_id = self._id(recorded_id)
        asked = self._asked.get(query_id)
        if record.topic == topics.PREDICTIONS:
            if asked is not None:
                asked.recorded_us = record.timestamp_us
        elif asked is None:
            self.score.left_out += 1
        else:
            feedback = self._told(record)._replace(query_id=query_id)
            asked.feedback.append((feedback, record.timestamp_us))
            if asked.seen_us is not None:
                self._schedule(asked)

    def _told(self, record: Record) -> Feedback | MetricFeedback:
        try:
            return self._codec.decode(Feedback, record.value)
        except DecodeError as error:
            with suppress(DecodeError):
                return self._codec.decode(MetricFeedback, record.value)
            raise error from None

    def _ask(self, query: Query, recorded_us: int) -> None:
        """Put a query where it waits for its time; never before the one ahead of it."""
        due_us = max(self._at(recorded_us), self._queries[-1].sent_us if self._queries else 0)
        query = query._replace(query_id=self._id(query.query_id), sent_us=due_us, reply_token=self._play.token)
        self._queries.append(query)
        if query.query_id in self._asked:
            return  # asked twice, as clients do that have seen no answer: one answer is due
        self._asked[query.query_id] = _PlayedQuery(query.context, recorded_us, due_us)
        if len(self._asked) > REMEMBERED:
            forgotten = self._asked.pop(next(iter(self._asked)))
            self._waiting -= forgotten.seen_us is None
            self.score.left_out += len(forgotten.feedback)
        self._waiting += 1

    def _id(self, recorded: str) -> str:
        if self._play.run is None:
            return recorded
        return hashlib.blake2b(f"{self._play.run}:{recorded}".encode(), digest_size=16).hexdigest()

    def _send_queries(self, tasks: asyncio.TaskGroup, now_us: int) -> None:
        due: list[Query] = []
        while self._queries and self._queries[0].sent_us <= now_us and len(due) < AT_ONCE:
            query = self._queries.popleft()
            due.append(query)
            self.score.behind.add(now_us - query.sent_us)
            self._note_sent(query.query_id)
        if due:
            self.score.sent += len(due)
            self._on_the_way += len(due)
            tasks.create_task(self._sent(due))

    def _note_sent(self, query_id: str) -> None:
        asked = self._asked.get(query_id)
        if asked is not None:
            self.score.repeated += asked.is_sent
            asked.is_sent = True

    async def _sent(self, queries: Sequence[Query]) -> None:
        try:
            await self._client.send(queries)
        except StreamError:
            self.score.refused += len(queries)
        finally:
            self._on_the_way -= len(queries)

    def _send_feedback(self, tasks: asyncio.TaskGroup, now_us: int) -> None:
        due: list[tuple[Feedback | MetricFeedback, str | None]] = []
        while self._due and self._due[0].at_us <= now_us:
            one = heapq.heappop(self._due)
            due.append((one.feedback._replace(sent_us=now_us), one.context))
        if due:
            self.score.feedback += len(due)
            tasks.create_task(self._feedback_sent(due))

    async def _feedback_sent(self, feedback: Sequence[tuple[Feedback | MetricFeedback, str | None]]) -> None:
        try:
            await self._client.send_feedback(feedback)
        except StreamError:
            self.score.refused += len(feedback)

    def _heard(self, records: Sequence[Record]) -> None:
        """Take predictions as they come."""
        now_us = self._now_us()
        for record in records:
            try:
                asked = self._asked.get(peek_id(record.value))
                if asked is not None:
                    self._answered(asked, self._codec.decode(Prediction, record.value), now_us)
            except DecodeError:
                continue

    def _answered(self, asked: _PlayedQuery, prediction: Prediction, now_us: int) -> None:
        if prediction.reply_token != self._play.token:
            return  # an answer to somebody else's query of this id
        if asked.seen_us is not None:
            self.score.doubled += 1
            return
        asked.seen_us = now_us
        self._waiting -= 1
        given_us = self._play.slo_us
        deadline_us = prediction.deadline_us if given_us is None else asked.due_us + given_us
        took_us = now_us - asked.due_us
        self.score.heard(prediction.status, prediction.reason, took_us, is_late=now_us > deadline_us)
        self._schedule(asked)

    def _schedule(self, asked: _PlayedQuery) -> None:
        """Let feedback whose query has been answered go out after its recorded delay."""
        assert asked.seen_us is not None
        for feedback, at_us in asked.feedback:
            delay_us = int(max(0, at_us - asked.recorded_us) / self._play.speed)
            self._number += 1
            heapq.heappush(self._due, _Due(asked.seen_us + delay_us, self._number, feedback, asked.context))
        asked.feedback.clear()
