"""All contenders, and the grid of settings of each. The first setting is the best known.

Settings that peers' own documentation and issues recommend (raised limits, quiet logs, short waits) are in the peers'
files. The grids hold settings that trade throughput for latency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
UNCONVERTED_MODEL = "logistic-unconverted"


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to answer queries.

    Attributes:
        name: permanent, as in results.
        label: as printed.
        kind: `direct`, `hand`, `peer` or `skysail`.
        start: starts it.
        backlog: queries that it answers in about three seconds; later rounds know better.
        grid: settings; the first is the best known.
        guarantee: what happens to a query when the process dies.
        environment: that it needs; None = Skysail's own.
        wire_format: how it is asked.
        feedback: whether it learns.
    """

    name: str
    label: str
    kind: str
    start: Start
    backlog: int = 0
    grid: tuple[Mapping[str, object], ...] = ({},)
    guarantee: str = AT_LEAST_ONCE
    environment: str | None = None
    wire_format: WireFormat = AVRO
    feedback: bool = False


def _peer(name: str, label: str, backlog: int, *grid: Mapping[str, object], **more: Any) -> Contender:
    return Contender(name, label, "peer", peer(name, name), backlog, grid, environment=name, **more)


def _hand(name: str, label: str, *grid: Mapping[str, object]) -> Contender:
    return Contender(name, label, "hand", peer("hand", None), 100_000, grid)


DIRECT = Contender(
    "direct", "no system: sender → topic → sink", "direct", nothing, 100_000, guarantee="", wire_format=Echo()
)
SHORTEST = Contender(
    "skysail_shortest", "Skysail, shortest path: one model, inline", "skysail", shortest_path(MODEL), 60_000
)
UNCONVERTED = Contender(
    "skysail_unconverted",
    "Skysail, shortest path, the model under scikit-learn",
    "skysail",
    shortest_path(UNCONVERTED_MODEL),
    40_000,
)
WHOLE = Contender(
    "skysail_whole",
    "Skysail, whole loop: Exp3 over two models, feedback learnt",
    "skysail",
    whole_loop((MODEL, SECOND_MODEL)),
    40_000,
    feedback=True,
)
CONTENDERS = (
    _hand(
        "hand_aiokafka",
        "by hand: aiokafka",
        {"client": "aiokafka", "batched": True},
        {"client": "aiokafka", "batched": True, "uvloop": True},
        {"client": "aiokafka", "batched": False},
    ),
    _hand(
        "hand_confluent",
        "by hand: confluent-kafka",
        {"client": "confluent", "linger_ms": 0},
        {"client": "confluent", "linger_ms": 5},
    ),
    SHORTEST,
    UNCONVERTED,
    WHOLE,
    _peer(
        "faststream",
        "FastStream 0.7.8",
        90_000,
        {"max_records": 256, "batch_timeout_ms": 5},
        {"max_records": 1000, "batch_timeout_ms": 5},
        {"max_records": 64, "batch_timeout_ms": 2},
    ),
    _peer(
        "bytewax",
        "Bytewax 0.21.1",
        80_000,
        {"batch_size": 1000, "linger_ms": 0},
        {"batch_size": 1000, "linger_ms": 5},
        {"batch_size": 256, "linger_ms": 0},
    ),
    _peer(
        "quix",
        "Quix Streams 3.28.1",
        60_000,
        {"commit_every": 2000, "commit_interval": 0.01, "linger_ms": 0},
        {"commit_every": 2000, "commit_interval": 0.01, "linger_ms": 5},
        {"commit_every": 500, "commit_interval": 0.01, "linger_ms": 0},
    ),
    _peer(
        "faust",
        "Faust 0.15.3",
        7_000,
        {"rows": 256, "within_s": 0.005, "producer_linger": 0},
        {"rows": 256, "within_s": 0.005, "producer_linger": 0.005},
        {"rows": 500, "within_s": 0.05, "producer_linger": 0},
    ),
    _peer(
        "mlserver",
        "MLServer 1.7.1",
        6_000,
        {"parallel_workers": 0, "max_batch_size": 64, "max_batch_time": 0.002},
        {"parallel_workers": 0, "max_batch_size": 256, "max_batch_time": 0.005},
        {"parallel_workers": 1, "max_batch_size": 64, "max_batch_time": 0.002},
        guarantee="at most once; JSON V2",
        wire_format=V2(MODEL),
    ),
    _peer(
        "ray",
        "Ray Serve 2.60.0, bridge",
        40_000,
        {"rows": 1, "wait_s": 0.0, "group_rows": 512},
        {"rows": 16, "wait_s": 0.002, "group_rows": 64},
        {"rows": 128, "wait_s": 0.002, "group_rows": 1},
    ),
    _peer(
        "bentoml",
        "BentoML 1.4.39, bridge",
        30_000,
        {"rows": 512, "latency_ms": 1000, "group_rows": 512},
        {"rows": 512, "latency_ms": 1000, "group_rows": 64},
        {"rows": 256, "latency_ms": 1000, "group_rows": 1},
    ),
)
