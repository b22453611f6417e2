"""The folder `.skysail`, where commands keep what outlives them: logs, data, locks.

.skysail/logs/PREFIX/ROLE.log     what the processes of `skysail run` say
.skysail/run/PREFIX/lock          held as long as `skysail run` runs
.skysail/run/PREFIX/settings.yaml what its processes read, secrets included; gone when it ends
.skysail/run/PREFIX/placements.json where its models run, as decided at the last start
.skysail/loads/DIGEST.json        what became of loading a package here
.skysail/kafka, .skysail/redis    data of the local servers
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from deploy.errors import StartError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = Path(".skysail")
PASSWORD_FILE = "password"  # noqa: S105 - the name of a file: of the Redis that was started here, in its folder
PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a deployment's processes find their settings and leave their logs."""

    folder: Path
    logs: Path


def private(folder: Path) -> Path:
    """Return the folder, made for its owner alone if it was not there; `.skysail` is closed to others in any case.

    Raises:
        StartError: it cannot be made, or something in it, or in the `.skysail` around it, leads elsewhere.
    """
    try:
        state = next((each for each in (folder, *folder.parents) if each.name == STATE.name), folder)
        if (odd := _odd(state)) is not None:
            raise StartError(f"{odd} is neither a file nor a folder: somebody else may have put it there; remove it")
        for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
            missing.mkdir(mode=PRIVATE, exist_ok=True)
        if folder.name == STATE.name and folder.stat().st_mode & ~PRIVATE & 0o777:
            folder.chmod(PRIVATE)
    except OSError as error:
        raise StartError(
            f"cannot write to {folder}: {error.strerror}; start it in a folder where you may write"
        ) from error
    return folder


def _odd(state: Path) -> Path | None:
    """Return something that no command has put there: a link would have them write to wherever it leads."""
    if state.is_symlink():
        return state
    for folder, inner, files in os.walk(state):
        for path in (Path(folder, name) for name in (*inner, *files)):
            with suppress(FileNotFoundError):  # a server that runs has removed it
                mode = path.lstat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISSOCK(mode)):
                    return path
    return None


def run_folder(prefix: str, state: Path = STATE) -> Path:
    """Return where a deployment that is started from this folder keeps its files; it may not be there."""
    return state.absolute() / "run" / prefix


def load_notes(state: Path = STATE) -> Path:
    """Return where it is kept what became of loading packages on this machine; it may not be there."""
    return state.absolute() / "loads"


@contextmanager
def held(prefix: str, state: Path = STATE) -> Iterator[RunFolder]:
    """Hold a deployment for the time of a block, as the only one that was started from this folder.

    Raises:
        UsageError: another process holds it.
        StartError: the folder cannot be written.
    """
    root = private(state.absolute())
    place = RunFolder(private(run_folder(prefix, state)), private(root / "logs" / prefix))
    descriptor = os.open(place.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _refuse(prefix, os.read(descriptor, 32).decode(errors="replace"))
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield place
    finally:
        os.close(descriptor)  # the lock goes with it, as it does when the process is killed


def _refuse(prefix: str, pid: str) -> NoReturn:
    raise UsageError(
        f"deployment {prefix} runs already, started from this folder (process {pid}): stop that first with Ctrl-C or"
        f" `kill {pid}`, or set another `prefix`"
    )
