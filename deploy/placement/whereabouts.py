"""Says where versions run: by what was decided at the start, and by what hosts report that they have in memory.

placements, settings ─┬─▶ host small: all others; in memory of host.small@2
reports of hosts ─────┘   host small: all others; not in memory │ inline: 41 us a call │ own process: pickle
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deploy.config.folder import run_folder
from deploy.placement import placement
from deploy.placement.placement import NEWS
from deploy.state.labels import loaded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.config.settings import Settings
    from deploy.placement.placement import Placement
    from schemas.records import Model
    from streams.control.page.hosts import HostRow


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where versions run.

    Attributes:
        placements: by model, as decided when the deployment was started from this folder; empty = it was not.
        hosts: that report.
        settings: tell the pool of a model that is not among the placements; None = nobody knows.
    """

    placements: Mapping[str, Placement] = field(default_factory=dict)
    hosts: Sequence[HostRow] = ()
    settings: Settings | None = None

    def of(self, version: Model, serving: Model) -> str:
        """Return where a version runs and why, for people; nothing if it does not run, or nobody knows.

        Args:
            version: which.
            serving: the version that serves.
        """
        if version.version not in loaded(serving):
            return ""
        having = [host for host in self.hosts if f"{version.name} {version.version}" in host["models"]]
        pool = self._pool_of(version.name) or next((host["pool"] for host in having), None)
        placed = self.placements.get(version.name)
        if pool is None:
            return self._apart(version, placed)
        said = f"host {pool}: {(placed.sharing or placed.reason) if placed is not None and placed.pool else NEWS}"
        if having:
            return f"{said}; in memory of {', '.join(host['instance'] for host in having)}"
        return f"{said}; not in memory" if any(host["pool"] == pool for host in self.hosts) else said

    def _pool_of(self, model: str) -> str | None:
        """Return the pool in which a model runs; None = in none, as far as is known."""
        placed = self.placements.get(model)
        if placed is not None or self.settings is None:
            return (placed.pool or None) if placed is not None else None
        return placement.with_pool(self.settings, self.placements).pool_of(model) if self.placements else None

    def _apart(self, version: Model, placed: Placement | None) -> str:
        if placed is None:
            return f"own process: {NEWS}" if self.placements else ""
        if placed.is_inside and placed.is_measured and placed.digest != version.digest:
            return f"inline, in a child process: {NEWS}"
        return str(placed)


def whereabouts(settings: Settings, hosts: Sequence[HostRow]) -> Whereabouts:
    """Return where the models of a deployment run; `hosts` are those that report."""
    return Whereabouts(placement.read(run_folder(settings.prefix)), hosts, settings)
