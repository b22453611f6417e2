"""The scenario `seeds`: tables of all that has been simulated, from the file of pieces."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from load.research.seeds.gathered import WAYS
from load.research.seeds.plan import CALM
from load.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from load.results.results import Result

_HOUR_S: Final = 3_600
# What was wrong in seeds with violations, as far as it is known.
_CAUSES: Final = {
    ("each", 25): "a law did not know that a version which stood in for another may be late, too; mended",
    ("each", 1_000_003): "a law of the simulator judged evidence by another answer than was learnt from; mended",
    ("shared", 1_000_002): "a replay missed what idle processes write just before they are killed; mended",
    ("hosted", 1_000_006): "a replay took clocks for at most a minute apart; mended",
    ("hosted", 1_000_013): "a replay took the second of two reasons for a dead letter for a missing one; mended",
    ("shared", 1_000_014): "a replay missed what waited for a leader when its process was killed; mended",
    ("each", 1_000_021): "a law went by the last of several dead letters of one feedback, not by the first; mended",
}
_HEADS: Final = ("kind", "seeds", "hours", "CPU minutes", "queries", "faults", "faults an hour", "with violations")


def tables(result: Result) -> Sequence[Table]:
    """Return what each kind of deployment has been through, each kind of fault, and what was found."""
    pieces = result.series["gathered"]
    if not pieces:
        return ()
    kinds = [
        _line(f"{way}, {'calm' if is_calm else 'busy'}", its)
        for way in WAYS
        for is_calm in (False, True)
        if (its := [each for each in pieces if each["way"] == way and (each["first"] >= CALM) == is_calm])
    ]
    return (
        Table("By kind", _HEADS, (*kinds, _line("all", pieces))),
        Table("By fault", ("fault", "times", "an hour"), tuple(_faults(pieces))),
        Table("Found", ("seed", "program", "cause", "laws"), tuple(_found(pieces))),
    )


def hours(pieces: Iterable[Mapping[str, Any]]) -> float:
    """Return how long they were, in their own time."""
    return float(sum(each["simulated_s"] for each in pieces)) / _HOUR_S


def _line(kind: str, pieces: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    faults = sum(sum(each["faults"].values()) for each in pieces)
    return (
        kind,
        f"{sum(each['end'] - each['first'] for each in pieces):,}",
        f"{hours(pieces):,.1f}",
        f"{sum(each['cpu_s'] for each in pieces) / 60:,.0f}",
        f"{sum(each['queries'] for each in pieces):,}",
        f"{faults:,}",
        f"{faults / hours(pieces):,.1f}",
        f"{sum(len(each['found']) for each in pieces)}",
    )


def _faults(pieces: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, ...]]:
    counts: Counter[str] = Counter()
    for each in pieces:
        counts.update(each["faults"])
    for name, times in counts.most_common():
        yield name.replace("_", " "), f"{times:,}", f"{times / hours(pieces):.2f}"


def _found(pieces: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, ...]]:
    for each in pieces:
        if each["found"]:
            laws = ", ".join(each["violations"])  # of the piece: those of its seeds are one sum
            for seed in each["found"]:
                cause = _CAUSES.get((each["way"], seed), "not known yet")
                yield f"{each['way']} {seed}", each["commit"], cause, laws
