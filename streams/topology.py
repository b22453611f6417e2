"""The topology as data: every topic, key, group, store and edge, named here and nowhere else.

Topics are created from it, the running system is checked against it, and the diagram and the test driver follow it.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass, replace
from itertools import starmap
from typing import TYPE_CHECKING, Literal

from schemas import topics
from schemas.sizes import MAX_BYTES, ROOM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
# Kafka bounds batches; the largest accepted record, with its headers, is half a MiB unless `max_input_kib` says more.
MAX_BATCH_BYTES = 2 * 1024 * 1024
# Of a segment of a topic that is compacted. The newest one never is, and who starts reads all of it: with Kafka's GiB,
# the page would read a day of reports.
_COMPACT_BYTES = 16 * 1024 * 1024
# For a client's batch: Kafka's own default, because every client library's largest batch fits into it.
MAX_CLIENT_BATCH_BYTES = 1024 * 1024 + 12
# A dead letter is its record and the cause.
DEAD_LETTER_ROOM = 2
# A context of more bytes (UTF-8) is named by its hash of 128 characters.
MAX_CONTEXT_BYTES = 127
# Between application and context in a state's name: contexts in the application's partition, or in all partitions.
TOGETHER, SPREAD = "/", ":"
_HELD_OUT = "(holdout)"
_HELD_OUT_ENDS = (TOGETHER + _HELD_OUT, SPREAD + _HELD_OUT)
# The changelogs of the control role's tables, as Faust names them: figures of processes, and the minutes of a day for
# charts. They are created with the other topics, so that Faust needs no right to create one.
CONTROL_TABLE = "control-live-changelog"
CONTROL_MINUTES = "control-minutes-changelog"
_CONFIG = (topics.APPLICATIONS, topics.MODELS)
# What replay and evaluation need: what was asked and answered, what became of it, and under which settings.
RECORDED = (
    topics.APPLICATIONS,
    topics.MODELS,
    topics.CANDIDATES,
    topics.PROMOTIONS,
    topics.QUERIES,
    topics.MODEL_PREDICTIONS,
    topics.SHADOWS,
    topics.PREDICTIONS,
    topics.FEEDBACK,
    topics.OBSERVATIONS,
    topics.CALLS,
    *map(topics.dead_letters, (topics.QUERIES, topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS)),
)
# Of the indexes of a model's topic. A broker maps the whole file, and its first write to one takes CPU time: 2.1 ms for
# 10 MiB, 0.1 ms for this (Linux 6.18, ext4). Models that are asked as often need theirs within one second: with 250 of
# them, 10 MiB stopped a broker on two cores for 9 s. An index of this size is full after 170 MiB of records.
_MODEL_INDEX_BYTES = 512 << 10
# Of murmur2, as in `org.apache.kafka.common.utils.Utils`; the tests hold its published values.
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: its key, the record type of its values, and how it is kept."""

    name: str
    value: str
    key: str
    partitions: int
    cleanup: Literal["delete", "compact"] = "delete"
    retention_ms: int = DAY_MS
    needed_ms: int = 0  # roles read this much back when they start; with a shorter retention they forget
    timestamps: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    max_bytes: int = MAX_BATCH_BYTES
    # As the broker stores it; empty = as it is written. What clients write is unpacked there, so that no role has to
    # unpack a stranger's gigabytes. What is kept for long is compressed there: observations are much alike.
    compression: Literal["", "uncompressed", "zstd"] = ""
    index_bytes: int = 0  # of each of a segment's two indexes; 0 = the broker's 10 MiB
    most_bytes: int = 0  # of each partition: beyond it the oldest records go, however young; 0 = as many as come

    def config(self) -> dict[str, str]:
        """Return the topic's configuration as Kafka names it."""
        kept = {"retention.ms": str(self.retention_ms)} if self.cleanup == "delete" else {}
        return {
            "cleanup.policy": self.cleanup,
            "max.message.bytes": str(self.max_bytes),
            "message.timestamp.type": self.timestamps,
            **({"compression.type": self.compression} if self.compression else {}),
            **({"segment.bytes": str(_COMPACT_BYTES)} if self.cleanup == "compact" else {}),
            **({"segment.index.bytes": str(self.index_bytes)} if self.index_bytes else {}),
            **({"retention.bytes": str(self.most_bytes)} if self.most_bytes else {}),
            **kept,
        }


@dataclass(frozen=True, slots=True)
class Node:
    """One role: what it reads as a group, what it follows from the beginning, what it writes, its use of the store.

    The first topic of `consumes` is the main one. Who writes policy states starts where the store says, not the group.
    Of `samples` a role reads some of the last records, and makes dead letters of none.
    """

    role: str
    consumes: tuple[str, ...]
    produces: tuple[str, ...]
    follows: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    group: str = ""
    states: Literal["", "reads", "writes"] = ""


