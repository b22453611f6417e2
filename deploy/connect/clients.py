"""Connections to the broker from the settings, for both client libraries."""

from __future__ import annotations

import logging
import socket
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from deploy.config.addresses import connection, properties
from deploy.connect.handshake import greet
from deploy.errors import DeployError
from streams.client import Client
from streams.runtime.errors import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from confluent_kafka.admin import AdminClient

    from deploy.config.settings import Settings
    from schemas.codec import Codec

_log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
CONNECT_S = 2.0
RETRY_S = 1.0
# aiokafka's option names (as in the settings) → librdkafka's.
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
    """No broker, or no Redis, answered."""


def librdkafka(settings: Settings) -> dict[str, str]:
    """Return the same connection as librdkafka's options; options that only aiokafka knows are left out.

    The library prints nothing on the terminal: callers get errors and exceptions.
    """
    known = {LIBRDKAFKA[name]: str(value) for name, value in properties(settings).items() if name in LIBRDKAFKA}
    return {"bootstrap.servers": settings.kafka.bootstrap, "socket.timeout.ms": "5000", "log_level": "2", **known}


def admin(settings: Settings, timeout_s: float | None = None) -> AdminClient:
    """Return an admin client of a broker that answers within `timeout_s`, by default `TIMEOUT_S`.

    Raises:
        Unreachable: none does.
        RefusedError: it refuses us.
        MisconfiguredError: `kafka.properties` contradict each other.
    """
    connection(settings).options()  # names faults better than librdkafka does
    if _nobody_listens(settings.kafka.bootstrap):  # librdkafka would retry until the time is over
        raise _unreachable(settings, "nobody listens there")
    with answering(settings):
        return greet(librdkafka(settings), timeout_s or TIMEOUT_S)


def _nobody_listens(bootstrap: str) -> bool:
    """Tell whether every broker's machine refuses connections; a silent one may be slow."""
    return all(map(_refuses, bootstrap.split(",")))


def _refuses(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (ConnectionRefusedError, socket.gaierror):
        return True
    except (OSError, ValueError):
        return False
    return False


@contextmanager
def answering(settings: Settings) -> Iterator[None]:
    """Turn either library's error when no broker answers into one sentence that says what to do.

    Raises:
        Unreachable: no broker answered inside the block.
        RefusedError: it refused us.
    """
    try:
        yield
    except KafkaException as error:
        raise _unreachable(settings, _why(error)) from error
    except BrokerUnavailableError as error:
        admin(settings)  # names the reason; aiokafka only repeats the address
        raise _unreachable(settings, _why(error)) from error


def _unreachable(settings: Settings, why: str) -> Unreachable:
    return Unreachable(
        f"no Kafka broker answers at {settings.kafka.bootstrap} ({why}); start one with"
        " `skysail kafka start`, or set kafka.bootstrap in skysail.yaml or SKYSAIL_KAFKA__BOOTSTRAP"
    )


def _why(error: Exception) -> str:
    """Return the reason in a few words, from librdkafka; aiokafka only repeats the address."""
    found = error.args[0] if error.args else error
    return found.str().rpartition("Local: ")[2] if isinstance(found, KafkaError) else "Broker transport failure"


@asynccontextmanager
async def asking(settings: Settings, codec: Codec) -> AsyncIterator[Client]:
    """Connect a client to the deployment, for as long as the block lasts.

    Raises:
        Unreachable: no broker answers.
    """
    place = settings.kafka.bootstrap, settings.prefix, properties(settings)
    client = Client(*place, codec=codec, partitions=settings.partitions)
    async with AsyncExitStack() as stack:
        with answering(settings):
            await stack.enter_async_context(client)
        yield client


def await_broker(settings: Settings) -> None:
    """Wait until a broker answers; meanwhile the log says what to do."""
    while True:
        try:
            admin(settings)
        except Unreachable as error:
            _log.warning("%s", error)
            time.sleep(RETRY_S)
        else:
            return
