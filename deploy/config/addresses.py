"""Addresses of broker and Redis from the settings: all that a running role needs.

This file is apart from `clients`, which loads librdkafka: a running role does not need that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import SecretStr

from deploy.config.folder import PASSWORD_FILE, STATE
from streams.runtime.kafka.connection import KafkaConnection
from streams.trace import plain

if TYPE_CHECKING:
    from deploy.config.settings import Settings

REDIS_PORT = 6379
_STATE_BYTES = 64 << 10


def properties(settings: Settings) -> dict[str, object]:
    """Return the pass-through properties with secrets in the clear, in aiokafka's words."""
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value
        for name, value in settings.kafka.properties.items()
    }


def connection(settings: Settings, client_id: str = "skysail") -> KafkaConnection:
    """Return how the roles and the client reach Kafka."""
    kafka = settings.kafka
    place, largest = (kafka.bootstrap, settings.prefix, properties(settings)), settings.max_input_kib << 10
    return KafkaConnection(*place, client_id, kafka.fast, largest)


def redis_url(settings: Settings) -> str:
    """Return the URL of Redis with its password: of the settings, or of the one that was started from this folder."""
    url = settings.redis.url
    parts = urlsplit(url)
    password = settings.redis.password.get_secret_value() if settings.redis.password is not None else ""
    if not password and not parts.password:
        password = _local_password(url)
    if not password:
        return url
    place = parts.netloc.rpartition("@")[2]
    user = parts.username or ""
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}"))


def _local_password(url: str) -> str:
    """Return the password of the Redis that `skysail redis start` has started from this folder, if it is this one."""
    try:
        remembered = json.loads(plain.content(STATE / "redis.json", _STATE_BYTES))
        is_it = urlsplit(str(remembered["address"]))[:2] == urlsplit(url.replace("//localhost:", "//127.0.0.1:"))[:2]
        return plain.content(STATE / "redis" / PASSWORD_FILE, _STATE_BYTES).decode("ascii") if is_it else ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def redis_place(settings: Settings) -> str:
    """Return where Redis is, without user and password: host:port, or a socket's path."""
    parts = urlsplit(settings.redis.url)
    if parts.scheme == "unix":
        return parts.path
    host = parts.hostname or "127.0.0.1"
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or REDIS_PORT}"
