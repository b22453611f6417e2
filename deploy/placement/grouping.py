"""Which roles of a deployment share a process.

    few cores    loop (selection, joiner, learner, mapping, cheap models) │ a worker a model else │ control │ record
    many cores   selection │ joiner │ learner │ a worker for each model │ control │ record
    A gateway has a process of its own, or is in the loop where the settings ask for that.

On two cores a role waits for a core two or three times as long as it runs, and two legs over Kafka between selection
and a cheap model cost more than the model. One process with such models inside has a p50 three to nine times lower
from 500 to 10,000 queries/s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from deploy.config.cores import cores
from streams.topology import host_role, worker_role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from deploy.config.settings import ApplicationSettings, Settings

LOOP: Final = "loop"
WORKER: Final = "worker"
HOST: Final = "host"
MAPPING: Final = "mapping"
GATEWAY: Final = "gateway"
TOGETHER: Final = ("selection", "joiner", "learner", MAPPING)  # and the gateway, where settings ask for that
FEW_CORES: Final = 4


class RoleProcess(NamedTuple):
    """One process of a deployment.

    Attributes:
        name: of its log and in messages: `loop`, `joiner`, `worker.svc`, `worker.svc@2`.
        roles: that run in it.
        model: of a worker.
        number: of a worker among those of its model, or of a role's processes among them, from 1.
        pool: of a host.
    """

    name: str
    roles: tuple[str, ...]
    model: str | None = None
    number: int = 1
    pool: str | None = None

    @property
    def instances(self) -> tuple[str, ...]:
        """Who reports from it; of the first ones the `@1` is left out."""
        return self.roles if self.model is None and self.pool is None and self.number == 1 else (self.name,)


def is_shared(settings: Settings) -> bool:
    """Tell whether the roles of the loop share a process."""
    return settings.processes == "shared" or (settings.processes == "auto" and cores() <= FEW_CORES)


def plan(
    settings: Settings,
    models: Iterable[str],
    replicas: Mapping[str, int] | None = None,
    inside: Collection[str] = (),
    several: Mapping[str, int] | None = None,
) -> list[RoleProcess]:
    """Return what to start, in the order of `roles`.

    Args:
        settings: of the deployment.
        models: that are deployed.
        replicas: workers by model; one for a model that is not named.
        inside: models that run in the process of selection.
        several: processes by role, where it is not one; a role that shares its process has one anyway.
    """
    roles = [role for role in settings.roles if role != MAPPING or any(map(maps, settings.applications.values()))]
    sharing = (*TOGETHER, GATEWAY) if settings.gateway.shared else TOGETHER
    together = [role for role in roles if role in sharing] if is_shared(settings) else []
    found: list[RoleProcess] = []
    asked = {settings.pool_of(model) for model in models}
    hosts = [
        host(pool, number)
        for pool, its in sorted(settings.hosts.items())
        for number in range(1, 1 + its.replicas)
        if pool in asked
    ]
    for role in roles:
        if role == WORKER:
            apart = sorted(set(models).difference(settings.selection.named_inline, inside))
            apart = [model for model in apart if settings.pool_of(model) is None]
            found += [
                worker(model, number) for model in apart for number in range(1, 1 + (replicas or {}).get(model, 1))
            ]
            found += hosts
        elif role == HOST:
            found += hosts if WORKER not in roles else []
        elif len(together) < 2 or role not in together:
            found += [_numbered(role, number) for number in range(1, 1 + (several or {}).get(role, 1))]
        elif role == together[0]:
            found.append(RoleProcess(LOOP, tuple(together)))
    return found


def maps(application: ApplicationSettings) -> bool:
    """Tell whether an application has topics of others."""
    return bool(application.incoming or application.to or application.feedback)


def worker(model: str, number: int = 1) -> RoleProcess:
    """Return the process of one worker."""
    name = worker_role(model)
    return RoleProcess(name if number == 1 else f"{name}@{number}", (WORKER,), model, number)


def host(pool: str, number: int = 1) -> RoleProcess:
    """Return the process of one host of a pool."""
    name = host_role(pool)
    return RoleProcess(name if number == 1 else f"{name}@{number}", (HOST,), number=number, pool=pool)


def _numbered(role: str, number: int) -> RoleProcess:
    """Return one of a role's processes."""
    return RoleProcess(role if number == 1 else f"{role}@{number}", (role,), number=number)
