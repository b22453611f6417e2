"""Ridge regression of the reward on a query's features, one for each arm: the state of the linear policies.

With x = (1, features) and r = 1 - loss, an arm's state is the upper triangle of inverse(A), row by row, then b, where
A = ridge * I + sum of x x' and b = sum of r x over the arm's observations. Its weights are inverse(A) b, which are
Velox's user weights (Crankshaw et al., CIDR 2015) where a context is a user. An observation changes inverse(A) by
Sherman and Morrison's formula: no matrix is ever inverted.

Every sum is made in a fixed order without BLAS, so that a fold over the log gives the same bits on every machine.
"""

from __future__ import annotations

from functools import lru_cache
from math import fsum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies.errors import require, require_storable
from schemas.inputs import MAX_FEATURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from policies.contract import State

    Floats = NDArray[np.float64]

# Features should be about 1. Larger than this they would leave the triangle fewer than 10 digits to tell arms by.
_LARGEST = 1_000.0
# The inverse begins at 1 / ridge, and each step subtracts from it. With 1e-6 an expected reward of 0.5 reads 0.54 after
# 100,000 equal features of 1; with this it is right to six digits.
_LEAST_RIDGE = 1e-3


class Regressions(NamedTuple):
    """All arms at once: inverses (K, D, D) of A, and weights (K, D)."""

    inverses: Floats
    weights: Floats

    def at(self, x: Floats) -> tuple[Floats, Floats]:
        """Return each arm's expected reward at x (D,), and x' inverse(A) x, which is how little is known there."""
        spread = self.inverses @ x
        return self.weights @ x, np.maximum(spread @ x, 0.0)


class _Triangle(NamedTuple):
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    places: NDArray[np.intp]  # (D, D): where in the triangle each element of the matrix stands


@lru_cache(maxsize=64)
def _triangle(width: int) -> _Triangle:
    rows, columns = np.triu_indices(width)
    places = np.empty((width, width), dtype=np.intp)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    return _Triangle(rows, columns, places)


def check(name: str, features: int, ridge: float, gamma: float) -> None:
    """Check the parameters that all linear policies have.

    Raises:
        PolicyError: One is out of range.
    """
    require(0 <= features <= MAX_FEATURES, f"{name}: features is {features}; a query has 0 to {MAX_FEATURES}")
    require(_LEAST_RIDGE <= ridge <= 1e6, f"{name}: ridge is {ridge}; it must lie in [1e-3, 1e6], 1 is usual")
    require(0.0 <= gamma <= 1.0, f"{name}: gamma is {gamma}; it must lie in [0, 1], 0.01 is usual")


def empty(arms: int, features: int, ridge: float) -> State:
    """Return the state of arms that nothing is known of.

    Raises:
        PolicyError: It would be too large to be stored.
    """
    kept = f"a linear policy of {features} features and {arms} arms"
    require_storable(arms * _size(features + 1), kept, "give it fewer features")
    return _block(ridge, np.zeros(features + 1)) * arms


def vector(features: Sequence[float], count: int) -> Floats:
    """Return (1, features) with exactly `count` of them: missing ones are 0, further ones are left out."""
    given = tuple(features[:count])
    if given and not -_LARGEST <= min(given) <= max(given) <= _LARGEST:
        given = tuple([min(max(value, -_LARGEST), _LARGEST) for value in given])
    return np.array((1.0, *given, *(0.0,) * (count - len(given))))


def bounded(rows: NDArray[np.generic]) -> Floats:
    """Return rows of features (n, D) cut to the range that `vector` allows."""
    return np.clip(rows.astype(np.float64), -_LARGEST, _LARGEST)


def unpacked(state: State, arms: int, count: int) -> Regressions:
    """Return the regressions in a state of `count` features.

    Raises:
        PolicyError: It is none.
    """
    _block_size(state, arms, count + 1)
    places = _triangle(count + 1).places
    blocks = np.array(state).reshape(arms, -1)
    inverses = blocks[:, places]
    return Regressions(inverses, (inverses * blocks[:, -count - 1 :, None]).sum(axis=1))


def added(
    state: State, arms: int, chosen: tuple[int, ...], losses: Sequence[float | None], x: Floats, weight: float = 1.0
) -> State:
    """Add the known losses of the chosen arms at x, as so much of an observation.

    Raises:
        PolicyError: The state is not one of so many arms and features.
    """
    for arm in chosen:
        loss = losses[arm]
        if loss is not None:
            state = towards(state, arms, arm, x, 1.0 - loss, weight)
    return state


def towards(state: State, arms: int, arm: int, x: Floats, target: float, weight: float = 1.0) -> State:
    """Add to one arm's regression that the target was observed at x, as so much of an observation.

    Raises:
        PolicyError: The state is not one of so many arms and features.
    """
    size = _block_size(state, arms, len(x))
    start = arm * size
    block = _observed(np.array(state[start : start + size]), x, target, weight)
    return state[:start] + tuple(block.tolist()) + state[start + size :]


def extended(state: State, old_arms: Sequence[str], new_arms: Sequence[str], features: int, ridge: float) -> State:
    """Re-map by name; a new arm starts with the average weights of those kept, and as little trust as any at first."""
    size = len(state) // len(old_arms)
    known = {name: state[arm * size : (arm + 1) * size] for arm, name in enumerate(old_arms)}
    kept = [known[name] for name in new_arms if name in known]
    if not kept:
        return empty(len(new_arms), features, ridge)
    weights = unpacked(tuple(value for block in kept for value in block), len(kept), features).weights
    fresh = _block(ridge, weights.mean(axis=0))
    return tuple(value for name in new_arms for value in known.get(name, fresh))


def started(state: State, arms: int, features: int, ridge: float) -> State:
    """Return arms that have these weights, and as little trust in them as any at first: Velox's average user."""
    weights = unpacked(state, arms, features).weights
    return tuple([value for arm in range(arms) for value in _block(ridge, weights[arm])])


def _block_size(state: State, arms: int, width: int) -> int:
    size = _size(width)
    require(len(state) == arms * size, f"the stored state has {len(state)} values, which do not fit {arms} arms")
    return size


def _size(width: int) -> int:
    return width * (width + 1) // 2 + width


def _block(ridge: float, weights: Floats) -> State:
    """Return an arm's state before any observation, in which it has these weights."""
    rows, columns, _ = _triangle(len(weights))
    return (*np.where(rows == columns, 1.0 / ridge, 0.0).tolist(), *(ridge * weights).tolist())


def _observed(block: Floats, x: Floats, target: float, weight: float) -> Floats:
    """Return an arm's state after one observation."""
    rows, columns, places = _triangle(len(x))
    triangle = block[: len(rows)]
    product = np.add.reduce(triangle[places] * x[:, None])  # inverse(A) x, row after row
    scale = 1.0 + weight * fsum((product * x).tolist())
    inverse = triangle - weight * product[rows] * product[columns] / scale
    return np.concatenate([inverse, block[len(rows) :] + weight * target * x])
