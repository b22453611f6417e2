"""The scenario `forest`: its tables."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any, Final

from load.research.peers import batching, by_turns, forest
from load.research.peers.answer_audit import OBJECTIVES_MS
from load.results.tables import Table, left_out, number, spread
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.results.results import Result

    Row = Mapping[str, Any]


_RATIOS: Final = (
    ("peer", "the best peer"),
    ("hand", "the best hand loop"),
    ("fixed", "best fixed batch, by turns"),
)


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    shown = [_goodput(result.series["systems"]), _ratios(result), _by_turns(result.series.get("by_turns", ()))]
    shown.append(_settings(result.series["systems"]))
    shown += [_stretches(result.series["stretches"], objective) for objective in OBJECTIVES_MS]
    if out := result.series.get("left_out"):
        shown.append(left_out(out))
    return [table for table in shown if table.rows]


def _goodput(systems: Sequence[Row]) -> Table:
    heads = ("system", *(f"within {ms} ms" for ms in OBJECTIVES_MS))
    rows = tuple((row["label"], *(spread(row[f"goodput_{ms}ms_per_s"]) for ms in OBJECTIVES_MS)) for row in systems)
    return Table("Goodput: right answers a second", heads, rows)


def _by_turns(rows: Sequence[Row]) -> Table:
    """Return mean, least and most of the rounds of each batch size, at the rate where the mean is highest."""
    lines = []
    for label, setting in dict.fromkeys((row["label"], row["setting"]) for row in rows):
        mine = [row for row in rows if (row["label"], row["setting"]) == (label, setting)]
        best = [by_turns.best_rate([row for row in mine if row["objective_ms"] == ms]) for ms in OBJECTIVES_MS]
        lines.append((f"{label} ({setting})", *map(_at_rate, best)))
    heads = ("by turns, mean (range)", *(f"within {ms} ms" for ms in OBJECTIVES_MS))
    return Table("AIMD and fixed batches side by side: right answers a second", heads, tuple(lines))


def _at_rate(row: Row) -> str:
    rounds = row["goodput_per_s"]
    return f"{spread([mean(rounds), min(rounds), max(rounds)])} at {number(row['rate_per_s'])}"


def _settings(systems: Sequence[Row]) -> Table:
    heads = ("system", *(f"best within {ms} ms" for ms in OBJECTIVES_MS))
    rows = tuple((row["label"], *(row[f"setting_{ms}ms"] for ms in OBJECTIVES_MS)) for row in systems)
    return Table("Settings", heads, tuple(row for row in rows if set(row[1:]) != {"defaults"}))


def _ratios(result: Result) -> Table:
    labels = {row["name"]: row["label"] for row in result.series["systems"]}
    rows = []
    for kind, label in _RATIOS:
        for name, lane in labels.items():
            keys = [f"{name}_{ms}ms_to_{kind}_ratio_rate" for ms in OBJECTIVES_MS]
            if all(key in result.figures for key in keys):
                errors = _errors(result) if kind == "fixed" else [""] * len(keys)
                shown = (f"{result.figures[key]:.2f}{error}" for key, error in zip(keys, errors, strict=True))
                rows.append((f"{lane} / {label}", *shown))
    return Table("Ratios", ("", *(f"within {ms} ms" for ms in OBJECTIVES_MS)), tuple(rows))


def _errors(result: Result) -> list[str]:
    errors = (by_turns.standard_error(result.series["by_turns"], objective) for objective in OBJECTIVES_MS)
    return [f" ± {error:.2f}" for error in errors]


def _stretches(stretches: Sequence[Row], objective: int) -> Table:
    """Return the goodput at each offered rate, of the first visit to each system and setting."""
    asked = [row for row in stretches if row["slo_ms"] in (objective, max(OBJECTIVES_MS)) and _counts(row, objective)]
    rates = sorted({row["rate_per_s"] for row in asked})
    lines = []
    for system, setting in dict.fromkeys((row["label"], row["setting"]) for row in asked):
        mine: dict[float, float] = {}
        for row in asked:
            if (row["label"], row["setting"]) == (system, setting):
                mine.setdefault(row["rate_per_s"], row[f"goodput_{objective}ms_per_s"])
        lines.append((f"{system} ({setting})", *(number(mine.get(rate)) for rate in rates)))
    heads = ("asked, queries/s", *(f"{rate:,.0f}" for rate in rates))
    return Table(f"Goodput within {objective} ms at each rate", heads, tuple(lines))


def _counts(row: Row, objective: int) -> bool:
    """Tell whether a stretch says something about an objective: Skysail's queries carry the one they are asked for."""
    return bool(row["kind"] != "skysail" or row["slo_ms"] == objective)


SCENARIO = Scenario(
    forest.NAME,
    forest.FIGURES,
    forest.run,
    "a random forest, which needs batching: goodput within 20, 50 and 100 ms beside what one would use instead",
    tables=tables,
    page="research/peers/forest.md.j2",
    seconds=forest.SECONDS,
    parts=batching.NAMES,
    short=True,
)
