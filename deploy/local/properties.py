"""The configuration files of a one-node Apache Kafka, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOST = "127.0.0.1"
# A dead letter holds an original of up to 1 MiB verbatim plus its headers, and batches of them travel together.
MESSAGE_MAX_BYTES = 4 * 1024 * 1024

LOG4J2 = """\
status=warn
appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d %p %m (%c)%n
rootLogger.level=warn
rootLogger.appenderRef.c.ref=C
"""

_FIXED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",  # the default of 50 costs a second of start-up and 50 folders
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # After kill -9 a broker may not register again before its session ends: 12 s with the default of 9 s.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "message.max.bytes": str(MESSAGE_MAX_BYTES),
    "replica.fetch.max.bytes": str(MESSAGE_MAX_BYTES),
}


def server_properties(
    *, port: int, controller_port: int, data: Path, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the broker's properties; `extra` wins.

    The quorum is static (`controller.quorum.voters`): a dynamic one remembers the controller's port in its log, and a
    restart on the same data with another free port would not find itself.
    """
    return {
        **_FIXED,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(data),
        **(extra or {}),
    }


def render(properties: Mapping[str, str]) -> str:
    r"""Render as a Java properties file: one `key=value` a line, backslashes doubled as the format wants."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items())
