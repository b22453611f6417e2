"""Tests of the connection: names, and the properties every client gets."""

from __future__ import annotations

import ssl

import pytest

from schemas.sizes import MAX_BYTES, MOST_BYTES
from streams.runtime.errors import MisconfiguredError
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.fast.inflation import MOST_BYTES as MOST_OF_A_BATCH
from streams.runtime.kafka.transport_ports import FetchSettings, ProducerSettings
from streams.topology import DEAD_LETTER_ROOM, ROOM_BYTES, build

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "user",
    "sasl_plain_password": "geheim",
}


def test_the_prefix_is_added_and_removed() -> None:
    """Kernels know logical names only."""
    connection = KafkaConnection("b:9092", "prod")
    assert connection.real("queries") == "prod.queries"
    assert connection.logical("prod.queries.dlq") == "queries.dlq"
    assert connection.kafka_partition(("queries", 3)) == ("prod.queries", 3)


def test_an_empty_prefix_changes_nothing() -> None:
    """A deployment may own the whole cluster."""
    connection = KafkaConnection("b:9092", "")
    assert connection.real("queries") == connection.logical("queries") == "queries"


def test_properties_are_passed_through() -> None:
    """In the client library's own words."""
    options = KafkaConnection("b:9092", properties=LOGIN).options()
    assert options.items() >= LOGIN.items()
    assert options["bootstrap_servers"] == "b:9092"
    assert "ssl_context" not in options


def test_tls_gets_a_context_that_checks_host_names() -> None:
    """The client library would refuse to start without one."""
    properties = {**LOGIN, "security_protocol": "SASL_SSL"}
    context = KafkaConnection("b:9092", properties=properties).options()["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_an_unreadable_certificate_names_the_property() -> None:
    """The message says which settings to look at."""
    connection = KafkaConnection("b:9092", properties={"security_protocol": "SSL", "ssl_cafile": "/nowhere.pem"})
    with pytest.raises(MisconfiguredError, match="ssl_"):
        connection.options()


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"security_protocl": "SSL"}, "unknown `security_protocl`, did you mean `security_protocol`"),
        ({"fetch_max_bytes": 1}, "unknown `fetch_max_bytes`"),
        ({"security_protocol": "TLS"}, "security_protocol is 'TLS'; there are: PLAINTEXT, SSL, "),
        ({**LOGIN, "sasl_mechanism": "SCRAM-SHA-1"}, "sasl_mechanism is 'SCRAM-SHA-1'; there are: PLAIN, "),
        ({"sasl_plain_username": "user"}, "sasl_* is set, but security_protocol is PLAINTEXT"),
        ({**LOGIN, "security_protocol": "SSL"}, "sasl_* is set, but security_protocol is SSL"),
        ({**LOGIN, "ssl_cafile": "ca.pem"}, "ssl_* is set, but security_protocol is SASL_PLAINTEXT"),
        ({"security_protocol": "SASL_SSL", "sasl_plain_username": "user"}, "PLAIN needs sasl_plain_username and "),
    ],
)
def test_what_cannot_be_meant_is_refused(properties: dict[str, object], sentence: str) -> None:
    """A log-in that is never sent would look as if it were; the message says what is wrong, and no password."""
    with pytest.raises(MisconfiguredError) as refused:
        KafkaConnection("b:9092", properties=properties).options()
    assert sentence in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_a_connection_does_not_show_its_password() -> None:
    """It may be printed by whoever logs it."""
    assert "geheim" not in repr(KafkaConnection("b:9092", properties=LOGIN))


def test_the_usual_bound_changes_nothing() -> None:
    """A recorder goes on to fetch little of each of its many partitions."""
    for fetching in (FetchSettings(), FetchSettings(partition_bytes=256 << 10)):
        assert fetching.for_records(MAX_BYTES) is fetching
    assert ProducerSettings().for_records(MAX_BYTES) == ProducerSettings()


@pytest.mark.parametrize("record_bytes", [1 << 20, MOST_BYTES])
def test_larger_records_come_from_all_partitions_at_once_and_their_dead_letters_are_sent(record_bytes: int) -> None:
    """A fetch takes a whole batch of each partition; topics take the batch, and readers unpack it."""
    known = build(["m"], record_bytes=record_bytes).topics
    whole = record_bytes + ROOM_BYTES
    assert FetchSettings().for_records(record_bytes).partition_bytes >= whole
    assert ProducerSettings().for_records(record_bytes).record_bytes >= DEAD_LETTER_ROOM * whole
    assert all(known[name].max_bytes >= whole for name in ("queries", "models.m.queries", "predictions"))
    assert all(known[name].max_bytes <= MOST_OF_A_BATCH for name in known if not name.endswith(".dlq"))
