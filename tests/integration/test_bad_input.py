"""Bad queries and bad bytes: each has its documented outcome, the partition moves on, the neighbours are answered.

One deployment serves the whole module, with one partition on the circle of data: whatever is bad stands in everybody's
way.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import numpy as np
import pytest
import pytest_asyncio

from deploy.state import catalog, desired
from deploy.state import topics as created_topics
from deploy.state.packages import model_record
from schemas import topics
from schemas.codec import Codec
from schemas.errors import SchemaError
from schemas.records import (
    Application,
    Decision,
    Feedback,
    JoinStatus,
    ModelPredictions,
    Observation,
    Outcome,
    Query,
    Status,
    Tensor,
)
from schemas.sizes import MAX_BYTES
from streams.runtime.errors import RecordTooLargeError
from tests.deployments import PATIENT_MS, Deployed, Toy, deployed
from tests.samples import model_query
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

pytestmark = pytest.mark.asyncio(loop_scope="module")

SINGLE = {"policy": "single", "slo_ms": PATIENT_MS, "default_output": -1}
GHOST_MS = 3_000  # the other model answers meanwhile, on a busy machine, too
HICCUP_US = 1_000_000  # by which a busy machine may wake a process late; that it is 0 is a law in virtual time
APPLICATIONS = {
    "sums": {"models": ["parity"], **SINGLE},
    "lost": {"models": ["nobody-deployed-it"], **SINGLE},
    "ghosts": {"models": ["ghost"], **SINGLE, "slo_ms": GHOST_MS},
    "haunted": {"models": ["parity", "ghost"], "policy": "exp4", "slo_ms": GHOST_MS, "default_output": -1},
}
SAMPLE = np.zeros((2, 2), np.float32)
TWO = Tensor.of(np.array([1, 1], np.float32))
DECISION = Decision((0,), 0, "sums", "single(arm=0)", ("parity",), (1.0,))
CODEC = Codec()
BATCH = ModelPredictions(
    "parity", "1", "w", ("q",), (Outcome.OK,), Tensor.of(np.zeros(1, np.int64)), None, (0,), 1, 1, 1, 0
)
# One good record of every topic that a role consumes, apart from what the joiner reads, and who reads it.
GOOD = {
    topics.QUERIES: ("selection", Query("q", "sums", TWO)),
    topics.MODEL_PREDICTIONS: ("selection", BATCH),
    topics.model_queries("parity"): ("worker.parity", model_query("q", 0, 0, TWO)),
    topics.OBSERVATIONS: (
        "learner",
        Observation("q", "sums", None, DECISION, (0.0,), 0.0, 1, JoinStatus.JOINED, 0, 0),
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(
    kafka: Broker, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployed]:
    """Serve the parity of two numbers; a second model is deployed, but nobody runs it."""
    prefix, folder = f"bad-input-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("bad-input")
    toys = {"parity": Toy("tests.toys:parity", SAMPLE)}
    async with deployed(kafka, redis_server.url, prefix, folder, toys, APPLICATIONS, partitions=1) as deployment:
        package_function("tests.toys:parity", folder / "ghost", "ghost", "1", SAMPLE)
        created_topics.create(deployment.settings, desired.build(deployment.settings, {"ghost": None}))
        catalog.publish(deployment.settings, deployment.codec, [model_record(folder / "ghost")])
        await ghost_is_known(deployment)
        yield deployment


async def ghost_is_known(there: Deployed) -> None:
    """Wait until the selection role knows the model that was deployed last."""
    for _ in range(200):
        if (await there.client.predict("ghosts", TWO)).reason != "unknown_model":
            return
        await asyncio.sleep(0.05)
    raise TimeoutError


async def neighbours_are_served(there: Deployed) -> None:
    """Ask around the bad ones: every answer is right and in time."""
    rows = [np.array([number, 0], np.float32) for number in range(8)]
    found = await asyncio.gather(*(there.client.predict("sums", row) for row in rows))
    assert [(p.status, p.answer) for p in found] == [(Status.COMPLETE, number % 2) for number in range(8)]
    assert all(p.answered_us <= p.deadline_us for p in found)


def bad_values(good: object) -> list[tuple[str, bytes | None]]:
    """Return values that are no record of the kind of `good`, each with the cause its dead letter must have."""
    value = CODEC.encode(good)
    return [
        ("unknown_schema", b"garbage"),
        ("unknown_schema", b"\xff" * 100),
        ("unknown_schema", b"\x00" + (424_242).to_bytes(4, "big") + value[10:]),
        ("unknown_schema", b"\xc3\x01" + b"\xff" * 8 + value[10:]),
        ("unknown_schema", CODEC.encode(Feedback("a record of another topic", 1))),
        ("truncated", value[:1]),
        ("truncated", value[:7]),
        ("truncated", value[:-1]),
        ("trailing", value + b"\x00"),
        ("empty", b""),
        ("empty", None),
        ("oversized", value[:10] + b"\x00" * MAX_BYTES),
    ]


@pytest.mark.parametrize("topic", GOOD)
async def test_bytes_that_are_no_record_are_dead_letters(there: Deployed, topic: str) -> None:
    """Garbage, unknown schemas in both framings, truncated, oversized: bytes untouched, cause and place in headers."""
    group, good = GOOD[topic]
    bad = bad_values(good)
    there.put(topic, *[value for _, value in bad], key=b"\xff\xfe")
    await neighbours_are_served(there)
    await there.watch.until(lambda: len(there.watch.dead(topic)) >= len(bad))
    letters = there.watch.dead(topic)
    assert [(letter.cause, letter.value) for letter in letters] == [(cause, value or b"") for cause, value in bad]
    assert {letter.key for letter in letters} == {b"\xff\xfe"}
    assert {(at["topic"], at["partition"], at["group"]) for _, _, at in letters} == {(topic, "0", group)}
    stood = {str(record.offset): record.value for record in there.watch.records[topic] if record.partition == 0}
    assert [stood[letter.headers["offset"]] for letter in letters] == [value for _, value in bad]
    assert all(letter.headers["message"] for letter in letters)
    await there.watch.all_committed(group, topic)


@pytest.mark.parametrize(
    "row",
    [
        np.zeros(3, np.float32),
        np.zeros((2, 2), np.float32),
        np.full(2, 1e300),
        np.array([np.nan, 0], np.float32),
        np.array([0, np.inf], np.float32),
        "text",
        b"bytes",
        Tensor("float32", (1 << 30, 0), b""),
    ],
    ids=["wide", "two-axes", "out-of-range", "nan", "inf", "text", "bytes", "vast"],
)
async def test_an_input_that_does_not_fit_gets_the_default(there: Deployed, row: object) -> None:
    """Wrong shape, type or number: the default output, marked so, at once and not at the deadline."""
    bad = asyncio.create_task(there.client.predict("sums", row))  # type: ignore[arg-type]  # what is tested
    await neighbours_are_served(there)
    prediction = await bad
    assert (prediction.status, prediction.reason, prediction.answer) == (Status.DEFAULT, "invalid_input", -1)
    assert prediction.answered_us < prediction.deadline_us - PATIENT_MS * 500, "not at the deadline"


@pytest.mark.parametrize("row", [[1, 0], [1.0, 0.0], np.array([1, 0], np.int64), np.array([1.0, 0.0]), (True, False)])
async def test_what_can_be_cast_without_loss_is_answered(there: Deployed, row: object) -> None:
    """Lists, whole numbers and doubles, as users have them; what does not fit is told in words."""
    prediction = await there.client.predict("sums", row)
    assert (prediction.status, prediction.answer) == (Status.COMPLETE, 1)
    refused = await there.client.predict("sums", [1, 2, 3])
    assert refused.message == "model parity takes float32[2], got int64[3]"


@pytest.mark.parametrize(
    ("application", "reason", "answer"), [("nowhere", "unknown_application", None), ("lost", "unknown_model", -1)]
)
async def test_what_nobody_deployed_gets_the_default_at_once(
    there: Deployed, application: str, reason: str, answer: int | None
) -> None:
    """An unknown application has no default output to give; an unknown model leaves that of its application."""
    prediction = await there.client.predict(application, TWO)
    assert (prediction.status, prediction.reason, prediction.answer) == (Status.DEFAULT, reason, answer)
    assert prediction.answered_us - prediction.received_us < PATIENT_MS * 500
    await neighbours_are_served(there)


async def test_a_model_without_workers_costs_its_queries_the_deadline(there: Deployed) -> None:
    """Alone it leaves the default, beside another model a partial answer, both in time; neighbours do not wait."""
    asked = asyncio.gather(*(there.client.predict(name, TWO) for name in ("ghosts", "haunted")))
    await neighbours_are_served(there)
    alone, beside = await asked
    assert (alone.status, alone.reason, alone.answer) == (Status.DEFAULT, "deadline", -1)
    assert (beside.status, beside.reason, beside.answer) == (Status.PARTIAL, "deadline", 0)
    assert [output.outcome for output in beside.outputs] == [Outcome.OK, Outcome.MISSING]
    assert all(p.answered_us <= p.deadline_us + HICCUP_US for p in (alone, beside))


async def test_an_input_that_fills_the_query_gets_the_default(there: Deployed) -> None:
    """A query of exactly the largest size is a query, but its model's query would be too large."""
    room = MAX_BYTES - len(CODEC.encode(Query("limit", "sums", b"x" * 500_000))) + 500_000
    value = CODEC.encode(Query("limit", "sums", b"x" * room))
    assert len(value) == MAX_BYTES
    there.put(topics.QUERIES, value)
    prediction = await there.watch.answer("limit")
    assert (prediction.status, prediction.reason) == (Status.DEFAULT, "invalid_input")
    await neighbours_are_served(there)
    await there.watch.all_committed("selection", topics.QUERIES)


