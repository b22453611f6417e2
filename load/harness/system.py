"""The interface between a scenario and the system under test. The composition root implements `Launch`.

A scenario says what to run, and gets only process ids to measure. It speaks to the system over Kafka, as any user does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from load.harness.arrivals import POISSON

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from pathlib import Path

    from load.harness.arrivals import Arrivals
    from schemas.records import Application, Candidate


@dataclass(frozen=True, slots=True)
class Deployment:
    """The parts to run under one topic prefix.

    Attributes:
        prefix: of topics, groups and states; new for every deployment.
        applications: published before the roles start.
        models: package folders by model name; each gets one worker.
        partitions: of the topics on the circle of data.
        roles: which roles run, `worker` meaning one for each model.
        settings: over the defaults, as nested keys of the configuration file, e.g. `{"worker": {"objective_ms": 20}}`.
        replicas: workers by model name, and processes by role; what is not named has one.
        processes: which roles share one, as the setting of this name: what is measured depends on no machine's cores.
    """

    prefix: str
    applications: tuple[Application, ...]
    models: Mapping[str, Path]
    partitions: int = 4
    roles: tuple[str, ...] = ("selection", "worker", "joiner", "learner")
    settings: Mapping[str, object] = field(default_factory=dict)
    replicas: Mapping[str, int] = field(default_factory=dict)
    processes: str = "each"


class System(Protocol):
    """A running deployment."""

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids by process: `selection`, `joiner`, `worker.<model>`, the second of them `worker.<model>@2`.

        Where roles share a process, it is `loop`.
        """
        ...

    def process_of(self, instance: str) -> str:
        """Return the name of the process that a role or worker runs in."""
        ...

    @property
    def settings_file(self) -> Path:
        """The file that its processes read; it holds secrets."""
        ...

    @property
    def restarts(self) -> Mapping[str, int]:
        """How often each process has been started again."""
        ...

    async def stop(self, instance: str, grace_s: float | None = None) -> None:
        """End the process of an instance until `start`: SIGTERM, and SIGKILL after a grace; 0 = SIGKILL at once."""
        ...

    async def start(self, instance: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a process that `stop` ended, with these variables besides."""
        ...

    async def add_model(self, package: Path, share: float = 1.0) -> None:
        """Deploy a package, as `skysail model add` does, for a share of its model's queries."""
        ...

    async def use_model(self, name: str, version: str) -> None:
        """Let a version serve, as `skysail model use` does."""
        ...

    async def promote(self, plan: Candidate) -> None:
        """Leave a candidate to the control role, as `skysail model promote --auto` does."""
        ...

    async def backfill(self, application: str, package: Path) -> int:
        """Teach a model what it has missed, as `skysail app backfill` does; returns how many labels."""
        ...


class Launch(Protocol):
    """Starts a deployment; on entry all roles are ready, on exit all are gone."""

    def __call__(self, deployment: Deployment) -> AbstractAsyncContextManager[System]:
        """Return the deployment as a context."""
        ...


class Service(Protocol):
    """A broker or a Redis that can be broken: what is on its disk stays, and it comes back at the same address."""

    @property
    def pid(self) -> int | None:
        """The process while it runs."""
        ...

    @property
    def data(self) -> Path:
        """Its folder on disk."""
        ...

    def start(self) -> object:
        """Start it and wait until it answers."""
        ...

    def kill(self) -> None:
        """End it as `kill -9` does."""
        ...

    def restart(self) -> None:
        """Stop it in an orderly way and start it again."""
        ...


class RedisService(Service, Protocol):
    """A Redis that can be broken."""

    @property
    def url(self) -> str:
        """Where clients connect, with the password."""
        ...


@dataclass(frozen=True, slots=True)
class Brokers:
    """A cluster of brokers that runs.

    Attributes:
        bootstrap: for the harness.
        kafka: what the setting `kafka` has to be for roles that use them.
        pids: process ids by broker.
        logs: of each broker, the folder with a folder for each of its partitions.
        nodes: the brokers themselves, by name.
    """

    bootstrap: str
    kafka: Mapping[str, object]
    pids: Mapping[str, int]
    logs: tuple[Path, ...]
    nodes: Mapping[str, Service] = field(default_factory=dict)


class OpenBrokers(Protocol):
    """Starts brokers beside the stage's own; on exit they and their data are gone."""

    def __call__(
        self, count: int, *, tls: bool = False, through: Mapping[int, int] | None = None, bench: bool = True
    ) -> AbstractContextManager[Brokers]:
        """Return so many brokers as a context.

        Args:
            count: how many.
            tls: whether roles connect to them with TLS.
            through: ports of a proxy by the ports that the brokers are to listen on: clients are told the former.
            bench: a steady rate, not a quick start.
        """
        ...


class OpenRedis(Protocol):
    """Starts a Redis beside the stage's own; on exit it and its data are gone."""

    def __call__(self, replica_of: RedisService | None = None) -> AbstractContextManager[RedisService]:
        """Return a Redis as a context: one of its own, or one that follows another."""
        ...


def no_brokers(
    count: int, *, tls: bool = False, through: Mapping[int, int] | None = None, bench: bool = True
) -> AbstractContextManager[Brokers]:
    """Refuse to start brokers, where nobody has said how.

    Raises:
        LookupError: always.
    """
    wanted = f"{count} were wanted{' with TLS' if tls else ''}, at the ports {through or 'any'}, bench {bench}"
    raise LookupError(f"this stage starts no brokers; {wanted}")


def no_redis(replica_of: RedisService | None = None) -> AbstractContextManager[RedisService]:
    """Refuse to start a Redis, where nobody has said how.

    Raises:
        LookupError: always.
    """
    raise LookupError(f"this stage starts no Redis{', also none that follows another' if replica_of else ''}")


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a scenario runs and how large it is.

    Attributes:
        bootstrap: of the broker.
        launch: starts the system under test.
        folder: for packages, traces and whatever else a scenario has to write.
        seconds: the length of a measured stretch; scenarios with a fixed amount of work ignore it.
        seed: of arrivals and ids.
        arrivals: of the queries, where a scenario sends them at a rate.
        properties: of librdkafka, for the harness.
        redis_url: of the store of policy states, where the scenario looks at it.
        short: the short form, where a scenario has one.
        only: of the scenario's parts, where it has some; none = all.
        hours: of simulated time, where a scenario simulates.
        trace: tell all that happens, where a scenario can.
        nightly: go on where the file of what was simulated ends, where a scenario has one.
        processes: which roles share one, where a scenario can run several ways: `each`, `shared`, or `hosted` for
            models in a host.
        brokers: starts brokers, where a scenario wants some of its own.
        redis: starts a Redis, where a scenario wants one of its own.
        out: where results are written; a scenario that takes long writes there as it goes.
    """

    bootstrap: str
    launch: Launch
    folder: Path
    seconds: float = 20.0
    seed: int = 1
    arrivals: Arrivals = POISSON
    properties: Mapping[str, str] = field(default_factory=dict)
    short: bool = False
    only: tuple[str, ...] = ()
    hours: float = 200.0
    trace: bool = False
    nightly: bool = False
    processes: str = "each"
    brokers: OpenBrokers = no_brokers
    redis: OpenRedis = no_redis
    out: Path | None = None
    redis_url: str = field(default="", repr=False)  # a password may be in it

    @property
    def form(self) -> str:
        """Which form is run; a result says so, and only results of one form are compared."""
        length = "short" if self.short else "full"
        return length if self.processes == "each" else f"{length}, {self.processes}"
