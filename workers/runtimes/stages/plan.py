"""A pipeline's plan: its graph read once, when the model is loaded, into the few calls that a batch goes through.

    texts    counts ─▶ weights ─▶ sums of the linear model: one compiled stage, whatever lies side by side
    arrays   the steps in the graph's order, their results in buffers that a thread's models share

A part that several models have keeps its results of late (`store.Recent`), so that the next model which is asked about
the same rows finds them. Texts are looked up one by one, arrays as whole batches: their last bits depend on the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from workers.errors import PackageError
from workers.runtimes.linear import LinearRuntime, check_answers
from workers.runtimes.nodes import ROWS, PipelineNode
from workers.runtimes.stages.answers import ExactLinear
from workers.runtimes.stages.arrays import Buffers, Columns, Distances, Projecting, Scaling
from workers.runtimes.stages.graph import NodeGraph
from workers.runtimes.stages.store import HERE, Store, Users
from workers.runtimes.stages.texts import PLAIN, Counting, TextPart, Weighing, grams
from workers.runtimes.trees import Trees, TreesRuntime
from workers.runtimes.trunks import trunk_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Outputs, Rows
    from workers.runtimes.stages.arrays import Operation

_BUFFERS: Final = Buffers()


class TextPlan:
    """Texts to raw scores."""

    def __init__(self, graph: NodeGraph, store: Store) -> None:
        linear, last = graph.objects[-1], graph.nodes[-1]
        if not isinstance(linear, ExactLinear) or len(last.of) != 1 or linear.weights.dtype != np.float64:
            raise PackageError("texts end in one linear model")
        numbers = _side_by_side(graph, last.of[0])
        self._parts = tuple(_part(graph, number, store) for number in numbers)
        self._weights = linear.weights.reshape(len(linear.weights), -1)
        self._scorer = grams.Scorer(tuple(part.grams for part in self._parts), np.ascontiguousarray(self._weights))
        self._intercept, self._is_one, self._recent = linear.intercept, linear.weights.ndim == 1, store.recent
        for part in self._parts:
            part.users.join(self)

    def __call__(self, rows: Rows) -> NDArray[np.generic]:
        """Return the raw scores (n,) or (n, k) of n texts."""
        sums = np.zeros((len(rows), self._weights.shape[1]))
        more = len(rows) > 1
        tables = tuple(
            self._recent.tables(part.identity) if more or part.users.count > 1 else None for part in self._parts
        )
        added = self._scorer.add(rows, sums, tables)  # type: ignore[arg-type] # texts: the manifest says it
        if added:
            self._recent.grew(added)
        raw = sums[:, 0] if self._is_one else sums
        raw += self._intercept
        return raw


def _side_by_side(graph: NodeGraph, number: int) -> Sequence[int]:
    """Return the nodes that lie side by side in what a linear model is asked about."""
    node = graph.nodes[number] if number >= 0 else None
    return (number,) if node is None or node.file else node.of


def _part(graph: NodeGraph, number: int, store: Store) -> TextPart:
    node = graph.nodes[number] if number >= 0 else PipelineNode("", ())
    found, weighing, counted = graph.objects[number] if number >= 0 else None, PLAIN, node
    if isinstance(found, Weighing) and len(node.of) == 1 and node.of[0] >= 0:
        weighing, counted = found, graph.nodes[node.of[0]]
        found = graph.objects[node.of[0]]
    if not isinstance(found, Counting) or counted.of != (ROWS,):
        raise PackageError("a part of a text's row is counted, and may be weighed")
    counting, scale = found, node.scale
    return store.take(graph.identities[number], lambda: TextPart(graph.identities[number], counting, weighing, scale))


class ArrayPlan:
    """Arrays to what the last step is asked about."""

    def __init__(self, graph: NodeGraph, store: Store, columns: int) -> None:
        self._nodes, self._recent = graph.nodes[:-1], store.recent
        self._operations: list[Operation | None] = []
        self._widths: list[int] = []
        for node, found in zip(self._nodes, graph.objects, strict=False):
            if not isinstance(found, Scaling | Projecting | Distances | Columns | None):
                raise PackageError(f"a step {type(found).__name__} does not take arrays")
            given = [self._widths[source] if source >= 0 else columns for source in node.of]
            if found is not None and len(given) > 1:
                raise PackageError("a step takes one array")
            self._operations.append(found)
            self._widths.append(sum(given) if found is None else found.columns(given[0]))
        self._last = graph.nodes[-1].of[0]
        self.width = self._widths[self._last] if self._last >= 0 else columns
        self._identities = graph.identities
        self._users = [store.take(f"users {name}", Users) for name in graph.identities[:-1]]
        for users in self._users:
            users.join(self)

    def __call__(self, rows: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return what the last step gets, (n, columns)."""
        if self._last == ROWS:
            return rows
        key: tuple[bytes, int] | None = None
        results: list[NDArray[np.generic]] = []
        for number, operation in enumerate(self._operations):
            shared = operation is not None and self._users[number].count > 1
            if shared and key is None:
                key = rows.tobytes(), len(rows)
            if not shared:
                results.append(self._run(number, rows, results, is_kept=False))
                continue
            young, old = self._recent.tables(self._identities[number])
            found = young.get(key)
            if found is None:
                found = old.get(key)
                found = self._run(number, rows, results, is_kept=True) if found is None else found
                young[key] = found
                self._recent.grew(found.nbytes + rows.nbytes + 200)
            results.append(found)
        return results[self._last]

    def _run(
        self, number: int, rows: NDArray[np.generic], results: Sequence[NDArray[np.generic]], *, is_kept: bool
    ) -> NDArray[np.generic]:
        node, operation = self._nodes[number], self._operations[number]
        given = [results[source] if source >= 0 else rows for source in node.of]
        is_plain = not is_kept and all(each.flags.c_contiguous for each in given)
        out = _BUFFERS.take(number, len(rows), self._widths[number]) if is_plain else None
        if operation is None:
            found = np.concatenate(given, axis=1, out=out) if len(given) > 1 else given[0]
        else:
            found = operation.run(given[0], out)
        return found if node.scale == 1.0 else found * node.scale  # type: ignore[operator] # numbers


