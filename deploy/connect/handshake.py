"""The first contact with a broker: it answers, it refuses the connection, or no broker is there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from deploy.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLICE_S = 0.5
# librdkafka retries after any error. An error this often is no accident of a broker that starts or stops.
REPEATED = 3
_SIGNS = ("SSL", "security.protocol")


def greet(properties: Mapping[str, str], timeout_s: float) -> AdminClient:
    """Return an admin client that a broker has answered.

    Args:
        properties: of librdkafka.
        timeout_s: how long a broker may take.

    Raises:
        RefusedError: certificate, log-in or protocol are not what the broker wants.
        KafkaException: the properties contradict each other, or nobody answered.
    """
    told: list[KafkaError] = []
    configuration: dict[str, Any] = {**properties, "error_cb": told.append}
    client = AdminClient(configuration)
    end = time.monotonic() + timeout_s
    while True:
        try:
            client.list_topics(timeout=min(SLICE_S, timeout_s))
        except KafkaException:
            client.poll(0)  # delivers librdkafka's errors
            _check(properties, told)
            if time.monotonic() >= end:
                raise
        else:
            return client


def _check(properties: Mapping[str, str], told: Sequence[KafkaError]) -> None:
    refusals = [error.str() for error in told if _is_refusal(error)]
    if len(refusals) >= REPEATED:
        why = refusals[-1].rpartition(" (after ")[0] or refusals[-1]
        raise RefusedError(
            f"Kafka at {properties['bootstrap.servers']} refuses the connection: {why}; compare kafka.properties"
            " (security_protocol, sasl_*, ssl_*) with the broker's listener"
        )


def _is_refusal(error: KafkaError) -> bool:
    """Tell by code or text: for a missing client certificate the code only says lost connection (Kafka 4.3)."""
    refused = error.code() == KafkaError._AUTHENTICATION  # noqa: SLF001 - librdkafka's own codes begin with one
    return refused or any(sign in error.str() for sign in _SIGNS)
