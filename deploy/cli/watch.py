"""`skysail model watch`: a folder says which versions run."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.connect.schema_registry import codec_for
from deploy.errors import DeployError, UsageError
from deploy.process.progress import shown
from deploy.state.labels import loaded
from deploy.terminal import echo
from deploy.watch.aspired import AspirePolicy
from deploy.watch.watcher import Watcher

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from deploy.watch.aspired import Aspired
    from deploy.watch.watcher import Look

EVERY_S = 2.0
EXAMPLES = """\
skysail model watch models --once                  deploy every package of a folder, of any models
skysail model watch models                         and go on: a version that comes takes over
skysail model watch models/forest --latest 2       the two highest versions are loaded, the higher one serves
skysail model watch models/forest --version 1 --version 3
skysail model watch models --all --every 30
skysail model watch models --once --json           for scripts
"""


@click.command(cls=Verb, epilog=EXAMPLES)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--latest", type=click.IntRange(1), help="So many of a model's highest versions are loaded.  [default: 1]"
)
@click.option("--all", "is_all", is_flag=True, help="All versions are.")
@click.option("--version", "versions", multiple=True, help="This version is; repeatable.")
@click.option("--force", is_flag=True, help="Also versions whose inputs or outputs differ from those before them.")
@click.option("--once", is_flag=True, help="Look once, and return; 1 if a package cannot be used.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.1),
    default=EVERY_S,
    show_default=True,
    help="Seconds between looks.",
)
@json_option
@with_settings
def watch(
    settings: Settings,
    folder: Path,
    *,
    latest: int | None,
    is_all: bool,
    versions: tuple[str, ...],
    force: bool,
    once: bool,
    every_s: float,
    as_json: bool,
) -> None:
    """Deploy the packages in FOLDER, and follow it: a version that comes takes over, one that goes is unloaded.

    FOLDER holds packages, or folders of packages: of one model or of many. A model's versions in it are the whole list.
    The highest serves when it is new; the others of the list stand by, and answer queries that name them. Numbers count
    as numbers: 10 is above 9. Versions that are not in the list are unloaded, but for canaries, shadows and versions
    with a label. A model whose last package goes keeps what runs.

    What an operator says meanwhile stands, such as a rollback, until that model's packages change. A package that
    cannot be used is named, and the others are deployed. Copy a package under a name that begins with a dot, and rename
    it when it is whole.
    """
    if sum((latest is not None, is_all, bool(versions))) > 1:
        raise UsageError("say one of --latest, --all and --version")
    policy = AspirePolicy(0 if is_all else latest or 1, versions, force)
    watcher = Watcher(settings, codec_for(settings), folder, policy)
    if once:
        look = _looked(watcher, is_quiet=as_json, is_patient=False)
        _tell(look, as_json=as_json)
        raise SystemExit(1 if look is not None and look.faults else 0)
    _follow(watcher, folder, every_s, as_json=as_json)


def _follow(watcher: Watcher, folder: Path, every_s: float, *, as_json: bool) -> None:
    """Look again and again, until a signal."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    is_first, told = True, ""
    while not stop.is_set():
        try:
            _tell(_looked(watcher, is_quiet=as_json or not is_first), as_json=as_json)
            if is_first and not as_json:
                echo(f"watching {folder}, every {every_s:g} s; Ctrl-C ends that, and what runs goes on")
            is_first, told = False, ""
        except DeployError as error:
            if str(error) != told:  # once, not at every look
                told = str(error)
                echo(f"retrying every {every_s:g} s: {told}", err=True)
        stop.wait(every_s)


def _looked(watcher: Watcher, *, is_quiet: bool, is_patient: bool = True) -> Look | None:
    with shown(None if is_quiet else Console(stderr=True)) as progress:
        return watcher.look(progress, is_patient=is_patient)


def _tell(look: Look | None, *, as_json: bool) -> None:
    """Say what came of a look, if anything did."""
    if look is None:
        return
    changes = [change for change in look.changes if change.serving is not None]
    if as_json:
        print_json(
            {
                "models": [_document(change) for change in changes],
                "unchanged": look.unchanged,
                "packages": look.packages,
                "faults": {str(folder): fault for folder, fault in look.faults.items()},
                "empty": look.empty,
            }
        )
        return
    for change in changes:
        echo(_words(change))
    for name in look.empty:
        echo(f"{name} has no package any more, and what runs goes on; to end it: skysail model remove {name}")
    for folder, fault in sorted(look.faults.items()):
        echo(f"{folder} cannot be used: {fault}", err=True)
    echo(_summary(look, changes))


def _summary(look: Look, changes: list[Aspired]) -> str:
    new = sum(not change.before for change in changes)
    models = f"{look.packages:,} packages, {len(changes) + len(look.unchanged):,} models"
    bad = f"; cannot be used: {len(look.faults):,}" if look.faults else ""
    return f"{models}: {new:,} new, {len(changes) - new:,} changed, {len(look.unchanged):,} as before{bad}"


def _words(change: Aspired) -> str:
    serving = change.serving
    assert serving is not None
    others = sorted(loaded(serving) - {serving.version})
    if not change.before:
        said = f"{serving.name} {serving.version} is new: it serves"
    elif change.before != serving.version:
        said = (
            f"{serving.name} {serving.version} serves, no longer {change.before}, as soon as its workers have loaded it"
        )
    else:
        said = f"{serving.name} {serving.version} goes on serving"
    return f"{said}; loaded besides: {', '.join(others)}" if others else said


def _document(change: Aspired) -> dict[str, object]:
    serving = change.serving
    assert serving is not None
    return {
        "model": serving.name,
        "serves": serving.version,
        "before": change.before,
        "added": [model.version for model in change.news],
        "standby": [version for version in serving.standby if version != serving.version],
    }
