"""The nodes of a pipeline's graph, as a manifest has them, and their names. Pure: nothing is loaded for it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.manifest import Manifest

ROWS: Final = -1  # the number of what comes in


class PipelineNode(NamedTuple):
    """A node of the graph.

    Attributes:
        file: of its step; "" = what it is made of, side by side.
        of: the numbers of the nodes that it is made of; `ROWS` are the rows themselves.
        scale: what its result is multiplied by.
    """

    file: str
    of: tuple[int, ...]
    scale: float = 1.0


def nodes_of(manifest: Manifest) -> list[PipelineNode]:
    """Return the nodes, in order.

    Raises:
        PackageError: one is made of nodes that do not come before it, or has a step that the package does not list.
    """
    nodes = [
        PipelineNode(each["file"], tuple(each["of"]), each.get("scale", 1.0))
        for each in manifest.options.get("graph", ())
    ]
    for number, node in enumerate(nodes):
        if not node.of or not all(ROWS <= source < number for source in node.of):
            raise PackageError(f"node {number} of the graph is made of nodes that do not come before it")
        if node.file and node.file not in manifest.files:
            raise PackageError(f"the package lists no {node.file}: package the model again")
    return nodes


def identities(nodes: Sequence[PipelineNode], manifest: Manifest) -> list[str]:
    """Return for each node a name of all that leads to it: equal names, equal results."""
    found: list[str] = []
    for node in nodes:
        sources = [found[source] if source >= 0 else "rows" for source in node.of]
        told = [manifest.files.get(node.file, ""), *sources, repr(node.scale)]
        found.append(hashlib.sha256("\n".join(told).encode()).hexdigest())
    return found
