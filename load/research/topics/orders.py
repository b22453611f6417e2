"""The orders that are scored: JSON of nine fields, a model of four of them, and what must become of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS: Final = ("amount", "items", "age", "hour")
_COUNTRIES: Final = ("ch", "de", "fr", "it")
_FIT: Final = 2_000


def orders(count: int, seed: int, first: int = 0) -> Iterator[dict[str, Any]]:
    """Yield orders, of ids from `first` on."""
    random = np.random.default_rng((seed, first))
    numbers = random.random((count, len(FIELDS))).round(3).tolist()
    for place, (amount, items, age, hour) in enumerate(numbers):
        number = first + place
        yield {
            "order_id": f"o-{number}",
            "user": f"user-{number % 997}",
            "created_at": "2026-11-27T05:00:00Z",
            "country": _COUNTRIES[number % len(_COUNTRIES)],
            "amount": amount,
            "items": items,
            "age": age,
            "hour": hour,
            "note": "no wrapping, please",
        }


def encoded(count: int, seed: int, first: int = 0) -> list[tuple[bytes, bytes]]:
    """Return keys and values of the records."""
    return [(order["user"].encode(), json.dumps(order).encode()) for order in orders(count, seed, first)]


def rows(given: list[dict[str, Any]]) -> Any:
    """Return what a model is asked about (n, 4)."""
    return np.array([[order[name] for name in FIELDS] for order in given], np.float32)


def fitted(seed: int) -> Any:
    """Return a fitted logistic regression."""
    from sklearn.linear_model import LogisticRegression

    inputs = rows([*orders(_FIT, seed, first=1_000_000_000)])
    return LogisticRegression().fit(inputs, (inputs @ np.array([3.0, -2.0, 1.0, 0.5]) > 1.0).astype(np.int64))


def faults(values: list[bytes], given: dict[str, dict[str, Any]], scores: dict[str, int]) -> int:
    """Return how many records that came out are wrong, doubled or missing.

    Args:
        values: that came out.
        given: orders by id.
        scores: that they must have, by id.
    """
    left, wrong = dict(given), 0
    for value in values:
        row = json.loads(value)
        order = left.pop(row.get("order_id"), None)
        wrong += order is None or row != {**order, "score": scores[row["order_id"]]}
    return wrong + len(left)
