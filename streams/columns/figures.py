"""What an operator over columns reports: how many records went by columns, how many did not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.operators.statistics import Counters

if TYPE_CHECKING:
    from collections.abc import Container, Mapping


def figures(
    taken: Mapping[str, int], left: Mapping[tuple[str, str], int], known: Container[str] | None = None
) -> dict[str, float]:
    """Return `columns_total` by application, and `not_columns_total` by application and why.

    Args:
        taken: records by application.
        left: records by application ("" = not known) and why.
        known: applications that are named; None = all.
    """
    counters = Counters()
    for name, count in taken.items():
        counters["columns_total", "application", _named(name, known)] += count
    for (name, why), count in left.items():
        counters["not_columns_total", "application", _named(name, known), "why", why] += count
    return counters.rendered()


def _named(name: str, known: Container[str] | None) -> str:
    return name if name and (known is None or name in known) else "unknown"
