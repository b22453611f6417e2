"""Where `worker.packages` names a folder, nothing is loaded from anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from deploy.config.settings import Settings
from deploy.placement import placement
from schemas.records import Model
from streams.runtime.clock import SystemClock
from workers.errors import PackageError
from workers.executors.frames import Package
from workers.executors.process import ProcessExecutor
from workers.manifest import digest
from workers.packages.loading import load_package
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a package in the root and others beside it."""
    for name in ("root/deep/good", "root-2/bad", "bad"):
        package_function("tests.toys:parity", tmp_path / name, "m", "1", np.zeros((2, 2), np.float32))
    (tmp_path / "root/out").symlink_to(tmp_path / "bad")
    (tmp_path / "link").symlink_to(tmp_path / "root")
    return tmp_path


@pytest.mark.parametrize("root", ["root", "link", "root/deep"])
@pytest.mark.parametrize("name", ["root/deep/good", "link/deep/good"])
def test_a_package_below_is_loaded_by_whichever_name(folder: Path, root: str, name: str) -> None:
    """Links count as what they lead to, and the folder itself may be one."""
    assert load_package(folder / name, root=str(folder / root)).manifest.name == "m"


@pytest.mark.parametrize("name", ["root-2/bad", "bad", "root/out", "root/../bad"])
def test_a_package_elsewhere_is_refused_before_it_is_read(folder: Path, name: str) -> None:
    """A folder whose name begins alike, a link out, dots; the message names the setting."""
    with pytest.raises(PackageError, match=r"worker\.packages"):
        load_package(folder / name, root=str(folder / "root"))


async def test_a_process_of_a_model_is_told(folder: Path) -> None:
    """Its child refuses."""
    child = ProcessExecutor(Package(str(folder / "bad"), root=str(folder / "root")), SystemClock().now_us)
    with pytest.raises(PackageError, match=r"worker\.packages"):
        await child.start()


def test_it_is_not_measured_either(folder: Path) -> None:
    """What would not be loaded does not run at the start."""
    settings = Settings.model_validate({"worker": {"packages": str(folder / "root")}, "processes": "shared"})
    found = digest(folder / "bad")
    model = Model("m", "1", "function", str(folder / "bad"), found, "label", "float32", (2,))
    assert placement._unfit(settings, model) == "outside of worker.packages"