async def test_a_client_refuses_what_is_too_large(there: Deployed) -> None:
    """The codec says so before anything is sent; bytes that only the broker refuses fail their own send."""
    with pytest.raises(SchemaError, match="over 524288"):
        await there.client.predict("sums", np.zeros(MAX_BYTES, np.float32))
    with pytest.raises(RecordTooLargeError, match="queries"):
        await there.client._transport.send(topics.QUERIES, 0, [(b"key", b"x" * (3 << 20))])
    await neighbours_are_served(there)


async def test_a_key_need_not_be_text(there: Deployed) -> None:
    """Keys are bytes to Skysail: the answer carries the query's."""
    there.put_record(topics.QUERIES, Query("strange-key", "sums", TWO), key=b"\xff\x00\xc3\x28")
    there.put_record(topics.QUERIES, Query("no-key", "sums", TWO), key=None)
    found = [await there.watch.answer(name) for name in ("strange-key", "no-key")]
    assert [p.status for p in found] == [Status.COMPLETE] * 2
    keys = [record.key for record in there.watch.records[topics.PREDICTIONS]]
    assert keys.count(b"\xff\x00\xc3\x28") == keys.count(None) == 1
    await neighbours_are_served(there)


async def test_a_query_id_seen_before_is_skipped_and_counted(there: Deployed) -> None:
    """The first one is answered, once; the second is counted in the reports."""
    for _ in range(3):
        there.put_record(topics.QUERIES, Query("twice", "sums", TWO))
    await neighbours_are_served(there)
    await there.watch.until(lambda: there.watch.counter("selection", "skipped_total{reason=duplicate_query}") == 2)
    assert len(there.watch.answers("twice")) == 1
    await there.watch.all_committed("selection", topics.QUERIES)


