"""Results of `trio` as a table and as a part of the benchmark page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from load.research.peers import trio
from load.research.peers.trio import FIGURES
from load.results.pages import with_short_form
from load.results.tables import Table, left_out, number, spread
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.harness.environment import Environment
    from load.results.results import Result

_TEXT: Final = Path(__file__).with_name("sections.md")
TITLE: Final = "One slow model among three"
_FIGURES: Final = ("goodput_per_s", "p50_ms", "p99_ms")


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    heads = ("system", "goodput/s without it", "with it", "kept", "p50 ms", "with it", "p99 ms", "with it", "lost")
    lines = tuple(_line(row) for row in result.series["systems"])
    shown = [Table("Goodput and latency with the slow model and without it", heads, lines)]
    if out := result.series.get("left_out"):
        shown.append(left_out(out))
    return shown


def page(result: Result, environment: Environment) -> str:
    """Return the part of the page."""
    return with_short_form(result, environment, TITLE, _TEXT, tables(result), FIGURES)


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    values = [
        spread(row[key]) if key in row else "" for figure in _FIGURES for key in (f"without_{figure}", f"with_{figure}")
    ]
    kept = f"{row['kept']:.3f}" if "kept" in row else ""
    return (row["label"], *values[:2], kept, *values[2:], number(row["with_lost"] + row["without_lost"]))


SCENARIO = Scenario(
    trio.NAME,
    trio.FIGURES,
    trio.run,
    "one slow model among three: goodput with it and without it, beside those who run models in line",
    tables=tables,
    page=page,
    seconds=trio.SECONDS,
    parts=trio.NAMES,
    short=True,
)
