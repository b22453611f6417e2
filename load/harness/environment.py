"""Describes the machine and the software that a result was measured with. It is stored beside the result."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import NotRequired, TypedDict

import psutil

from load.harness.processes import listening

_VERSION = re.compile(r"kafka-clients-([\d.]+)\.jar")
PACKAGES = ("skysail", "aiokafka", "confluent-kafka", "fastavro", "numpy", "scikit-learn", "torch", "redis", "uvloop")


class Environment(TypedDict):
    """The machine and its software; `broker` is known once one has been started."""

    machine: str
    processor: str
    cores: int | None
    cores_usable: int
    memory_bytes: int
    system: str
    python: str
    packages: dict[str, str]
    load_average: tuple[float, float, float]
    stolen_share: float
    broker: NotRequired[str]


def environment() -> Environment:
    """Return what a reader needs to judge a figure: processor, memory, kernel, Python, packages, load at the moment."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cores_usable": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "load_average": os.getloadavg(),
        "stolen_share": _stolen_share(),
    }


def broker_command(address: str) -> str:
    """Return version and Java's options of the Kafka at `host:port` of this machine; nothing where none is seen."""
    lines = [psutil.Process(pid).cmdline() for pid in listening(address).values()]
    versions = {found[1] for line in lines for word in line for found in [_VERSION.search(word)] if found}
    options = [word for line in lines for word in line if word.startswith("-X")]
    return ", ".join([*(f"kafka-clients {version}" for version in sorted(versions)), *options])


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(psutil.Process().cpu_affinity())


def _stolen_share() -> float:
    times = psutil.cpu_times()
    busy = sum(times) - times.idle
    return float(getattr(times, "steal", 0.0)) / busy if busy else 0.0


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open() as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
