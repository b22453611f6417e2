"""Finds each contender's best setting: the fastest; of those within a tenth of it, the one with the shortest tail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from load.errors import PeerFailedError
from load.peers.visit import visit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from load.peers.contenders import Contender
    from load.peers.running import Ground
    from load.peers.visit import Plan

_NEAR = 0.9
_SECONDS = 1.0
_DRAIN_S = 1.5


async def search(contender: Contender, ground: Ground, plan: Plan, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a row for each setting that works, the best one chosen.

    Raises:
        PeerFailedError: none works.
    """
    rows, failed = [], ""
    short = replace(plan, seconds=_SECONDS, drain_s=_DRAIN_S, shares=(), judged=())
    for setting in contender.grid:
        say(f"{contender.label}: trying {words(setting)}")
        try:
            seen = await visit(contender, ground, setting, short)
        except PeerFailedError as error:
            failed = str(error)
            say(f"{contender.label}: {words(setting)} does not work: {failed}")
            continue
        rows.append(
            {
                "system": contender.name,
                "label": contender.label,
                "setting": words(setting),
                "index": contender.grid.index(setting),
                "rate_per_s": seen.figures["rate_per_s"],
                "p99_ms": seen.figures.get("at_500_p99_ms"),
                "chosen": False,
            }
        )
    if not rows:
        raise PeerFailedError(failed)
    choose(rows)["chosen"] = True
    return rows


def choose(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the best row."""
    fastest = max(row["rate_per_s"] for row in rows)
    near = [row for row in rows if row["rate_per_s"] >= _NEAR * fastest]
    return min(near, key=lambda row: float("inf") if row["p99_ms"] is None else row["p99_ms"])


def words(setting: Any) -> str:
    """Return a setting in words."""
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "defaults"
