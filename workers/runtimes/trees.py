"""Runs ensembles of decision trees as arrays; `trees_conversion` writes them.

A node's two children stand side by side, so that a level is a few look-ups, a comparison and an addition. A leaf is its
own child. Where Skysail is compiled, a few rows at a time go down one tree after the other (`descent.pyx`). Without a
compiler, each array operation takes every tree of every row down one level. This is the TreeTraversal strategy of
Hummingbird (Nakandala et al., OSDI 2020) in NumPy. The answers are the same to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from workers.errors import PackageError
from workers.runtimes import arrays
from workers.runtimes.contract import Outputs, scored, values

try:
    from workers.runtimes import descent
except ImportError:  # no compiler when Skysail was installed
    descent = None  # type: ignore[assignment] # the module is there for the checker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Rows

IS_COMPILED: Final = descent is not None
TREES_FILE = "trees.npz"
LINKS = ("mean", "identity", "exp", "logistic", "half_logistic", "softmax")
_AT_ONCE = 1 << 14  # pairs of a tree and a row: their arrays stay in the second-level cache
_LEVELS = 4  # levels after which pairs at their leaf are left out: most get there long before the deepest


@dataclass(frozen=True, slots=True)
class Trees:
    """A forest, all its nodes in one list: s stages of g trees each, whose leaves hold k numbers.

    A row's raw outputs are g·k sums over the stages, plus `base`. It goes to the right child where its feature is above
    the threshold: rows are compared in the thresholds' dtype.
    """

    roots: NDArray[np.intp]  # (s·g,), stage by stage
    feature: NDArray[np.intp]  # (nodes,)
    threshold: NDArray[np.floating]  # (nodes,), infinite at leaves
    left: NDArray[np.intp]  # (nodes,), the right child is the next; a leaf's is itself
    missing_right: NDArray[np.bool_]  # (nodes,), where NaN goes
    leaves: NDArray[np.float64]  # (nodes, k), 0 at other nodes
    base: NDArray[np.float64]  # (g·k,)
    depth: int
    stages: int
    link: str  # one of LINKS: it turns raw outputs into the answer
    tie: float  # if one raw output decides between two labels: above it is the second

    def raw(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return the raw outputs (n, g·k) of rows (n, features)."""
        compared = self.compared(rows)
        step = max(1, _AT_ONCE // len(self.roots))
        parts = [self._sums(compared[start : start + step]) for start in range(0, len(compared), step)]
        return np.concatenate(parts)

    def compared(self, rows: NDArray[np.generic]) -> NDArray[np.floating]:
        """Return rows in the thresholds' dtype."""
        with np.errstate(over="ignore"):  # a float64 beyond float32 is infinite, and above every threshold
            return np.ascontiguousarray(rows, dtype=self.threshold.dtype)

    def _sums(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Add the leaves to the base one stage after the other, whatever the number of rows: as scikit-learn does."""
        width = self.leaves.shape[1]
        base = np.broadcast_to(self.base.reshape(-1, 1, width), (len(self.base) // width, len(rows), width))
        leaves = self.leaves.take(self._reached(rows), axis=0).reshape(self.stages, -1)
        found = np.concatenate([base.reshape(1, -1), leaves])
        sums = np.add.accumulate(found)[-1] if found.shape[1] == 1 else found.sum(axis=0)
        groups: NDArray[np.float64] = sums.reshape(-1, len(rows), width)
        return groups.transpose(1, 0, 2).reshape(len(rows), -1)

    def _reached(self, rows: NDArray[np.floating]) -> NDArray[np.intp]:
        """Return the leaf of each tree and row, (trees·n,); pairs that have reached theirs are soon left out."""
        flat, missing = rows.ravel(), bool(np.isnan(rows).any())
        node = np.repeat(self.roots, len(rows))
        start = np.tile(np.arange(len(rows)) * rows.shape[1], len(self.roots))
        reached, pairs = node.copy(), np.arange(len(node))
        for level in range(0, self.depth, _LEVELS):
            for _ in range(min(_LEVELS, self.depth - level)):
                node = self._children(node, flat.take(self.feature.take(node) + start), missing=missing)
            reached[pairs] = node
            inner = np.flatnonzero(self.left.take(node) != node)
            node, start, pairs = node[inner], start[inner], pairs[inner]
        return reached

    def _children(self, node: NDArray[np.intp], compared: NDArray[np.floating], *, missing: bool) -> NDArray[np.intp]:
        right = compared > self.threshold.take(node)
        if missing:
            right |= np.isnan(compared) & self.missing_right.take(node)
        return self.left.take(node) + right


def linked(raw: NDArray[np.float64], link: str, stages: int) -> NDArray[np.float64]:
    """Return the numbers of the answer: probabilities (n, classes), or values (n, 1)."""
    if link == "mean":
        return raw / stages
    if link == "exp":
        return np.exp(raw)
    if link == "softmax":
        risen: NDArray[np.float64] = np.exp(raw - raw.max(axis=1, keepdims=True))
        risen /= risen.sum(axis=1, keepdims=True)
        return risen
    if link == "identity":
        return raw
    second = 0.5 + 0.5 * np.tanh(raw if link == "half_logistic" else 0.5 * raw)  # the logistic function, no overflow
    return np.hstack([1.0 - second, second])


def quickest(trees: Trees) -> Callable[[NDArray[np.generic]], NDArray[np.float64]]:
    """Return a function that computes `trees.raw`: compiled, if there is a compiled module.

    Raises:
        ValueError, TypeError, OverflowError: the arrays do not fit each other.
    """
    if not IS_COMPILED:
        return trees.raw
    indices = (np.ascontiguousarray(each, dtype=np.intp) for each in (trees.roots, trees.feature, trees.left))
    roots, feature, left = indices
    threshold, leaves = (np.ascontiguousarray(each, dtype=np.float64) for each in (trees.threshold, trees.leaves))
    missing = np.ascontiguousarray(trees.missing_right, dtype=np.uint8)
    way = descent.Descent(roots, feature, threshold, left, missing, leaves, trees.depth, trees.stages)
    if trees.base.shape != (way.outputs,):
        raise ValueError(f"its base has the shape {trees.base.shape}, not ({way.outputs},)")

    def raw(rows: NDArray[np.generic]) -> NDArray[np.float64]:
        sums = np.empty((len(rows), way.outputs))
        sums[:] = trees.base
        way.add(trees.compared(rows), sums)
        return sums

    return raw


class TreesRuntime:
    """A forest as a model.

    Attributes:
        leaves_lock: it computes without Python's lock.

    Raises:
        ValueError, TypeError, OverflowError: the arrays do not fit each other.
    """

    leaves_lock = IS_COMPILED

    def __init__(self, manifest: Manifest, trees: Trees) -> None:
        self._manifest, self._trees, self._raw = manifest, trees, quickest(trees)

    def predict_batch(self, rows: Rows) -> Outputs:
        """Send the whole batch down all trees."""
        kind, classes, trees = self._manifest.output, self._manifest.classes, self._trees
        raw = self._raw(np.asarray(rows))
        if kind == "label" and raw.shape[1] == 1 < len(classes):
            return scored(np.hstack([np.full_like(raw, trees.tie), raw]), classes, keep=False)
        answers = linked(raw, trees.link, trees.stages)
        return values(answers) if kind == "value" else scored(answers, classes, keep=kind == "scores")


def save(trees: Trees, folder: Path) -> str:
    """Write the arrays into `folder` and return the name of the file."""
    arrays.write(folder / TREES_FILE, {field.name: getattr(trees, field.name) for field in fields(Trees)})
    return TREES_FILE


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> TreesRuntime:  # noqa: ARG001 - the contract's
    """Load the arrays of a verified package; one thread, whatever `threads` says.

    Raises:
        PackageError: there are none, or they are not what `save` wrote.
    """
    stored = arrays.read(files, TREES_FILE, "trees")
    try:
        parts = {field.name: stored[field.name] for field in fields(Trees)}
        plain = {name: parts[name].item() for name in ("depth", "stages", "link", "tie")}
    except (ValueError, KeyError) as error:
        raise PackageError(f"{TREES_FILE} holds no trees ({error}): package the model again") from error
    trees = Trees(**{**parts, **plain})
    if trees.link not in LINKS:
        raise PackageError(f"{TREES_FILE} has the unknown link {trees.link!r}: package the model again")
    try:
        return TreesRuntime(manifest, trees)
    except (ValueError, TypeError, OverflowError) as error:
        raise PackageError(f"{TREES_FILE} holds no trees ({error}): package the model again") from error
