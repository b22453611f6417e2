"""Starts contenders: a peer's process, a deployment of Skysail, or nothing at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import psutil

from load.baseline.job import ONE_THREAD
from load.errors import PeerFailedError
from load.harness import topics
from load.harness.system import Deployment
from load.research.peers import environments
from load.research.peers.task import Task
from schemas import topics as names
from schemas.records import Application

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from load.harness.system import Stage
    from load.models.training import Digits

APPLICATION = "digits"
PARTITIONS = 4
_MOST_MS = 600_000.0  # what a backlog's queries are given
_GRACE_S = 3.0
_TAIL_CHARS = 600
_RAY = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}  # recommended by its documentation, and read while it is imported
_MARK = "SKYSAIL_PEER"  # in the environment of a contender's processes: how they are found again


@dataclass(frozen=True, slots=True)
class Ground:
    """The things that all contenders share.

    Attributes:
        stage: where it runs.
        data: the rows asked about.
        model: joblib file of the one estimator that peers serve.
        packages: the estimators as Skysail takes them.
        truth: what each model says about each row.
    """

    stage: Stage
    data: Digits
    model: Path
    packages: Mapping[str, Path]
    truth: Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class Running:
    """A contender that has been started: queries go to `queries` under its prefix, answers come on `sink`."""

    prefix: str
    sink: str
    pids: Callable[[], Mapping[str, int]]


Start: TypeAlias = "Callable[[Ground, Mapping[str, object]], AbstractAsyncContextManager[Running]]"


def peer(module: str, environment: str | None) -> Start:
    """Return what starts a module of this package in an environment; None = Skysail's own."""
    return partial(_peer, module, environment)


def shortest_path(model: str) -> Start:
    """Return what starts Skysail's selection role with a model in it, and nothing else."""
    return partial(_skysail, (model,), ("selection",), {"selection": {"inline": [model]}})


def whole_loop(models: tuple[str, ...]) -> Start:
    """Return what starts all that Skysail has: selection, a worker for each model, join and learn."""
    return partial(_skysail, models, ("selection", "worker", "joiner", "learner"), {})


def deployed(model: str, roles: tuple[str, ...], settings: Mapping[str, object]) -> Start:
    """Return what starts Skysail with one model, the roles and the settings given."""
    return partial(_skysail, (model,), roles, settings)


@contextlib.asynccontextmanager
async def nothing(ground: Ground, _setting: Mapping[str, object]) -> AsyncIterator[Running]:
    """Start nothing: what is sent is what arrives."""
    prefix = topics.new_prefix("peers")
    with topics.temporary(ground.stage.bootstrap, prefix, {names.QUERIES: PARTITIONS}):
        topics.stamp_on_append(ground.stage.bootstrap, f"{prefix}.{names.QUERIES}")
        yield Running(prefix, names.QUERIES, dict)


@contextlib.asynccontextmanager
async def _peer(
    module: str, environment: str | None, ground: Ground, setting: Mapping[str, object]
) -> AsyncIterator[Running]:
    prefix, stage = topics.new_prefix("peers"), ground.stage
    folder = stage.folder / prefix
    folder.mkdir()
    source, sink = f"{prefix}.{names.QUERIES}", f"{prefix}.{names.PREDICTIONS}"
    task = Task(stage.bootstrap, source, sink, str(ground.model), str(folder), setting)
    python = sys.executable if environment is None else str(environments.root() / environment / "bin" / "python")
    with topics.temporary(stage.bootstrap, prefix, {names.QUERIES: PARTITIONS, names.PREDICTIONS: PARTITIONS}):
        topics.stamp_on_append(stage.bootstrap, sink)
        process = _spawn(
            (python, "-P", "-m", f"load.research.peers.{module}", task.arguments()), folder, stage.folder / "path"
        )
        try:
            yield Running(prefix, names.PREDICTIONS, partial(_alive, module, process, folder / "log"))
        finally:
            await asyncio.to_thread(_stop, process, prefix)


@contextlib.asynccontextmanager
async def _skysail(
    models: tuple[str, ...],
    roles: tuple[str, ...],
    settings: Mapping[str, object],
    ground: Ground,
    setting: Mapping[str, object],
) -> AsyncIterator[Running]:
    deployment = Deployment(
        prefix=topics.new_prefix("peers"),
        applications=(Application(APPLICATION, models, "exp3" if len(models) > 1 else "single", max_slo_ms=_MOST_MS),),
        models={name: ground.packages[name] for name in models},
        partitions=PARTITIONS,
        roles=roles,
        settings={**settings, **setting},
    )
    bootstrap = ground.stage.bootstrap
    try:
        async with ground.stage.launch(deployment) as system:
            topics.stamp_on_append(bootstrap, f"{deployment.prefix}.{names.PREDICTIONS}")
            yield Running(deployment.prefix, names.PREDICTIONS, lambda: system.pids)
    finally:
        topics.delete(bootstrap, deployment.prefix)


def variables(path: Path) -> dict[str, str]:
    """Return the environment for a process that imports Skysail's files from `path` and computes in one thread."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**own, "PYTHONPATH": str(environments.python_path(path)), **ONE_THREAD, **_RAY}


def _spawn(command: tuple[str, ...], folder: Path, path: Path) -> subprocess.Popen[bytes]:
    own = {**variables(path), _MARK: folder.name}
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603  # our own command
            command, cwd=folder, env=own, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )


def _alive(name: str, process: subprocess.Popen[bytes], log: Path) -> dict[str, int]:
    if process.poll() is not None:
        said = log.read_text(errors="replace")[-_TAIL_CHARS:]
        raise PeerFailedError(f"{name} ended with {process.returncode}: {said}")
    return {name: process.pid}


def _stop(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a process and all that it started, however far they have moved away from it."""
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    left = [other for other in psutil.process_iter() if _is_marked(other, mark)]
    for other in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            other.kill()
    psutil.wait_procs(left, timeout=_GRACE_S)


def _is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        return bool(process.environ().get(_MARK) == mark)
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
        return False
