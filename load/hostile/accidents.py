"""Accidents of brokers, stores, processes and operators."""

from __future__ import annotations

import asyncio
import json
import signal
import uuid
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
from sklearn.linear_model import LogisticRegression

from load.hostile.arena import Attack
from load.hostile.honest import ROWS, SLO_MS
from load.hostile.setting import HAUNTED, HONEST, PANICKY, PARTITIONS, PEOPLE, SLOW, row
from schemas import topics
from schemas.records import Application, Model, Query, Stage, Status
from streams.client import Client
from streams.topology import state_partition
from workers.packages.packaging import package_function, package_sklearn
from workers.packages.variants import EXAMPLES_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from load.hostile.arena import Arena

_BACKLOG = 200
_LEARN_S = 8.0  # until feedback is in Redis
_QUIET_S = 75.0  # a role that read nothing for 60 s although something waits ended itself
_START_S = 12.0  # a role that was killed is back: a process starts in two or three, and reads its states


async def _commit_marker(arena: Arena) -> None:
    """A transactional producer, as Kafka Streams and Flink use: the log's last offset is no record."""
    async with arena.transaction(topics.model_queries("ghost"), [b"\1"], commit=True):
        pass
    async with arena.transaction(topics.FEEDBACK, [b"\1"], commit=True):
        pass


async def _aborted(arena: Arena) -> None:
    """Queries of a transaction that was aborted. They are answered, as docs/limits.md says, and no query is delayed."""
    names = [f"aborted-{number}-{uuid.uuid4().hex}" for number in range(5)]
    values = [arena.codec.encode(Query(name, HONEST, row(1))) for name in names]
    async with arena.transaction(topics.QUERIES, values, commit=False):
        await asyncio.sleep(0.5)


async def _open_transaction(arena: Arena) -> None:
    """A transaction that stays open for a while; only readers of the same topic may have to wait for its end."""
    value = arena.codec.encode(Query(uuid.uuid4().hex, SLOW, row(1)))
    async with arena.transaction(topics.model_queries("slow"), [value], commit=True):
        await asyncio.sleep(3)


async def _retention(arena: Arena) -> None:
    """A worker stands still while retention takes what it has not read."""
    async with arena.standing_still("worker.slow"):
        names = (uuid.uuid4().hex for _ in range(200))
        await arena.send(topics.QUERIES, (Query(name, SLOW, row(1)) for name in names))
        await asyncio.sleep(2)
        await arena.empty_topic(topics.model_queries("slow"))


async def _no_topic(arena: Arena) -> None:
    """A model's topic is deleted, and its application asked."""
    await arena.delete_topic(topics.model_queries("ghost"))
    names = (uuid.uuid4().hex for _ in range(3_000))
    await arena.send(topics.QUERIES, (Query(name, HAUNTED, row(1)) for name in names), rate=300)


async def _damaged_state(arena: Arena) -> str | None:
    """An unreadable state of one user in Redis; all others are read."""
    place = f"{{{arena.prefix}:{state_partition(PEOPLE, PARTITIONS)}}}:states"
    async with Client(arena.stage.bootstrap, arena.prefix) as client:
        for user in ("damaged", "fine"):
            await client.feedback(await client.predict(PEOPLE, row(1), context=user), label=1)
        await asyncio.sleep(_LEARN_S)
        async with arena.redis() as store:
            good = await store.hget(place, f"{PEOPLE}/damaged")
            if good is None:
                return "what a user taught was not stored in time"
            await store.hset(place, f"{PEOPLE}/damaged", b"\1garbage")
            try:
                arena.signal("selection", signal.SIGKILL)
                await asyncio.sleep(8)
                answers = [await client.predict(PEOPLE, row(1), context=user) for user in ("damaged", "fine", "fine")]
            finally:
                await store.hset(place, f"{PEOPLE}/damaged", good)
    known = answers[-1].decision
    return None if known is not None and known.state_version else "a good state was not read beside a damaged one"


async def _redis_away(arena: Arena) -> None:
    """Redis stands still for five seconds."""
    async with arena.redis_away():
        await asyncio.sleep(5)


async def _killed(arena: Arena, role: str) -> None:
    arena.signal(role)
    await asyncio.sleep(_START_S)


