"""What has been simulated so far, kept in a file of this repository: ranges of seeds, and what happened in them.

A piece is a range of seeds of one way and one commit. Pieces that meet are one, so the file stays small.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from load.research.seeds.plan import CALM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from load.research.seeds.world import Outcome

FILE: Final = Path(__file__).with_name("gathered.json")
_CALM_SHARE: Final = 4
WAYS: Final = ("each", "shared", "hosted")  # how processes are shared out


@dataclass(frozen=True, slots=True)
class Piece:
    """Seeds that were run.

    Attributes:
        way: how their processes are shared out.
        commit: of the program.
        first: seed.
        end: the seed behind the last one.
        simulated_s: all their time.
        cpu_s: that it took.
        queries: that were asked.
        answers: that were written.
        by_columns: of these, in finished batches.
        faults: that were caused, by kind.
        violations: of laws, by law; the seeds that have them are in `found`.
        found: these seeds.
    """

    way: str
    commit: str
    first: int
    end: int
    simulated_s: float
    cpu_s: float
    queries: int
    answers: int
    by_columns: int
    faults: Mapping[str, int]
    violations: Mapping[str, int]
    found: Sequence[int]


def piece(way: str, commit: str, first: int, outcomes: Sequence[Outcome]) -> Piece:
    """Return what seeds from the first one on have come to."""
    return Piece(
        way=way,
        commit=commit,
        first=first,
        end=first + len(outcomes),
        simulated_s=round(sum(each.simulated_s for each in outcomes)),
        cpu_s=round(sum(each.cpu_s for each in outcomes)),
        queries=sum(each.queries for each in outcomes),
        answers=sum(each.answers for each in outcomes),
        by_columns=sum(each.by_columns for each in outcomes),
        faults=_added(each.faults for each in outcomes),
        violations=_added(Counter(law for law, _ in each.violations) for each in outcomes),
        found=[each.seed for each in outcomes if each.violations],
    )


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Return pieces in order, those of a way and a commit that meet as one."""
    found: list[Piece] = []
    for each in sorted(pieces, key=lambda one: (WAYS.index(one.way), one.first)):
        last = found[-1] if found else None
        if last is not None and (last.way, last.commit, last.end) == (each.way, each.commit, each.first):
            found[-1] = _sum(last, each)
        else:
            found.append(each)
    return found


def due(pieces: Sequence[Piece]) -> tuple[str, int]:
    """Return what is to be run next: the way, and its first seed, of the kind that has had the least of its CPU.

    Calm seeds are given four times as much as busy ones: an hour of them has as many faults, and costs far less.
    """
    had = {
        (way, first): [each for each in pieces if each.way == way and (each.first >= CALM) == (first == CALM)]
        for way in WAYS
        for first in (1, CALM)
    }
    (way, first), its = min(
        had.items(), key=lambda kind: sum(each.cpu_s for each in kind[1]) / (_CALM_SHARE if kind[0][1] == CALM else 1)
    )
    return way, max((each.end for each in its), default=first)


def total(pieces: Sequence[Piece]) -> str:
    """Say in a line what all pieces come to."""
    hours = sum(each.simulated_s for each in pieces) / 3_600
    queries, faults = sum(each.queries for each in pieces), sum(sum(each.faults.values()) for each in pieces)
    found = sum(len(each.found) for each in pieces)
    return (
        f"{hours:,.0f} hours, {queries / hours:,.0f} queries and {faults / hours:.1f} faults in one,"
        f" {found} seeds with violations"
    )


def read(file: Path = FILE) -> list[Piece]:
    """Return the pieces of a file; none, if there is no file."""
    return [Piece(**each) for each in json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []


def write(pieces: Iterable[Piece], file: Path = FILE) -> None:
    """Write pieces to a file: one that is interrupted leaves the file as it was."""
    lines = ",\n".join(json.dumps(asdict(each)) for each in joined(pieces))
    beside = file.with_suffix(".new")
    beside.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    beside.replace(file)


def _sum(one: Piece, other: Piece) -> Piece:
    return replace(
        one,
        end=other.end,
        simulated_s=one.simulated_s + other.simulated_s,
        cpu_s=one.cpu_s + other.cpu_s,
        queries=one.queries + other.queries,
        answers=one.answers + other.answers,
        by_columns=one.by_columns + other.by_columns,
        faults=_added((one.faults, other.faults)),
        violations=_added((one.violations, other.violations)),
        found=[*one.found, *other.found],
    )


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))
