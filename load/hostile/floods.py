"""Attacks by volume: many queries, contexts, bytes, feedback or ids. Each costs its sender little."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import TYPE_CHECKING

import numpy as np

from load.hostile.arena import Attack
from load.hostile.setting import COMPLAINTS, FILMS, HASHED, HONEST, LONG, PEOPLE, SLOW, TEXTS, WIDE, WIDE_FEATURES, row
from load.models.pipelines import hashed
from schemas import topics
from schemas.codec import MAX_TEXT
from schemas.records import Feedback, Query, Status, Tensor
from streams.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from load.hostile.arena import Arena

_HOUR_MS = 3.6e6
_CANDIDATES = 256  # of one query
_LOOKED_UP = 4_000  # queries
_TRIES = 5  # on a busy machine an answer may be the default
_FAT_BYTES = 500_000  # a little below what the codec takes


def _ids(count: int) -> Iterator[str]:
    """Yield new ids."""
    start = uuid.uuid4().hex
    return (f"{start}-{number}" for number in range(count))


async def _long_deadlines(arena: Arena) -> None:
    """Queries that want to be waited for, for an hour, by a model of 20 ms a row."""
    await arena.send(topics.QUERIES, (Query(name, SLOW, row(0), slo_ms=_HOUR_MS) for name in _ids(52_000)))


async def _unknown_ids(arena: Arena) -> None:
    """A million ids of which nobody knows anything, 256 to a query; each is looked up in Redis."""
    names = _ids(_LOOKED_UP)
    queries = (Query(name, FILMS, row(0), candidates=tuple(_ids(_CANDIDATES))) for name in names)
    await arena.send(topics.QUERIES, queries, rate=_LOOKED_UP / 20)


async def _fat_feedback(arena: Arena) -> None:
    """Feedback on nothing, half a megabyte each, 100 bytes on the wire."""
    values = [arena.codec.encode(Feedback(name, "x" * _FAT_BYTES)) for name in _ids(500)]
    await arena.put(topics.FEEDBACK, values, compression="zstd")


async def _early_feedback(arena: Arena) -> None:
    """Feedback on 50,000 queries that do not exist."""
    await arena.send(topics.FEEDBACK, (Feedback(name, 1) for name in _ids(50_000)), rate=10_000)


async def _fat_contexts(arena: Arena) -> None:
    """Contexts as long as a text may be, of characters of four bytes."""
    contexts = (f"{name}{'😀' * ((MAX_TEXT - 200) // 4)}" for name in _ids(4_000))
    queries = (Query(name, PEOPLE, row(1), context) for name, context in zip(_ids(4_000), contexts, strict=True))
    await arena.send(topics.QUERIES, queries, rate=1_000)


async def _fat_queries(arena: Arena) -> None:
    """A quarter of a gigabyte of queries to a slow model."""
    vast = Tensor.of(np.zeros(_FAT_BYTES // 4, np.float32))
    await arena.send(topics.QUERIES, (Query(name, SLOW, vast) for name in _ids(500)))


async def _long_texts(arena: Arena) -> str | None:
    """Texts of half a megabyte, 10 a second, to a model that is slow on them and may run inside selection."""
    text = "ab c" * (_FAT_BYTES // 4)
    await arena.send(topics.QUERIES, (Query(name, LONG, text) for name in _ids(100)), rate=10)
    async with Client(arena.stage.bootstrap, arena.prefix) as client:
        answer = await client.predict(LONG, "a short text", slo_ms=10_000, timeout_s=30)
    return None if answer.status is Status.COMPLETE else f"a short text had no answer after them: {answer.reason}"


async def _fat_answers(arena: Arena) -> None:
    """Queries of an unknown application, each with all the text that it may have."""
    await arena.send(topics.QUERIES, (Query(name, "x" * (MAX_TEXT - 200), row(1)) for name in _ids(8_000)), rate=2_000)


async def _contexts_without_redis(arena: Arena) -> None:
    """100,000 users who were never seen, while Redis is away."""
    async with arena.redis_away():
        names = _ids(100_000)
        await arena.send(topics.QUERIES, (Query(name, PEOPLE, row(1), name) for name in names), rate=4_000)


async def _keys_without_redis(arena: Arena) -> None:
    """A third of a gigabyte of texts that features are looked up by, while Redis is away."""
    async with arena.redis_away():
        queries = (Query(name, TEXTS, f"{name} {'x' * 400_000}") for name in _ids(900))
        await arena.send(topics.QUERIES, queries, rate=60)


async def _repeated_letters(arena: Arena) -> str | None:
    """One letter over and over, of which all n-grams share few counts: scikit-learn says what is right."""
    pipeline, _ = hashed(*HASHED)
    async with Client(arena.stage.bootstrap, arena.prefix) as client:
        for length in (20, 120, 2_000, 30_000):
            texts = [letter * length for letter in "ab日"]
            for _ in range(_TRIES):
                answers = await asyncio.gather(*(client.predict(TEXTS, text) for text in texts))
                outputs = [answer.outputs[0].scores for answer in answers if answer.outputs]
                found = [scores.numpy() for scores in outputs if scores is not None]
                if len(found) == len(texts):
                    break
            else:
                return f"no answers to texts of {length} letters"
            if not np.allclose(found, pipeline.predict_proba(texts), rtol=0, atol=1e-9):
                return f"texts of {length} letters are answered otherwise than by scikit-learn"
    return None


async def _wide_states(arena: Arena) -> str | None:
    """States of 190 KB, a hundred of them, read and taught."""
    drawn = random.Random(1)  # noqa: S311 - no secret
    async with Client(arena.stage.bootstrap, arena.prefix) as client:

        async def one(number: int) -> bool:
            features = [drawn.random() for _ in range(WIDE_FEATURES)]
            answer = await client.predict(WIDE, row(1), context=f"user-{number % 100}", features=features)
            await client.feedback(answer, label=1)
            return answer.decision is not None and answer.decision.state_version > 0

        for pause_s in (8, 3, 0):  # until they are stored; until those that were asked for again are read
            known = [await one(number) for number in range(100)]
            await asyncio.sleep(pause_s)
    return None if sum(known) >= 90 else f"{100 - sum(known)} of 100 large states were not read again"


async def _one_id_twice(arena: Arena) -> str | None:
    """One id for two applications, in one partition: both are answered, each by its own."""
    place = arena.stage.bootstrap, arena.prefix
    async with Client(*place) as one, Client(*place) as other:
        for number in range(10):
            name, asked = f"twice-{number}-{uuid.uuid4().hex}", ((one.predict, HONEST), (other.predict, PEOPLE))
            both = (ask(application, row(1), query_id=name, context="shared") for ask, application in asked)
            answers = await asyncio.gather(*both)
            if [answer.application for answer in answers] != [HONEST, PEOPLE]:
                return "a query whose id another application was asked with got the other's answer"
    return None


async def _stranger(arena: Arena) -> str | None:
    """A spy asks a quicker application under ids that it reads: the client takes no answer but its own."""
    async with Client(arena.stage.bootstrap, arena.prefix) as client:
        wrong = 0
        for _ in range(10):
            name = uuid.uuid4().hex
            asked = asyncio.create_task(client.predict(SLOW, row(1), query_id=name))
            await asyncio.sleep(0)
            for partition in range(4):
                spied = arena.codec.encode(Query(name, HONEST, row(7)))
                await arena.put(topics.QUERIES, [spied], partition=partition)
            wrong += (await asked).application != SLOW
    return f"{wrong} of 10 answers were another application's" if wrong else None


async def _duplicates(arena: Arena) -> None:
    """One query, 20,000 times."""
    value = arena.codec.encode(Query("again", HONEST, row(1)))
    await arena.put(topics.QUERIES, [value] * 20_000)


async def _garbage(arena: Arena) -> None:
    """Ten thousand records that are none, to queries and to feedback."""
    drawn = random.Random(2)  # noqa: S311 - no secret
    for topic in (topics.QUERIES, topics.FEEDBACK):
        await arena.put(topic, [drawn.randbytes(200) for _ in range(10_000)])


async def _unknown_application(arena: Arena) -> None:
    """Twenty thousand queries for an application that is not there."""
    await arena.send(topics.QUERIES, (Query(name, "nobody", row(1)) for name in _ids(20_000)), rate=5_000)


async def _priorities(arena: Arena) -> None:
    """Queries that all have the highest priority."""
    queries = (Query(name, SLOW, row(1), priority=2**31 - 1) for name in _ids(5_000))
    await arena.send(topics.QUERIES, queries, rate=1_000)


async def _wrong_feedback(arena: Arena) -> None:
    """Ten thousand labels of a type that no answer has, to queries that were asked."""
    names = [*_ids(2_000)]
    await arena.send(topics.QUERIES, (Query(name, PEOPLE, row(1)) for name in names), rate=1_000)
    vast = Tensor.of(np.zeros(1_000, np.float32))
    await arena.send(topics.FEEDBACK, (Feedback(name, vast) for name in names * 5), rate=5_000)


async def _never_answers(arena: Arena) -> str | None:
    """A model that never answers, where no feedback means no loss: its application walks away from it."""
    async with Client(arena.stage.bootstrap, arena.prefix) as client:
        asked: list[str] = []

        async def one() -> None:
            answer = await client.predict(COMPLAINTS, row(1))
            asked.extend(output.model for output in answer.outputs)

        for _ in range(30):
            await asyncio.gather(*(one() for _ in range(20)))
            await asyncio.sleep(0.2)
    share = asked[-200:].count("dead") / max(1, len(asked[-200:]))
    return None if share < 0.35 else f"{share:.0%} of the last 200 queries were given to the model that never answers"


FLOODS = (
    Attack(
        "long-deadlines", "client", "52,000 queries of an hour's objective to a slow model", _long_deadlines, watch_s=20
    ),
    Attack("unknown-ids", "client", "4,000 queries with 256 candidates that nobody knows", _unknown_ids, watch_s=15),
    Attack("fat-feedback", "teacher", "500 labels of 500 KB on nothing", _fat_feedback, watch_s=15),
    Attack("early-feedback", "teacher", "50,000 labels on nothing", _early_feedback),
    Attack("fat-contexts", "client", "4,000 contexts of 4 KB", _fat_contexts),
    Attack("fat-queries", "client", "250 MB of queries to a slow model", _fat_queries, watch_s=15),
    Attack("long-texts", "client", "100 texts of 500 KB, 10 a second", _long_texts),
    Attack("fat-answers", "client", "8,000 queries of an application with a name of 4 KB", _fat_answers),
    Attack(
        "contexts-without-redis",
        "client",
        "100,000 new contexts while Redis is away",
        _contexts_without_redis,
        watch_s=15,
    ),
    Attack(
        "keys-without-redis",
        "client",
        "900 keys of features of 400 KB while Redis is away",
        _keys_without_redis,
        watch_s=15,
    ),
    Attack("repeated-letters", "client", "texts whose n-grams all share few counts", _repeated_letters),
    Attack("wide-states", "client", "100 states of 190 KB, read and taught", _wide_states),
    Attack("one-id-twice", "client", "one query id for two applications", _one_id_twice),
    Attack("stranger", "client", "answers in another's name", _stranger),
    Attack("duplicates", "client", "one query 20,000 times", _duplicates),
    Attack("garbage", "client", "20,000 records that are none", _garbage),
    Attack("unknown-application", "client", "20,000 queries for nobody", _unknown_application),
    Attack("priorities", "client", "5,000 queries of the highest priority to a slow model", _priorities),
    Attack("wrong-feedback", "teacher", "10,000 labels of a type that no answer has", _wrong_feedback),
    Attack("never-answers", "model", "a model that never answers, and no feedback means no loss", _never_answers),
)
