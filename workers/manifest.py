"""The manifest of a model package: what the model takes, what it answers, and the SHA-256 of every file.

    digits-forest/
    ├── manifest.json      name, version, runtime, input, output, classes, files, options
    └── model.skops        listed in `files` with its digest

The digest of a package is the SHA-256 of the bytes of `manifest.json` (`sha256sum manifest.json` prints it). As the
manifest names the digest of every other file, that one number pins the whole package.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from schemas.errors import SchemaError
from schemas.records import DTYPES
from schemas.topics import check_name
from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MANIFEST = "manifest.json"
KINDS = ("tensor", "string", "bytes")
OUTPUTS = ("label", "scores", "value")


@dataclass(frozen=True, slots=True)
class Signature:
    """What one input row must be.

    A row with NaN is refused unless `allow_nan`; infinities and magnitudes of 1e30 and more are always refused.
    """

    kind: str  # tensor | string | bytes
    dtype: str | None = None  # tensors only
    shape: tuple[int, ...] = ()  # of one row; tensors only
    allow_nan: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PackageError(f"input kind {self.kind!r} is unknown: use one of {', '.join(KINDS)}")
        if self.kind == "tensor" and self.dtype not in DTYPES:
            raise PackageError(
                f"input dtype {self.dtype!r} cannot travel: convert the input to one of {', '.join(DTYPES)}"
            )


@dataclass(frozen=True, slots=True)
class Manifest:
    """A model version as it is packaged."""

    name: str
    version: str
    runtime: str  # sklearn | torch | function | onnx | trees | linear
    input: Signature
    output: str  # label | scores | value
    classes: tuple[int | str, ...] = ()  # in the order of the scores; what a label answer is drawn from
    files: Mapping[str, str] = field(default_factory=dict)  # file name in the folder -> SHA-256, hexadecimal
    options: Mapping[str, Any] = field(default_factory=dict)  # what the runtime needs besides, e.g. `architecture`

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS:
            raise PackageError(f"output {self.output!r} is unknown: use one of {', '.join(OUTPUTS)}")
        try:
            check_name(self.name)
        except SchemaError as error:
            raise PackageError(str(error)) from error
        if not self.version:
            raise PackageError("a package needs a version, such as '1'")
        if len({type(label) for label in self.classes}) > 1:
            raise PackageError("classes must be all whole numbers or all strings: map them before training")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(folder: Path) -> str:
    """Return the digest of the package in `folder`: what the Model record carries.

    Raises:
        PackageError: there is no manifest.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise PackageError(
            f"{folder} holds no {MANIFEST}: it is not a model package; make one with `skysail model package`"
        )
    return sha256(path)


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, with the digests of the files it lists taken now."""
    files = {name: sha256(folder / name) for name in sorted(manifest.files)}
    document = asdict(manifest) | {"files": files}
    (folder / MANIFEST).write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read(folder: Path) -> Manifest:
    """Read a manifest and check its form; `verify` checks the files.

    Raises:
        PackageError: there is no manifest, or it is not one.
    """
    digest(folder)
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        signature = document.pop("input")
        signature["shape"] = tuple(signature.get("shape", ()))
        document["classes"] = tuple(document.get("classes", ()))
        return Manifest(input=Signature(**signature), **document)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PackageError(f"{folder / MANIFEST} is not a manifest ({error}): package the model again") from error


def verify(folder: Path, manifest: Manifest) -> None:
    """Check every file that the manifest lists.

    Raises:
        PackageError: a file is missing, lies outside the folder, or is not the one that was packaged.
    """
    for name, expected in manifest.files.items():
        path = folder / name
        if path.resolve().parent != folder.resolve():
            raise PackageError(f"{folder}: {name!r} is not a plain file of the package: package the model again")
        if not path.is_file():
            raise PackageError(f"{folder}: {name} is missing: copy the whole folder again")
        if sha256(path) != expected:
            raise PackageError(
                f"{folder}: {name} is not the file that was packaged (SHA-256 differs): "
                "copy it again, or package the model again if the change was meant"
            )
