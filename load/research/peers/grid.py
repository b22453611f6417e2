"""Finds each contender's best setting: of those within a tenth of the fastest, the one that answers most in time.

Goodput counts within 50 ms, at 500/s and at half of its own rate. Of equal settings, the shorter tail at 500/s wins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from load.errors import PeerFailedError
from load.research.peers.measurement import visit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.research.peers.contenders import Contender
    from load.research.peers.measurement import Plan
    from load.research.peers.running import Ground

_NEAR = 0.9
_SECONDS = 1.0
_DRAIN_S = 1.5
_SHARES = (0.5,)
_GOODPUT = "goodput_50ms_per_s"


class Tried(TypedDict):
    """The result of one setting; None if it does not work."""

    system: str
    label: str
    setting: str
    index: int
    rate_per_s: float | None
    goodput_per_s: float | None
    p99_ms: float | None
    chosen: bool


async def search(contender: Contender, ground: Ground, plan: Plan, say: Callable[[str], None]) -> list[Tried]:
    """Return a row for each setting, the best one chosen; one that does not work has no figures.

    Raises:
        PeerFailedError: none works.
    """
    rows, failed = [], ""
    short = replace(plan, seconds=_SECONDS, drain_s=_DRAIN_S, shares=_SHARES, judged=())
    for setting in contender.grid:
        say(f"{contender.label}: trying {words(setting)}")
        try:
            seen = await visit(contender, ground, setting, short)
        except PeerFailedError as error:
            failed = str(error)
            say(f"{contender.label}: {words(setting)} does not work: {failed}")
            rows.append(_row(contender, setting, {}))
            continue
        rows.append(_row(contender, setting, seen.figures))
    if all(row["rate_per_s"] is None for row in rows):
        raise PeerFailedError(failed)
    choose(rows)["chosen"] = True
    return rows


def _row(contender: Contender, setting: Mapping[str, object], figures: Mapping[str, float]) -> Tried:
    """Return what a setting gave; nothing if it does not work."""
    return {
        "system": contender.name,
        "label": contender.label,
        "setting": words(setting),
        "index": contender.grid.index(setting),
        "rate_per_s": figures.get("rate_per_s"),
        "goodput_per_s": figures.get(_GOODPUT),
        "p99_ms": figures.get("at_500_p99_ms"),
        "chosen": False,
    }


def choose(rows: Sequence[Tried]) -> Tried:
    """Return the best row of those that work."""
    working = [(rate, row) for row in rows if (rate := row["rate_per_s"]) is not None]
    fastest = max(rate for rate, _ in working)
    return max((row for rate, row in working if rate >= _NEAR * fastest), key=_in_time)


def _in_time(row: Tried) -> tuple[float, float]:
    return row["goodput_per_s"] or 0.0, -float("inf") if row["p99_ms"] is None else -row["p99_ms"]


def words(setting: Mapping[str, object]) -> str:
    """Return a setting in words."""
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "defaults"