async def _selection_killed(arena: Arena) -> str | None:
    """The role that decides is killed; its successor decides what waits by what was learnt, not by an even guess."""
    async with Client(arena.stage.bootstrap, arena.prefix) as client:
        arena.signal("selection")
        rows = [number % ROWS for number in range(_BACKLOG)]
        asked = [client.predict(HONEST, row(number), slo_ms=10 * SLO_MS, timeout_s=30) for number in rows]
        answers = await asyncio.gather(*asked)
    judged = [(number, its.answer) for number, its in zip(rows, answers, strict=True) if its.status is Status.COMPLETE]
    wrong = sum(answer != number for number, answer in judged)
    await asyncio.sleep(_START_S / 2)
    if len(judged) < _BACKLOG / 2:
        return f"{len(judged)} of {_BACKLOG} waiting queries were answered by a model"
    return f"{wrong} of {len(judged)} waiting queries were decided wrongly" if wrong > 0.2 * len(judged) else None


async def _worker_killed(arena: Arena) -> None:
    await _killed(arena, "worker.right")


async def _joiner_killed(arena: Arena) -> None:
    await _killed(arena, "joiner")


async def _learner_killed(arena: Arena) -> None:
    await _killed(arena, "learner")


async def _learner_still(arena: Arena) -> None:
    """The learner stands still for longer than its session, and goes on with a write in hand."""
    async with arena.standing_still("learner"):
        await asyncio.sleep(14)


async def _malformed_packages(arena: Arena) -> str | None:
    """Packages whose files are not what they say; none is deployed, ends a worker or changes what serves."""
    for number, spoil in enumerate((_examples, _conversion, _files, _nul, _deep)):
        folder = arena.stage.folder / f"malformed-{number}"
        _sound(folder, str(90 + number))
        spoil(folder)
        try:
            await arena.system.add_model(folder)
        except Exception as error:  # noqa: BLE001 - refused, by whatever name; what is no sentence is told
            if isinstance(error, AttributeError | KeyError | TypeError | RecursionError):
                return f"`model add` of malformed package {number} raised {error!r}"
        else:
            return f"malformed package {number} was deployed"
    return None


async def _deadly_package(arena: Arena) -> str | None:
    """A package that ends whoever loads it, deployed as the next version; the one that serves goes on."""
    folder = arena.stage.folder / "deadly"
    package_function("load.models.functions:slow", folder, "slow", "80", np.zeros((1, 1), np.float32))
    _changed(folder, runtime="container", options={"model": "load.models.functions:Deadly"})
    await arena.system.add_model(folder)
    try:
        await asyncio.sleep(_START_S)
        async with Client(arena.stage.bootstrap, arena.prefix) as client:
            answers = [await client.predict(SLOW, row(1), slo_ms=10 * SLO_MS) for _ in range(5)]
    finally:
        await arena.system.use_model("slow", "1")
    unanswered = sum(answer.status is not Status.COMPLETE for answer in answers)
    return f"{unanswered} of {len(answers)} queries were not answered by the version before" if unanswered else None


async def _panics(arena: Arena) -> str | None:
    """Rows over which a model raises what is no `Exception`, alone and in batches; rows beside them are answered."""
    async with Client(arena.stage.bootstrap, arena.prefix) as client:
        for bad in range(1, 6):
            rows = [*range(10), *[666] * bad]
            answers = await asyncio.gather(*(client.predict(PANICKY, row(number)) for number in rows))
            await asyncio.sleep(0.5)
        last = [await client.predict(PANICKY, row(1), slo_ms=10 * SLO_MS) for _ in range(5)]
    if any(answer.status is Status.COMPLETE for answer in answers[10:]):
        return "a row over which the model panics was answered by it"
    lost = sum(answer.status is not Status.COMPLETE for answer in last)
    return f"{lost} of {len(last)} good rows had no answer of the model afterwards" if lost else None


def _sound(folder: Path, version: str) -> None:
    """Package a valid linear model with examples."""
    rows = np.arange(8, dtype=np.float32).reshape(8, 1)
    package_sklearn(LogisticRegression().fit(rows, [0, 1] * 4), folder, "slow", version, rows)