@pytest.mark.parametrize(
    "query",
    [
        Query("i" * 500_000, "sums", b""),
        Query("q", "a" * 500_000, b""),
        Query("q", "sums", TWO, "c" * 500_000),
    ],
    ids=["id", "application", "context"],
)
async def test_texts_that_would_not_fit_into_the_answer_are_dead_letters(there: Deployed, query: Query) -> None:
    """Ids, names and contexts travel with everything that follows; half a megabyte of them does not."""
    before = len(there.watch.dead(topics.QUERIES))
    there.put_record(topics.QUERIES, query)
    await neighbours_are_served(there)
    await there.watch.until(lambda: len(there.watch.dead(topics.QUERIES)) > before)
    letter = there.watch.dead(topics.QUERIES)[-1]
    assert (letter.cause, letter.value) == ("invalid", CODEC.encode(query))


@pytest.mark.parametrize(
    ("sent_us", "slo_ms", "status"),
    [
        (0, 1e300, Status.COMPLETE),
        (0, -1e300, Status.DEFAULT),
        (-(1 << 63), 10.0, Status.DEFAULT),
        ((1 << 63) - 1, PATIENT_MS, Status.COMPLETE),
    ],
)
async def test_impossible_times_are_cut_to_possible_ones(
    there: Deployed, sent_us: int, slo_ms: float, status: Status
) -> None:
    """A clock or an objective beyond all bounds gets an answer, and takes nobody's turn."""
    query = Query(f"time-{sent_us}-{slo_ms}", "sums", TWO, None, sent_us, slo_ms)
    there.put_record(topics.QUERIES, query)
    prediction = await there.watch.answer(query.query_id)
    assert (prediction.status, prediction.reason) == (status, None if status is Status.COMPLETE else "expired")
    await neighbours_are_served(there)


