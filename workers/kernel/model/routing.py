"""Which version of a model gets which rows, where more than one runs.

    rows of a record ─┬─ name a version or label ─▶ that version, which may stand by, or `unknown_version`
                      ├─ drawn by query id ───────▶ the canaries, each by its share
                      ├─ everything else ─────────▶ the version that serves
                      └─ all of them, copied ─────▶ shadows, whose answers go to no query

The draw depends on the query's id alone. So every replica decides alike, and so does a query that is read again. Where
an application draws by who asks, selection has drawn, and names the version.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from policies import draw
from schemas.topics import OR_SERVING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")

_NONE: Mapping[str, str] = MappingProxyType({})
# What a version is for. A query may name `stable` or `canary` instead of a version, and any label that was given.
STABLE, CANARY, SHADOW, STANDBY = "stable", "canary", "shadow", "standby"


class _RoutedRow(Protocol):
    @property
    def query_id(self) -> str: ...


R = TypeVar("R", bound=_RoutedRow)


def label(share: float | None) -> str:
    """Return what a version is for that runs beside the one that serves, by its share; None = it has none."""
    if share is None:
        return STANDBY
    return CANARY if share else SHADOW


def named(text: str, model: str) -> str:
    """Return the version or label that a query names for a model, "" if none: `VERSION` is for all, `MODEL@VERSION`."""
    name, at, version = text.partition("@")
    if not at:
        return text
    return version if name == model else ""


class Routes(NamedTuple, Generic[T]):
    """The versions that run beside the serving one of a model.

    Attributes:
        shares: of the queries, by version, of the loaded versions that have one; 0 = a shadow.
        takers: of rows, by version; one without a share stands by.
        labels: versions by the labels that they were given.
    """

    shares: Mapping[str, float]
    takers: Mapping[str, T]
    labels: Mapping[str, str] = _NONE

    @property
    def shadows(self) -> Iterable[T]:
        """Takers of versions that are asked everything."""
        return [self.takers[version] for version, share in self.shares.items() if not share]

    @property
    def answering(self) -> Iterable[T]:
        """Takers of versions that answer some queries."""
        return [taker for version, taker in self.takers.items() if self.shares.get(version, 1.0)]

    def named(self, name: str, serving: str, rows: Sequence[tuple[int, R]]) -> dict[str, list[tuple[int, R]]] | None:
        """Return rows by the version that a record names, "" = the serving one; None if it names none that answers.

        Several canaries share one label. Each gets its part of the rows, drawn by query id as always. A canary that was
        drawn elsewhere, by who asks, is named as one that need not be loaded.
        """
        if name.endswith(OR_SERVING):
            drawn = name.removesuffix(OR_SERVING)
            return {drawn if drawn in self.takers and self.shares.get(drawn) else "": [*rows]}
        if name not in self.takers:
            if name == CANARY:
                return self._drawn(rows)
            name = self.labels.get(name, name)
        if name in (STABLE, serving):
            return {"": [*rows]}
        is_asked = name in self.takers and self.shares.get(name, 1.0)
        return {name: [*rows]} if is_asked else None

    def _drawn(self, rows: Sequence[tuple[int, R]]) -> dict[str, list[tuple[int, R]]] | None:
        """Return rows by the canary that answers them; None if there is none."""
        canaries = {version: share for version, share in self.shares.items() if share}
        if not canaries:
            return None
        names, total = sorted(canaries), sum(canaries.values())
        parts = [canaries[version] / total for version in names]
        return _grouped(rows, lambda query_id: names[draw.pick(parts, draw.uniform(query_id, "version"))])

    def split(self, rows: Sequence[tuple[int, R]]) -> dict[str, list[tuple[int, R]]]:
        """Return rows (due_us, row) by the version that answers them; "" = the serving one."""
        return _grouped(rows, lambda query_id: draw.version(query_id, self.shares))


def _grouped(rows: Sequence[tuple[int, R]], version: Callable[[str], str]) -> dict[str, list[tuple[int, R]]]:
    """Return rows by the version that their query's id stands for."""
    groups: dict[str, list[tuple[int, R]]] = {}
    for row in rows:
        groups.setdefault(version(row[1].query_id), []).append(row)
    return groups
