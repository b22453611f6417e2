"""An environment for each peer, under `$SKYSAIL_CACHE/peers` (by default `~/.cache/skysail/peers`).

It is made when it is first needed, from the pinned file in `requirements/`, and again when that changes: a virtual
environment, or of Maven's coordinates a folder with jars and the compiled peer.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from load.errors import PeerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REQUIREMENTS = Path(__file__).with_name("requirements")
ROOT = Path(__file__).resolve().parents[3]
_INSTALL_S = 900.0
_PEER = Path(__file__).with_name("jvm") / "Peer.java"


def ensure(name: str, say: Callable[[str], None]) -> Path:
    """Return the interpreter of an environment, or its folder if it is Java's; it is made if need be.

    Args:
        name: of a file in `requirements/`.
        say: called before an installation, which takes minutes.

    Raises:
        PeerUnavailableError: it cannot be installed here; says why.
    """
    folder = root() / name
    if (REQUIREMENTS / f"{name}.xml").exists():
        return _ensure_jars(name, folder, say)
    if (there := found(name)) is not None:
        return there
    requirements, python = REQUIREMENTS / f"{name}.txt", folder / "bin" / "python"
    say(f"installing {name} into {folder}")
    _run((sys.executable, "-m", "venv", "--clear", str(folder)))
    _run((str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)))
    (folder / "installed").write_text(_digest(name))
    return python


def found(name: str) -> Path | None:
    """Return the interpreter of an environment that is installed as its file says."""
    python, stamp = root() / name / "bin" / "python", root() / name / "installed"
    return python if python.exists() and stamp.exists() and stamp.read_text() == _digest(name) else None


def _digest(name: str) -> str:
    return hashlib.sha256((REQUIREMENTS / f"{name}.txt").read_bytes()).hexdigest()


def _ensure_jars(name: str, folder: Path, say: Callable[[str], None]) -> Path:
    coordinates, stamp = REQUIREMENTS / f"{name}.xml", folder / "installed"
    digest = hashlib.sha256(coordinates.read_bytes() + _PEER.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return folder
    if missing := [program for program in ("mvn", "javac", "java") if shutil.which(program) is None]:
        raise PeerUnavailableError(f"there is no {missing[0]} here")
    say(f"installing {name} into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    copy = ("dependency:copy-dependencies", f"-DoutputDirectory={folder}")
    _run(("mvn", "--quiet", "--batch-mode", "--file", str(coordinates), *copy))
    _run(("javac", "-cp", f"{folder}/*", "-d", str(folder), str(_PEER)))
    stamp.write_text(digest)
    return folder


def root() -> Path:
    """Return the folder of all environments."""
    return Path(os.environ.get("SKYSAIL_CACHE") or Path.home() / ".cache" / "skysail") / "peers"


def python_path(folder: Path) -> Path:
    """Return a folder with Skysail's `load` and `schemas` and nothing else, for peers to import from."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in ("load", "schemas"):
        if not (folder / package).exists():
            (folder / package).symlink_to(ROOT / package)
    return folder


def _run(command: Sequence[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter, our own pins
            command, env=environment, capture_output=True, text=True, timeout=_INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailableError(f"not installed within {_INSTALL_S:g} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise PeerUnavailableError(f"cannot be installed: {lines[-1]}")
