"""`topics`: JSON records that a core scores from one topic into another, with all their fields.

Every contender has the same orders, the same logistic regression and the same topics, one after the other, in turns. It
is started on an empty topic and warmed up. Then a backlog is written, and it drains that. Its figure is records by the
CPU seconds of all its processes meanwhile, from the first record written to the last one scored. What comes out is
compared with what must: every order once, all its fields, and the model's answer.

Peers do nothing but score. Skysail runs as `skysail run` does: its queries and predictions are records of their own,
and the joiner waits for feedback on each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import joblib
from confluent_kafka import Consumer, Producer, TopicPartition

from load.errors import PeerFailedError, PeerUnavailableError
from load.figures import FAULTS, IN_FULL, NONE, PER_S, RATIO_RATE, Figures, at_least
from load.harness import topics
from load.harness.processes import rest, total_cpu_s
from load.harness.system import Deployment
from load.research.peers import environments, running
from load.research.peers.task import Task
from load.research.topics import orders
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from schemas.records import Application
from skysail import package_sklearn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from load.harness.system import Stage

NAME: Final = "topics"
SKYSAIL: Final = "skysail"
FLOOR: Final = "hand"
PEERS: Final[Mapping[str, str | None]] = {FLOOR: None, "quix": "quix", "faststream": "faststream"}
LABELS: Final = {SKYSAIL: "Skysail", FLOOR: "hand-written loop", "quix": "Quix Streams", "faststream": "FastStream"}
# A batch of FastStream's holds 1,000 orders with their scores, and no 2,000: what does not fit would be dropped.
_SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "quix": {"commit_interval": 0.2, "linger_ms": 5},
    "faststream": {"max_records": 1_000, "batch_timeout_ms": 5},
}
_PARTITIONS: Final = 4
_RECORDS, _SHORT_RECORDS, _WARM_UP = 200_000, 20_000, 2_000
_ROUNDS, _SHORT_ROUNDS = 3, 1
_LIMIT_S, _LOOK_S = 240.0, 0.05
_MOST_MS: Final = 600_000.0

FIGURES = Figures(
    PER_S(f"{SKYSAIL}_per_s_a_core", must=at_least(30_000, IN_FULL)),
    PER_S(*(f"{name}_per_s_a_core" for name in PEERS)),
    PER_S(*(f"{name}_per_s" for name in LABELS)),
    RATIO_RATE(*(f"{name}_share_of_floor" for name in LABELS if name != FLOOR)),
    FAULTS(*(f"{name}_faults" for name in LABELS), must=NONE),
)


class Scoring(NamedTuple):
    """A contender that runs: it scores `source` into `sink`."""

    source: str
    sink: str
    pids: Callable[[], Mapping[str, int]]


class Drained(NamedTuple):
    """What draining the backlog has taken, and how many records came out wrong."""

    cpu_s: float
    wall_s: float
    faults: int


class Bench(NamedTuple):
    """What all contenders share."""

    stage: Stage
    model: Any
    joblib: Path
    package: Path
    records: int


@contextlib.asynccontextmanager
async def _peer(name: str, bench: Bench) -> AsyncIterator[Scoring]:
    """Start a peer; it is awaited by its first answers."""
    prefix, stage, environment = topics.new_prefix(NAME), bench.stage, PEERS[name]
    folder = stage.folder / prefix
    folder.mkdir()
    source, sink = f"{prefix}.orders", f"{prefix}.scored"
    task = Task(stage.bootstrap, source, sink, str(bench.joblib), str(folder), _SETTINGS.get(name, {}))
    python = sys.executable if environment is None else str(environments.ensure(environment, print_nothing))
    command = (python, "-P", "-m", f"load.research.topics.{name}", task.arguments())
    with (
        topics.temporary(stage.bootstrap, prefix, dict.fromkeys(("orders", "scored"), _PARTITIONS)),
        contextlib.ExitStack() as stack,
    ):
        alive = running.spawned(stack, command, folder, running.variables(stage.folder / "path"))
        yield Scoring(task.source, task.sink, lambda: {name: alive.pid})


@contextlib.asynccontextmanager
async def _skysail(bench: Bench) -> AsyncIterator[Scoring]:
    """Start all that `skysail run` starts, in one process, with the model inside."""
    prefix, stage = topics.new_prefix(NAME), bench.stage
    source, sink = f"{prefix}.orders", f"{prefix}.scored"
    mapping = {
        "from": {"topic": source, "id": "order_id", "input": [*orders.FIELDS]},
        "to": {"topic": sink, "fields": {"score": "answer"}, "keep": "all"},
    }
    application = Application(
        "fraud", ("logistic",), "single", slo_ms=_MOST_MS, max_slo_ms=_MOST_MS, mapping=json.dumps(mapping)
    )
    deployment = Deployment(
        prefix=prefix,
        applications=(application,),
        models={"logistic": bench.package},
        partitions=_PARTITIONS,
        roles=("selection", "joiner", "learner", "mapping"),
        settings={"selection": {"inline": ["logistic"]}},
        processes="shared",
    )
    with topics.temporary(stage.bootstrap, prefix, dict.fromkeys(("orders", "scored"), _PARTITIONS)):
        async with stage.launch(deployment) as system:
            yield Scoring(source, sink, lambda: system.pids)


def print_nothing(_: str) -> None:
    """Say nothing of an installation."""


def contenders(bench: Bench) -> Mapping[str, Callable[[], AbstractAsyncContextManager[Scoring]]]:
    """Return what starts each."""
    started = {name: partial(_peer, name, bench) for name in PEERS}
    return {SKYSAIL: partial(_skysail, bench), **started}


async def drain(bench: Bench, scoring: Scoring, seed: int) -> Drained:
    """Warm a contender up, write a backlog, wait until it is scored, and look at what came out."""
    await asyncio.to_thread(_written, bench.stage.bootstrap, scoring.source, orders.encoded(_WARM_UP, seed))
    await asyncio.to_thread(_until, bench.stage.bootstrap, scoring, _WARM_UP)
    await asyncio.to_thread(rest, scoring.pids)
    backlog = orders.encoded(bench.records, seed, _WARM_UP)
    cpu_s, began_s = total_cpu_s(scoring.pids()), time.perf_counter()
    await asyncio.to_thread(_written, bench.stage.bootstrap, scoring.source, backlog)
    await asyncio.to_thread(_until, bench.stage.bootstrap, scoring, _WARM_UP + bench.records)
    wall_s = time.perf_counter() - began_s
    await asyncio.to_thread(rest, scoring.pids)  # what is still to be committed belongs to it
    used_s = total_cpu_s(scoring.pids()) - cpu_s
    return Drained(used_s, wall_s, await asyncio.to_thread(_faults, bench, scoring.sink, seed))


def _written(bootstrap: str, topic: str, records: list[tuple[bytes, bytes]]) -> None:
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 20, "acks": "all", "queue.buffering.max.messages": 1_000_000,
    })  # fmt: skip
    for key, value in records:
        producer.produce(topic, value, key)
    producer.flush(_LIMIT_S)


def _until(bootstrap: str, scoring: Scoring, count: int) -> None:
    """Wait until so many records are in the sink.

    Raises:
        PeerFailedError: they do not come.
    """
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "-"})
    end_s = time.monotonic() + _LIMIT_S
    try:
        while (found := sum(_ends(reader, scoring.sink))) < count:
            scoring.pids()  # raises if it has ended
            if time.monotonic() > end_s:
                raise PeerFailedError(f"{found:,} of {count:,} records were scored within {_LIMIT_S:g} s")
            time.sleep(_LOOK_S)
    finally:
        reader.close()


def _ends(reader: Consumer, topic: str) -> list[int]:
    places = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
    return [reader.get_watermark_offsets(place, timeout=10)[1] for place in places]


def _faults(bench: Bench, sink: str, seed: int) -> int:
    """Return how many of the records in a sink are wrong, doubled or missing."""
    given = [*orders.orders(_WARM_UP, seed), *orders.orders(bench.records, seed, _WARM_UP)]
    scores = bench.model.predict(orders.rows(given)).tolist()
    by_id = {order["order_id"]: order for order in given}
    values = _read(bench.stage.bootstrap, sink)
    return orders.faults(values, by_id, dict(zip(by_id, scores, strict=True)))


def _read(bootstrap: str, topic: str) -> list[bytes]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "-", "enable.auto.commit": False})
    try:
        left = sum(_ends(reader, topic))
        reader.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
        values: list[bytes] = []
        end_s = time.monotonic() + _LIMIT_S
        while len(values) < left and time.monotonic() < end_s:
            values += [message.value() or b"" for message in reader.consume(10_000, 0.5) if not message.error()]
        return values
    finally:
        reader.close()


async def run(stage: Stage) -> Result:
    """Let every contender drain the same backlog, in turns."""
    model, file, package = orders.fitted(stage.seed), stage.folder / "logistic.joblib", stage.folder / "logistic"
    joblib.dump(model, file)
    sample = orders.rows([*orders.orders(2, stage.seed)])
    package_sklearn(model, package, "logistic", "1", sample, output="label")
    bench = Bench(stage, model, file, package, _SHORT_RECORDS if stage.short else _RECORDS)
    rounds = _SHORT_ROUNDS if stage.short else _ROUNDS
    found: dict[str, list[Drained]] = {name: [] for name in LABELS}
    failed: dict[str, str] = {}
    for number in range(rounds):
        for name, start in contenders(bench).items():
            try:
                async with start() as scoring:
                    found[name].append(await drain(bench, scoring, stage.seed + number))
            except (PeerUnavailableError, PeerFailedError) as error:
                failed[name] = str(error)
    figures = {
        f"{name}_{figure}": value
        for name, its in found.items()
        if its
        for figure, value in _figures(its, bench.records).items()
    }
    floor = figures.get(f"{FLOOR}_per_s_a_core")
    if floor:
        figures |= {
            f"{name}_share_of_floor": figures[f"{name}_per_s_a_core"] / floor
            for name in LABELS
            if name != FLOOR and found[name]
        }
    parameters: dict[str, float | str] = {
        "form": stage.form,
        "seed": stage.seed,
        "records": bench.records,
        "rounds": rounds,
    }
    rows = [{"name": name, "why": why} for name, why in failed.items()]
    return Result(NAME, figures, parameters, {"failed": rows})


def _figures(its: list[Drained], records: int) -> dict[str, float]:
    return {
        "per_s_a_core": records / statistics.median(each.cpu_s for each in its),
        "per_s": records / statistics.median(each.wall_s for each in its),
        "faults": float(sum(each.faults for each in its)),
    }


def tables(result: Result) -> list[Table]:
    """Return all contenders, one a line."""
    heads = ("", "records/s a core", "of the floor", "records/s", "wrong, doubled or missing")
    why = {row["name"]: row["why"] for row in result.series["failed"]}
    return [Table("JSON records scored from topic to topic", heads, tuple(_line(result, name, why) for name in LABELS))]


def _line(result: Result, name: str, why: Mapping[str, str]) -> tuple[str, ...]:
    figures = result.figures
    if f"{name}_per_s" not in figures:
        return LABELS[name], why.get(name, "did not run"), "", "", ""
    share = figures.get(f"{name}_share_of_floor", 1.0)
    per_core, per_s, wrong = (figures[f"{name}_{figure}"] for figure in ("per_s_a_core", "per_s", "faults"))
    return LABELS[name], f"{per_core:,.0f}", f"{share:.2f}", f"{per_s:,.0f}", f"{wrong:,.0f}"


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "JSON records scored from topic to topic, a core: Skysail beside Quix Streams, FastStream and a hand-written loop",
    tables=tables,
    short=True,
)
