"""How every Kafka client of the process connects, and how logical topic names become real ones."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiokafka.helpers import create_ssl_context
from aiokafka.structs import TopicPartition as KafkaPartition

from streams.runtime.errors import MisconfiguredError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.runtime.ports import TopicPartition

# It says ten times a second that a topic is missing; the adapters say it once, and with what to do.
logging.getLogger("aiokafka.cluster").setLevel(logging.CRITICAL)

# Properties that describe a TLS context; aiokafka takes the context itself.
_SSL = {"ssl_cafile": "cafile", "ssl_certfile": "certfile", "ssl_keyfile": "keyfile", "ssl_password": "password"}


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """Where Kafka is and what this deployment's topics are called there.

    Attributes:
        bootstrap: `host:port[,host:port]`.
        prefix: put before every topic and group with a dot; empty = none.
        properties: passed on to every client, in aiokafka's words (`security_protocol`, `sasl_mechanism`,
            `sasl_plain_username`, …; `ssl_cafile`, `ssl_certfile`, `ssl_keyfile`, `ssl_password` make the TLS context).
        client_id: shown in the broker's logs and quotas.
    """

    bootstrap: str
    prefix: str = "skysail"
    properties: Mapping[str, Any] = field(default_factory=dict)
    client_id: str = "skysail"

    def real(self, name: str) -> str:
        """Return the topic or group as the broker knows it."""
        return f"{self.prefix}.{name}" if self.prefix else name

    def logical(self, name: str) -> str:
        """Return a broker's topic without the prefix."""
        return name.removeprefix(f"{self.prefix}.") if self.prefix else name

    def kafka_partition(self, partition: TopicPartition) -> KafkaPartition:
        """Return a partition as aiokafka names it."""
        return KafkaPartition(self.real(partition[0]), partition[1])

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments that all aiokafka clients share.

        Raises:
            MisconfiguredError: a TLS file cannot be read.
        """
        plain = {name: value for name, value in self.properties.items() if name not in _SSL}
        tls = {_SSL[name]: value for name, value in self.properties.items() if name in _SSL}
        shared = {"bootstrap_servers": self.bootstrap, "client_id": self.client_id, **plain}
        if tls or str(plain.get("security_protocol", "")).endswith("SSL"):
            shared.setdefault("ssl_context", _context(tls))
        return shared


def _context(files: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        context: ssl.SSLContext = create_ssl_context(**files)
    except (OSError, ssl.SSLError) as fault:
        raise MisconfiguredError(
            f"cannot build the TLS context from {sorted(files)}: {fault}; check the ssl_* files"
        ) from fault
    return context
