"""The manifest of a model package: what the model takes, what it answers, and the SHA-256 of every file.

    digits-forest/
    ├── manifest.json      name, version, runtime, input, output, classes, files, options
    └── model.skops        listed in `files` with its digest

The digest of a package is the SHA-256 of the bytes of `manifest.json` (`sha256sum manifest.json` prints it). The
manifest names the digest of every other file, and no file beyond these is read. So this one digest pins the package.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from schemas.errors import SchemaError
from schemas.records import DTYPES, TensorForm, element
from schemas.topics import check_name, check_version
from workers import manifest_form
from workers.errors import PackageError
from workers.manifest_form import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Element
    from workers.manifest_form import Document, FormDocument

MANIFEST = "manifest.json"
KINDS = ("tensor", "string", "bytes", "table")
# Of a column; a moment also has a unit and may have a zone, as `datetime64[us, UTC]`. The model does not read `any`.
COLUMNS = ("float64", "int64", "bool", "string", "category", "category_int64", "any")
MOMENT = re.compile(r"datetime64\[(s|ms|us|ns)(?:, ([\w/+:-]{1,64}))?\]")
TENSORS = "tensors"
OUTPUTS = ("label", "scores", "value", TENSORS)
# Bounds on one row (what a deployment may let travel, or read from elsewhere), and on a manifest with the names of very
# many classes. Larger ones are refused before memory is taken for them.
SHOWN = 12  # names of columns
MAX_ROW_BYTES, MAX_BYTES = 64 << 20, 16 << 20


@dataclass(frozen=True, slots=True)
class Signature:
    """What one input row must be.

    A row with NaN is refused unless `allow_nan`; infinities and magnitudes of 1e30 and more are always refused.
    """

    kind: str  # tensor | string | bytes | table: a JSON text with a value for each column
    dtype: Element | None = None  # tensors only; several by name have a dtype and shape each
    shape: tuple[int, ...] = ()  # of one row; tensors only
    allow_nan: bool = False
    columns: tuple[tuple[str, str], ...] = ()  # name and type of each, in the order of the data frame; tables only
    by_reference: bool = False  # a text is the address of a row; tensors and bytes only

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PackageError(f"input kind {self.kind!r} is unknown: use one of {', '.join(KINDS)}")
        if self.kind == "tensor":
            _check_travels(self.dtype, self.shape, "input")
        if self.by_reference and (self.kind not in {"tensor", "bytes"} or self.inputs):
            raise PackageError("an address is a text, and stands for one tensor or bytes: package bytes instead")
        kinds = {kind for _, kind in self.columns if not MOMENT.fullmatch(kind)}
        if (self.kind == "table") != bool(self.columns) or not kinds <= {*COLUMNS}:
            raise PackageError(f"only a table has columns, and each is one of {', '.join(COLUMNS)} or datetime64[us]")

    @property
    def inputs(self) -> tuple[TensorForm, ...]:
        """The tensors that have names; empty = one without."""
        return self.dtype if isinstance(self.dtype, tuple) else ()

    @property
    def read(self) -> tuple[tuple[str, str], ...]:
        """The columns that the model reads."""
        return tuple([column for column in self.columns if column[1] != "any"])

    def __str__(self) -> str:
        """Return it for people: `float32[4]`, `a text`."""
        if self.kind == "table":
            return f"columns {named(self.read)}"
        plain = {"string": "a text", "bytes": "bytes"}.get(self.kind) or described(self.dtype or "", self.shape)
        return f"{plain} or its address" if self.by_reference else plain


def named(columns: Sequence[tuple[str, str]]) -> str:
    """Return the names of columns, or the first of them if there are many."""
    names = [name[:40] for name, _ in columns[:SHOWN]]
    return ", ".join([*names, f"and {len(columns) - SHOWN} more"] if len(columns) > SHOWN else names)


def described(dtype: Element, shape: tuple[int, ...]) -> str:
    """Return the type and shape of a tensor, or of those that have names, for people.

    Examples:
        >>> described("float32", (4,))
        'float32[4]'
        >>> described((TensorForm("image", "uint8", (28, 28)), TensorForm("age", "float32")), ())
        'image uint8[28,28], age float32'
    """
    if not isinstance(dtype, str):
        return ", ".join([f"{form.name} {described(form.dtype, (*shape, *form.shape))}" for form in dtype])
    return f"{dtype}[{','.join(map(str, shape))}]" if shape else dtype


def _check_travels(dtype: Element | None, shape: tuple[int, ...], what: str) -> None:
    """Refuse what cannot travel.

    Raises:
        PackageError: its type is none of those that can, or a row is too large.
    """
    for one in [dtype] if not isinstance(dtype, tuple) else [form.dtype for form in dtype]:
        if one not in DTYPES:
            raise PackageError(f"{what} dtype {one!r} cannot travel: convert the {what} to one of {', '.join(DTYPES)}")
    try:
        size = math.prod(shape) * element(dtype or "").itemsize
    except ValueError as error:
        raise PackageError(f"{what}: {error}") from error
    if size > MAX_ROW_BYTES:
        raise PackageError(f"a row of shape {shape} is larger than {MAX_ROW_BYTES:,} bytes")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A model version as it is packaged."""

    name: str
    version: str
    runtime: str  # sklearn | torch | function | onnx | trees | linear | stages
    input: Signature
    output: str  # label | scores | value | tensors
    classes: tuple[int | str, ...] = ()  # in the order of the scores; what a label answer is drawn from
    files: Mapping[str, str] = field(default_factory=dict)  # file name in the folder -> SHA-256, hexadecimal
    options: Options = field(default_factory=Options)  # what the runtime needs besides, e.g. `architecture`
    outputs: tuple[TensorForm, ...] = ()  # of the output `tensors`: what one row's answer is made of

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS:
            raise PackageError(f"output {self.output!r} is unknown: use one of {', '.join(OUTPUTS)}")
        if (self.output == TENSORS) != bool(self.outputs):
            raise PackageError("the output `tensors`, and no other, has names for its tensors: name them in outputs")
        if self.outputs and self.classes:
            raise PackageError("the output `tensors` has no classes: leave them out")
        if self.outputs:
            _check_travels(self.outputs, (), "output")
        if not isinstance(self.version, str):
            raise PackageError("a package's version is a text, such as '1'")
        try:
            check_name(self.name)
            check_version(self.version)
        except SchemaError as error:
            raise PackageError(str(error)) from error
        if len({type(label) for label in self.classes}) > 1:
            raise PackageError("classes must be all whole numbers or all strings: map them before training")

    def __str__(self) -> str:
        """Return it for people, in one line.

        Examples:
            >>> print(Manifest("iris", "1", "sklearn", Signature("tensor", "float32", (4,)), "label", (0, 1, 2)))
            iris 1 (sklearn): takes float32[4], answers a label of 3 classes
        """
        plain = {"label": "a label", "scores": "a label and its scores", "value": "a number"}
        answers = plain.get(self.output) or described(self.outputs, ())
        of = f" of {len(self.classes)} classes" if self.classes else ""
        return f"{self.name} {self.version} ({self.runtime}): takes {self.input}, answers {answers}{of}"


