"""How every Kafka client of the process connects, and how logical topic names become real ones."""

from __future__ import annotations

import difflib
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context
from aiokafka.structs import TopicPartition as KafkaPartition

from schemas import topics
from schemas.sizes import MAX_BYTES
from streams.runtime.errors import MisconfiguredError
from streams.runtime.kafka import private

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.runtime.ports import TopicPartition

# What aiokafka raises where a broker or its connection is gone. uvloop's word for a connection that is closed under a
# request is a RuntimeError, which aiokafka lets through (seen when a broker was killed on a busy machine).
LOST = (KafkaError, RuntimeError)

# Properties that describe a TLS context; aiokafka takes the context itself.
_SSL = {"ssl_cafile": "cafile", "ssl_certfile": "certfile", "ssl_keyfile": "keyfile", "ssl_password": "password"}
_PASSWORD = frozenset({"sasl_plain_username", "sasl_plain_password"})
_OTHERS = frozenset({"security_protocol", "sasl_mechanism", "ssl_context", "sasl_oauth_token_provider"})
_KERBEROS = frozenset({"sasl_kerberos_service_name", "sasl_kerberos_domain_name"})
_TIMES = frozenset({"retry_backoff_ms", "connections_max_idle_ms"})  # the other ones are the adapters' own
_KNOWN = _PASSWORD | _OTHERS | _KERBEROS | _TIMES | _SSL.keys()
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_USED_BY = {"sasl_": ("SASL_PLAINTEXT", "SASL_SSL"), "ssl_": ("SSL", "SASL_SSL")}
_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = (*_WITH_PASSWORD, "GSSAPI", "OAUTHBEARER")


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """Where Kafka is and what this deployment's topics are called there.

    Attributes:
        bootstrap: `host:port[,host:port]`.
        prefix: put before every topic and group with a dot; empty = none.
        properties: passed on to every client, in aiokafka's words (`security_protocol`, `sasl_mechanism`,
            `sasl_plain_username`, …; `ssl_cafile`, `ssl_certfile`, `ssl_keyfile`, `ssl_password` make the TLS context).
        client_id: shown in the broker's logs and quotas.
        fast: fetch and produce with Skysail's own requests on aiokafka's connections; otherwise over aiokafka's public
            interface alone, which costs more CPU. That is also what an aiokafka of another make gets.
        record_bytes: the largest value; what clients fetch and send at once follows from it.
    """

    bootstrap: str
    prefix: str = "skysail"
    properties: Mapping[str, object] = field(default_factory=dict, repr=False)  # a password may be among them
    client_id: str = "skysail"
    fast: bool = True
    record_bytes: int = MAX_BYTES

    def real(self, name: str) -> str:
        """Return the topic or group as the broker knows it."""
        if name.startswith(topics.OUTSIDE):
            return name.removeprefix(topics.OUTSIDE)
        return f"{self.prefix}.{name}" if self.prefix else name

    def logical(self, name: str) -> str:
        """Return a broker's topic without the prefix."""
        if self.prefix and not name.startswith(f"{self.prefix}."):
            return topics.outside(name)
        return name.removeprefix(f"{self.prefix}.") if self.prefix else name

    def kafka_partition(self, partition: TopicPartition) -> KafkaPartition:
        """Return a partition as aiokafka names it."""
        return KafkaPartition(self.real(partition[0]), partition[1])

    @property
    def is_fast(self) -> bool:
        """Whether clients use the fast path: it is wanted, and this aiokafka is one that is known."""
        return self.fast and private.supported() is None

    @property
    def rest_s(self) -> float:
        """How long clients wait before they try something again."""
        return float(str(self.properties.get("retry_backoff_ms", 100))) / 1000

    def options(self) -> dict[str, object]:
        """Return the keyword arguments that all aiokafka clients share.

        Raises:
            MisconfiguredError: a property is unknown or contradicts another one, or a TLS file cannot be read.
        """
        _check(self.properties)
        plain = {name: value for name, value in self.properties.items() if name not in _SSL}
        tls = {_SSL[name]: value for name, value in self.properties.items() if name in _SSL}
        shared = {"bootstrap_servers": self.bootstrap, "client_id": self.client_id, **plain}
        if tls or str(plain.get("security_protocol", "")).endswith("SSL"):
            shared.setdefault("ssl_context", _context(tls))
        return shared


def _check(properties: Mapping[str, object]) -> None:
    """Refuse what the client would refuse less clearly, and what it would not: a log-in that is never sent."""
    for name in sorted(properties.keys() - _KNOWN):
        nearest = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.0)[0]
        raise _wrong(f"unknown `{name}`, did you mean `{nearest}`? There are: {', '.join(sorted(_KNOWN))}")
    protocol, mechanism = properties.get("security_protocol", "PLAINTEXT"), properties.get("sasl_mechanism", "PLAIN")
    if protocol not in _PROTOCOLS:
        raise _wrong(f"security_protocol is {protocol!r}; there are: {', '.join(_PROTOCOLS)}")
    if mechanism not in _MECHANISMS:
        raise _wrong(f"sasl_mechanism is {mechanism!r}; there are: {', '.join(_MECHANISMS)}")
    for prefix, protocols in _USED_BY.items():
        if protocol not in protocols and any(name.startswith(prefix) for name in properties):
            raise _wrong(f"{prefix}* is set, but security_protocol is {protocol}; it should be {protocols[-1]}")
    if protocol in _USED_BY["sasl_"] and mechanism in _WITH_PASSWORD and not properties.keys() >= _PASSWORD:
        raise _wrong(f"{mechanism} needs sasl_plain_username and sasl_plain_password_file")


def _wrong(what: str) -> MisconfiguredError:
    return MisconfiguredError(f"kafka.properties: {what}")


def _context(files: Mapping[str, object]) -> ssl.SSLContext:
    try:
        context: ssl.SSLContext = create_ssl_context(**files)
    except (OSError, ssl.SSLError) as fault:
        raise MisconfiguredError(
            f"cannot build the TLS context from {sorted(files)}: {fault}; check the ssl_* files"
        ) from fault
    return context