async def test_an_observation_that_cannot_be_is_a_dead_letter(there: Deployed) -> None:
    """What joiners never write teaches nothing: other policies, arms that are not there, losses beyond all bounds."""
    good = GOOD[topics.OBSERVATIONS][1]
    assert isinstance(good, Observation)
    decisions = [
        DECISION._replace(policy="exp3((("),
        DECISION._replace(policy="unheard-of(x=1)"),
        DECISION._replace(chosen=(7,)),
        DECISION._replace(arms=()),
        DECISION._replace(propensities=(-1.0,)),
    ]
    bad = [good._replace(query_id=f"bad-{n}", decision=decision) for n, decision in enumerate(decisions)]
    bad.append(good._replace(query_id="bad-loss", losses=(1e308,)))
    before = len(there.watch.dead(topics.OBSERVATIONS))
    there.put(topics.OBSERVATIONS, *map(CODEC.encode, bad))
    await there.watch.until(lambda: len(there.watch.dead(topics.OBSERVATIONS)) >= before + len(bad))
    letters = there.watch.dead(topics.OBSERVATIONS)[before:]
    assert [letter.value for letter in letters] == [*map(CODEC.encode, bad)]
    assert {letter.cause for letter in letters} == {"impossible_decision"}
    await there.watch.all_committed("learner", topics.OBSERVATIONS)


async def test_desired_state_that_cannot_be_leaves_what_was(there: Deployed) -> None:
    """Garbage and impossible applications are counted; the application goes on as it was."""
    bad = [
        Application("sums", ()),
        Application("sums", ("parity",), policy="no-such-policy"),
        Application("sums", ("parity",), slo_ms=-1),
        Application("sums", ("parity",), window_s=1e300),
        Application("sums", ("parity",), default_loss=7),
    ]
    there.put(topics.APPLICATIONS, b"garbage", *map(CODEC.encode, bad), key=b"sums")
    there.put(topics.MODELS, b"garbage", key=b"parity")
    for role in ("selection", "joiner"):
        await there.watch.until(
            lambda role=role: _refused(there, role) >= len(bad) + 2,  # type: ignore[misc]  # bound at once
            f"{role} counts them",
        )
    await neighbours_are_served(there)


def _refused(there: Deployed, role: str) -> float:
    causes = ("unknown_schema", "invalid")
    return sum(there.watch.counter(role, f"refused_again_total{{cause={cause}}}") for cause in causes)


async def test_no_process_was_lost(there: Deployed) -> None:
    """After all that, every process is the one that was started."""
    assert [(child.name, child.restarts) for child in there.system.status()] == [
        (name, 0) for name in ("selection", "worker.parity", "joiner", "learner")
    ]
