"""A server as a child process: the life cycle that Apache Kafka and Redis share.

    start ──▶ running ──▶ stop             SIGTERM, grace period, SIGKILL; a temporary data folder is removed
              │    ▲
         kill └────┘ start, restart        same data, same port

Subclasses say which command line to run and how to tell that it answers.
"""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from deploy.local.process import ChildProcess, free_port, interrupted_by_sigterm, spawn, stop, wait_ready

if TYPE_CHECKING:
    from types import TracebackType

PRIVATE_UMASK = 0o077  # what it writes is for its owner alone


class LocalServer(ABC):
    """A server on 127.0.0.1 that is started, stopped, killed and restarted on the same data and port."""

    name: ClassVar[str]
    grace_s: ClassVar[float] = 10.0
    start_timeout_s: ClassVar[float] = 60.0

    def __init__(self, data: Path | None = None, *, port: int = 0) -> None:
        """Prepare; nothing runs yet.

        Args:
            data: Folder for everything it writes; by default a temporary one that `stop` removes.
            port: Port to listen on; 0 takes a free one and keeps it.
        """
        self.port = port or free_port()
        self._given = data.resolve() if data is not None else None
        self._data: Path | None = None
        self._process: ChildProcess | None = None

    @property
    def data(self) -> Path:
        """The data folder, which exists from the first time it is asked for."""
        if self._data is None:
            self._data = self._given or Path(tempfile.mkdtemp(prefix=f"skysail-{self.name}-"))
            self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._data.chmod(0o700)  # one of an earlier version may be open to all
        return self._data

    @property
    def log(self) -> Path:
        """The file its output goes to."""
        return self.data / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The pid while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> Self:
        """Start it and wait until it answers; does nothing if it runs.

        Raises:
            MissingError: A program or file it needs is not there and could not be had.
            StartError: It did not come up; its last lines are in the message.
        """
        if self.pid is not None:
            return self
        with ExitStack() as undo:
            undo.callback(self.stop)  # at Ctrl-C, too
            self._process = spawn(self._prepare(), log=self.log, umask=PRIVATE_UMASK)
            wait_ready(self._process, self._ready, name=self.name, log=self.log, timeout_s=self.start_timeout_s)
            undo.pop_all()
        return self

    def stop(self) -> None:
        """Stop it, and remove its data if they are temporary; `start` works again afterwards."""
        self._halt()
        if self._given is None and self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)
            self._data = None

    def restart(self) -> None:
        """Stop it in an orderly way and start it on the same data and port."""
        self._halt()
        self.start()

    def kill(self) -> None:
        """End it as `kill -9` does; its data stay, `start` brings it back."""
        if self._process is not None:
            self._process.kill_group()
            self._process = None

    def wait(self) -> int:
        """Wait until it ends by itself and return its exit code; a signal handler's exception passes through."""
        return self._process.wait() if self._process is not None else 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Write what it reads at start and return its command line."""

    @abstractmethod
    def _ready(self) -> bool:
        """Tell whether it answers requests."""

    def _halt(self) -> None:
        if self._process is not None:
            stop(self._process, self.grace_s)
            self._process = None


def run_in_foreground(server: LocalServer, address: str) -> None:
    """Run a server until Ctrl-C or SIGTERM; exits with an error if the server ends by itself."""
    try:
        with interrupted_by_sigterm(), server:
            print(f"{server.name} on {address} (pid {server.pid}, log {server.log}). Ctrl-C stops it.", flush=True)
            code = server.wait()
    except KeyboardInterrupt:
        print(f"{server.name} stopped.", flush=True)
    else:
        raise SystemExit(f"{server.name} ended by itself with exit code {code}.")
