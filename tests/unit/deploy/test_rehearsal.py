"""Packages are loaded in a process beside before they are deployed, where that runs no code that they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.config.folder import load_notes
from deploy.config.settings import Settings
from deploy.diagnose import rehearsal
from deploy.diagnose.rehearsal import refuse_deadly, why_deadly
from deploy.errors import UsageError
from schemas.records import Model
from workers import manifest as manifests
from workers.errors import DeadlyError, PackageError
from workers.manifest import Manifest, Signature
from workers.packages.load_notes import LoadNotes, Note

if TYPE_CHECKING:
    from typing import Any

SETTINGS = Settings()


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[BaseException | None]:
    """Return what becomes of the children that load packages, the next one last; the notes lie in an empty folder."""
    outcomes: list[BaseException | None] = []

    class Child:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        async def start(self) -> None:
            if (fault := outcomes.pop()) is not None:
                raise fault

        async def stop(self) -> None:
            pass

    monkeypatch.setattr(rehearsal, "ProcessExecutor", Child)
    monkeypatch.chdir(tmp_path)
    return outcomes


def packaged(runtime: str = "lightgbm", **options: str) -> Model:
    """Package a booster, or something else."""
    folder = Path("package")
    folder.mkdir()
    (folder / "booster.txt").write_text("tree")
    files = {"booster.txt": ""}
    signature = Signature("tensor", "float32", (1,))
    manifests.write(folder, Manifest("m", "2", runtime, signature, "label", files=files, options=options))  # type: ignore[arg-type]
    return Model("m", "2", runtime, str(folder), manifests.digest(folder), "label", "float32", (1,))


def test_a_package_that_ends_its_process_is_refused_and_after_twice_not_tried(
    tried: list[BaseException | None],
) -> None:
    """Until somebody says so; then one that is loaded is good."""
    model = packaged()
    tried += [None, DeadlyError("signal 11"), DeadlyError("signal 6")]
    with pytest.raises(UsageError, match="m 2 is not deployed: signal 6"):
        refuse_deadly(SETTINGS, model)
    assert "signal 11" in why_deadly(SETTINGS, model)
    assert "skysail model retry m 2" in why_deadly(SETTINGS, model)
    assert len(tried) == 1
    LoadNotes(load_notes()).forget(model.digest)
    refuse_deadly(SETTINGS, model)
    assert LoadNotes(load_notes()).of(model.digest) == Note(is_good=True)
    refuse_deadly(SETTINGS, model)
    assert not tried


@pytest.mark.parametrize("fault", [PackageError("lightgbm is not installed"), OSError("no processes left")])
def test_what_cannot_be_tried_here_is_left_to_its_workers(
    tried: list[BaseException | None], fault: BaseException
) -> None:
    """They may have what is missing here."""
    model = packaged()
    tried.append(fault)
    assert not why_deadly(SETTINGS, model)
    assert not LoadNotes(load_notes()).of(model.digest).is_good


@pytest.mark.parametrize(
    ("runtime", "options"),
    [("function", {"function": "a.b:c"}), ("torch", {"architecture": "a.b:C"}), ("container", {"model": "a.b:C"})],
)
def test_code_that_a_package_names_is_not_run(
    tried: list[BaseException | None], runtime: str, options: dict[str, str]
) -> None:
    """Nobody has asked for it on this machine."""
    assert not why_deadly(SETTINGS, packaged(runtime, **options))
    assert not tried
