"""The broker to use, by one word: `apache`, `embedded`, or `HOST:PORT` of one that runs already."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from deploy.errors import MissingError, UsageError
from deploy.local.admin import answers, create_topics
from deploy.local.apache import ApacheKafka
from deploy.local.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

APACHE, EMBEDDED = "apache", "embedded"
_ADDRESSES = re.compile(r"[^\s:,]+:\d+(,[^\s:,]+:\d+)*")


class Broker(Protocol):
    """A broker that can be used until `stop`."""

    @property
    def bootstrap(self) -> str:
        """Where clients connect: `host:port`, comma-separated if several."""
        ...

    @property
    def description(self) -> str:
        """What it is, for reports."""
        ...

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        """Create topics `{name: partitions}`; those that exist are left alone."""
        ...

    def stop(self) -> None:
        """Stop what was started; nothing if it was running before."""
        ...


class RunningBroker:
    """A broker that somebody else runs."""

    def __init__(self, bootstrap: str) -> None:
        """Name it; nothing is connected yet."""
        self.bootstrap = bootstrap

    @property
    def description(self) -> str:
        """What it is, for reports."""
        return f"broker at {self.bootstrap}"

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        """Create topics `{name: partitions}`; those that exist are left alone."""
        create_topics(self.bootstrap, partitions)

    def stop(self) -> None:
        """Leave it running."""


def open_broker(
    spec: str, *, data: Path | None = None, port: int = 0, probe_s: float = 10.0, bench: bool = False
) -> Broker:
    """Return a broker that answers.

    Args:
        spec: `apache`, `embedded` or `HOST:PORT[,HOST:PORT...]`.
        data: Apache Kafka's data folder; a temporary one by default.
        port: Apache Kafka's port; 0 takes a free one.
        probe_s: How long a broker at an address may take to answer.
        bench: Start Apache Kafka for a steady rate without pauses, not for a quick start.

    Raises:
        UsageError: `spec` is none of these.
        MissingError: Java or the jars cannot be had, or nobody answers at the address.
        StartError: Apache Kafka did not come up.
    """
    if spec == EMBEDDED:
        return EmbeddedBroker().start()
    if spec == APACHE:
        try:
            return ApacheKafka(data, port=port, bench=bench).start()
        except MissingError as error:
            raise MissingError(
                f"{error}\nWithout Apache Kafka: BROKER=embedded runs on a broker inside the process."
            ) from error
    if not _ADDRESSES.fullmatch(spec):
        raise UsageError(f"Broker {spec!r} is none of: apache, embedded, HOST:PORT.")
    if not answers(spec, probe_s):
        raise MissingError(f"No broker answers at {spec}. Start it, or let BROKER=apache start one here.")
    return RunningBroker(spec)