def _changed(folder: Path, **fields: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def _examples(folder: Path) -> None:
    """Garbage instead of rows, under its right checksum."""
    (folder / EXAMPLES_FILE).write_bytes(b"garbage")
    files = {
        **json.loads((folder / "manifest.json").read_text())["files"],
        EXAMPLES_FILE: sha256(b"garbage").hexdigest(),
    }
    _changed(folder, files=files)


def _conversion(folder: Path) -> None:
    _changed(folder, options={"conversion": {"to": 5}})


def _files(folder: Path) -> None:
    _changed(folder, files=["a", "list"])


def _nul(folder: Path) -> None:
    _changed(folder, files={"nul\0": "0" * 64, "x" * 5_000: "0" * 64})


def _deep(folder: Path) -> None:
    (folder / "manifest.json").write_text("[" * 100_000)


async def _poisoned_settings(arena: Arena) -> None:
    """Applications and models that cannot be: those that are stay as they are."""
    bad = [
        Application(HONEST, ()),
        Application(HONEST, ("right",), policy="none"),
        Application(HONEST, ("right",), "single", stages=(Stage("a", "right", "b"), Stage("b", "", "a"))),
        Application(HONEST, ("right",), slo_ms=-1),
    ]
    await arena.put(topics.APPLICATIONS, [b"garbage", *map(arena.codec.encode, bad)], key=HONEST.encode())
    nowhere = Model("right", "2", "function", "/nowhere", "0" * 64, "label", "float32", (1,))
    await arena.put(topics.MODELS, [b"garbage", arena.codec.encode(nowhere)], key=b"right")


async def _named_libraries(arena: Arena) -> None:
    """Policies that are none, in libraries that take seconds and hundreds of MiB to import, and in programs."""
    named = (
        "torch:Tensor",
        "sklearn.ensemble:nothing",
        "matplotlib.pyplot:plot",
        "deploy.cli.__main__:X",
        "json.tool:X",
    )
    for number, policy in enumerate(named):
        application = arena.codec.encode(Application(f"named-{number}", ("right",), policy))
        await arena.put(topics.APPLICATIONS, [application], key=f"named-{number}".encode())


async def _obeyed_names(arena: Arena) -> None:
    """Versions and applications whose names move a terminal's cursor or begin a line of their own in a log."""
    for number, name in enumerate(("\x1b]0;owned\x07", "1\n2026-01-01 CRITICAL all is well", "\u202e1", "../../x")):
        model = Model("slow", name, "function", "/nowhere", "0" * 64, "label", "float32", (1,))
        key = topics.model_version("slow", name)
        await arena.put(topics.MODELS, [arena.codec.encode(model)], key=key.encode())
        application = Application(name, ("right",), policy=f"none-{number}")
        await arena.put(topics.APPLICATIONS, [arena.codec.encode(application)], key=name.encode())


ACCIDENTS = (
    Attack(
        "commit-marker", "broker", "transactions end in a marker, and nothing follows", _commit_marker, watch_s=_QUIET_S
    ),
    Attack("aborted", "client", "queries of an aborted transaction", _aborted),
    Attack("open-transaction", "client", "a transaction that stays open", _open_transaction),
    Attack("retention", "broker", "retention takes what a worker has not read", _retention, watch_s=_QUIET_S),
    Attack("no-topic", "broker", "the topic of a model is deleted", _no_topic),
    Attack("damaged-state", "store", "one state cannot be read", _damaged_state, blow_s=_START_S, ends=("selection",)),
    Attack("redis-away", "store", "Redis stands still for five seconds", _redis_away),
    Attack(
        "selection-killed",
        "operator",
        "selection is killed with states learnt",
        _selection_killed,
        _START_S,
        watch_s=_START_S,
        ends=("selection",),
    ),
    Attack(
        "worker-killed",
        "operator",
        "a worker is killed",
        _worker_killed,
        _START_S,
        _START_S / 2,
        ends=("worker.right",),
    ),
    Attack("joiner-killed", "operator", "the joiner is killed", _joiner_killed, ends=("joiner",)),
    Attack("learner-killed", "operator", "the learner is killed", _learner_killed, ends=("learner",)),
    Attack("learner-still", "operator", "the learner stands still for 14 s", _learner_still, watch_s=10),
    Attack("malformed-packages", "operator", "five packages that are none", _malformed_packages),
    Attack("deadly-package", "operator", "a version that ends whoever loads it", _deadly_package, watch_s=10),
    Attack("panics", "model", "rows over which a model raises what is no Exception", _panics),
    Attack("poisoned-settings", "operator", "applications and models that cannot be", _poisoned_settings),
    Attack(
        "named-libraries", "operator", "policies that are none, in large libraries", _named_libraries, watch_s=_START_S
    ),
    Attack("obeyed-names", "operator", "names that a terminal would obey", _obeyed_names),
)
