"""Clients: queries in bursts, garbage, and feedback in time, early, late, twice, wrong, or for unknown queries."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from load.research.seeds.features import FILMS, ITEMS, written
from load.research.seeds.models import LABELS, truth
from schemas import topics
from schemas.records import Feedback, Query, Tensor
from streams.operators.configuration import CANDIDATE
from streams.operators.contract import Emit
from streams.runtime.errors import BrokerUnavailableError
from streams.testing.connections import SimulatedTransport
from streams.topology import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from load.research.seeds.plan import Burst, Plan
    from schemas.codec import Codec
    from schemas.records import Application, Source, Value
    from streams.testing.connections import Process

_BACKOFF_S = 0.3
# In an outage of half an hour thousands wait: their tries would take longer than all else.
_BACKOFF_MAX_S = 20.0
_CONTEXTS = 5
_GARBAGE = 0.01  # of what is sent
_COPIED, _FLIPPED = 0.05, 0.02  # of queries, where clients ask oddly


async def in_bursts(
    bursts: Iterable[Burst], begin: Callable[[Burst, asyncio.TaskGroup], Coroutine[Any, Any, None]]
) -> None:
    """Begin each burst when it is due; returns when all is done that they have begun."""
    running = asyncio.get_running_loop()
    started_s = running.time()
    async with asyncio.TaskGroup() as tasks:
        for burst in bursts:
            await asyncio.sleep(max(0.0, started_s + burst.at_s - running.time()))
            await begin(burst, tasks)


class Sender:
    """Sends records again until they are acknowledged."""

    def __init__(self, process: Process) -> None:
        self._transport = SimulatedTransport(process)

    async def write(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Write a record, of topics of others also one without a value; it may be there several times then."""
        emit = Emit(topic, partition, key, cast("bytes", value))
        backoff_s = _BACKOFF_S
        while True:
            try:
                await self._transport.send(topic, partition, [emit])
            except BrokerUnavailableError:
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
            else:
                return


