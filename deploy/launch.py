"""A whole deployment as one object: topics, desired state, one supervised process a role, ready on entry, gone on exit.

    async with System(settings, codec, folder) as system:
        system.pids            {"selection": 4711, "worker.svc": 4712, ...}
        system.kill("joiner")  as `kill -9` does; the supervisor starts it again

The demo, the load scenarios, the fault tests and `skysail run` stand on it. Roles say in their reports that they are
ready: they are in their group and own partitions.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

from deploy import configuration, desired, metrics, topics
from deploy.addresses import connection
from deploy.errors import StartError
from deploy.local.process import tail
from deploy.local.supervisor import Child, Supervisor
from deploy.progress import Silent
from deploy.registry import codec_for
from deploy.settings import Settings
from schemas import topics as names
from schemas.errors import DecodeError
from schemas.records import Report
from streams.runtime.kafka_tail import KafkaTail
from streams.topology import worker_role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from types import TracebackType

    from deploy.desired import CreateTopics
    from deploy.local.supervisor import ChildStatus
    from deploy.progress import Progress
    from load.system import Deployment, Launch
    from schemas.codec import Codec
    from schemas.records import Application, Model

_log = logging.getLogger(__name__)

READY_S = 60.0
# The page is nobody's source of truth: a deployment is ready without it.
PAGE = "control"
PAGE_S = 10.0
POLL_MS = 200
GRACE_S = 8.0
ROOT = Path(__file__).resolve().parent.parent


class System:
    """A deployment whose processes are children of this one.

    Args:
        settings: of the deployment; its roles are started, one worker for each deployed model or as many as they say.
        codec: of the records.
        folder: for logs and the settings file that the children read.
        create_topics: how missing topics come to be.
        environment: variables for the children on top of this process's own.
        progress: is told what the start waits for and which role is ready.
        replicas: workers by model name, where not as many as the settings say.

    Attributes:
        metrics_ports: where each instance shows its metrics, if the settings say so.
    """

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        folder: Path,
        create_topics: CreateTopics = topics.create,
        environment: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        replicas: Mapping[str, int] | None = None,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._folder = folder
        self._create_topics = create_topics
        self._environment = dict(environment or {})
        self._progress = progress or Silent()
        self._replicas = {**settings.worker.replicas, **(replicas or {})}
        # One name for all children, as each is in a group of its own (replicas add their number); a new one, as two
        # systems may share the groups.
        self._member = uuid.uuid4().hex
        self._supervisor: Supervisor | None = None
        self.metrics_ports: dict[str, int] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by instance: `selection`, `worker.<model>`, `joiner`, ...; without those that are down."""
        return {child.name: child.pid for child in self.status() if child.pid is not None}

    @property
    def restarts(self) -> dict[str, int]:
        """How often each instance has been started again."""
        return {child.name: child.restarts for child in self.status()}

    def status(self) -> tuple[ChildStatus, ...]:
        """Describe every child."""
        return () if self._supervisor is None else self._supervisor.status()

    def log(self, instance: str) -> Path:
        """Return the file that an instance's output goes to."""
        return self._folder / "logs" / f"{instance}.log"

    def kill(self, instance: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to an instance, by default the one it cannot refuse; returns its pid.

        Raises:
            KeyError: it is not running.
        """
        pid = self.pids[instance]
        os.kill(pid, number)
        return pid

    async def add_model(self, package: Path, share: float = 1.0) -> None:
        """Deploy a package, as `skysail model add` does; workers of models that run already load it.

        Raises:
            DeployError: it cannot be deployed; the message says why.
        """
        await asyncio.to_thread(desired.add, self._settings, self._codec, package, self._create_topics, share)

    async def use_model(self, name: str, version: str) -> None:
        """Have a version of a model serve, as `skysail model use` does.

        Raises:
            DeployError: there is no such version.
        """
        await asyncio.to_thread(desired.use, self._settings, self._codec, name, version)

    async def restarted(self, instance: str, old_pid: int, timeout_s: float = READY_S) -> int:
        """Wait until the supervisor has brought an instance back under a new pid; returns that.

        Raises:
            StartError: it did not come back in time.
        """
        end = asyncio.get_running_loop().time() + timeout_s
        while (pid := self.pids.get(instance, old_pid)) == old_pid:
            if asyncio.get_running_loop().time() > end:
                raise StartError(f"{instance} did not come back within {timeout_s:g} s.\n{tail(self.log(instance))}")
            await asyncio.sleep(POLL_MS / 1000)
        return pid

    async def __aenter__(self) -> Self:
        """Create topics, publish applications and models, start the roles and wait until all are ready.

        Raises:
            DeployError: the broker or a role is not as needed; the message says what to do.
        """
        self._progress.waits(f"Kafka at {self._settings.kafka.bootstrap} to take topics, models and applications")
        deployed = await asyncio.to_thread(desired.establish, self._settings, self._codec, self._create_topics)
        await asyncio.to_thread(topics.require, self._settings, desired.build(self._settings, deployed))
        self._progress.done("topics, models and applications are in place")
        file = configuration.write(self._settings, self._folder / "settings.yaml")
        planned = replicated(plan(self._settings, present(deployed)), self._replicas)
        self.metrics_ports = metrics.ports(self._settings.metrics, (_name(*each) for each in planned))
        children = [self._child(*each, file) for each in planned]
        reports = KafkaTail(connection(self._settings, "skysail-launch"), (names.REPORTS,))
        await reports.start()
        self._supervisor = Supervisor(children, grace_s=GRACE_S)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(asyncio.to_thread, self._supervisor.stop)
            try:
                await asyncio.to_thread(self._supervisor.start)
                started = {child.name for child in children}
                await self._ready(reports, started - {PAGE})
                if PAGE in started:
                    await self._page_ready(reports)
            finally:
                await reports.stop()
            undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop every child; returns when none is left."""
        if self._supervisor is not None:
            await asyncio.shield(asyncio.to_thread(self._supervisor.stop))

    def _child(self, role: str, model: str | None, number: int, file: Path) -> Child:
        name = _name(role, model, number)
        # -P: no file in the folder where this was started stands in for a module of ours; the child looks there last.
        argv = [sys.executable, "-P", "-m", "deploy.cli", "run", "--config", str(file), "--role", role, "--quiet"]
        argv += ["--instance", str(number)] if model is None else ["--instance", str(number), "--model", model]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        member = self._member if number == 1 else f"{self._member}-{number}"
        own = {"PYTHONPATH": path, "SKYSAIL_KAFKA__MEMBER": member, "SKYSAIL_KAFKA__LEAVE": "true"} | self._environment
        if name in self.metrics_ports:
            own["SKYSAIL_METRICS__PORT"] = str(self.metrics_ports[name])
        return Child(name, tuple(argv), self.log(name), own)

    async def _ready(self, reports: KafkaTail, missing: set[str]) -> None:
        end = asyncio.get_running_loop().time() + READY_S
        while missing:
            self._progress.waits("the roles:", ", ".join(sorted(missing)))
            for record in await reports.poll(POLL_MS):
                if (name := self._announced(record.value)) in missing:
                    missing.discard(name)
                    self._progress.done(f"{name} is ready (process {self.pids.get(name)}, log {self.log(name)})")
            dead = [child for child in self.status() if child.exit_code is not None and child.name in missing]
            if dead:
                name = dead[0].name
                raise StartError(f"{name} ended with exit code {dead[0].exit_code}.\n{tail(self.log(name))}")
            if asyncio.get_running_loop().time() > end:
                name = min(missing)
                raise StartError(
                    f"not ready after {READY_S:g} s: {', '.join(sorted(missing))}.\n{tail(self.log(name))}"
                )

    async def _page_ready(self, reports: KafkaTail) -> None:
        """Give the page a few seconds, so that its start takes no time from the first queries; it may stay away."""
        end = asyncio.get_running_loop().time() + PAGE_S
        self._progress.waits("the live page")
        while asyncio.get_running_loop().time() < end:
            if PAGE in {self._announced(record.value) for record in await reports.poll(POLL_MS)}:
                self._progress.done(f"{PAGE} is ready (process {self.pids.get(PAGE)}, log {self.log(PAGE)})")
                return
        self._progress.done(f"{PAGE} is not ready yet; everything else runs without it (log {self.log(PAGE)})")

    def _announced(self, value: bytes | None) -> str:
        """Return whose report this is if it is ready, else nothing."""
        try:
            report = self._codec.decode(Report, value)
        except DecodeError:
            return ""
        is_ready = report.role == PAGE or report.gauges.get("partitions", 0) > 0
        return report.instance.removesuffix("@1") if is_ready else ""


def present(models: Mapping[str, Model]) -> list[str]:
    """Return the models whose packages are here; one published long ago from a folder that is gone stops nobody."""
    for name, model in models.items():
        if not Path(model.path).is_dir():
            _log.warning("model %s gets no worker: its package %s is not here", name, model.path)
    return [name for name, model in models.items() if Path(model.path).is_dir()]


def plan(settings: Settings, models: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return what to start: each role once, `worker` once for each model that is not inline."""
    chosen = sorted(set(models).difference(settings.selection.inline))
    return [(role, model) for role in settings.roles for model in (chosen if role == "worker" else [None])]


def replicated(
    planned: Iterable[tuple[str, str | None]], replicas: Mapping[str, int]
) -> list[tuple[str, str | None, int]]:
    """Return the plan with each worker as often as its model wants it, numbered from 1."""
    return [
        (role, model, number)
        for role, model in planned
        for number in range(1, 1 + (1 if model is None else replicas.get(model, 1)))
    ]


def _name(role: str, model: str | None, number: int = 1) -> str:
    name = role if model is None else worker_role(model)
    return name if number == 1 else f"{name}@{number}"


def launcher(bootstrap: str, redis_url: str, folder: Path) -> Launch:
    """Return what starts deployments for load scenarios: an implementation of `load.system.Launch`.

    Args:
        bootstrap: of the broker.
        redis_url: of Redis.
        folder: for logs; each deployment gets one of its own.
    """

    @asynccontextmanager
    async def launch(deployment: Deployment) -> AsyncIterator[System]:
        settings = Settings.model_validate(
            {
                "prefix": deployment.prefix,
                "partitions": deployment.partitions,
                "kafka": {"bootstrap": bootstrap},
                "redis": {"url": redis_url},
                "roles": deployment.roles,
                "models": dict(deployment.models),
                "applications": {app.name: _without_name(app) for app in deployment.applications},
                **deployment.settings,
            }
        )
        place = folder / deployment.prefix
        async with System(settings, codec_for(settings), place, replicas=deployment.replicas) as system:
            yield system

    return launch


def _without_name(application: Application) -> dict[str, object]:
    return {key: value for key, value in asdict(application).items() if key != "name"}
