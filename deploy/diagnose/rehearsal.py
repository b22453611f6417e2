"""Loads a package in a process beside before it is deployed: one that crashes or hangs is refused here.

Only what it takes to load it here counts. A package that names code is not tried, since nobody has asked for that code
to run on this machine, nor does one say anything that lacks a library here.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.config.folder import load_notes
from deploy.errors import UsageError
from deploy.state.packages import keys_of, version_of
from workers.errors import DeadlyError, PackageError, WorkerError
from workers.executors.frames import Package
from workers.executors.process import ProcessExecutor
from workers.manifest import pinned
from workers.packages.load_notes import LoadNotes
from workers.packages.loading import code_of

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.records import Model
    from workers.manifest import Manifest


def refuse_deadly(settings: Settings, model: Model) -> None:
    """Refuse a package that ends the process which loads it.

    Raises:
        UsageError: it does.
    """
    if why := why_deadly(settings, model):
        raise UsageError(f"{model.name} {model.version} is not deployed: {why}")


def why_deadly(settings: Settings, model: Model) -> str:
    """Return how loading a package ended the process that did it; "" = it does not, or cannot be tried here."""
    notes = LoadNotes(load_notes())
    try:
        note = notes.require(model.digest, f"{model.name} {model.version}")
        if (note.is_good and not note.deaths) or _names_code(pinned(Path(model.path)).manifest):
            return ""
    except PackageError as error:
        return str(error) if notes.of(model.digest).deaths else ""
    try:
        asyncio.run(_load(settings, model))
    except DeadlyError as error:
        notes.died(model.digest, str(error))
        return str(error)
    except (WorkerError, OSError):  # whoever loads it says so, where it may be different
        return ""
    notes.good(model.digest)
    return ""


def _names_code(manifest: Manifest) -> bool:
    return any(True for _ in code_of(manifest))


async def _load(settings: Settings, model: Model) -> None:
    given = settings.worker
    child = ProcessExecutor(
        Package(
            model.path,
            model.digest,
            given.threads,
            given.allow_pickle,
            given.code,
            keys=keys_of(settings),
            version=version_of(model),
        ),
        lambda: time.time_ns() // 1000,
        load_s=given.load_s,
        memory_bytes=given.memory_mib.get(model.name, 0) << 20,
    )
    try:
        await child.start()
    finally:
        await child.stop()
