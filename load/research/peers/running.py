"""Starts contenders: a peer's process, a deployment of Skysail, or nothing at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

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
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from load.harness.system import Stage
    from load.models.training import Digits
    from load.research.peers.answer_audit import Truth

APPLICATION = "digits"
PARTITIONS = 4
_MOST_MS = 600_000.0  # what a backlog's queries are given
_GRACE_S = 3.0
_SHARED_S, _LOOK_S = 30.0, 0.2  # until several processes share the partitions
_TAIL_CHARS = 600
_RAY = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}  # recommended by its documentation, and read while it is imported
_MARK = "LOAD_PEER"  # in the environment of a contender's processes: how they are found again


@dataclass(frozen=True, slots=True)
class Ground:
    """The things that all contenders share.

    Attributes:
        stage: where it runs.
        data: the rows asked about.
        model: joblib file of the one estimator that peers serve.
        packages: the estimators as Skysail takes them.
        truth: what each model says about each row, or may say.
    """

    stage: Stage
    data: Digits
    model: Path
    packages: Mapping[str, Path]
    truth: Mapping[str, Sequence[Truth]]


@dataclass(frozen=True, slots=True)
class Running:
    """A contender that has been started: queries go to `queries` under its prefix, answers come on `sink`."""

    prefix: str
    sink: str
    pids: Callable[[], Mapping[str, int]]


Shape: TypeAlias = Literal["each", "one"]
Start: TypeAlias = "Callable[[Ground, Mapping[str, object]], AbstractAsyncContextManager[Running]]"


def peer(module: str, environment: str | None, processes: int = 1) -> Start:
    """Return what starts a module of this package in an environment, so many times; None = Skysail's own."""
    return partial(_peer, module, environment, processes)


def shortest_path(model: str) -> Start:
    """Return what starts Skysail's selection role with a model in it, and nothing else."""
    return partial(_skysail, (model,), ("selection",), {"selection": {"inline": [model]}})


def whole_loop(models: tuple[str, ...], shape: Shape) -> Start:
    """Return what starts all that Skysail has: selection, the models, join and learn.

    Args:
        models: that are asked.
        shape: `each` = a process for each role and model; `one` = one for all of them, the models inside selection.
    """
    if shape == "one":
        return partial(_in_one_process, models)
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
    module: str, environment: str | None, processes: int, ground: Ground, setting: Mapping[str, object]
) -> AsyncIterator[Running]:
    prefix, stage = topics.new_prefix("peers"), ground.stage
    folder = stage.folder / prefix
    folder.mkdir()
    source, sink = f"{prefix}.{names.QUERIES}", f"{prefix}.{names.PREDICTIONS}"
    task = Task(stage.bootstrap, source, sink, str(ground.model), str(folder), setting)
    python = sys.executable if environment is None else str(environments.root() / environment / "bin" / "python")
    with topics.temporary(stage.bootstrap, prefix, {names.QUERIES: PARTITIONS, names.PREDICTIONS: PARTITIONS}):
        topics.stamp_on_append(stage.bootstrap, sink)
        command = (python, "-P", "-m", f"load.research.peers.{module}", task.arguments())
        with contextlib.ExitStack() as stack:
            alive = [spawned(stack, command, folder, variables(stage.folder / "path"), n) for n in range(processes)]
            if processes > 1:
                await asyncio.to_thread(_share, stage.bootstrap, prefix, processes)
            yield Running(prefix, names.PREDICTIONS, partial(_pids, alive))


def _share(bootstrap: str, prefix: str, processes: int) -> None:
    """Return once so many processes share the partitions.

    Raises:
        TimeoutError: they do not.
    """
    end_s = time.monotonic() + _SHARED_S
    while topics.owners(bootstrap, prefix) < processes:
        if time.monotonic() > end_s:
            raise TimeoutError(f"{processes} processes do not share the partitions after {_SHARED_S:g} s")
        time.sleep(_LOOK_S)


@contextlib.asynccontextmanager
async def _skysail(
    models: tuple[str, ...],
    roles: tuple[str, ...],
    settings: Mapping[str, object],
    ground: Ground,
    setting: Mapping[str, object],
) -> AsyncIterator[Running]:
    deployment, bootstrap = _deployment(models, roles, {**settings, **setting}, ground), ground.stage.bootstrap
    try:
        async with ground.stage.launch(deployment) as system:
            topics.stamp_on_append(bootstrap, f"{deployment.prefix}.{names.PREDICTIONS}")
            yield Running(deployment.prefix, names.PREDICTIONS, lambda: system.pids)
    finally:
        topics.delete(bootstrap, deployment.prefix)


@contextlib.asynccontextmanager
async def _in_one_process(
    models: tuple[str, ...], ground: Ground, setting: Mapping[str, object]
) -> AsyncIterator[Running]:
    """Start `skysail run --role ...` for all roles at once, by the settings of a deployment without processes."""
    deployment = _deployment(models, (), {"selection": {"inline": list(models)}, **setting}, ground)
    bootstrap, folder = ground.stage.bootstrap, ground.stage.folder / deployment.prefix
    folder.mkdir()
    roles = [word for role in ("selection", "joiner", "learner") for word in ("--role", role)]
    try:
        async with ground.stage.launch(deployment) as system:
            topics.stamp_on_append(bootstrap, f"{deployment.prefix}.{names.PREDICTIONS}")
            command = (sys.executable, "-P", "-m", "deploy.cli", "run", "--config", str(system.settings_file), *roles)
            with contextlib.ExitStack() as stack:
                alive = spawned(stack, command, folder, {**os.environ, "PYTHONPATH": str(environments.ROOT)})
                yield Running(deployment.prefix, names.PREDICTIONS, partial(_pids, [alive]))
    finally:
        topics.delete(bootstrap, deployment.prefix)


def _deployment(
    models: tuple[str, ...], roles: tuple[str, ...], settings: Mapping[str, object], ground: Ground
) -> Deployment:
    return Deployment(
        prefix=topics.new_prefix("peers"),
        applications=(Application(APPLICATION, models, "exp3" if len(models) > 1 else "single", max_slo_ms=_MOST_MS),),
        models={name: ground.packages[name] for name in models},
        partitions=PARTITIONS,
        roles=roles,
        settings=settings,
    )


def variables(path: Path) -> dict[str, str]:
    """Return the environment for a process that imports Skysail's files from `path` and computes in one thread."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    jars = {"PEER_JARS": str(environments.root() / "kafka_streams")}
    return {**own, "PYTHONPATH": str(environments.python_path(path)), **ONE_THREAD, **_RAY, **jars}


@dataclass(frozen=True, slots=True)
class _Process:
    """A contender's process and its output."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its id, while it runs."""
        if self.process.poll() is not None:
            said = self.log.read_text(errors="replace")[-_TAIL_CHARS:]
            raise PeerFailedError(f"it ended with {self.process.returncode}: {said}")
        return self.process.pid


def spawned(
    stack: contextlib.ExitStack, command: tuple[str, ...], folder: Path, own: Mapping[str, str], number: int = 0
) -> _Process:
    """Start a process in a session of its own; it ends with the stack."""
    path = folder / f"log-{number}"
    with path.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  # our own command
            command,
            cwd=folder,
            env={**own, _MARK: folder.name},
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    stack.callback(_stop, process, folder.name)
    return _Process(process, path)


def _pids(alive: Sequence[_Process]) -> dict[str, int]:
    return {str(number): each.pid for number, each in enumerate(alive)}


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