@dataclass(frozen=True, slots=True)
class Topology:
    """The whole graph for a given set of models."""

    topics: Mapping[str, Topic]
    nodes: tuple[Node, ...]
    copartitioned: tuple[tuple[str, ...], ...]
    record_bytes: int = MAX_BYTES  # the largest value

    def node(self, role: str) -> Node:
        """Return a role's node.

        Raises:
            KeyError: no such role.
        """
        for node in self.nodes:
            if node.role == role:
                return node
        raise KeyError(role)

    @property
    def left_to_others(self) -> frozenset[str]:
        """Topics of models that none of these roles runs: without one its own model is not asked, and nothing else."""
        read = {name for node in self.nodes for name in node.consumes}
        asked = {name for name, topic in self.topics.items() if topic.value == "ModelQueries"} - read
        return frozenset({*asked, *map(topics.dead_letters, asked)})

    def used_by(self, roles: Iterable[str]) -> Topology:
        """Return the part that these roles touch: what they read, follow and write, and its dead letters.

        Raises:
            KeyError: no such role.
        """
        nodes = tuple(map(self.node, roles))
        names = {name for node in nodes for name in (*node.consumes, *node.follows, *node.samples, *node.produces)}
        names |= set(map(topics.dead_letters, names))
        groups = (tuple(name for name in group if name in names) for group in self.copartitioned)
        return Topology(
            topics={name: topic for name, topic in self.topics.items() if name in names},
            nodes=nodes,
            copartitioned=tuple(filter(None, groups)),
            record_bytes=self.record_bytes,
        )


