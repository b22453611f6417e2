"""The trunk of a model: what comes before its head, and may be equal in other models. Pure: nothing is loaded for it.

    rows ─▶ trunk ─▶ what it gives ─▶ head ─▶ answers

A network may be packaged as trunk and head. Of a pipeline of arrays in stages, all steps but the last are its trunk.
Equal digests mean equal files, code of the same name and rows of one form. So one run of the trunk does for all models
that have it (Nexus, SOSP'19: prefix batching).
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from workers.errors import PackageError
from workers.runtimes.nodes import identities, nodes_of

if TYPE_CHECKING:
    from workers.manifest import Manifest


class Trunk(NamedTuple):
    """The trunk of a package.

    Attributes:
        digest: of all that makes its results; "" = the model has no trunk.
        files: of the package that hold it.
    """

    digest: str
    files: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its name in the store of a process."""
        return f"trunk {self.digest}"


NONE: Final = Trunk("", ())


def trunk_of(manifest: Manifest) -> Trunk:
    """Return the trunk of a package.

    Raises:
        PackageError: the manifest does not list its file.
    """
    if "trunk" in manifest.options:
        return _of_network(manifest)
    if manifest.runtime == "stages" and manifest.input.kind == "tensor":
        return _of_pipeline(manifest)
    return NONE


def _of_network(manifest: Manifest) -> Trunk:
    options = manifest.options
    its = options["trunk"]
    if its["file"] not in manifest.files:
        raise PackageError(f"the package lists no {its['file']}: package the model again")
    code = its["architecture"], its.get("arguments", {}), options.get("min_rows", 0)
    return Trunk(_digest(manifest, manifest.files[its["file"]], *code), (its["file"],))


def _of_pipeline(manifest: Manifest) -> Trunk:
    nodes = nodes_of(manifest)
    if not nodes or len(nodes[-1].of) != 1 or nodes[-1].of[0] < 0:
        return NONE
    last = nodes[-1].of[0]
    files = {node.file: None for node in nodes[:-1] if node.file}
    return Trunk(_digest(manifest, identities(nodes, manifest)[last]), tuple(files))


def _digest(manifest: Manifest, *parts: object) -> str:
    form = manifest.runtime, manifest.input.dtype, manifest.input.shape
    return hashlib.sha256(json.dumps([*form, *parts], sort_keys=True).encode()).hexdigest()
