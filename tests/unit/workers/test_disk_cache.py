"""Files of packages on a local disk, by their digests."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from workers.errors import PackageError
from workers.packages.disk_cache import DiskCache
from workers.packages.loading import load_package
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from workers.manifest import Manifest


def digest(content: bytes) -> str:
    """Return the name under which content is kept."""
    return hashlib.sha256(content).hexdigest()


def kept(cache: DiskCache) -> set[bytes]:
    """Return everything that is kept."""
    return {path.read_bytes() for path in Path(cache.folder).iterdir()}


def package(folder: Path, name: str) -> Manifest:
    """Package a model, which is equal under every name."""
    rows = np.arange(40, dtype=np.float32).reshape(20, 2)
    model = LogisticRegression().fit(rows, np.arange(20) > 9)
    return package_sklearn(model, folder / name, name, "1", rows[:3])


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    """Return an empty cache of a MiB."""
    (tmp_path / "cache").mkdir()
    return DiskCache(str(tmp_path / "cache"), 1 << 20)


def test_a_model_is_loaded_again_without_the_files_of_its_folder(tmp_path: Path, cache: DiskCache) -> None:
    """Only the manifest is read there, which says what the files are."""
    manifest = package(tmp_path, "a")
    load_package(tmp_path / "a", cache=cache)
    for name in manifest.files:
        (tmp_path / "a" / name).unlink()
    rows = np.array([[0.0, 1.0], [38.0, 39.0]], np.float32)
    found = load_package(tmp_path / "a", cache=cache).runtime.predict_batch(rows)
    assert [*np.asarray(found.answers)] == [False, True]
    with pytest.raises(PackageError, match="is missing"):
        load_package(tmp_path / "a")


def test_equal_files_of_several_models_are_kept_once(tmp_path: Path, cache: DiskCache) -> None:
    """The second model brings none of its own."""
    manifest = package(tmp_path, "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in ("a", "b"):
        load_package(tmp_path / name, cache=cache)
    assert sorted(path.name for path in Path(cache.folder).iterdir()) == sorted({*manifest.files.values()})


def test_a_damaged_file_is_read_from_its_package_again(tmp_path: Path, cache: DiskCache) -> None:
    """It is never what a model is made of."""
    manifest = package(tmp_path, "a")
    load_package(tmp_path / "a", cache=cache)
    for path in Path(cache.folder).iterdir():
        path.write_bytes(b"damaged")
    load_package(tmp_path / "a", cache=cache)
    assert {digest(content) for content in kept(cache)} == {*manifest.files.values()}


def test_a_file_that_is_not_what_was_packaged_is_refused_and_not_kept(tmp_path: Path, cache: DiskCache) -> None:
    """As without a cache."""
    manifest = package(tmp_path, "a")
    (tmp_path / "a" / next(iter(manifest.files))).write_bytes(b"another")
    with pytest.raises(PackageError, match="SHA-256 differs"):
        load_package(tmp_path / "a", cache=cache)
    assert b"another" not in kept(cache)


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    """Of three files of which two fit, the one that was read since stays; a file larger than all room is not kept."""
    cache = DiskCache(str(tmp_path), 20)
    for age, content in ((3, b"first one!"), (2, b"second one")):
        cache.put(digest(content), content)
        os.utime(tmp_path / digest(content), (1_000 - age, 1_000 - age))
    assert cache.get(digest(b"first one!")) == b"first one!"
    cache.put(digest(b"third one!"), b"third one!")
    assert kept(cache) == {b"first one!", b"third one!"}
    cache.put(digest(b"a" * 21), b"a" * 21)
    assert kept(cache) == {b"first one!", b"third one!"}


def test_a_manifest_cannot_name_a_file_elsewhere_as_a_digest(tmp_path: Path) -> None:
    """Nothing is read or written beside the cache."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    cache = DiskCache(str(tmp_path / "cache"), 100)
    assert cache.get("../secret") is None
    cache.put("../other", b"other")
    assert not (tmp_path / "other").exists()


def test_a_folder_in_the_cache_is_left_alone(tmp_path: Path) -> None:
    """It is none of its files: the others make room."""
    (tmp_path / "old").mkdir()
    os.utime(tmp_path / "old", (0, 0))
    cache = DiskCache(str(tmp_path), 15)
    for content in (b"0123456789", b"9876543210"):
        cache.put(digest(content), content)
    assert (tmp_path / "old").is_dir()
    assert (tmp_path / digest(b"9876543210")).read_bytes() == b"9876543210"