class Clients:
    """Ask and tell according to a plan; what they send is sent again until it is acknowledged."""

    def __init__(self, plan: Plan, process: Process, codec: Codec, random: Random) -> None:
        self._plan = plan
        self._process = process
        self._codec = codec
        self._random = random
        self._sender = Sender(process)
        self._sent = 0

    async def run(self) -> None:
        """Send all that is planned; returns when everything was acknowledged."""
        await in_bursts(self._plan.bursts, self._burst)

    async def _burst(self, burst: Burst, tasks: asyncio.TaskGroup) -> None:
        until_s = asyncio.get_running_loop().time() + burst.for_s
        while asyncio.get_running_loop().time() < until_s:
            for _ in range(burst.volley):
                self._sent += 1
                tasks.create_task(self._ask_and_tell(self._sent, tasks))
            await asyncio.sleep(self._random.expovariate(burst.rate))

    async def _ask_and_tell(self, number: int, tasks: asyncio.TaskGroup) -> None:
        random, application = self._random, self._random.choice(self._plan.asked)
        query_id = f"q{number}"
        if random.random() < _GARBAGE:
            await self._send(topics.QUERIES, query_id, b"garbage %d" % number)
            return
        context = f"u{random.randrange(_CONTEXTS)}" if application.per_context else None
        key, kind, delay_s = context or query_id, *_telling(random, application)
        if kind == "early":
            await self._tell(key, query_id, truth(number))
        query = Query(query_id, application.name, _input(number), context)
        query = self._with_features(query, application, tasks)
        if self._plan.is_at_once:
            query = self._oddly(key, query, tasks)
        await self._ask(key, query._replace(sent_us=query.sent_us or self._now_us()))
        if random.random() < 0.01:  # a client that was not sure asks again
            await self._ask(key, query._replace(sent_us=self._now_us()))
        if kind == "never":
            return
        await asyncio.sleep(delay_s)
        if kind == "wrong":
            await self._tell(key, query_id, "no label")
        if kind == "nobody's":
            query_id = f"x{number}"
        await self._tell(key, query_id, truth(number))
        if kind == "doubled":
            await asyncio.sleep(random.expovariate(1.0))
            await self._tell(key, query_id, truth(number + random.randrange(LABELS)))

    def _with_features(self, query: Query, application: Application, tasks: asyncio.TaskGroup) -> Query:
        """Return a query with candidates, if it may have such, and write features of it: before, after, or never."""
        if not application.sources:
            return query
        random = Random(f"features of {query.query_id} {self._plan.seed}")  # noqa: S311
        is_choosing = application.policy == "two_speed"
        is_ranking = is_choosing or any(source.key == CANDIDATE for source in application.sources)
        candidates = tuple(random.sample(ITEMS if is_choosing else FILMS, random.randint(1, len(ITEMS))))
        for source in application.sources:
            if source.store == "topic" and random.random() < 0.5:
                key = random.choice(candidates) if source.key == CANDIDATE else query.query_id
                tasks.create_task(self._know(source, key, random.choice((0.0, 0.0, 0.05, 1.0))))
        if not is_ranking or random.random() < 0.3:
            return query
        return query._replace(candidates=candidates, top=random.randint(1, 4))

    def _oddly(self, key: str, query: Query, tasks: asyncio.TaskGroup) -> Query:
        """Return a query with what few have; send copies of some at the same time, and ones with a flipped bit."""
        random = Random(f"oddities of {query.query_id} {self._plan.seed}")  # noqa: S311
        token = random.choice(("", "", "t", f"token {query.query_id}"))
        slo_ms = random.choice((50.0, 2_000.0)) if random.random() < 0.1 else None
        skew_us = random.choice((-1_000_000, -100_000, 400_000, 1_300_000)) if random.random() < 0.1 else 0
        query = query._replace(reply_token=token, slo_ms=slo_ms, sent_us=self._now_us() + skew_us)
        if random.random() < _COPIED:
            tasks.create_task(self._ask(key, query._replace(reply_token=random.choice((token, token, "another")))))
        if random.random() < _FLIPPED:
            value = self._codec.encode(query._replace(query_id=f"flipped{query.query_id}"))
            place = random.randrange(len(value))
            value = value[:place] + bytes([value[place] ^ 1 << random.randrange(8)]) + value[place + 1 :]
            tasks.create_task(self._send(topics.QUERIES, key, value))
        return query

    async def _know(self, source: Source, key: str, after_s: float) -> None:
        """Write features of a key to their topic."""
        await asyncio.sleep(after_s)
        value = written(source, key, self._codec)
        await self._write(topics.FEATURES, 0, topics.feature_key(source.name, key).encode(), value or b"")

    async def _ask(self, key: str, query: Query) -> None:
        await self._send(topics.QUERIES, key, self._codec.encode(query))

    async def _tell(self, key: str, query_id: str, label: Value) -> None:
        value = self._codec.encode(Feedback(query_id, label, None, self._now_us()))
        if self._random.random() < _GARBAGE:
            value = b"\xff" + value
        await self._send(topics.FEEDBACK, key, value)

    async def _send(self, topic: str, key: str, value: bytes) -> None:
        """Send a record until it is acknowledged; it may be there several times then."""
        await self._write(topic, partition_of(key.encode(), self._plan.selection.partitions), key.encode(), value)

    async def _write(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        await self._sender.write(topic, partition, key, value)

    def _now_us(self) -> int:
        return self._process.clock.now_us()


def _telling(random: Random, application: Application) -> tuple[str, float]:
    """Draw the feedback of a query, and how long after it (s) it comes."""
    kind = random.choices(("usual", "never", "early", "late", "doubled", "wrong", "nobody's"), (60, 15, 5, 5, 7, 4, 4))[
        0
    ]
    window_s = application.window_s
    return kind, random.uniform(1.0, 2.5) * window_s if kind == "late" else random.uniform(0.0, 0.95) * window_s


def _input(number: int) -> Tensor:
    return Tensor.of(np.array([number], dtype=np.float32))