def build(
    models: Iterable[str],
    partitions: int = 4,
    model_partitions: Mapping[str, int] | None = None,
    window_ms: int = 600_000,
    retention_ms: Mapping[str, int] | None = None,
    record_bytes: int = MAX_BYTES,
    hosts: Mapping[str, Iterable[str]] | None = None,
    most_bytes: Mapping[str, int] | None = None,
) -> Topology:
    """Build the topology of a deployment.

    Args:
        models: names of the deployed models; each has a topic of its own.
        partitions: of the five topics on the circle of data; equal, since a query's records meet in one partition.
        model_partitions: of each model's topic, by model: the most replicas that can share its queries. A model that
            is not named has `topics.MODEL_PARTITIONS`.
        window_ms: the longest feedback window: joiners read one back when they start, learners two.
        retention_ms: how long topics on the circle of data are kept, by name, where it is not the usual time.
        record_bytes: the largest value of any record; topics take it whole.
        hosts: models that share a process, by pool; the other ones have a worker each.
        most_bytes: how much of a topic on the circle of data is kept, by name, over all of its partitions.
    """
    names, counts, kept = tuple(sorted(set(models))), model_partitions or {}, retention_ms or {}
    bounds = {name: most // partitions for name, most in (most_bytes or {}).items()}
    circle = [
        replace(one, retention_ms=kept.get(one.name, one.retention_ms), most_bytes=bounds.get(one.name, 0))
        for one in _circle(partitions, window_ms)
    ]
    asked = [_asked(name, counts.get(name, topics.MODEL_PARTITIONS)) for name in names]
    consumed = [
        replace(one, max_bytes=max(one.max_bytes, record_bytes + ROOM_BYTES)) for one in (*circle, *_settings(), *asked)
    ]
    return Topology(
        topics={topic.name: topic for topic in (*consumed, *map(_dead, consumed), *_slow())},
        nodes=_nodes(names, {pool: tuple(sorted(its)) for pool, its in sorted((hosts or {}).items())}),
        copartitioned=(tuple(topic.name for topic in circle),),
        record_bytes=record_bytes,
    )


def worker_role(model: str) -> str:
    """Return the name of the role that runs one model."""
    return f"worker.{model}"


def host_role(pool: str) -> str:
    """Return the name of the role that runs the models of one pool."""
    return f"host.{pool}"


def _asked(model: str, partitions: int) -> Topic:
    name = topics.model_queries(model)
    return Topic(name, "ModelQueries", "none", partitions, retention_ms=HOUR_MS, index_bytes=_MODEL_INDEX_BYTES)


def _settings() -> tuple[Topic, ...]:
    """Return the topics of what is wanted and known, which roles follow."""
    return (
        Topic(topics.APPLICATIONS, "Application", "name", 1, "compact"),
        Topic(topics.MODELS, "Model", "name = serves; name@version = known", 1, "compact"),
        Topic(topics.FEATURES, "Features", "source/key; source = their mean", 1, "compact"),
    )


def _dead(source: Topic) -> Topic:
    return Topic(
        topics.dead_letters(source.name),
        "verbatim",
        "verbatim",
        1,
        retention_ms=30 * DAY_MS,
        max_bytes=DEAD_LETTER_ROOM * source.max_bytes,
    )


def _slow() -> tuple[Topic, ...]:
    """Return the topics that no query waits for."""
    return (
        Topic(topics.REPORTS, "Report", "instance", 1, retention_ms=HOUR_MS),
        Topic(CONTROL_TABLE, "JSON", "instance", 1, "compact"),
        Topic(CONTROL_MINUTES, "JSON", "minute of the day", 1, "compact"),
        Topic(topics.CANDIDATES, "Candidate", "kind/name", 1, "compact"),
        Topic(topics.PROMOTIONS, "Promotion", "kind/name", 1, retention_ms=365 * DAY_MS),
        Topic(topics.PROFILES, "Profile", "model", 1, "compact"),
        Topic(topics.PLAN, "Plan", "pool", 1, "compact"),
        Topic(topics.CALLS, "Calls", "instance", 1, retention_ms=7 * DAY_MS),
        _dead(Topic(topics.MAPPING, "", "of the record", 1)),
    )


def _circle(partitions: int, window_ms: int) -> list[Topic]:
    """Return the topics on the circle of data."""
    return [
        Topic(
            topics.QUERIES,
            "Query",
            "context, else query_id",
            partitions,
            max_bytes=MAX_CLIENT_BATCH_BYTES,
            compression="uncompressed",
        ),
        Topic(
            topics.MODEL_PREDICTIONS, "ModelPredictions", "none (explicit partition)", partitions, retention_ms=HOUR_MS
        ),
        Topic(topics.SHADOWS, "ModelPredictions", "none (explicit partition)", partitions, retention_ms=HOUR_MS),
        Topic(
            topics.PREDICTIONS, "Prediction", "as the query", partitions, retention_ms=7 * DAY_MS, needed_ms=window_ms
        ),
        Topic(
            topics.FEEDBACK,
            "Feedback",
            "as the query",
            partitions,
            retention_ms=7 * DAY_MS,
            needed_ms=window_ms,
            max_bytes=MAX_CLIENT_BATCH_BYTES,
            compression="uncompressed",
        ),
        Topic(
            topics.OBSERVATIONS,
            "Observations",
            "policy state",
            partitions,
            retention_ms=365 * DAY_MS,
            needed_ms=2 * window_ms + MINUTE_MS,
            timestamps="LogAppendTime",  # monotonic, so that the learner's window is the same on every reading
            compression="zstd",
        ),
    ]


def _nodes(models: tuple[str, ...], hosts: Mapping[str, tuple[str, ...]]) -> tuple[Node, ...]:
    alone = sorted({*models}.difference(*hosts.values()))
    pools = ((pool, tuple([model for model in its if model in models])) for pool, its in hosts.items())
    return (
        _selection(models),
        *map(_worker, alone),
        *starmap(_host, pools),
        Node(
            "joiner",
            consumes=(topics.PREDICTIONS, topics.SHADOWS, topics.FEEDBACK),
            # Feedback: what feedback by key is about.
            produces=(topics.OBSERVATIONS, topics.FEEDBACK, topics.CALLS, topics.REPORTS),
            follows=_CONFIG,
            group="joiner",
        ),
        Node(
            "learner",
            consumes=(topics.OBSERVATIONS,),
            produces=(topics.CALLS, topics.REPORTS),
            group="learner",
            states="writes",
        ),
        Node(
            "mapping",  # it consumes what applications map, which changes while it runs
            consumes=(),
            produces=(topics.QUERIES, topics.FEEDBACK, topics.dead_letters(topics.MAPPING), topics.REPORTS),
            follows=_CONFIG,
            group="mapping",
        ),
        Node(
            "gateway",  # it reads answers from their present end
            consumes=(),
            produces=(topics.QUERIES, topics.FEEDBACK, topics.REPORTS),
            follows=(*_CONFIG, topics.PREDICTIONS),
        ),
        Node("record", consumes=(), produces=(topics.REPORTS,), follows=RECORDED),
        _telemetry(models),
        _control(),
    )


def _selection(models: tuple[str, ...]) -> Node:
    asked = map(topics.model_queries, models)
    # What models inside it answer is written behind, if wanted.
    own = (topics.MODEL_PREDICTIONS, topics.PREDICTIONS, topics.SHADOWS, topics.CALLS, topics.REPORTS, topics.FEATURES)
    return Node(
        "selection",
        consumes=(topics.QUERIES, topics.MODEL_PREDICTIONS),
        produces=(*asked, *own),
        follows=(*_CONFIG, topics.FEATURES),
        group="selection",
        states="reads",
    )


def _worker(model: str) -> Node:
    return Node(
        worker_role(model),
        consumes=(topics.model_queries(model),),
        produces=(topics.MODEL_PREDICTIONS, topics.SHADOWS, topics.REPORTS),
        follows=(topics.MODELS,),
        group=worker_role(model),
    )


def _host(pool: str, models: tuple[str, ...]) -> Node:
    return Node(
        host_role(pool),
        consumes=tuple(map(topics.model_queries, models)),
        produces=(topics.MODEL_PREDICTIONS, topics.SHADOWS, topics.PROFILES, topics.REPORTS),
        follows=(topics.MODELS, topics.PROFILES, topics.PLAN),
        group=host_role(pool),
    )


def _telemetry(models: tuple[str, ...]) -> Node:
    read = (topics.PREDICTIONS, topics.MODEL_PREDICTIONS, topics.OBSERVATIONS, *map(topics.model_queries, models))
    return Node("telemetry", consumes=(), produces=(topics.REPORTS,), follows=(topics.MODELS, *read))


def _control() -> Node:
    return Node(
        "control",
        consumes=(topics.REPORTS,),
        # A candidate's steps change what is wanted.
        produces=(topics.REPORTS, CONTROL_TABLE, CONTROL_MINUTES, topics.PROMOTIONS, topics.PLAN, *_CONFIG),
        follows=(
            topics.CANDIDATES,
            topics.PROMOTIONS,
            topics.OBSERVATIONS,
            topics.PROFILES,
            topics.PLAN,
            *_CONFIG,
        ),
        samples=(topics.QUERIES, topics.PREDICTIONS),  # for the watch over drift
        group="control",
    )


def application_of(name: str) -> str:
    """Return the application that a policy state belongs to."""
    return name.partition(TOGETHER)[0].partition(SPREAD)[0]


def state_name(application: str, context: str | None, *, is_spread: bool = False) -> str:
    """Name a policy state: the application's own, or the one of a context (user, session, region) of it.

    The name says by itself in which partition it lies: whoever meets it needs to know nothing of the application.

    A long context is named by its hash, which is longer than any that stands for itself: contexts are a client's, and
    their names are kept in every process and in Redis.
    """
    if context is None:
        return application
    if len(context) * 4 > MAX_CONTEXT_BYTES and len(encoded := context.encode()) > MAX_CONTEXT_BYTES:
        context = hashlib.blake2b(encoded).hexdigest()  # 128 characters
    return f"{application}{SPREAD if is_spread else TOGETHER}{context}"


def held_out_state(application: str, *, is_spread: bool = False) -> str:
    """Name the state under which decisions stand that are not the policy's, of contexts that are held out."""
    return state_name(application, _HELD_OUT, is_spread=is_spread)


def is_held_out(state: str) -> bool:
    """Tell whether a decision of a state is none of the policy's."""
    return state.endswith(_HELD_OUT_ENDS)


def state_partition(name: str, partitions: int) -> int:
    """Return the `observations` partition of a state, so that exactly one learner writes it.

    Usually by the application: its contexts start from what all of them have taught, and that is one fold over one
    partition. Spread contexts lie each by its own name, and start from what those of their partition have taught.
    CRC-32: both ends are ours, and it costs 0.1 us where Java's murmur2 in Python costs 5.
    """
    application, spread, _ = name.partition(TOGETHER)[0].partition(SPREAD)
    return zlib.crc32((name if spread else application).encode()) % partitions


def describe(topology: Topology) -> str:
    """Draw the topology as text: every role with what flows in and out."""
    lines: list[str] = []
    for node in topology.nodes:
        lines.append(f"{node.role}" + (f"  (group {node.group})" if node.group else ""))
        lines += [f"  ◀── {_label(topology, name)}" for name in node.consumes]
        lines += [f"  ◁┄┄ {_label(topology, name)}  from the beginning" for name in node.follows]
        lines += [f"  ◁┄┄ {_label(topology, name)}  a sample" for name in node.samples]
        lines += [f"  ──▶ {_label(topology, name)}" for name in node.produces]
        lines += [f"  ═══ Redis: {node.states} policy states"] if node.states else []
        lines.append("")
    return "\n".join(lines)


def _label(topology: Topology, name: str) -> str:
    topic = topology.topics[name]
    return f"{name}  [{topic.value}; key: {topic.key}; {topic.partitions} partitions, {topic.cleanup}]"


def murmur2(data: bytes) -> int:
    """Return the signed 32-bit hash of `data`, bit for bit as Java computes it."""
    size = len(data)
    h = _SEED ^ size
    for word in struct.unpack_from(f"<{size // 4}I", data):
        k = word * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    if size & 3:
        h = (h ^ int.from_bytes(data[size & ~3 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h > _POSITIVE else h


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition, in [0, partitions), that Java's default partitioner gives a record with this key."""
    return (murmur2(key) & _POSITIVE) % partitions
