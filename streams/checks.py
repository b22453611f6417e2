"""Compares a broker's topics with the topology, and returns a finding for each difference.

A *fault* loses records, answers or lessons, so nothing should start on it. A *warning* names what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from schemas.sizes import ROOM_BYTES
from schemas.topics import FEEDBACK, PREDICTIONS, QUERIES, dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streams.topology import Topic, Topology

# A dead letter is cut off where it does not fit; this much must fit, or the role that writes it ends.
DEAD_LETTER_BYTES: Final = 144 * 1024
VERBATIM: Final = "verbatim"
ASKED: Final = "ModelQueries"
# From whose counts a client knows how many partitions are served.
WRITTEN: Final = (QUERIES, FEEDBACK, PREDICTIONS)
MIN_IN_SYNC: Final = "min.insync.replicas"
# What a role relies on; a broker may keep some of it to itself.
COMPRESSION: Final = "compression.type"
SIZE: Final = "max.message.bytes"
UNCOMPRESSED: Final = "uncompressed"
AS_WRITTEN: Final = "producer"
LOOKED_AT: Final = frozenset({"cleanup.policy", "retention.ms", "message.timestamp.type", SIZE})
# These pass while topics are being created or brokers come up.
PASSING: Final = frozenset({"existence", "leader"})


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as a broker has it.

    Attributes:
        partitions: how many.
        replicas: of the partition with the fewest.
        leaderless: partitions that no broker leads at the moment.
        config: as Kafka names it; empty if the broker does not tell.
        waiting: records in partitions beyond those of the topology.
        used: partitions up to the last one that has ever had a record; told only where there are some beyond.
    """

    partitions: int
    replicas: int = 1
    leaderless: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    waiting: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference between topology and broker.

    Attributes:
        aspect: what was looked at: `existence`, `leader`, `partitions`, `replication`, `configuration`, or the name of
            the topic's property.
        topics: logical names of the topics concerned.
        message: a sentence that says what is wrong and what to do.
        fault: nothing should start before it is mended.
        value: of the topic's property `aspect`, by which Kafka can mend it in place; empty where it cannot.
    """

    aspect: str
    topics: tuple[str, ...]
    message: str
    fault: bool
    value: str = ""

    @property
    def passing(self) -> bool:
        """Whether it may pass in a moment."""
        return self.aspect in PASSING


def check(
    topology: Topology, found: Mapping[str, Found], *, replication: int = 1, prefix: str = "skysail"
) -> list[Finding]:
    """Compare a topology with what a broker has; faults come first.

    Args:
        topology: what should be there.
        found: what is there, by logical name.
        replication: copies that were asked for.
        prefix: of the deployment, for names that can be pasted into Kafka's own tools.
    """
    comparison = _TopicComparison(topology, found, replication, prefix)
    return sorted(comparison.findings(), key=lambda finding: not finding.fault)


def _looked_at(topic: Topic) -> frozenset[str]:
    return LOOKED_AT | {COMPRESSION} if topic.compression else LOOKED_AT


@dataclass(frozen=True, slots=True)
class _TopicComparison:
    topology: Topology
    found: Mapping[str, Found]
    replication: int
    prefix: str

    def findings(self) -> Iterator[Finding]:
        there = [topic for topic in self.topology.topics.values() if topic.name in self.found]
        yield from self._existence()
        for group in self.topology.copartitioned:
            yield from self._together([name for name in group if name in self.found])
        yield from self._replication()
        unread = [topic.name for topic in there if not self.found[topic.name].config.keys() >= _looked_at(topic)]
        if unread:
            yield self._unread(unread)
        for topic in there:
            yield from self._alone(topic, self.found[topic.name])
            yield from self._configured(topic, self.found[topic.name].config)
            yield from self._in_sync(topic, self.found[topic.name])

    def _existence(self) -> Iterator[Finding]:
        missing = [name for name in self.topology.topics if name not in self.found]
        create = "create what is missing: skysail topics create"
        yield from self._gone("existence", missing, f"not on the broker: {{names}}; {create}")
        idle = [name for name in self.topology.topics if name in self.found and self.found[name].leaderless]
        yield from self._gone("leader", idle, "without a leader: partitions of {names}; see that all brokers are up")

    def _gone(self, aspect: str, names: list[str], text: str) -> Iterator[Finding]:
        """A role needs its own topics to start; a missing topic of another role's model stops that model alone."""
        elsewhere = self.topology.left_to_others
        if needed := [name for name in names if name not in elsewhere]:
            yield self._fault(aspect, needed, text)
        if other := [name for name in names if name in elsewhere]:
            yield self._warning(aspect, other, f"{text}; until then their models are not asked, all else goes on")

    def _together(self, names: list[str]) -> Iterator[Finding]:
        """A query's records meet in one partition number of all these topics, and policy states are spread over it."""
        counts = {name: self.found[name].partitions for name in names}
        wanted = {name: self.topology.topics[name].partitions for name in names}
        if counts == wanted:
            return
        number = next(iter(wanted.values()))
        more = [name for name in names if counts[name] > number]
        if min(counts.values()) >= number and self._has_grown(counts, number):
            yield self._warning("partitions", names, self._unserved(more, number))
            return
        listed = ", ".join(f"{self._real(name)} has {count}" for name, count in counts.items())
        advice = f"recreate those that have not {number}, or set `partitions` to what all have"
        if len(set(counts.values())) == 1:
            listed = f"the circle of data has {next(iter(counts.values()))} partitions"
            advice = f"set `partitions` to that, or recreate {self._names(names)}"
        yield self._fault(
            "partitions", names, f"{listed}, but the settings say {number} for each, since their records meet; {advice}"
        )

    def _has_grown(self, counts: Mapping[str, int], number: int) -> bool:
        """Whether somebody has added partitions, and it is not the settings that are wrong.

        What roles have written lies in all partitions that were ever served. Where there is nothing yet, equal counts
        are as created.
        """
        used = max((self.found[name].used for name in counts if name not in (QUERIES, FEEDBACK)), default=0)
        return used <= number and (used > 0 or len(set(counts.values())) > 1)

    def _unserved(self, names: list[str], number: int) -> str:
        """Say what is served where somebody has added partitions, and what is not."""
        listed = ", ".join(
            f"{self._real(name)} has {self.found[name].partitions} partitions"
            + (
                f" ({self.found[name].waiting} records wait beyond the first {number})"
                if self.found[name].waiting
                else ""
            )
            for name in names
        )
        told = f"{listed}, and the settings say {number}: the first {number} are served, what is in others is not read"
        client = "Skysail's client keeps to them"
        if set(WRITTEN) <= set(names):
            client = f"clients must be told: Client(..., partitions={number})"
        return (
            f"{told}. {client}; other writers must, too. Kafka takes no partition away: see docs/limits.md, Partitions"
        )

    def _alone(self, topic: Topic, found: Found) -> Iterator[Finding]:
        """Topics that need not be equal to others: a model's, and those of one partition."""
        if topic.name in {name for group in self.topology.copartitioned for name in group}:
            return
        has = f"{{names}} has {found.partitions} partitions instead of {topic.partitions}"
        if found.partitions < topic.partitions:
            advice = "skysail topics create"
            yield self._fault("partitions", [topic.name], f"{has}, and all are written to; add them: {advice}")
        elif found.partitions > topic.partitions and topic.value == ASKED:
            advice = f"set `worker.partitions` to {found.partitions} for this model, and: skysail topics create"
            yield self._warning("partitions", [topic.name], f"{has}; the others stay empty. To use them {advice}")
        elif found.partitions > topic.partitions > 1:
            yield self._warning("partitions", [topic.name], f"{has}; the others stay empty, and their readers idle")
        elif found.partitions > topic.partitions and topic.value != VERBATIM:
            yield self._warning(
                "partitions",
                [topic.name],
                f"{has}; the first is used, so nobody may write to others. To go back, recreate it",
            )

    def _replication(self) -> Iterator[Finding]:
        copies: dict[int, list[str]] = {}
        for name in self.topology.topics:
            if name in self.found:
                copies.setdefault(self.found[name].replicas, []).append(name)
        for count, names in sorted(copies.items()):
            if count < self.replication:
                advice = f"`replication` asks for {self.replication}; reassign their partitions, or recreate them"
                yield self._warning("replication", names, f"copies of each partition: {count} for {{names}}; {advice}")
            elif count == 1:
                advice = (
                    "records that this broker loses are lost; in production set `replication: 3` before creating topics"
                )
                yield self._warning("replication", names, f"only one copy of each partition: {{names}}; {advice}")

    def _unread(self, names: list[str]) -> Finding:
        text = "the broker does not show the whole configuration of: {names}; give this user the right DescribeConfigs"
        return self._warning("configuration", names, f"{text}, or check retention, cleanup and timestamps yourself")

    def _configured(self, topic: Topic, config: Mapping[str, str]) -> Iterator[Finding]:
        """Check the configuration that the broker shows; some show less than others."""
        if "cleanup.policy" in config:
            yield from self._cleanup(topic, config["cleanup.policy"])
        if "retention.ms" in config:
            yield from self._retention(topic, int(config["retention.ms"]))
        if "retention.bytes" in config:
            yield from self._bound(topic, int(config["retention.bytes"]))
        if "message.timestamp.type" in config:
            yield from self._timestamps(topic, config["message.timestamp.type"])
        if SIZE in config:
            yield from self._size(topic, int(config[SIZE]))
        if COMPRESSION in config and topic.compression:
            yield from self._compression(topic, config[COMPRESSION])

    def _in_sync(self, topic: Topic, found: Found) -> Iterator[Finding]:
        needed = int(found.config.get(MIN_IN_SYNC, 1))
        if needed > found.replicas > 0:
            why = f"a partition has {found.replicas} copies, so that nothing can be written"
            yield self._set(topic, MIN_IN_SYNC, needed, found.replicas, why, fault=True)

    def _cleanup(self, topic: Topic, policy: str) -> Iterator[Finding]:
        if set(policy.split(",")) == {topic.cleanup}:
            return
        why = "all but the last record of each key would be lost"
        if topic.cleanup == "compact":
            why = "published state would be deleted when it gets old"
        yield self._set(topic, "cleanup.policy", policy, topic.cleanup, why, fault=True)

    def _retention(self, topic: Topic, retention_ms: int) -> Iterator[Finding]:
        if topic.cleanup == "compact" or retention_ms < 0 or retention_ms >= topic.retention_ms:
            return
        too_short = retention_ms < topic.needed_ms
        why = "less is kept than outages and recounts may need"
        if too_short:
            why = f"roles read back {topic.needed_ms} ms when they start, and would forget what they knew"
        yield self._set(topic, "retention.ms", retention_ms, topic.retention_ms, why, fault=too_short)

    def _bound(self, topic: Topic, most_bytes: int) -> Iterator[Finding]:
        """Compare how much a topic may take; where nothing is said, whoever set a bound knows why."""
        if topic.most_bytes in (0, most_bytes):
            return
        is_less = 0 <= most_bytes < topic.most_bytes
        why = "the oldest go before their time" if is_less else "it may take more of the brokers' disks than is meant"
        yield self._set(topic, "retention.bytes", most_bytes, topic.most_bytes, why, fault=False)

    def _timestamps(self, topic: Topic, kind: str) -> Iterator[Finding]:
        if kind == topic.timestamps or topic.value == VERBATIM or topic.cleanup == "compact":
            return
        is_log = topic.timestamps == "LogAppendTime"
        why = "deadlines and windows that run from a record's own time would begin when the broker got it"
        if is_log:
            why = "another reading would tell repeated observations otherwise, and lessons would count twice"
        yield self._set(topic, "message.timestamp.type", kind, topic.timestamps, why, fault=is_log)

    def _compression(self, topic: Topic, kind: str) -> Iterator[Finding]:
        wanted = topic.compression
        if wanted == UNCOMPRESSED != kind:
            why = "a client's few kilobytes could be gigabytes for its readers; brokers then unpack and refuse them"
            yield self._set(topic, COMPRESSION, kind, wanted, why, fault=True)
        elif wanted != UNCOMPRESSED and kind in {UNCOMPRESSED, AS_WRITTEN}:
            yield self._set(topic, COMPRESSION, kind, wanted, "it takes about three times the disk", fault=False)

    def _size(self, topic: Topic, limit: int) -> Iterator[Finding]:
        if topic.value != VERBATIM:
            largest = min(self.topology.record_bytes + ROOM_BYTES, topic.max_bytes)
            if limit < largest:
                why = f"records of up to {largest} bytes are accepted and written (`max_input_kib`)"
                yield self._set(topic, SIZE, limit, topic.max_bytes, why, fault=True)
            return
        source = self._largest_of_source(topic.name)
        wanted = max(topic.max_bytes, source)
        if limit < DEAD_LETTER_BYTES:
            why = "the role that has to write a dead letter would end"
            yield self._set(topic, SIZE, limit, wanted, why, fault=True)
        elif limit < source:
            yield self._set(topic, SIZE, limit, wanted, "the largest bad records would be cut off", fault=False)

    def _largest_of_source(self, dead: str) -> int:
        """Return the size that the source of a dead-letter topic takes."""
        for name, found in self.found.items():
            if dead_letters(name) == dead:
                return int(found.config.get(SIZE, 0))
        return 0

    def _set(self, topic: Topic, key: str, has: object, wanted: object, why: str, *, fault: bool) -> Finding:
        """Make a finding about a property that Kafka can change in place."""
        command = "mend it with: skysail topics check --mend, or kafka-configs.sh --alter --entity-type topics"
        command += f" --entity-name {self._real(topic.name)} --add-config {key}={wanted}"
        text = f"{{names}} has {key} {has} instead of {wanted}: {why}; {command}"
        return replace(self._finding(key, [topic.name], text, fault=fault), value=str(wanted))

    def _fault(self, aspect: str, names: list[str], text: str) -> Finding:
        return self._finding(aspect, names, text, fault=True)

    def _warning(self, aspect: str, names: list[str], text: str) -> Finding:
        return self._finding(aspect, names, text, fault=False)

    def _finding(self, aspect: str, names: list[str], text: str, *, fault: bool) -> Finding:
        return Finding(aspect, tuple(names), text.format(names=self._names(names)), fault)

    def _names(self, names: Iterable[str]) -> str:
        given = list(names)
        if len(given) > 1 and len(given) == len(self.topology.topics):
            return f"all topics of {self.prefix}"
        return ", ".join(map(self._real, given))

    def _real(self, name: str) -> str:
        return f"{self.prefix}.{name}"
