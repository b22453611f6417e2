"""A whole deployment as one object: topics, desired state, supervised processes of roles.

    async with System(settings, codec, folder) as system:
        system.pids            {"selection": 4711, "worker.svc": 4712, ...}, or {"loop": 4711, "worker.svc": 4712, ...}
        system.kill("joiner")  as `kill -9` does: the process that runs it; the supervisor starts that again

It is ready on entry and gone on exit. The demo, the load scenarios, the fault tests and `skysail run` use it. A role
reports that it is ready when it is in its group and owns partitions. `grouping` says which roles share a process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import uuid
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from deploy.config import configuration
from deploy.config.addresses import connection
from deploy.config.folder import load_notes
from deploy.errors import StartError
from deploy.figures.rendered import targets
from deploy.local.logs import homes, tail
from deploy.local.process import ending
from deploy.local.supervisor import Child, Supervisor
from deploy.placement import placement, pooling
from deploy.placement.grouping import GATEWAY, RoleProcess, host, is_shared, plan, worker
from deploy.process import metrics
from deploy.process.ports import fault_of, require_free
from deploy.process.progress import Silent
from deploy.state import candidates, catalog, desired, topics
from schemas import topics as names
from schemas.errors import DecodeError
from schemas.records import Application, Report
from streams.runtime.kafka.log_reader import KafkaTail
from streams.runtime.stopping import PATIENCE_S
from streams.topology import host_role
from workers.packages.load_notes import LoadNotes

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from types import TracebackType

    from deploy.config.settings import Settings
    from deploy.local.supervisor import ChildStatus
    from deploy.process.progress import Progress
    from deploy.state.desired import CreateTopics
    from schemas.codec import Codec
    from schemas.records import Candidate, Model

_log = logging.getLogger(__name__)

READY_S = 120.0  # a busy machine takes a minute for what takes five seconds
# No decision depends on the page: a deployment is ready without it.
PAGE = "control"
PAGE_S = 10.0
POLL_MS = 200
LAST_PORT = 65_535
TARGETS = "metrics.json"  # beside the settings that the children read
ROOT = Path(__file__).resolve().parent.parent.parent


class System:
    """A deployment whose processes are children of this one.

    Args:
        settings: of the deployment; its roles are started, with as many workers for a model as they say.
        codec: of the records.
        folder: for the settings file that the children read.
        create_topics: creates missing topics.
        environment: variables for the children, beside this process's own.
        progress: shows what the start waits for and which role is ready.
        replicas: workers by model name, instead of the settings' numbers.
        several: processes by role; one of each that is not named.
        logs: folder of the processes' logs; `logs` in `folder` by default.

    Attributes:
        metrics_ports: port of each process's metrics, if the settings ask for metrics.
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
        logs: Path | None = None,
        several: Mapping[str, int] | None = None,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._folder = folder
        self._logs = logs or folder / "logs"
        self._create_topics = create_topics
        self._environment = dict(environment or {})
        self._progress = progress or Silent()
        self._replicas = {**settings.worker.replicas, **(replicas or {})}
        self._several = dict(several or {})
        # One name for all children, as each is in a group of its own (replicas add their number); a new one, as two
        # systems may share the groups.
        self._member = uuid.uuid4().hex
        self._supervisor: Supervisor | None = None
        self._homes: dict[str, str] = {}  # the process of each instance
        self._inside: dict[str, str] = {}  # digests of the measured models inside selection, by name
        self._served: set[str] = set()  # models that run
        self._absent: set[str] = set()  # models whose missing package was logged
        self._stopped: dict[str, Child] = {}  # processes that `stop` ended, as they were planned
        self._shared = {host_role(pool) for pool, its in settings.hosts.items() if its.replicas > 1}
        self.metrics_ports: dict[str, int] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by process: `loop` or `selection`, `worker.<model>`, ...; without those that are down."""
        return {child.name: child.pid for child in self.status() if child.pid is not None}

    @property
    def restarts(self) -> dict[str, int]:
        """How often each process has been started again."""
        return {child.name: child.restarts for child in self.status()}

    @property
    def targets_file(self) -> Path:
        """Where Prometheus finds the processes, if the settings ask for metrics."""
        return self._folder / TARGETS

    def status(self) -> tuple[ChildStatus, ...]:
        """Describe every child."""
        return () if self._supervisor is None else self._supervisor.status()

    def process_of(self, instance: str) -> str:
        """Return the name of the process that an instance runs in: `loop` for `joiner`, where roles share one."""
        return self._homes.get(instance, instance)

    def log(self, instance: str) -> Path:
        """Return the file that the output of an instance, or a process, goes to."""
        return self._logs / f"{self.process_of(instance)}.log"

    @property
    def settings_file(self) -> Path:
        """The file that the children read; it holds secrets."""
        return self._folder / "settings.yaml"

    def kill(self, instance: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to the process of an instance, by default SIGKILL; returns its pid.

        Raises:
            KeyError: it is not running.
        """
        pid = self.pids[self.process_of(instance)]
        os.kill(pid, number)
        return pid

    async def stop(self, instance: str, grace_s: float | None = None) -> None:
        """End the process of an instance, and start it again only when `start` says so; returns when it is gone.

        Args:
            instance: whose process.
            grace_s: between SIGTERM and SIGKILL; 0 = it is killed at once.

        Raises:
            KeyError: it does not run.
        """
        assert self._supervisor is not None
        name = self.process_of(instance)
        child = await asyncio.to_thread(self._supervisor.remove, name, grace_s)
        self._stopped.setdefault(name, child)

    async def start(self, instance: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a process that `stop` ended, and supervise it as before.

        Args:
            instance: whose process.
            environment: variables that it has besides, for this life.

        Raises:
            KeyError: it was not stopped.
        """
        assert self._supervisor is not None
        child = self._stopped[self.process_of(instance)]
        child = replace(child, env={**child.env, **(environment or {})})
        await asyncio.to_thread(self._supervisor.add, child)

    async def add_model(self, package: Path, share: float = 1.0) -> None:
        """Deploy a package, as `skysail model add` does; workers of models that run already load it.

        Raises:
            DeployError: it cannot be deployed; the message says why.
        """
        await asyncio.to_thread(desired.add, self._settings, self._codec, package, self._create_topics, share)

    async def use_model(self, name: str, version: str) -> None:
        """Let a version of a model serve, as `skysail model use` does.

        Raises:
            DeployError: there is no such version.
        """
        await asyncio.to_thread(desired.use, self._settings, self._codec, name, version)

    async def promote(self, plan: Candidate) -> None:
        """Leave a candidate to the control role, as `skysail model promote --auto` does.

        Raises:
            DeployError: the broker refused it.
        """
        await asyncio.to_thread(candidates.want, self._settings, self._codec, plan)

    async def backfill(self, application: str, package: Path) -> int:
        """Teach a model what it has missed, as `skysail app backfill` does; returns how many labels.

        Raises:
            DeployError: the application does not name the model, or its state does not answer.
        """
        from deploy.state.backfill import (
            backfill,  # loads models: a supervisor that never does it is the smaller for it
        )

        return (await asyncio.to_thread(backfill, self._settings, self._codec, application, package)).taught

    async def restarted(self, instance: str, old_pid: int, timeout_s: float = READY_S) -> int:
        """Wait until the supervisor has restarted the process of an instance; returns its new pid.

        Raises:
            StartError: it did not come back in time.
        """
        end, name = asyncio.get_running_loop().time() + timeout_s, self.process_of(instance)
        while (pid := self.pids.get(name, old_pid)) == old_pid:
            if asyncio.get_running_loop().time() > end:
                raise StartError(f"{instance} did not come back within {timeout_s:g} s.\n{tail(self.log(instance))}")
            await asyncio.sleep(POLL_MS / 1000)
        return pid

    async def __aenter__(self) -> Self:
        """Create topics, publish applications and models, start the roles and wait until all are ready.

        Raises:
            DeployError: the broker or a role does not work; the message says what to do.
        """
        self._require_ports(self._foreseen())
        self._progress.waits(f"Kafka at {self._settings.kafka.bootstrap} to take topics, models and applications")
        deployed = await asyncio.to_thread(desired.establish, self._settings, self._codec, self._create_topics)
        await asyncio.to_thread(topics.require, self._settings, desired.build(self._settings, deployed))
        self._progress.done("topics, models and applications are in place")
        self._inside = await self._placed(deployed)
        configuration.write(self._settings, self.settings_file)
        planned = self._plan(deployed)
        self.metrics_ports = metrics.ports(self._settings.metrics, (process.name for process in planned))
        self._homes = {instance: process.name for process in planned for instance in process.instances}
        started = {*self._homes}
        pools = {model: pool for model in deployed if (pool := self._settings.pool_of(model)) is not None}
        self._homes |= {worker(model).name: host(pool).name for model, pool in pools.items()}
        if "selection" in started:
            inline = {*self._inside, *self._settings.selection.named_inline}
            self._homes |= {worker(model).name: self._homes["selection"] for model in inline}
        children = [self._child(process) for process in planned]
        self._require_ports({child.name for child in children})  # and those of models that were published before
        self._write_targets()
        self._write_homes()
        reports = KafkaTail(connection(self._settings, "skysail-launch"), (names.REPORTS,))
        await reports.start()
        self._supervisor = Supervisor(children, grace_s=PATIENCE_S)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(asyncio.to_thread, self._supervisor.stop)
            try:
                await asyncio.to_thread(self._supervisor.start)
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

    async def _placed(self, models: Mapping[str, Model]) -> dict[str, str]:
        """Decide where models run; returns the digests of those that were measured and run inside selection."""
        here = {name: models[name] for name in present(models, self._absent)}
        self._absent |= models.keys() - here.keys()
        if is_shared(self._settings):
            self._progress.waits("the models to be measured")
        asked = await self._applications()
        placed = await placement.decided(self._settings, here, self._folder, asked, LoadNotes(load_notes()))
        self._settings = placement.with_pool(self._settings, placed)
        for name, its in sorted(placed.items()):
            if is_shared(self._settings) or its.sharing:
                self._progress.done(f"model {name} runs {its}")
        return {name: its.digest for name, its in placed.items() if its.is_inside and its.is_measured}

    def _plan(self, models: Mapping[str, Model]) -> list[RoleProcess]:
        """Return the processes of new models, and at first those of the roles."""
        news = {name: model for name, model in models.items() if name not in self._served}
        here = present(news, self._absent)
        self._absent |= news.keys() - here
        self._served |= {*here}
        return plan(self._settings, here, self._replicas, self._inside, self._several)

    async def _applications(self) -> list[Application]:
        known = await asyncio.to_thread(catalog.read, self._settings, self._codec, Application)
        return [*known.values()]

    async def _share(self, models: Mapping[str, Model]) -> None:
        """Make the pool of many models, if new ones are so many; models that run already stay where they are."""
        apart = {name for name in models if self._settings.pool_of(name) is None}
        apart -= {*self._inside, *self._settings.selection.named_inline}
        if len(apart) <= pooling.MOST:
            return
        sharing = pooling.shared(self._settings, await self._applications(), apart).keys() - self._served
        if not sharing:
            return
        self._settings = pooling.pooled(self._settings, apart - sharing)
        configuration.write(self._settings, self.settings_file)

    async def serve(self, models: Mapping[str, Model]) -> None:
        """Start workers, or a host, for models without any; returns at once, while they load."""
        if not models.keys() - self._served:
            return
        await self._share(models)
        await asyncio.to_thread(self._note_places, models)
        there = {child.name for child in self.status()}
        for process in self._plan(models):
            if (process.model is None and process.pool is None) or process.name in there or self._supervisor is None:
                continue
            if self._settings.metrics.port:
                self.metrics_ports[process.name] = self._next_port()
                self._write_targets()
            await asyncio.to_thread(self._supervisor.add, self._child(process))
            what = f"model {process.model}" if process.model is not None else f"pool {process.pool}"
            _log.info("%s is new here: %s starts (log %s)", what, process.name, self.log(process.name))

    def _note_places(self, models: Mapping[str, Model]) -> None:
        """Note where models run that are new and here."""
        news = {name: model for name, model in models.items() if name not in self._served and Path(model.path).is_dir()}
        placement.add(self._settings, news, self._folder)

    async def retire(self, models: Iterable[str]) -> None:
        """Stop the workers of removed models; returns when they are gone. A model that comes back gets new ones."""
        for model in self._served.intersection(models):
            self._served.discard(model)
            first = worker(model).name
            for name in [child.name for child in self.status() if child.name.partition("@")[0] == first]:
                _log.info("model %s is removed: %s is stopped", model, name)
                self.metrics_ports.pop(name, None)
                if self._supervisor is not None:
                    await asyncio.to_thread(self._supervisor.remove, name)

    def _next_port(self) -> int:
        """Return the first free port after those of the processes."""
        port = max(self.metrics_ports.values(), default=self._settings.metrics.port - 1) + 1
        while fault_of(self._settings.metrics.host, port) and port < LAST_PORT:
            port += 1
        return port

    def _write_homes(self) -> None:
        """Tell the page which process each instance runs in, and so whose log is its own."""
        file = homes(self._logs)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self._homes))

    def _write_targets(self) -> None:
        """Tell Prometheus where the processes are, in a file that it follows (`file_sd_configs`)."""
        if self.metrics_ports:
            anew = self.targets_file.with_suffix(".new")
            anew.write_text(targets(self._settings.metrics.host, self.metrics_ports))
            anew.replace(self.targets_file)  # who reads it meanwhile finds a whole one

    def _foreseen(self) -> set[str]:
        """Return the processes that the settings alone start, and set their ports."""
        planned = plan(self._settings, self._settings.models, self._replicas, several=self._several)
        self.metrics_ports = metrics.ports(self._settings.metrics, (process.name for process in planned))
        return {process.name for process in planned}

    def _require_ports(self, names: set[str]) -> None:
        page, figures = self._settings.control, self._settings.metrics
        wanted = {"the live page (control.port)": (page.host, page.port)} if PAGE in names else {}
        if GATEWAY in self._settings.roles:
            gateway = self._settings.gateway
            wanted["the gateway (gateway.port)"] = gateway.host, gateway.port
            if gateway.grpc_port is not None:
                wanted["the gateway (gateway.grpc_port)"] = gateway.host, gateway.grpc_port
        wanted |= {f"metrics of {name} (metrics.port)": (figures.host, p) for name, p in self.metrics_ports.items()}
        require_free(wanted)

    def _child(self, process: RoleProcess) -> Child:
        file, name, number = self.settings_file, process.name, process.number
        # -P: a file in the present folder must not shadow a module of ours; the child searches that folder last.
        argv = [sys.executable, "-P", "-m", "deploy.cli", "run", "--config", str(file), "--quiet"]
        argv += [word for role in process.roles for word in ("--role", role)]
        argv += ["--instance", str(number), *(("--model", process.model) if process.model else ())]
        argv += ["--pool", process.pool] if process.pool else []
        if {"selection", "host"} & {*process.roles}:
            argv += [word for name, digest in self._inside.items() for word in ("--inside", f"{name}={digest}")]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        member = self._member if number == 1 else f"{self._member}-{number}"
        own = {"PYTHONPATH": path, "SKYSAIL_KAFKA__MEMBER": member, "SKYSAIL_KAFKA__LEAVE": "true"} | self._environment
        if PAGE in process.roles and self._settings.control.logs is None:
            own["SKYSAIL_CONTROL__LOGS"] = str(self._logs.resolve())
        if name in self.metrics_ports:
            own["SKYSAIL_METRICS__PORT"] = str(self.metrics_ports[name])
        return Child(name, tuple(argv), self.log(name), own)

    async def _ready(self, reports: KafkaTail, missing: set[str]) -> None:
        end, told = asyncio.get_running_loop().time() + READY_S, dict[str, str]()
        while missing:
            self._progress.waits("the roles:", ", ".join(name + told.get(name, "") for name in sorted(missing)))
            for record in await reports.poll(POLL_MS):
                told |= self._loading(record.value)
                if (name := self._announced(record.value)) in missing:
                    missing.discard(name)
                    self._progress.done(f"{name} is ready (process {self._pid(name)}, log {self.log(name)})")
            awaited = {*map(self.process_of, missing)}
            for name, code in [(child.name, child.exit_code) for child in self.status() if child.name in awaited]:
                if code is not None:
                    raise StartError(f"{name} {ending(code)}.\n{tail(self.log(name))}")
            if asyncio.get_running_loop().time() > end:
                name = min(missing)
                raise StartError(
                    f"not ready after {READY_S:g} s: {', '.join(sorted(missing))}.\n{tail(self.log(name))}"
                )

    async def _page_ready(self, reports: KafkaTail) -> None:
        """Wait a few seconds for the page, so that its start does not delay the first queries; it may fail."""
        end = asyncio.get_running_loop().time() + PAGE_S
        self._progress.waits("the live page")
        while asyncio.get_running_loop().time() < end:
            if PAGE in {self._announced(record.value) for record in await reports.poll(POLL_MS)}:
                self._progress.done(f"{PAGE} is ready (process {self._pid(PAGE)}, log {self.log(PAGE)})")
                return
        self._progress.done(f"{PAGE} is not ready yet; all else runs without it (log {self.log(PAGE)})")

    def _loading(self, value: bytes | None) -> dict[str, str]:
        """Return how far a host is with loading its models, by its name, if this is a host's report."""
        with suppress(DecodeError):
            report = self._codec.decode(Report, value)
            return {report.instance.removesuffix("@1"): loading(report)}
        return {}

    def _announced(self, value: bytes | None) -> str:
        """Return the instance of a report if it is ours and ready, else an empty text."""
        try:
            report = self._codec.decode(Report, value)
        except DecodeError:
            return ""
        # Of several hosts one may have nothing to do: then it stands by.
        least = 0 if report.role in self._shared else 1
        is_ready = report.role == PAGE or report.gauges.get("partitions", -1) >= least
        name = report.instance.removesuffix("@1")
        return name if is_ready and report.gauges.get("pid") == self._pid(name) else ""

    def _pid(self, instance: str) -> int | None:
        """Return the pid of the process that an instance runs in."""
        return self.pids.get(self.process_of(instance))


def loading(report: Report) -> str:
    """Say how many of its models a host has in memory; nothing of any other role."""
    known, there = (report.gauges.get(f"host_{what}_models", 0) for what in ("known", "resident"))
    return f" ({there:,.0f} of {known:,.0f} models in memory)" if known else ""


def present(models: Mapping[str, Model], told: Container[str] = ()) -> list[str]:
    """Return the models whose packages are here; one published long ago from a folder that is gone stops nobody.

    Args:
        models: by name.
        told: names of which it has been said already that their package is not here.
    """
    here = [name for name, model in models.items() if Path(model.path).is_dir()]
    for name in models.keys() - here:
        if name not in told:
            _log.warning("model %s gets no worker until its package %s is here", name, models[name].path)
    return here
