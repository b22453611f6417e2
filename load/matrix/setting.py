"""The deployment that is broken: all roles, models in workers and in a host, states of applications and of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from load.harness.http import free_port
from load.harness.system import Deployment
from load.matrix.mixes import EARLY_S, HELD, WINDOW_S
from schemas import topics
from streams.operators.join.kernel import JoinerSettings
from streams.topology import host_role, worker_role
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from load.matrix.mixes import Mix

PARTITIONS: Final = 4
JOINER: Final = JoinerSettings(PARTITIONS, int(WINDOW_S * 1e6), int(EARLY_S * 1e6))
_POOL: Final = "small"
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
    "mapping": "mapping",
}


def deployment(mix: Mix, prefix: str, folder: Path, bootstrap: str, redis_url: str, replication: int) -> Deployment:
    """Package the models and return what is to run."""
    packages = {name: folder / name for name in mix.functions}
    for name, function in mix.functions.items():
        package_function(f"load.models.functions:{function}", packages[name], name, "1", np.zeros((1, 1), np.float32))
    settings: dict[str, object] = {
        "kafka": {"bootstrap": bootstrap},
        "redis": {"url": redis_url},
        "replication": replication,
        "selection": {"inline": []},
        "hosts": {_POOL: {"models": held, "memory_mib": 64}} if (held := _held(mix)) else {},
        "worker": {"partitions": dict(mix.workers)},
        "joiner": {"window_s": WINDOW_S, "early_s": EARLY_S},
        "record": {"folder": str(trace_folder(folder))},
        "gateway": {"port": free_port(), "memory_mib": 1},  # full within the first minutes
        "control": {"port": free_port()},
        "log_level": "info",
    }
    return Deployment(prefix, mix.placed(prefix), packages, PARTITIONS, mix.roles, settings, dict(mix.workers))


def _held(mix: Mix) -> list[str]:
    """Return the models of the host."""
    return sorted(name for name in mix.functions if name.startswith(HELD))


def reads(mix: Mix) -> dict[str, tuple[str, ...]]:
    """Return what each group has to commit."""
    held = _held(mix)
    apart = sorted(mix.functions.keys() - {*held})
    workers = {worker_role(model): (topics.model_queries(model),) for model in apart}
    mapped = [topic for kind in mix.kinds if kind.answers for topic in (kind.asks, kind.tells)]
    return {
        "selection": (topics.QUERIES, topics.MODEL_PREDICTIONS),
        "joiner": (topics.PREDICTIONS, topics.FEEDBACK),
        "learner": (topics.OBSERVATIONS,),
        **({host_role(_POOL): tuple(map(topics.model_queries, held))} if held else {}),
        **workers,
        **({"mapping": (*mapped, topics.PREDICTIONS)} if mapped else {}),
    }


def port_of(asked: Deployment, role: str) -> int:
    """Return the port of a role that listens."""
    section = asked.settings[role]
    assert isinstance(section, dict)
    return int(section["port"])


def trace_folder(folder: Path) -> Path:
    """Return where the role `record` writes."""
    return folder / "trace"
