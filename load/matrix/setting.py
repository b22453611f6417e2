"""The deployment that is broken: all roles, models in workers and in a host, states of applications and of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from load.harness.http import free_port
from load.harness.system import Deployment
from load.matrix.traffic import Kind
from schemas.records import Application
from streams.operators.join.kernel import JoinerSettings
from streams.topology import host_role
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PARTITIONS: Final = 4
SLO_MS: Final = 2_000.0  # so that a busy machine answers in time, and an outage shows
# Longer than a broker is away on a busy machine.
WINDOW_S, EARLY_S = 30.0, 5.0
JOINER: Final = JoinerSettings(PARTITIONS, int(WINDOW_S * 1e6), int(EARLY_S * 1e6))
_FUNCTIONS: Final = {"right": "right", "wrong": "wrong", "held-right": "right", "held-wrong": "wrong"}
_POOL: Final = "small"
_APPLICATIONS: Final = (
    Application("sums", ("right", "wrong"), "exp3", slo_ms=SLO_MS, default_output=-1, window_s=WINDOW_S),
    Application(
        "users",
        ("right", "wrong"),
        "thompson",
        per_context=True,
        slo_ms=SLO_MS,
        default_output=-1,
        window_s=WINDOW_S,
    ),
    Application(
        "pooled",
        ("held-right", "held-wrong"),
        "exp3",
        slo_ms=SLO_MS,
        default_output=-1,
        window_s=WINDOW_S,
        default_loss=1.0,
    ),
)
KINDS: Final = (
    Kind("sums", has_context=False, has_default_loss=False),
    Kind("users", has_context=True, has_default_loss=False),
    Kind("pooled", has_context=False, has_default_loss=True),
)
ROLES: Final = ("selection", "worker", "joiner", "learner", "control", "record", "gateway")
# What each role that can be broken is called among the processes.
INSTANCES: Final[Mapping[str, str]] = {
    "selection": "selection",
    "worker": "worker.right",
    "host": host_role(_POOL),
    "joiner": "joiner",
    "learner": "learner",
    "control": "control",
    "record": "record",
    "gateway": "gateway",
}


def deployment(prefix: str, folder: Path, bootstrap: str, redis_url: str, replication: int) -> Deployment:
    """Package the models and return what is to run."""
    packages = {name: folder / name for name in _FUNCTIONS}
    for name, function in _FUNCTIONS.items():
        package_function(f"load.models.functions:{function}", packages[name], name, "1", np.zeros((1, 1), np.float32))
    settings: dict[str, object] = {
        "kafka": {"bootstrap": bootstrap},
        "redis": {"url": redis_url},
        "replication": replication,
        "selection": {"inline": []},
        "hosts": {_POOL: {"models": [name for name in _FUNCTIONS if name.startswith("held-")], "memory_mib": 64}},
        "joiner": {"window_s": WINDOW_S, "early_s": EARLY_S},
        "record": {"folder": str(trace_folder(folder))},
        "gateway": {"port": free_port()},
        "control": {"port": free_port()},
        "log_level": "info",
    }
    return Deployment(prefix, _APPLICATIONS, packages, PARTITIONS, ROLES, settings=settings)


def port_of(asked: Deployment, role: str) -> int:
    """Return the port of a role that listens."""
    section = asked.settings[role]
    assert isinstance(section, dict)
    return int(section["port"])


def trace_folder(folder: Path) -> Path:
    """Return where the role `record` writes."""
    return folder / "trace"
