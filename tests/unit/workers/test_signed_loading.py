"""Where packages have to be signed, nothing else is loaded, nothing of it is imported first, and code needs a word."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from deploy.state.packages import model_record
from streams.runtime.clock import SystemClock
from tests.signed_packages import key_in
from workers import manifest as manifests
from workers.errors import PackageError
from workers.executors import trial
from workers.executors.factory import executor_of, package_of
from workers.executors.process import ProcessExecutor
from workers.packages import loading
from workers.packages.disk_cache import DiskCache
from workers.packages.loading import load_package
from workers.packages.packaging import package_function, package_sklearn
from workers.packages.signing.refusal import SignatureError
from workers.packages.signing.signed import require_signed, sign
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.packages.loading import LoadedModel
    from workers.packages.signing.keys import PrivateKey

X = np.arange(24, dtype=np.float32).reshape(8, 3)
MARKED = """
import pathlib
pathlib.Path({marker!r}).touch()

def answer(rows):
    return [0] * len(rows)
"""


@pytest.fixture
def key(tmp_path: Path) -> PrivateKey:
    """Return a key whose public part lies in `keys`."""
    return key_in(tmp_path / "keys")


@pytest.fixture
def keys(tmp_path: Path, key: PrivateKey) -> str:
    """Return the folder of trusted keys."""
    return str(tmp_path / "keys")


@pytest.fixture
def folder(tmp_path: Path, key: PrivateKey) -> Path:
    """Return a signed package."""
    package_sklearn(Ridge().fit(X, X[:, 0]), tmp_path / "p", "digits", "1", X[:2])
    sign(tmp_path / "p", key)
    return tmp_path / "p"


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return an unsigned package whose module leaves a file behind when it is imported, and where."""
    marker = tmp_path / "imported"
    (tmp_path / "marked_module.py").write_text(MARKED.format(marker=str(marker)))
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("marked_module", None)
    package_function("marked_module:answer", tmp_path / "m", "marked", "1", X[:2])
    marker.unlink()
    sys.modules.pop("marked_module")
    return tmp_path / "m", marker


def test_a_signed_package_is_loaded(folder: Path, keys: str) -> None:
    """As the version that it is."""
    assert load_package(folder, keys=keys, version="digits@1").runtime.predict_batch(X).answers is not None


def test_an_unsigned_package_is_refused_before_anything_of_it_is_imported(
    marked: tuple[Path, Path], keys: str, key: PrivateKey
) -> None:
    """Once it is signed, and its module may be named, it is."""
    folder, marker = marked
    with pytest.raises(SignatureError, match="unsigned"):
        load_package(folder, keys=keys, code=("marked_module",))
    assert not marker.exists()
    sign(folder, key)
    load_package(folder, keys=keys, code=("marked_module",))
    assert marker.exists()


def test_an_unsigned_pickle_is_refused_before_it_is_read(tmp_path: Path, keys: str) -> None:
    """However much pickles are allowed."""
    folder = tmp_path / "p"
    package_sklearn(Ridge().fit(X, X[:, 0]), folder, "digits", "1", X[:2], allow_pickle=True)
    with pytest.raises(SignatureError, match="unsigned"):
        load_package(folder, allow_pickle=True, digest=manifests.digest(folder), keys=keys)


def test_a_signed_package_names_no_code_unless_it_is_allowed(
    marked: tuple[Path, Path], keys: str, key: PrivateKey
) -> None:
    """An empty list means none here, and a list means whole names."""
    folder, marker = marked
    sign(folder, key)
    with pytest.raises(PackageError, match=r"none is allowed where packages have to be signed: add marked_module to"):
        load_package(folder, keys=keys)
    with pytest.raises(PackageError, match=r"is not within marked_mod"):
        load_package(folder, keys=keys, code=("marked_mod",))
    assert not marker.exists()


@pytest.mark.parametrize("processes", [0, 1])
async def test_a_worker_is_told(folder: Path, keys: str, processes: int) -> None:
    """In a thread as in a process of its own; a package that is signed is loaded by either."""
    settings = WorkerSettings(processes=processes, keys=keys)
    (folder / "model.sig").replace(folder.parent / "kept.sig")
    executor = executor_of(model_record(folder), settings, SystemClock().now_us, lambda _: None)
    with pytest.raises(PackageError, match=r"not trusted \(unsigned\)"):
        await executor.start()
    await executor.stop()
    (folder.parent / "kept.sig").replace(folder / "model.sig")
    executor = executor_of(model_record(folder), settings, SystemClock().now_us, lambda _: None)
    await executor.start()
    await executor.stop()


