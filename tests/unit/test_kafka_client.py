"""Tests of the connection: names, and the properties every client gets."""

from __future__ import annotations

import ssl

import pytest

from streams.runtime.errors import MisconfiguredError
from streams.runtime.kafka_client import KafkaConnection


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
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "u"}
    options = KafkaConnection("b:9092", properties=login).options()
    assert options.items() >= login.items()
    assert options["bootstrap_servers"] == "b:9092"
    assert "ssl_context" not in options


def test_tls_gets_a_context_that_checks_host_names() -> None:
    """The client library would refuse to start without one."""
    context = KafkaConnection("b:9092", properties={"security_protocol": "SASL_SSL"}).options()["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_an_unreadable_certificate_names_the_property() -> None:
    """The message says which settings to look at."""
    connection = KafkaConnection("b:9092", properties={"security_protocol": "SSL", "ssl_cafile": "/nowhere.pem"})
    with pytest.raises(MisconfiguredError, match="ssl_"):
        connection.options()
