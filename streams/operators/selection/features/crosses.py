"""Crosses: products of what is known of a query with what is known of its candidates, or with more that is known of it.

    users (2 numbers) x films (3) ─▶ 6 products ─▶ `width` numbers behind the others

A linear policy has a weight for each number, so it learns what suits whom only from such products. As many products as
`width` have a place each. More are hashed: each goes by its place in the cross to one of `width` sums, with a sign, so
that in the mean they do not disturb each other (Weinberger et al., Feature hashing, ICML 2009; Vowpal Wabbit's `-q`).

Sums are made in a fixed order without BLAS: what is learnt from is the same to the bit on every machine.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from schemas.records import Tensor
from streams.operators.configuration import CANDIDATE, is_of_candidates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from schemas.records import Application

    Floats = NDArray[np.float64]

_LARGEST: Final = 1e100  # of a product: sums stay numbers


class _Hashed(NamedTuple):
    places: NDArray[np.intp]  # of each product
    signs: Floats


def crossed(left: Floats, right: Floats, width: int) -> Floats:
    """Return the products of two groups of features in so many numbers.

    Args:
        left: (m,) of the query.
        right: (n, k) of each of its candidates; of itself n is 1.
        width: how many numbers.

    Examples:
        >>> crossed(np.array([1.0, 2.0]), np.array([[3.0, 5.0, 7.0]]), 6).tolist()
        [[3.0, 5.0, 7.0, 6.0, 10.0, 14.0]]
    """
    products = np.clip(left[:, None, None] * right.T, -_LARGEST, _LARGEST).reshape(-1, len(right))
    found = np.zeros((width, len(right)))
    if len(products) <= width:
        found[: len(products)] = products
    else:
        places, signs = _hashed(len(products), width)
        np.add.at(found, places, signs[:, None] * products)
    return np.ascontiguousarray(found.T)


@lru_cache(maxsize=64)
def _hashed(products: int, width: int) -> _Hashed:
    """Return where each product goes, and its sign: by its place alone, everywhere the same."""
    drawn = [int.from_bytes(blake2b(str(at).encode(), digest_size=8).digest(), "little") for at in range(products)]
    return _Hashed(np.array([one % width for one in drawn]), np.array([1.0 if one >> 63 else -1.0 for one in drawn]))


def with_crosses(rows: Tensor, features: Sequence[float], application: Application, wanted: int | None) -> Tensor:
    """Return the features of candidates with the application's crosses behind them.

    Rows that have as many numbers as the policy wants are as they are: they were crossed when they were first ranked,
    or the client has done so itself.

    Args:
        rows: (n, k) of the candidates, each source's after the other's.
        features: of the query, likewise; what it brings itself comes last.
        application: with sources and crosses.
        wanted: numbers of a candidate that the policy goes by.
    """
    crosses = [cross for cross in application.crosses if is_of_candidates(cross, application)]
    if not crosses or rows.shape[1] == wanted:
        return rows
    values, given = np.array(features, np.float64), rows.numpy().astype(np.float64)
    query, candidate = _places(application, of_candidates=False), _places(application, of_candidates=True)
    parts = [given]
    for cross in crosses:
        left, right = (cross.right, cross.left) if cross.left in candidate else (cross.left, cross.right)
        parts.append(crossed(values[query[left]], given[:, candidate[right]], cross.width))
    return Tensor.of(np.concatenate(parts, axis=1))


def crosses_of(features: Sequence[float], application: Application) -> tuple[float, ...]:
    """Return the crosses of a query's features with each other, which stand behind those of its sources."""
    crosses = [cross for cross in application.crosses if not is_of_candidates(cross, application)]
    if not crosses:
        return ()
    values, places = np.array(features, np.float64), _places(application, of_candidates=False)
    found = [crossed(values[places[one.left]], values[None, places[one.right]], one.width)[0] for one in crosses]
    return tuple(np.concatenate(found).tolist())


def _places(application: Application, *, of_candidates: bool) -> dict[str, slice]:
    """Return where the features of each source stand, among the query's or the candidates'."""
    found, start = {}, 0
    for source in application.sources:
        if (source.key == CANDIDATE) is of_candidates:
            found[source.name] = slice(start, start + source.width)
            start += source.width
    return found
