"""Small packages to sign, and keys: nothing of them can be loaded, and nothing needs scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers import manifest as manifests
from workers.manifest import Manifest, Signature
from workers.packages.sealed import sealed
from workers.packages.signing import keys
from workers.packages.signing.signed import require_signed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from workers.packages.signing.keys import PrivateKey

FILES: Mapping[str, bytes] = {"a.bin": b"weights", "b.bin": b"more weights", "empty.bin": b""}


def packaged(folder: Path, files: Mapping[str, bytes] = FILES, name: str = "digits", version: str = "1") -> Path:
    """Write a package of some files; returns its folder."""
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    signature = Signature("tensor", "float32", (3,))
    about = Manifest(name, version, "function", signature, "label", files=dict.fromkeys(files, ""))
    manifests.write(folder, about)
    return folder


def key_in(folder: Path, name: str = "release", kind: str = keys.ED25519) -> PrivateKey:
    """Make a key whose public part lies in a folder; its private one is beside that."""
    folder.mkdir(parents=True, exist_ok=True)
    key = keys.generated(kind, f"{name}.pub")
    keys.write(key, folder.parent / f"{name}.key", folder / f"{name}.pub")
    return key


def trusted(folder: Path, place: Path, version: str = "") -> Mapping[str, bytes]:
    """Return the files of a package as loading reads them where it has to be signed.

    Raises:
        PackageError: it is refused.
    """
    found = manifests.pinned(folder)
    require_signed(folder, found, place, version)
    return sealed(folder, found.manifest)
