"""The store of policy states that the settings name: connected when it is used, looked at before roles start."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from deploy.config.addresses import redis_place, redis_url
from deploy.errors import StartError

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.runtime.stores.base import StateStore

USUAL_S = 0.5  # within which a call is answered


def state_store(settings: Settings, codec: Codec, timeout_s: float = USUAL_S) -> StateStore:
    """Return the store; nothing is connected yet."""
    if settings.store.kind == "embedded":
        from streams.runtime.stores.sqlite import SqliteStore

        return SqliteStore(settings.store.file, settings.prefix, codec, timeout_s=timeout_s)
    from streams.runtime.stores.redis import RedisSettings, RedisStore

    return RedisStore(RedisSettings(redis_url(settings), settings.prefix, timeout_s), codec)


def store_server(settings: Settings) -> str:
    """Return where a server of the store is: host:port, or a socket's path; an embedded one has none."""
    return "" if settings.store.kind == "embedded" else redis_place(settings)


def check_file(settings: Settings) -> int:
    """Return how many policy states the file of an embedded store has; it is made if it is not there.

    Raises:
        StartError: it cannot be made, or is no such file.
    """
    import sqlite3  # with its library, which who has Redis does not need

    from streams.runtime.stores.sqlite import opened

    try:
        with closing(opened(settings.store.file, USUAL_S)) as database:
            (count,) = database.execute("SELECT count(*) FROM states WHERE prefix = ?", (settings.prefix,)).fetchone()
    except (sqlite3.Error, OSError) as error:
        message = (
            f"policy states cannot be kept in {settings.store.file} ({error}): set store.file to a file of this machine"
            " that may be written; one that is damaged may be removed, and all is folded again from the log"
        )
        raise StartError(message) from error
    return int(count)
