"""Connections out of settings: the same broker in the words of both client libraries, the codec, Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from deploy.errors import DeployError
from streams.runtime.kafka_client import KafkaConnection

if TYPE_CHECKING:
    from deploy.settings import Settings

TIMEOUT_S = 10.0
# aiokafka's words (which settings use) in librdkafka's.
LIBRDKAFKA = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
}


class Unreachable(DeployError):  # noqa: N818 - reads as what happened
    """No broker answered."""


def properties(settings: Settings) -> dict[str, Any]:
    """Return the pass-through properties with secrets in the clear, in aiokafka's words."""
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value
        for name, value in settings.kafka.properties.items()
    }


def connection(settings: Settings, client_id: str = "skysail") -> KafkaConnection:
    """Return how the roles and the client reach Kafka."""
    return KafkaConnection(settings.kafka.bootstrap, settings.prefix, properties(settings), client_id)


def librdkafka(settings: Settings) -> dict[str, str]:
    """Return the same connection in librdkafka's words; properties that only aiokafka knows are left out.

    The library says nothing on the terminal by itself: whoever uses it gets an error or an exception.
    """
    known = {LIBRDKAFKA[name]: str(value) for name, value in properties(settings).items() if name in LIBRDKAFKA}
    return {"bootstrap.servers": settings.kafka.bootstrap, "socket.timeout.ms": "5000", "log_level": "2", **known}


def admin(settings: Settings) -> AdminClient:
    """Return an admin client of a broker that answers.

    Raises:
        Unreachable: none does.
    """
    client = AdminClient({**librdkafka(settings)})
    try:
        client.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        message = (
            f"no Kafka broker answers at {settings.kafka.bootstrap} ({error.args[0].str()}); start one with"
            " `skysail kafka start`, or set kafka.bootstrap in skysail.yaml or SKYSAIL_KAFKA__BOOTSTRAP"
        )
        raise Unreachable(message) from error
    return client


def redis_url(settings: Settings) -> str:
    """Return the URL of Redis with the password from its file, if there is one."""
    if settings.redis.password is None:
        return settings.redis.url
    parts = urlsplit(settings.redis.url)
    place = parts.netloc.rpartition("@")[2]
    user = parts.username or ""
    return urlunsplit(
        parts._replace(netloc=f"{user}:{quote(settings.redis.password.get_secret_value(), safe='')}@{place}")
    )
