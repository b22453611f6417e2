"""Kafka credentials in Faust's form, from the options of the other clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import faust

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faust.types.auth import CredentialsT


def credentials(options: Mapping[str, Any]) -> CredentialsT | None:
    """Return what Faust needs to log in, or None for a plain connection.

    Without a TLS context Faust falls back to plain text in silence, so SASL_SSL without one is refused here.

    Args:
        options: of an aiokafka client: `security_protocol`, `sasl_*`, `ssl_context`.

    Raises:
        ValueError: a protocol or mechanism that the page cannot use.
    """
    protocol = options.get("security_protocol", "PLAINTEXT")
    context = options.get("ssl_context")
    if protocol == "PLAINTEXT":
        return None
    if protocol.endswith("SSL") and context is None:
        raise ValueError("a TLS connection needs ssl_cafile in kafka.properties")
    if protocol == "SSL":
        return faust.SSLCredentials(context)
    mechanism = options.get("sasl_mechanism", "PLAIN")
    if mechanism not in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}:
        message = f"the control page cannot log in with {mechanism}; run the other roles without it"
        raise ValueError(message)
    return faust.SASLCredentials(
        username=options["sasl_plain_username"],
        password=options["sasl_plain_password"],
        mechanism=mechanism,
        ssl_context=context,
    )
