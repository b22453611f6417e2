"""All contenders, and the grid of settings of each. The first setting is the best known for latency.

Settings that peers' own documentation and issues recommend (raised limits, quiet logs, short waits) are in the peers'
files. The grids hold settings that trade throughput for latency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from load.research.peers.running import nothing, peer, shortest_path, whole_loop
from load.research.peers.task import MODEL
from load.research.peers.wire_formats import V2, Avro, Echo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.research.peers.running import Start
    from load.research.peers.wire_formats import WireFormat

AT_LEAST_ONCE = "at least once"
AVRO = Avro()
SECOND_MODEL = "ridge"
# What each kind is called on the page. Floors have Skysail's codec and the model as arrays; hand loops and peers have
# fastavro and scikit-learn.
KINDS = ("floor", "hand", "peer")


class Chosen(NamedTuple):
    """The setting of a contender for what is measured: latencies, the rate of a backlog, the rate within a bound."""

    latency: Mapping[str, object]
    rate: Mapping[str, object]
    bounded: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to answer queries.

    Attributes:
        name: permanent, as in results.
        label: as printed.
        kind: `direct`, one of `KINDS`, or `skysail`.
        start: starts it.
        backlog: queries that it answers in about three seconds; later rounds know better.
        grid: settings; the first is the best known for latency.
        fast: which of them is the best known for the rate of a backlog.
        guarantee: what happens to a query when the process dies.
        environment: that it needs; None = Skysail's own.
        wire_format: how it is asked.
        feedback: whether it learns.
        processes: how many it has of its own making; 0 = as many as its framework starts.
        paced: whether it is sent queries at a rate. A second process and other libraries are there for the rate of a
            backlog alone.
    """

    name: str
    label: str
    kind: str
    start: Start
    backlog: int = 0
    grid: tuple[Mapping[str, object], ...] = ({},)
    fast: int = 0
    guarantee: str = AT_LEAST_ONCE
    environment: str | None = None
    wire_format: WireFormat = AVRO
    feedback: bool = False
    processes: int = 1
    paced: bool = True

    @property
    def known(self) -> Chosen:
        """Its best known settings."""
        return Chosen(self.grid[0], self.grid[self.fast], self.grid[0])


def _peer(name: str, label: str, backlog: int, *grid: Mapping[str, object], **more: Any) -> Contender:
    return Contender(name, label, "peer", peer(name, name), backlog, grid, environment=name, **more)


def _loops(client: str, label: str, fast: int, *grid: Mapping[str, object]) -> tuple[Contender, ...]:
    """Return the loops on a client: as a floor in one and in two processes, and with public libraries."""
    own = tuple({"client": client, **setting} for setting in grid)
    floor = tuple({**setting, "codec": True} for setting in own)
    one = Contender(f"floor_{client}", f"floor: {label}", "floor", peer("hand", None), 300_000, floor, fast)
    two = replace(
        one,
        name=f"floor_{client}_two",
        label=f"floor: {label}, two processes",
        start=peer("hand", None, processes=2),
        grid=floor[fast : fast + 1],
        fast=0,
        processes=2,
        paced=False,
    )
    hand = Contender(
        f"hand_{client}",
        f"by hand: {label}, fastavro, scikit-learn",
        "hand",
        peer("hand", None),
        100_000,
        own[fast : fast + 1],
        paced=False,
    )
    return one, two, hand


DIRECT = Contender(
    "direct", "no system: sender → topic → sink", "direct", nothing, 100_000, guarantee="", wire_format=Echo()
)
SHORTEST = Contender(
    "skysail_shortest", "Skysail, shortest path: one model, inline", "skysail", shortest_path(MODEL), 150_000
)
_LOOP = (MODEL, SECOND_MODEL)  # Exp3 over two models, feedback learnt
WHOLE = Contender(
    "skysail_whole",
    "Skysail, whole loop, five processes",
    "skysail",
    whole_loop(_LOOP, "each"),
    50_000,
    feedback=True,
    processes=5,
)
WHOLE_ONE = Contender(
    "skysail_whole_one",
    "Skysail, whole loop, one process, models inline",
    "skysail",
    whole_loop(_LOOP, "one"),
    60_000,
    feedback=True,
)
CONTENDERS = (
    *_loops("confluent", "confluent-kafka", 1, {"linger_ms": 0}, {"linger_ms": 5}),
    *_loops("aiokafka", "aiokafka", 0, {"batched": True}, {"batched": True, "uvloop": True}),
    SHORTEST,
    WHOLE,
    WHOLE_ONE,
    _peer(
        "faststream",
        "FastStream 0.7.8",
        90_000,
        {"max_records": 256, "batch_timeout_ms": 5},
        {"max_records": 1000, "batch_timeout_ms": 5},
    ),
    _peer(
        "bytewax",
        "Bytewax 0.21.1",
        80_000,
        {"batch_size": 1000, "linger_ms": 0},
        {"batch_size": 1000, "linger_ms": 5},
        fast=1,
    ),
    _peer(
        "quix",
        "Quix Streams 3.28.1",
        60_000,
        {"commit_every": 2000, "commit_interval": 0.01, "linger_ms": 0},
        {"commit_every": 2000, "commit_interval": 0.01, "linger_ms": 5},
        fast=1,
    ),
    Contender(
        "kafka_streams",
        "Kafka Streams 4.1.0, ONNX Runtime 1.22.0",
        "peer",
        peer("kafka_streams", None),
        90_000,
        ({"producer.linger.ms": 0}, {"producer.linger.ms": 5}),
        fast=1,
        environment="kafka_streams",
    ),
    _peer("faust", "Faust 0.15.3", 7_000, {"rows": 256, "within_s": 0.005, "producer_linger": 0}),
    _peer(
        "mlserver",
        "MLServer 1.7.1",
        6_000,
        {"parallel_workers": 0, "max_batch_size": 64, "max_batch_time": 0.002},
        guarantee="at most once; JSON V2",
        wire_format=V2(MODEL),
    ),
    _peer(
        "ray",
        "Ray Serve 2.60.0, bridge",
        40_000,
        {"rows": 1, "wait_s": 0.0, "group_rows": 512},
        processes=0,
    ),
    _peer(
        "bentoml",
        "BentoML 1.4.39, bridge",
        30_000,
        {"rows": 512, "latency_ms": 1000, "group_rows": 512},
        {"rows": 512, "latency_ms": 1000, "group_rows": 64},
        processes=0,
    ),
)
