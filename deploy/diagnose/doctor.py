"""Checks this machine: what Skysail needs, what is there, what to do. Prints and changes nothing."""

from __future__ import annotations

import enum
import importlib.metadata
import platform
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil

from deploy.config.cores import cores
from deploy.errors import MissingError
from deploy.local.jars import cache_folder, missing, pinned, verify
from deploy.local.java import find_java
from deploy.local.redis import find_redis
from deploy.process.installed import is_built
from schemas.compiling import IS_COMPILED
from workers.extras import install

Version: TypeAlias = tuple[int, int, int]

_OLDEST_PYTHON = (3, 11)
_GIB = 1024**3
_CORES = 2
_MEMORY_BYTES = 2 * _GIB  # Kafka 0.3, five workers of 0.2, the other roles 0.5, and room
_DISK_BYTES = 1 * _GIB
_DOCKER_TIMEOUT_S = 5
_REDIS_TIMEOUT_S = 5
# The first version of each series without the hole in Lua (CVE-2025-49844); all others before the last have it.
_MENDED_REDIS: tuple[Version, ...] = ((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2))


class Level(enum.Enum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"  # works, or only something optional is absent
    DOWN = "down"  # a part of the deployment does not run, or is not as it must be
    MISSING = "missing"  # this machine lacks something that is always needed


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its level, what was found, and advice (empty if all is well)."""

    name: str
    level: Level
    found: str
    advice: str = ""


def diagnose() -> tuple[Check, ...]:
    """Check everything, the basics first; takes about a second."""
    return (
        check_python(),
        check_java(),
        check_jars(),
        check_redis(),
        check_package("scikit-learn", f"{install('sklearn')} (only to serve scikit-learn models)", Level.WARN),
        check_compiled("codec", "records take ten times as long", is_compiled=IS_COMPILED),
        check_compiled(
            "trees", "packages of trees take twice as long", is_compiled=is_built("workers.runtimes.descent")
        ),
        check_compiled(
            "texts",
            "pipelines of texts take many times as long",
            is_compiled=is_built("workers.runtimes.stages.grams"),
        ),
        check_package("uvloop", f"{install('worker')} (only to run roles)", Level.WARN),
        check_package("torch", f"{install('torch')} (only to serve torch models)", Level.WARN),
        check_docker(),
        check_cores(cores()),
        check_memory(psutil.virtual_memory().available),
        check_disk(Path(tempfile.gettempdir())),
    )


def check_python() -> Check:
    """Check the interpreter's version."""
    new_enough = tuple(int(part) for part in platform.python_version_tuple()[:2]) >= _OLDEST_PYTHON
    wanted = ".".join(str(part) for part in _OLDEST_PYTHON)
    return Check(
        "Python",
        Level.OK if new_enough else Level.MISSING,
        platform.python_version(),
        "" if new_enough else f"install Python {wanted} or later",
    )


def check_java() -> Check:
    """Check for a Java that Kafka runs on."""
    try:
        java = find_java()
    except MissingError as error:
        return Check("Java", Level.MISSING, "none", str(error))
    return Check("Java", Level.OK, f"{java.path} ({java.source})")


def check_jars() -> Check:
    """Check that Kafka's jars are cached and are the pinned ones."""
    name, folder, jars = f"Apache Kafka {pinned().version} jars", cache_folder(), pinned().jars
    if absent := missing(folder, jars):
        return Check(
            name,
            Level.WARN,
            f"{len(jars) - len(absent)} of {len(jars)} in {folder}",
            "the first start fetches them (45 MB); without a network use BROKER=embedded",
        )
    try:
        verify(folder, jars)
    except MissingError as error:
        return Check(name, Level.MISSING, f"damaged in {folder}", str(error))
    return Check(name, Level.OK, f"all {len(jars)} in {folder}")


def check_redis() -> Check:
    """Check for a redis-server."""
    try:
        binary = find_redis()
    except MissingError as error:
        return Check("redis-server", Level.MISSING, "none", str(error))
    found = f"{binary.path} ({binary.source})"
    version = redis_version(binary.path)
    if version is None:
        return Check("redis-server", Level.OK, found)
    shown = f"{'.'.join(map(str, version))}, {found}"
    if not has_known_hole(version):
        return Check("redis-server", Level.OK, shown)
    mended = ", ".join(".".join(map(str, each)) for each in _MENDED_REDIS)
    return Check(
        "redis-server",
        Level.WARN,
        shown,
        "anybody with its password can run programs through it (CVE-2025-49844), unless its distributor has fixed that:"
        f" put version {mended} or later on the PATH, or set redis.url to another Redis",
    )


def redis_version(binary: Path) -> Version | None:
    """Return the version of a redis-server; None if it is unknown."""
    try:
        told = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=_REDIS_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"Redis server v=(\d+)\.(\d+)\.(\d+)", told.stdout)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def has_known_hole(version: Version) -> bool:
    """Tell whether a Redis is older than the first fixed version of its series."""
    mended = {each[:2]: each for each in _MENDED_REDIS}
    return version < mended.get(version[:2], max(_MENDED_REDIS))


def check_package(name: str, advice: str, if_absent: Level) -> Check:
    """Check for an installed distribution, without importing it."""
    try:
        return Check(name, Level.OK, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name, if_absent, "not installed", advice)


def check_compiled(name: str, otherwise: str, *, is_compiled: bool) -> Check:
    """Check whether a part runs in C; `otherwise` is the cost without it."""
    if is_compiled:
        return Check(name, Level.OK, "compiled")
    return Check(name, Level.WARN, "Python", f"{otherwise}: install a C compiler, then install Skysail again")


def check_docker() -> Check:
    """Check for Docker and its daemon; only the compose file needs them."""
    advice = "only needed for the compose file"
    docker = shutil.which("docker")
    if docker is None:
        return Check("docker", Level.WARN, "not installed", advice)
    try:
        shown = subprocess.run(
            [docker, "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            text=True,
            timeout=_DOCKER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return Check("docker", Level.WARN, "does not answer", advice)
    if shown.returncode:
        return Check("docker", Level.WARN, "no daemon is running", f"{advice}: start the daemon")
    return Check("docker", Level.OK, shown.stdout.strip())


def check_cores(there: float) -> Check:
    """Check the number of cores that processes may use here."""
    enough = there >= _CORES
    advice = "" if enough else "broker and roles share one core: expect late answers"
    return Check("cores", Level.OK if enough else Level.WARN, f"{there:g}", advice)


def check_memory(available_bytes: int) -> Check:
    """Check the memory that is free to use."""
    enough = available_bytes >= _MEMORY_BYTES
    advice = "" if enough else f"free {_MEMORY_BYTES / _GIB:.0f} GiB, or run fewer models"
    return Check("memory", Level.OK if enough else Level.WARN, f"{available_bytes / _GIB:.1f} GiB available", advice)


def check_disk(folder: Path) -> Check:
    """Check the room where temporary data go."""
    free_bytes = shutil.disk_usage(folder).free
    enough = free_bytes >= _DISK_BYTES
    advice = "" if enough else "free some space, or set TMPDIR to a folder on another disk"
    return Check("disk", Level.OK if enough else Level.WARN, f"{free_bytes / _GIB:.1f} GiB free in {folder}", advice)
