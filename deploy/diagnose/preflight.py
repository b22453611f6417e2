"""Checks before roles run: a broker answers, models are deployed, topics fit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deploy.connect.clients import await_broker
from deploy.diagnose.health import running_inside
from deploy.errors import UsageError
from deploy.state import catalog, desired
from deploy.state.topics import require
from schemas.records import Model

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deploy.config.settings import Settings
    from schemas.codec import Codec


def prepared(
    settings: Settings,
    codec: Codec,
    roles: Sequence[str],
    models: Sequence[str],
    inside: Collection[str] = (),
    pools: Sequence[str] = (),
) -> tuple[list[Model], list[Model]]:
    """Return the models of the workers and those inside selection, when a broker answers and the topics are there.

    Args:
        settings: of the deployment.
        codec: of its records.
        roles: that are to run.
        models: of the workers among them; none = all that are deployed.
        inside: models that run inside selection, besides those that the settings name.
        pools: of the hosts among them.

    Raises:
        UsageError: a model is not deployed.
        StartError: topics do not fit the topology.
    """
    await_broker(settings)
    deployed = _deployed(settings, codec, models) if "worker" in roles else []
    inline = _inline(settings, codec, inside) if "selection" in roles else []
    require(settings, desired.used_by(settings, codec, roles, deployed, pools))
    return deployed, inline


def require_workers(settings: Settings, codec: Codec) -> None:
    """Check that a selection role which is started beside others can ask the models that those have inside.

    Raises:
        UsageError: a model has no workers, as it runs inside other selection roles, and would not be inside this one.
    """
    await_broker(settings)
    alone = running_inside(settings, codec, time.time_ns() // 1_000) - {*settings.selection.named_inline}
    if alone:
        raise UsageError(
            f"{', '.join(sorted(alone))} runs inside the selection role of `skysail run`, so this one would have nobody"
            " to ask: start that one with `processes: each`, or name the models in `selection.inline` for both"
        )


def _inline(settings: Settings, codec: Codec, inside: Collection[str]) -> list[Model]:
    """Return the models that run inside selection; one that was measured may have been removed since."""
    named = settings.selection.named_inline
    known = catalog.read(settings, codec, Model) if inside else {}
    return [*(_deployed(settings, codec, named) if named else []), *(known[name] for name in inside if name in known)]


def _deployed(settings: Settings, codec: Codec, wanted: Sequence[str]) -> list[Model]:
    """Return the models to run; publishes those that the settings name first."""
    known = dict(catalog.read(settings, codec, Model))
    if not set(wanted or settings.models) <= known.keys():
        known = dict(desired.establish(settings, codec))
    absent = sorted(set(wanted) - known.keys())
    if absent or not known:
        names = ", ".join(sorted(known)) or "none"
        message = (
            f"no such model is deployed: {', '.join(absent) or 'any'} (deployed: {names}); see `skysail model add`"
        )
        raise UsageError(message)
    apart = sorted(known.keys() - settings.selection.named_inline)
    return [known[name] for name in wanted or [name for name in apart if settings.pool_of(name) is None]]
