"""Checks the form of a manifest's document before it is used: every field's type and bounds, and no unknown field."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Required, TypeAlias, TypedDict

from policies.calibration import KNOTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streams.usual.rows import UsualDocument

MAX_TEXT, MAX_DIMENSIONS, MAX_DEPTH, MAX_NODES = 4_096, 16, 32, 256
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
# Microseconds by form and size of a batch; in JSON sizes are texts.
Timings: TypeAlias = "Mapping[str, Mapping[int, float] | Mapping[str, float]]"
# What a model was converted to, or will be when it is loaded.
Conversion = TypedDict(
    "Conversion",
    {
        "from": str,
        "to": list[str],
        "at": str,
        "rows": int,
        "difference": float,
        "refused": dict[str, str],  # a form, and why it is none
        "batch_us": "Timings",
    },
    total=False,
)


class NodeDocument(TypedDict, total=False):
    """A node of a pipeline's graph, see `runtimes.nodes.Node`."""

    file: Required[str]
    of: Required[list[int]]
    scale: float


class Parity(TypedDict, total=False):
    """Whose outputs a parity model answers the sum of, given the sum of the inputs."""

    of: Required[str]  # MODEL@VERSION
    k: Required[int]  # rows
    right: list[float]  # how often decoded answers are right, at each of `policies.calibration.KNOTS`


class TrunkDocument(TypedDict, total=False):
    """The trunk of a network, see `workers.runtimes.trunks`."""

    file: Required[str]
    architecture: Required[str]
    arguments: dict[str, object]


class Options(TypedDict, total=False):
    """What a runtime needs besides; others may stand beside these."""

    architecture: str
    arguments: dict[str, object]
    function: str
    model: str
    min_rows: int
    compile: bool
    conversion: Conversion
    graph: list[NodeDocument]
    parity: Parity
    trunk: TrunkDocument
    usual: UsualDocument


# A named tensor as it is written: name, element type, shape.
FormDocument: TypeAlias = "tuple[str, str, list[int]]"


class SignatureDocument(TypedDict, total=False):
    """A signature as it is written."""

    kind: Required[str]
    dtype: str | list[FormDocument] | None
    shape: list[int]
    allow_nan: bool
    columns: list[tuple[str, str]]
    by_reference: bool


class Document(TypedDict, total=False):
    """A manifest as it is written."""

    name: Required[str]
    version: Required[str]
    runtime: Required[str]
    input: Required[SignatureDocument]
    output: Required[str]
    classes: list[int | str]
    files: dict[str, str]
    options: Options
    outputs: list[FormDocument]


def check(document: object) -> None:
    """Check that a document is a `Document`.

    Raises:
        ValueError, TypeError: it is no manifest; the message names the wrong field.
    """
    fields = _check(document, _MANIFEST, "the manifest")
    if missing := [name for name in _NEEDED if name not in fields]:
        raise ValueError(f"the manifest has no {missing[0]}")
    _check_depth(document)
    _check(fields.get("options", {}), _OPTIONS, "options", others=True)


def _check(
    document: object, fields: Mapping[str, Callable[[object], bool]], what: str, *, others: bool = False
) -> dict[str, object]:
    if not isinstance(document, dict):
        raise TypeError(f"{what} is no object")
    if strangers := [name for name in document if name not in fields and not others]:
        raise ValueError(f"{what} has the unknown field {strangers[0]!r:.80}")
    for name, fits in fields.items():
        if name in document and not fits(document[name]):
            raise ValueError(f"{name} of {what} cannot be {document[name]!r:.80}")
    return document


def _check_depth(document: object) -> None:
    """Refuse deeply nested lists, on which copying or printing may fail."""
    level = [document]
    for _ in range(MAX_DEPTH):
        level = list(chain.from_iterable(_parts(each) for each in level))
        if not level:
            return
    raise ValueError(f"it is more than {MAX_DEPTH} deep")


