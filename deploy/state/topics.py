"""A deployment's topics on its broker: created, compared with the topology, waited for."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from deploy.config.addresses import connection
from deploy.connect.clients import admin, answering, librdkafka
from deploy.errors import StartError
from schemas import topics as names
from streams import checks
from streams.checks import ASKED
from streams.runtime.kafka import admin as kafka_admin
from streams.runtime.kafka import disk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.config.settings import Settings
    from streams.checks import Finding, Found
    from streams.topology import Topology

_log = logging.getLogger(__name__)

LOOK_S = 0.25
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Usage:
    """What one topic takes, and may take.

    Attributes:
        bytes: on the disks of all brokers, every copy counted.
        days: records are kept so long; None: without an end.
        most: bytes that it may take, every copy counted; None: no bound but the days.
    """

    topic: str
    bytes: int
    days: float | None
    most: int | None


class Unread(NamedTuple):
    """One partition of one role that is not read to its end.

    Attributes:
        at: offset of the next record that the role has yet to finish, as it has committed.
        end: of the log.
    """

    role: str
    topic: str
    partition: int
    at: int
    end: int


def partition_counts(settings: Settings, *, outside: bool = False) -> dict[str, int]:
    """Return the partition counts of this deployment's topics on the broker, by logical name; or of all other ones.

    Raises:
        Unreachable: no broker answers.
    """
    start = f"{settings.prefix}."
    found = kafka_admin.partitions(admin(settings))
    if outside:
        return {names.outside(name): count for name, count in found.items() if not name.startswith(start)}
    return {name.removeprefix(start): count for name, count in found.items() if name.startswith(start)}


def create(settings: Settings, topology: Topology) -> list[str]:
    """Create missing topics as the topology says, and wait for them; returns their logical names.

    Topics of models get the partitions that they lack. It returns when their workers read these, too.

    Raises:
        Unreachable: no broker answers.
        BrokerUnavailableError: the workers do not take new partitions.
        MisconfiguredError: the broker refused one.
    """
    there = partition_counts(settings)
    for node in topology.nodes:
        for topic in (topology.topics[name] for name in node.consumes):
            if topic.value == ASKED and there.get(topic.name, topic.partitions) < topic.partitions:
                real, group = f"{settings.prefix}.{topic.name}", f"{settings.prefix}.{node.group}"
                _log.warning("%s gets %d partitions; waiting for its workers", real, topic.partitions)
                kafka_admin.widen(admin(settings), real, topic.partitions, group)
    missing = {f"{settings.prefix}.{name}": topic for name, topic in topology.topics.items() if name not in there}
    counts = {name: topic.partitions for name, topic in missing.items()}
    configs = {name: topic.config() for name, topic in missing.items()}
    kafka_admin.create(admin(settings), counts, settings.replication, configs)
    return [topic.name for topic in missing.values()]


def check(settings: Settings, topology: Topology) -> list[Finding]:
    """Compare the broker with the topology; faults come first.

    Raises:
        Unreachable: no broker answers.
    """
    real = {f"{settings.prefix}.{name}": name for name in topology.topics}
    counts = {name: topology.topics[logical].partitions for name, logical in real.items()}
    found = {real[name]: topic for name, topic in kafka_admin.find(admin(settings), real, counts).items()}
    return checks.check(topology, found, replication=settings.replication, prefix=settings.prefix)


def mend(settings: Settings, findings: Iterable[Finding]) -> list[str]:
    """Set the properties of topics that findings say can be set in place; returns what was set.

    Raises:
        Unreachable: no broker answers.
        MisconfiguredError: the broker refuses.
    """
    client, told = admin(settings), []
    for finding in findings:
        if finding.value:
            (name,) = finding.topics
            kafka_admin.configure(client, f"{settings.prefix}.{name}", {finding.aspect: finding.value})
            told.append(f"{settings.prefix}.{name} has {finding.aspect} {finding.value} now")
    return told


def require(settings: Settings, topology: Topology) -> None:
    """Wait until the topics fit the topology, for `kafka.topics_wait_s` at most.

    Warnings are logged. A warning about single copies is left out if the settings ask for one copy.

    Raises:
        Unreachable: no broker answers.
        StartError: topics do not fit the topology; the message says what to do about each.
    """
    end_s = time.monotonic() + settings.kafka.topics_wait_s
    told = False
    findings = check(settings, topology)
    while faults := [finding for finding in findings if finding.fault]:
        if time.monotonic() > end_s or not all(fault.passing for fault in faults):
            raise StartError("\n".join(fault.message for fault in faults))
        if not told:
            _log.warning("waiting up to %g s: %s", settings.kafka.topics_wait_s, faults[0].message)
        told = True
        time.sleep(LOOK_S)
        findings = check(settings, topology)
    for finding in findings:
        if finding.aspect != "replication" or settings.replication > 1:
            _log.warning("%s", finding.message)


def usage(settings: Settings) -> list[Usage]:
    """Return what each of this deployment's topics takes on disk, the largest first.

    Raises:
        Unreachable: no broker answers, or it does not tell (an embedded one does not).
    """
    counts = {f"{settings.prefix}.{name}": count for name, count in partition_counts(settings).items()}
    with answering(settings):
        taken = asyncio.run(disk.sizes(connection(settings), counts))
        found = kafka_admin.find(admin(settings), counts)
    rows = [
        Usage(
            name.removeprefix(f"{settings.prefix}."),
            taken[name],
            None if (ms := _bound(topic, "retention.ms")) is None else ms / DAY_MS,
            None if (each := _bound(topic, "retention.bytes")) is None else each * topic.partitions * topic.replicas,
        )
        for name, topic in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.topic))


def lag(settings: Settings, topology: Topology) -> list[Unread]:
    """Return what each role has yet to read, by partition, the most first; what is read to its end is left out.

    Raises:
        Unreachable: no broker answers.
    """
    client, options = admin(settings), librdkafka(settings)
    there, found = partition_counts(settings), list[Unread]()
    for node in topology.nodes:
        counts = {f"{settings.prefix}.{name}": there[name] for name in node.consumes if name in there}
        if not node.group or not counts:
            continue
        places = kafka_admin.progress(client, options, f"{settings.prefix}.{node.group}", counts)
        for (name, number), (at, end) in places.items():
            if end > at:
                found.append(Unread(node.role, name.removeprefix(f"{settings.prefix}."), number, at, end))
    return sorted(found, key=lambda row: row.at - row.end)


def _bound(topic: Found, name: str) -> int | None:
    """Return the value of a topic's property, None where it sets no bound: Kafka says -1, or cleans by key alone."""
    value = int(topic.config.get(name, -1))
    return None if value < 0 or topic.config.get("cleanup.policy") == "compact" else value
