"""Where each model runs: inside the process of selection, or in workers of its own; decided at start and remembered.

    models ─▶ what rules it out ─▶ remembered? ─▶ measured in a process beside ─▶ dearer than two legs over Kafka?
                    │                   │                                             │           │
                    ▼                   ▼                                             ▼           ▼
                  worker          as last time                                     worker      inside

A package is measured once: its digest and the answer are kept in `placements.json`. So a restart decides alike. Where a
decision changes nothing is lost, since a query is complete only when its prediction is acknowledged: until then
selection reads it again and asks the model wherever that runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from deploy.placement import pooling
from deploy.placement.grouping import is_shared
from deploy.state.packages import keys_of, version_of
from streams.trace import plain
from workers.errors import PackageError
from workers.manifest import lies_below, pinned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deploy.config.settings import Settings
    from schemas.records import Application, Model
    from workers.manifest import Manifest
    from workers.packages.load_notes import LoadNotes

_log = logging.getLogger(__name__)
# Folder, digest, code that it may name, keys, MODEL@VERSION: as `workers.executors.trial` reads them.
TriedPackage: TypeAlias = "tuple[str, str, Sequence[str], str, str]"

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = "placements.json"
# What two legs over Kafka cost (us of CPU): 900 for a query that comes alone (the worker 662, selection 240), and 5
# for each further one of a full batch (docs/account.md).
LEGS_US, ROW_US = 900.0, 5.0
# No batch of 128 rows may keep the loop of selection, joiner and learner for longer.
HELD_US = 5_000.0
# A larger package takes memory that the loop should not have to give back.
MAX_BYTES = 64 << 20
_MOST_BYTES = 64 << 20  # of the file
# Runtimes that do arithmetic of ours or of a library on the CPU; the others run code of the package, or want a GPU.
NEWS: Final = "new since the start"
RUNTIMES: Final = ("linear", "trees", "onnx", "sklearn", "stages")


class Placement(NamedTuple):
    """Where one version of a model runs.

    Attributes:
        digest: of its package.
        is_inside: whether it runs in the process of selection.
        reason: why, for people.
        is_measured: whether measuring has decided it.
        pool: in whose host it runs; empty = in none.
        sharing: why it is in the pool that is made by itself.
    """

    digest: str
    is_inside: bool
    reason: str
    is_measured: bool = False
    pool: str = ""
    sharing: str = ""

    def __str__(self) -> str:
        """Return it for people: `inline: 41 us a call`, `host small: named in hosts`."""
        if self.pool:
            return f"host {self.pool}: {self.sharing or self.reason}"
        return f"{'inline' if self.is_inside else 'own process'}: {self.reason}"


async def decided(
    settings: Settings,
    models: Mapping[str, Model],
    folder: Path,
    applications: Iterable[Application] = (),
    notes: LoadNotes | None = None,
) -> dict[str, Placement]:
    """Decide where models run, and keep it in a file of this folder.

    Args:
        settings: of the deployment.
        models: by name; their packages are here.
        folder: of the deployment's files.
        applications: that ask them.
        notes: hear which packages were loaded here; None = nobody keeps that.
    """
    found = {name: placed for name, model in models.items() if (placed := _ruled(settings, model)) is not None}
    before = read(folder)
    for name in models.keys() - found.keys():
        if name in before and before[name].is_measured and before[name].digest == models[name].digest:
            found[name] = before[name]._replace(pool="", sharing="")
    unknown = [models[name] for name in sorted(models.keys() - found.keys())]
    measured = await _measured(unknown, settings) if unknown else {}
    for name, times in measured.items():
        if notes is not None and not isinstance(times, str):
            notes.good(models[name].digest)
    found |= {name: judged(models[name].digest, times) for name, times in measured.items()}
    apart = [name for name, placed in found.items() if not (placed.is_inside or placed.pool)]
    for name, sharing in pooling.shared(settings, applications, apart).items():
        found[name] = found[name]._replace(pool=pooling.OTHERS, sharing=sharing)
    _write(folder, found)
    for name, placed in sorted(found.items()):
        _log.info("model %s runs %s", name, placed)
    return found


def read(folder: Path) -> dict[str, Placement]:
    """Return what was decided at the last start, by model; nothing where nobody has decided."""
    try:
        return {name: Placement(**placed) for name, placed in _kept(folder).items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def add(settings: Settings, models: Mapping[str, Model], folder: Path) -> None:
    """Note where models run that have come since the start: in the host of their pool, or in workers."""
    named = settings.selection.named_inline
    pools = {name: settings.pool_of(name) or "" for name in models}
    news = {name: Placement(model.digest, name in named, NEWS, pool=pools[name]) for name, model in models.items()}
    if news:
        _write(folder, read(folder) | news)


def _kept(folder: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(plain.content(folder / FILE, _MOST_BYTES))
    return found


def with_pool(settings: Settings, placements: Mapping[str, Placement]) -> Settings:
    """Return the settings with the pool that was made by itself, if there is one."""
    if pooling.OTHERS in settings.hosts or all(placed.pool != pooling.OTHERS for placed in placements.values()):
        return settings
    apart = [name for name, placed in placements.items() if not (placed.pool or placed.is_inside)]
    return pooling.pooled(settings, apart)


def judged(digest: str, times: Mapping[int, float] | str) -> Placement:
    """Judge what was measured.

    Args:
        digest: of the package.
        times: microseconds of a batch, by its rows; or why there are none.
    """
    if isinstance(times, str):
        return Placement(digest, is_inside=False, reason=times)
    for rows, us in times.items():
        if us > min(HELD_US, LEGS_US + ROW_US * rows):
            return Placement(digest, is_inside=False, reason=f"{us:,.0f} us a call of {rows} rows", is_measured=True)
    return Placement(digest, is_inside=True, reason=f"{times[1]:,.0f} us a call", is_measured=True)


def _ruled(settings: Settings, model: Model) -> Placement | None:
    """Return where a model runs without being measured; None = it is to be measured."""
    if (pool := settings.pool_of(model.name)) is not None:
        reason = "named in hosts" if model.name in settings.hosts[pool].models else "all others"
        return Placement(model.digest, is_inside=False, reason=reason, pool=pool)
    if settings.selection.inline != "auto":
        is_named = model.name in settings.selection.named_inline
        reason = "named in selection.inline" if is_named else "not named in selection.inline"
        return Placement(model.digest, is_named, reason)
    reason = _unfit(settings, model)
    return Placement(model.digest, is_inside=False, reason=reason) if reason else None


def _unfit(settings: Settings, model: Model) -> str:
    """Return what keeps a model out of the process of selection; empty if nothing does."""
    if not is_shared(settings) or "selection" not in settings.roles:
        return "processes: each"
    given = settings.worker
    if given.replicas.get(model.name, 1) > 1:
        return "worker.replicas"
    processes = given.processes if isinstance(given.processes, int) else given.processes.get(model.name, 0)
    is_outside = not lies_below(given.packages or "", model.path)
    if processes or is_outside:
        return "outside of worker.packages" if is_outside else "worker.processes"
    if model.name in given.memory_mib:
        return "worker.memory_mib"
    try:
        manifest = pinned(Path(model.path)).manifest
        size = sum((Path(model.path) / name).stat().st_size for name in manifest.files)
    except (PackageError, OSError):
        return "its package cannot be read"
    return unfit(manifest, size)


def unfit(manifest: Manifest, size: int) -> str:
    """Return what about a package of so many bytes keeps it out of the process of selection; empty if nothing does."""
    if any(name.endswith(".pickle") for name in manifest.files):
        return "pickle"
    if manifest.runtime not in RUNTIMES:
        return manifest.runtime
    return f"{size / (1 << 20):,.0f} MiB" if size > MAX_BYTES else ""


async def _measured(models: Sequence[Model], settings: Settings) -> dict[str, dict[int, float] | str]:
    """Measure packages in processes beside; one that ends its process counts as crashed, and another goes on."""
    found: dict[str, dict[int, float] | str] = {}
    given, keys = settings.worker, keys_of(settings)
    load_s = given.load_s
    while len(found) < len(models):
        left = models[len(found) :]
        packages = [(model.path, model.digest, given.code, keys, version_of(model)) for model in left]
        lines = await _trial(packages, given.threads, load_s)
        found |= {model.name: line for model, line in zip(left, lines, strict=False)}
        if len(lines) < len(left):
            found[left[len(lines)].name] = f"not measured within {load_s:g} s, or its process ended"
    return found


async def _trial(packages: Sequence[TriedPackage], threads: int, load_s: float) -> list[dict[int, float] | str]:
    """Run one process over packages; returns a result for each until one ends it, or takes too long."""
    # -P: a file in the present folder must not shadow a module of ours.
    argv = (sys.executable, "-P", "-m", "workers.executors.trial", str(threads), str(load_s))
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    pipe, env = asyncio.subprocess.PIPE, {**os.environ, "PYTHONPATH": paths}
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=env
    )
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018 - both are pipes
    found: list[dict[int, float] | str] = []
    try:
        process.stdin.write(json.dumps(packages).encode())
        process.stdin.close()
        while len(found) < len(packages):
            if not (line := await process.stdout.readline()):
                break
            found.append(_told(json.loads(line)))
    except ConnectionError:
        pass
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return found


def _told(line: dict[str, Any]) -> dict[int, float] | str:
    return str(line["fault"]) if "fault" in line else {int(rows): float(us) for rows, us in line.items()}


def _write(folder: Path, placements: Mapping[str, Placement]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = {name: placed._asdict() for name, placed in sorted(placements.items())}
    (folder / FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
