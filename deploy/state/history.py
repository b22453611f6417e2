"""Which versions of a model have served, and to which of them one can go back. Pure.

    another version takes over  ─▶ the one before is added to `served`
    one of `served` takes over  ─▶ it leaves `served`, and with it all that came after: they were taken back

So a version that was a canary or shadow only, or was taken back, is never gone back to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from schemas.records import Service

if TYPE_CHECKING:
    from collections.abc import Container

    from schemas.records import Model

# Versions that are remembered; the first ones are forgotten.
MOST: Final = 50


def following(model: Model, serving: Model | None, now_us: int) -> Model:
    """Return the version with its history, as it takes the place of the one that serves.

    Args:
        model: that is to serve.
        serving: the record of the one that does; None = none does.
        now_us: the time; 0 = not known.
    """
    if serving is None:
        return replace(model, since_us=now_us, served=())
    if model.version == serving.version:
        return replace(model, since_us=serving.since_us, served=serving.served)
    before = [service.version for service in serving.served]
    if model.version in before:
        served = serving.served[: before.index(model.version)]
    else:
        served = (*serving.served, Service(serving.version, serving.since_us, now_us))[-MOST:]
    return replace(model, since_us=now_us, served=served)


def last_served(serving: Model, known: Container[str]) -> Service | None:
    """Return the version to go back to: the last one that served and is still known; None = there is none."""
    return next((service for service in reversed(serving.served) if service.version in known), None)


def way_back(before: Model, now: Model) -> str:
    """Return the command that takes a change of the serving version back, without `skysail`.

    Args:
        before: the record of the version that served.
        now: of the one that does.
    """
    if now.served and now.served[-1].version == before.version:
        return f"model rollback {now.name}"
    return f"model use {now.name} {before.version}"
