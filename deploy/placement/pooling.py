"""The pool that `skysail run` makes by itself, where an application has so many models that processes cost too much.

    models that would each get a process ─▶ more than 8 of one application? ─▶ they share the host of pool `others`

It is not made where the settings say how processes are shared (`processes: each`), or name the pool of all models that
are in no other one. Models that have a process keep it until the next start.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from deploy.config.settings import HostSection

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from deploy.config.settings import Settings
    from schemas.records import Application

OTHERS: Final = "others"
# So many models of an application get a process each: 34 to 150 MB and a share of each core's caches.
MOST: Final = 8


def has_pool(settings: Settings) -> bool:
    """Tell whether there is a pool for any model that is in no other one."""
    return any(host.models == "all others" for host in settings.hosts.values())


def shared(settings: Settings, applications: Iterable[Application], apart: Collection[str]) -> dict[str, str]:
    """Return the models that are to share a host, each with the reason, if the settings leave that open.

    Args:
        settings: of the deployment.
        applications: that are deployed; models of none count as those of one.
        apart: models that would each get a process.
    """
    if settings.processes == "each" or OTHERS in settings.hosts or has_pool(settings):
        return {}
    groups: dict[str, set[str]] = defaultdict(set)
    asked = {name: {*app.asks}.intersection(apart) for app in applications for name in [app.name]}
    for name, models in sorted(asked.items()):
        groups[f"application {name}"] |= models
    groups["no application"] |= {*apart}.difference(*asked.values())
    found: dict[str, str] = {}
    for name, models in groups.items():
        sharing = {model for model in models if not settings.worker.isolates(model)}
        if len(sharing) > MOST:
            found = dict.fromkeys(sharing, f"one of {len(sharing)} models of {name}") | found
    return found


def pooled(settings: Settings, isolated: Iterable[str]) -> Settings:
    """Return the settings with the pool, in which all models are but those that have, or get, a process."""
    given = settings.worker.isolated
    kept = given if isinstance(given, bool) else tuple(sorted({*given, *isolated}))
    worker = settings.worker.model_copy(update={"isolated": kept})
    return settings.model_copy(update={"hosts": {**settings.hosts, OTHERS: HostSection()}, "worker": worker})
