"""What a model takes in the process of a host, and the bound on all of it."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from workers.errors import PackageError
from workers.executors.footprint import Footprint
from workers.packages.packaging import package_function, package_sklearn

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
_BOUNDED = f"""
from workers.executors.footprint import Footprint
Footprint({64 * MIB})
kept = bytearray({32 * MIB})
try:
    bytearray({64 * MIB})
except MemoryError:
    print("bounded")
"""
_GROWN = f"""
import sys
from pathlib import Path
import numpy as np
from workers.executors.footprint import Footprint
loaded, size_bytes, took_us = Footprint(0).measured(Path(sys.argv[1]), lambda: np.ones({48 * MIB}, np.uint8))
print(len(loaded), size_bytes, round(took_us))
"""


def _package(folder: Path) -> Path:
    package_function("tests.toys:parity", folder, "m", "1", np.zeros((2, 2), np.float32))
    return folder


def test_a_model_takes_what_the_process_grows_by(tmp_path: Path) -> None:
    """48 MiB that are touched, in a process that gives nothing back meanwhile, as this one may after other tests."""
    told = [sys.executable, "-c", _GROWN, str(_package(tmp_path / "m"))]
    done = subprocess.run(told, capture_output=True, text=True, check=True)
    length, size_bytes, took_us = map(int, done.stdout.split())
    assert length == 48 * MIB
    assert 47 * MIB < size_bytes < 56 * MIB
    assert took_us > 0


def test_a_model_takes_at_least_what_its_files_take(tmp_path: Path) -> None:
    """What it frees elsewhere, or only maps, does not make it smaller."""
    folder = _package(tmp_path / "m")
    files = sum(path.stat().st_size for path in folder.iterdir() if path.name != "manifest.json")
    assert Footprint(0).measured(folder, lambda: None)[1] >= files


def test_the_garbage_collector_looks_no_more_at_what_a_library_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module comes with the first model that needs it; a second such model brings none, and nothing is set aside."""
    (tmp_path / "some_library.py").write_text("table = [[] for _ in range(1_000)]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    model = LinearRegression().fit(np.eye(2), np.arange(2))
    package_sklearn(model, tmp_path / "m", "m", "1", np.eye(2), output="value", convert="linear")
    before, footprint = gc.get_freeze_count(), Footprint(0)
    try:
        footprint.measured(tmp_path / "m", lambda: importlib.import_module("some_library"))
        frozen = gc.get_freeze_count()
        assert frozen > before + 1_000
        footprint.measured(tmp_path / "m", lambda: importlib.import_module("some_library"))
        assert gc.get_freeze_count() <= frozen
    finally:
        gc.unfreeze()


def test_a_package_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Before anything is loaded."""
    with pytest.raises(PackageError):
        Footprint(0).measured(tmp_path / "nowhere", lambda: None)


def test_a_process_may_take_so_much_beside_what_it_has() -> None:
    """What exceeds it fails where it is asked for."""
    done = subprocess.run([sys.executable, "-c", _BOUNDED], capture_output=True, text=True, check=True)
    assert done.stdout == "bounded\n"


def _estimator(folder: Path) -> Path:
    model = LinearRegression().fit(np.eye(2), np.arange(2))
    package_sklearn(model, folder, "m", "1", np.eye(2), output="value", convert="linear")
    return folder


def test_a_library_that_another_thread_imports_meanwhile_is_not_the_models(tmp_path: Path) -> None:
    """It is loaded once more, and takes what it takes then."""
    folder, brought, loads = _estimator(tmp_path / "m"), [], []

    def load() -> object:
        loads.append(1)
        if len(loads) == 1:
            sys.modules["library_of_another_thread"] = ModuleType("library_of_another_thread")
            brought.append(np.ones(64 * MIB, np.uint8))
        return object()

    try:
        _, size_bytes, _ = Footprint(0).measured(folder, load)
    finally:
        del sys.modules["library_of_another_thread"]
    assert len(loads) == 2
    assert size_bytes < 8 * MIB


def test_what_is_loaded_beside_is_not_the_models(tmp_path: Path) -> None:
    """One that hangs has begun before; another one begins and ends meanwhile. Of the first time nothing counts."""
    folder, footprint, kept = _estimator(tmp_path / "m"), Footprint(0), []
    began, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        assert go_on.wait(30)

    with ThreadPoolExecutor() as threads:
        hanging = threads.submit(footprint.measured, folder, hang)
        assert began.wait(30)
        _, beside_bytes, _ = footprint.measured(folder, lambda: kept.append(np.ones(64 * MIB, np.uint8)))
        go_on.set()
        hanging.result(30)

    def with_another() -> None:
        if len(kept) < 2:
            footprint.measured(folder, lambda: kept.append(np.ones(64 * MIB, np.uint8)))

    _, size_bytes, _ = footprint.measured(folder, with_another)
    assert max(beside_bytes, size_bytes) < 8 * MIB


def test_what_would_not_fit_is_measured_again_and_the_least_counts(tmp_path: Path) -> None:
    """The first time a batch ran beside it; one that is as large each time takes what it takes."""
    folder, kept, footprint = _estimator(tmp_path / "m"), [], Footprint(0, 32 * MIB)

    def once() -> None:
        if not kept:
            kept.append(np.ones(64 * MIB, np.uint8))

    assert footprint.measured(folder, once)[1] < 8 * MIB
    assert footprint.measured(folder, lambda: kept.append(np.ones(64 * MIB, np.uint8)))[1] > 60 * MIB