async def test_the_processes_of_hosts_and_of_careful_loads_are_told_the_same(folder: Path, keys: str) -> None:
    """All of them load what `package_of` says."""
    package = package_of(model_record(folder), WorkerSettings(keys=keys), DiskCache(str(folder.parent), 1 << 20))
    assert (package.keys, package.version) == (keys, "digits@1")
    child = ProcessExecutor(package._replace(version="digits@2"), SystemClock().now_us)
    with pytest.raises(PackageError, match="other-version"):
        await child.start()


async def test_a_record_cannot_name_the_signed_package_of_another_model(folder: Path, keys: str) -> None:
    """Who may write `models` chooses among the versions of a model that were signed as such, and no others."""
    record = replace(model_record(folder), name="fraud")
    executor = executor_of(record, WorkerSettings(keys=keys), SystemClock().now_us, lambda _: None)
    with pytest.raises(PackageError, match=r"fraud@1 was deployed, but digits@1 was signed"):
        await executor.start()
    await executor.stop()


def test_a_package_that_is_measured_has_to_be_signed(folder: Path, keys: str) -> None:
    """That happens at the start, on the machine of selection."""
    digest = manifests.digest(folder)
    assert trial.measured(folder, digest, keys=keys, version="digits@1")
    (folder / "model.sig").unlink()
    with pytest.raises(SignatureError, match="unsigned"):
        trial.measured(folder, digest, keys=keys, version="digits@1")


def _other_model(folder: Path) -> None:
    """Put another model in the place of the one that was verified, with a manifest that fits it."""
    other = folder.parent / "other"
    package_sklearn(Ridge().fit(X, -X[:, 0]), other, "digits", "1", X[:2])
    for file in other.iterdir():
        file.replace(folder / file.name)


def _other_file(folder: Path) -> None:
    """Put another file in the place of the one that was verified."""
    (folder / "model.skops").write_bytes(b"anything")


@pytest.mark.parametrize("change", [_other_model, _other_file])
def test_what_changes_after_it_was_verified_is_not_loaded(
    folder: Path, keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    """Each file is hashed as it is read, against the manifest that was verified; what a cache has of it is that."""

    def verified_then_changed(*given: object) -> None:
        require_signed(*given)  # type: ignore[arg-type]
        change(folder)

    (tmp_path / "cache").mkdir()
    cache = DiskCache(str(tmp_path / "cache"), 1 << 20)
    expected = load_package(folder, keys=keys, cache=cache).runtime.predict_batch(X).answers
    monkeypatch.setattr(loading, "require_signed", verified_then_changed)
    assert np.array_equal(load_package(folder, keys=keys, cache=cache).runtime.predict_batch(X).answers, expected)
    with pytest.raises(PackageError, match=r"SHA-256 differs|other-files"):
        load_package(folder, keys=keys)


def test_a_package_that_changes_after_it_was_loaded_is_not_measured_by_what_lies_there(
    folder: Path, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows come by the manifest that was verified, and by no other one."""

    def loaded_then_changed(*given: Any, **named: Any) -> LoadedModel:
        model = load_package(*given, **named)
        _other_model(folder)
        return model

    digest = manifests.digest(folder)
    monkeypatch.setattr(trial, "load_package", loaded_then_changed)
    with pytest.raises(PackageError, match="SHA-256 differs"):
        trial.measured(folder, digest, keys=keys, version="digits@1")


def test_a_folder_that_is_another_one_after_it_was_verified_is_not_loaded(
    folder: Path, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without a cache."""

    def verified_then_changed(*given: object) -> None:
        require_signed(*given)  # type: ignore[arg-type]
        _other_model(folder)

    monkeypatch.setattr(loading, "require_signed", verified_then_changed)
    with pytest.raises(PackageError, match="SHA-256 differs"):
        load_package(folder, keys=keys)


def test_a_cache_of_files_does_not_stand_in_for_a_signature(folder: Path, keys: str, tmp_path: Path) -> None:
    """Although all of its files have been loaded once; a damaged one is read from the package again."""
    (tmp_path / "cache").mkdir()
    cache = DiskCache(str(tmp_path / "cache"), 1 << 20)
    load_package(folder, keys=keys, cache=cache)
    for file in (tmp_path / "cache").iterdir():
        file.write_bytes(b"another")
    load_package(folder, keys=keys, cache=cache)
    (folder / "model.sig").unlink()
    with pytest.raises(SignatureError, match="unsigned"):
        load_package(folder, keys=keys, cache=cache)


def test_a_key_that_is_taken_away_is_trusted_no_longer(folder: Path, keys: str) -> None:
    """From the next load on, without a restart."""
    load_package(folder, keys=keys)
    Path(keys, "release.pub").unlink()
    with pytest.raises(SignatureError, match="no-keys"):
        load_package(folder, keys=keys)
    key_in(Path(keys), "next")
    with pytest.raises(SignatureError, match="foreign-key"):
        load_package(folder, keys=keys)
