"""The graph of a package: what each node is made of, and the object of its step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workers.errors import PackageError
from workers.runtimes.nodes import identities, nodes_of
from workers.runtimes.stages.answers import linear_of, trees_of
from workers.runtimes.stages.arrays import Columns, Distances, Projecting, Scaling
from workers.runtimes.stages.texts import Counting, Weighing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files
    from workers.runtimes.nodes import PipelineNode
    from workers.runtimes.stages.steps import FittedStep
    from workers.runtimes.stages.store import Store

OPERATORS: Final[Mapping[str, Callable[[FittedStep], object]]] = {
    "counting": Counting.of,
    "weighing": Weighing.of,
    "scaling": Scaling.of,
    "projecting": Projecting.of,
    "distances": Distances.of,
    "columns": Columns.of,
    "linear": linear_of,
    "trees": trees_of,
}


def made(step: FittedStep) -> object:
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


class NodeGraph:
    """The nodes of a package, their objects, and the names of all that leads to each."""

    def __init__(self, manifest: Manifest, files: Files, store: Store) -> None:
        self.nodes = nodes_of(manifest)
        if not self.nodes or self.nodes[-1].file not in manifest.files:
            raise PackageError("the package has no graph of steps: package the model again")
        self.objects = [_object(node, manifest, files, store) for node in self.nodes]
        self.identities = identities(self.nodes, manifest)


def _object(node: PipelineNode, manifest: Manifest, files: Files, store: Store) -> object:
    return store.step(manifest.files[node.file], lambda: files[node.file], made) if node.file else None