def _parts(value: object) -> list[object]:
    return [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []


def _is_text(value: object) -> bool:
    """Tell whether it is a text that can travel: lone surrogates cannot."""
    return isinstance(value, str) and len(value) <= MAX_TEXT and value.encode("utf-8", "replace").decode() == value


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _is_label(value: object) -> bool:
    return _is_text(value) or (type(value) is int and -(1 << 63) <= value < 1 << 63)


def _is_input(value: object) -> bool:
    return "kind" in _check(value, _INPUT, "input")


def _is_form(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_text, value[:2])) and _SHAPE(value[2])


def _is_column(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_text, value))


def _are_files(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    for name, digest in value.items():
        if not _FILE.fullmatch(name):
            raise ValueError(f"{name!r:.80} is not a plain file of the package")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"the digest of {name} cannot be {digest!r:.80}")
    return True


def _are_times(value: object) -> bool:
    """Tell whether these are microseconds by batch size by form, the same sizes of each."""
    if not isinstance(value, dict) or not value or not all(isinstance(times, dict) for times in value.values()):
        return False
    sizes = [*next(iter(value.values()))]
    return bool(sizes) and all(
        [*times] == sizes and all(type(us) in {int, float} for us in times.values()) for times in value.values()
    )


def _is_conversion(value: object) -> bool:
    _check(value, _CONVERSION, "conversion", others=True)
    return True


def _is_parity(value: object) -> bool:
    return {"of", "k"} <= _check(value, _PARITY, "parity").keys()


def _is_curve(value: object) -> bool:
    return isinstance(value, list) and len(value) == len(KNOTS) and all(map(_is_probability, value))


def _is_probability(value: object) -> bool:
    return type(value) is float and 0.0 <= value <= 1.0


def _is_source(value: object) -> bool:
    return type(value) is int and -1 <= value < MAX_NODES


def _is_node(value: object) -> bool:
    return {"file", "of"} <= _check(value, _NODE, "a node of the graph").keys()


def _is_trunk(value: object) -> bool:
    return {"file", "architecture"} <= _check(value, _TRUNK, "trunk").keys()


def _listed(fits: Callable[[object], bool], most: int | None = None) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value)) and (most is None or len(value) <= most)


_SHAPE = _listed(_is_size, MAX_DIMENSIONS)
_INPUT = {
    "kind": _is_text,
    "dtype": lambda value: value is None or _is_text(value) or _listed(_is_form, MAX_NODES)(value),
    "shape": _SHAPE,
    "allow_nan": lambda value: isinstance(value, bool),
    "columns": _listed(_is_column),
    "by_reference": lambda value: isinstance(value, bool),
}
_NEEDED = ("name", "version", "runtime", "input", "output")
_MANIFEST = {
    "name": _is_text,
    "version": _is_text,
    "runtime": _is_text,
    "input": _is_input,
    "output": _is_text,
    "classes": _listed(_is_label),
    "files": _are_files,
    "options": lambda value: isinstance(value, dict),
    "outputs": _listed(_is_form, MAX_NODES),
}
_CONVERSION = {
    "to": _listed(_is_text, 16),
    "at": _is_text,
    "rows": _is_size,
    "difference": lambda value: type(value) in {int, float},
    "refused": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    "batch_us": _are_times,
}
_PARITY = {"of": _is_text, "k": lambda value: type(value) is int and 2 <= value <= 4, "right": _is_curve}
_NODE = {
    "file": _is_text,
    "of": _listed(_is_source, MAX_NODES),
    "scale": lambda value: type(value) is float,
}
_TRUNK = {
    "file": _is_text,
    "architecture": _is_text,
    "arguments": lambda value: isinstance(value, dict),
}
_OPTIONS = {
    "architecture": _is_text,
    "arguments": lambda value: isinstance(value, dict),
    "function": _is_text,
    "min_rows": lambda value: type(value) is int and 0 < value <= 1 << 16,
    "compile": lambda value: isinstance(value, bool),
    "conversion": _is_conversion,
    "graph": _listed(_is_node, MAX_NODES),
    "parity": _is_parity,
    "trunk": _is_trunk,
    "usual": lambda value: isinstance(value, dict) and all(isinstance(columns, list) for columns in value.values()),
}
