"""A connection to the deployment's Redis from the settings.

It is apart from the broker's: to import Redis's client takes a third of the time that a command takes to start.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError
from redis.retry import Retry

from deploy.config.addresses import redis_url
from deploy.config.configuration import without_secrets
from deploy.config.folder import PASSWORD_FILE, STATE
from deploy.connect.clients import TIMEOUT_S, Unreachable
from deploy.errors import RefusedError
from streams.runtime.stores.connecting import QUIETLY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.config.settings import Settings


def check_redis(settings: Settings, timeout_s: float = TIMEOUT_S) -> str:
    """Return the version of the Redis that answers within `timeout_s`.

    Raises:
        Unreachable: none does.
        RefusedError: it wants a password, or another one.
    """
    with connect_redis(settings, timeout_s) as client:
        return str(client.info("server")["redis_version"])


def redis_eviction(settings: Settings, timeout_s: float = TIMEOUT_S) -> str:
    """Return Redis's `maxmemory-policy`; empty if it is unknown.

    Raises:
        Unreachable: none answers.
    """
    with connect_redis(settings, timeout_s) as client:
        return str(client.info("memory").get("maxmemory_policy", ""))


@contextmanager
def connect_redis(settings: Settings, timeout_s: float = TIMEOUT_S) -> Iterator[Redis]:
    """Connect to the deployment's Redis, for as long as the block lasts.

    Raises:
        Unreachable: it does not answer, inside the block.
    """
    once = Retry(NoBackoff(), 0)
    patience = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, "retry": once}
    client = Redis.from_url(redis_url(settings), **patience, **QUIETLY)
    try:
        yield client
    except AuthenticationError:
        message = (
            f"Redis at {without_secrets(settings.redis.url)} wants a password (or another one): set"
            " redis.password_file. If `skysail redis start` started it in another folder, that is FOLDER/"
            f"{STATE / 'redis' / PASSWORD_FILE}"
        )
        raise RefusedError(message) from None
    except RedisError as error:
        message = (
            f"no Redis answers at {without_secrets(settings.redis.url)} ({without_secrets(str(error))}); start one with"
            " `skysail redis start`, or set redis.url in skysail.yaml or SKYSAIL_REDIS__URL"
        )
        raise Unreachable(message) from None
    finally:
        client.close()
