"""The graph of a package: what each node is made of, and the object of its step."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from workers.errors import PackageError
from workers.runtimes.stages.answers import linear_of, trees_of
from workers.runtimes.stages.arrays import Columns, Distances, Projecting, Scaling
from workers.runtimes.stages.texts import Counting, Weighing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from workers.manifest import Manifest
    from workers.manifest_form import NodeDocument
    from workers.runtimes.contract import Files
    from workers.runtimes.stages.steps import Step
    from workers.runtimes.stages.store import Store

ROWS: Final = -1  # the number of what comes in


class Node(NamedTuple):
    """A node of the graph.

    Attributes:
        file: of its step; "" = what it is made of, side by side.
        of: the numbers of the nodes that it is made of; `ROWS` are the rows themselves.
        scale: what its result is multiplied by.
    """

    file: str
    of: tuple[int, ...]
    scale: float = 1.0


OPERATORS: Final[Mapping[str, Callable[[Step], object]]] = {
    "counting": Counting.of,
    "weighing": Weighing.of,
    "scaling": Scaling.of,
    "projecting": Projecting.of,
    "distances": Distances.of,
    "columns": Columns.of,
    "linear": linear_of,
    "trees": trees_of,
}


def made(step: Step) -> object:
    """Return the object of a step.

    Raises:
        PackageError: it is not one of those that are known, or not what was packaged.
    """
    if step.operator not in OPERATORS:
        raise PackageError(f"step {step.operator!r:.40} is unknown: update Skysail")
    try:
        return OPERATORS[step.operator](step)
    except (ValueError, TypeError, KeyError, OverflowError, IndexError) as error:
        raise PackageError(f"a step {step.operator} does not hold what it should ({error})") from error


class Graph:
    """The nodes of a package, their objects, and the names of all that leads to each."""

    def __init__(self, manifest: Manifest, files: Files, store: Store) -> None:
        documents: Sequence[NodeDocument] = manifest.options.get("graph", ())
        self.nodes = [Node(each["file"], tuple(each["of"]), each.get("scale", 1.0)) for each in documents]
        self.objects: list[object] = []
        self.identities: list[str] = []
        for number, node in enumerate(self.nodes):
            if not node.of or not all(ROWS <= source < number for source in node.of):
                raise PackageError(f"node {number} of the graph is made of nodes that do not come before it")
            self.objects.append(self._object(node, manifest, files, store))
            self.identities.append(self._identity(node, manifest))
        if not self.nodes or self.nodes[-1].file not in manifest.files:
            raise PackageError("the package has no graph of steps: package the model again")

    def _object(self, node: Node, manifest: Manifest, files: Files, store: Store) -> object:
        if not node.file:
            return None
        if node.file not in manifest.files:
            raise PackageError(f"the package lists no {node.file}: package the model again")
        return store.step(manifest.files[node.file], lambda: files[node.file], made)

    def _identity(self, node: Node, manifest: Manifest) -> str:
        sources = [self.identities[source] if source >= 0 else "rows" for source in node.of]
        told = [manifest.files.get(node.file, ""), *sources, repr(node.scale)]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()