class Pinned(NamedTuple):
    """A manifest, and the digest of the bytes that it was read from."""

    manifest: Manifest
    digest: str


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(folder: Path) -> str:
    """Return the digest of the package in `folder`: what the Model record carries.

    Raises:
        PackageError: there is no manifest.
    """
    return hashlib.sha256(_content(folder)).hexdigest()


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, with the digests of the files it lists taken now."""
    files = {name: sha256(folder / name) for name in sorted(manifest.files)}
    document = asdict(manifest) | {"files": files}
    if not manifest.input.columns:
        del document["input"]["columns"]
    if not manifest.input.by_reference:
        del document["input"]["by_reference"]
    if not manifest.outputs:
        del document["outputs"]
    (folder / MANIFEST).write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read(folder: Path) -> Manifest:
    """Read a manifest and check its form; `sealed.verify` checks the files.

    Raises:
        PackageError: there is no manifest, or it is invalid.
    """
    return pinned(folder).manifest


def pinned(folder: Path) -> Pinned:
    """Read a manifest once, with its digest.

    Raises:
        PackageError: there is no manifest, or it is not one.
    """
    content = _content(folder)
    try:
        document: Document = json.loads(content.decode())
        manifest_form.check(document)
        manifest = _read(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise PackageError(f"{folder / MANIFEST} is not a manifest ({reason}): package the model again") from error
    return Pinned(manifest, hashlib.sha256(content).hexdigest())


def lies_below(root: Path | str, folder: Path | str) -> bool:
    """Tell whether a folder lies below another one once all links are resolved; everything lies below an empty one."""
    return not root or Path(folder).resolve().is_relative_to(Path(root).resolve())


def _read(document: Document) -> Manifest:
    found = document["input"]
    columns = tuple((name, kind) for name, kind in found.get("columns", ()))
    dtype = found.get("dtype")
    shape, allow_nan, by_reference = (
        tuple(found.get("shape", ())),
        found.get("allow_nan", False),
        found.get("by_reference", False),
    )
    return Manifest(
        document["name"],
        document["version"],
        document["runtime"],
        Signature(
            found["kind"],
            dtype if isinstance(dtype, str | None) else _forms(dtype),
            shape,
            allow_nan,
            columns,
            by_reference,
        ),
        document["output"],
        tuple(document.get("classes", ())),
        document.get("files", {}),
        document.get("options", {}),
        _forms(document.get("outputs", ())),
    )


def _forms(found: Sequence[FormDocument]) -> tuple[TensorForm, ...]:
    return tuple([TensorForm(name, dtype, tuple(shape)) for name, dtype, shape in found])


def _content(folder: Path) -> bytes:
    path = folder / MANIFEST
    try:
        is_there = path.is_file()
        content = path.read_bytes() if is_there and path.stat().st_size <= MAX_BYTES else b""
    except (OSError, ValueError) as error:
        raise PackageError(f"{folder} cannot be read ({error}): check the path, and who may read it") from error
    if not is_there:
        raise PackageError(
            f"{folder} holds no {MANIFEST}: it is not a model package; make one with `skysail model package`"
        )
    return content