class StagesTrunk:
    """The steps of an array before the last.

    Attributes:
        digest: equal trunks have equal ones.
    """

    def __init__(self, digest: str, plan: ArrayPlan) -> None:
        self.digest = digest
        self.run = plan

    def split(self, middle: NDArray[np.generic]) -> list[NDArray[np.generic]]:
        """Return it row by row."""
        return [row.copy() for row in middle]

    def joined(self, parts: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
        """Put rows together again."""
        return np.stack(parts)


class StagesHead:
    """The last step, which is asked about what those before give."""

    def __init__(self, answer: Callable[[NDArray[np.generic]], Outputs]) -> None:
        self.predict_batch = answer


class StagesRuntime:
    """A plan as a model.

    Attributes:
        trunk: the steps of an array before the last; None = there are none, or the rows are texts.
        head: the last step.
    """

    trunk: StagesTrunk | None = None
    head: StagesHead | None = None

    def __init__(self, manifest: Manifest, files: Files, store: Store) -> None:
        graph = NodeGraph(manifest, files, store)
        self._held = graph.objects  # as long as this model lives, others find them
        last, signature = graph.objects[-1], manifest.input
        if signature.kind == "string":
            self._plan: Callable[[Rows], NDArray[np.generic]] = TextPlan(graph, store)
        elif signature.kind == "tensor" and signature.dtype == "float64" and len(signature.shape) == 1:
            arrays = ArrayPlan(graph, store, signature.shape[0])
            _check_width(last, arrays.width)
            self._plan = arrays  # type: ignore[assignment] # rows are an array: the manifest says it
        else:
            raise PackageError("a plan takes texts, or rows of float64")
        if isinstance(last, ExactLinear):
            check_answers(manifest, last)
            linear = LinearRuntime(manifest, last)
            self._answer: Callable[[NDArray[np.generic]], Outputs] = (
                linear.outputs if signature.kind == "string" else linear.predict_batch  # type: ignore[assignment] # floats
            )
        elif isinstance(last, Trees):
            self._answer = TreesRuntime(manifest, last).predict_batch
        else:
            raise PackageError("a plan ends in a linear model or in trees")
        if (its := trunk_of(manifest)).digest:
            self.trunk, self.head = StagesTrunk(its.digest, arrays), StagesHead(self._answer)

    def predict_batch(self, rows: Rows) -> Outputs:
        """Send the whole batch through the plan."""
        return self._answer(self._plan(rows))


def _check_width(last: object, columns: int) -> None:
    takes = len(last.weights) if isinstance(last, ExactLinear) else columns
    if takes != columns or (isinstance(last, Trees) and int(last.feature.max(initial=0)) >= columns):
        raise PackageError(f"the last step takes {takes} columns, and gets {columns}")


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int, store: Store = HERE) -> StagesRuntime:  # noqa: ARG001 - the contract's
    """Make the plan of a package; only the steps that the store lacks are read.

    Raises:
        PackageError: the package holds no such plan.
    """
    return StagesRuntime(manifest, files, store)


def load_alone(manifest: Manifest, files: Files) -> StagesRuntime:
    """Make the plan of a package that shares nothing."""
    return StagesRuntime(manifest, files, Store())


READS_WHAT_IT_LACKS: Final = True  # files are verified when they are read, and not all of them are
