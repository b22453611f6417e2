"""One slow model among three, as a table and as a part of the benchmark page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from load.research.peers.trio import FIGURES
from load.results.pages import section
from load.results.tables import Table, left_out, number, spread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.results.results import Result

TITLE: Final = "One slow model among three"
INTRODUCTION: Final = """\
The third model dawdles over one row in seventy for twice the objective. Skysail asks every model in a worker of its own
and answers by the deadline with what is there; everybody else runs the models in line, so that one slow call holds up
all that was read with it. A loop with a thread for each model and a time limit was not tried: it would keep more. Kept
is the share of right answers in time with the slow model, over that without it. Written by `skysail load run trio`.
"""
SHORT: Final = """\
**This is the short form**: one round of ten seconds, one hand loop and one of the peers.
"""
_FIGURES: Final = ("goodput_per_s", "p50_ms", "p99_ms")


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    heads = ("system", "goodput/s without it", "with it", "kept", "p50 ms", "with it", "p99 ms", "with it", "lost")
    lines = tuple(_line(row) for row in result.series["systems"])
    shown = [Table("Goodput and latency with the slow model and without it", heads, lines)]
    if out := result.series.get("left_out"):
        shown.append(left_out(out))
    return shown


def page(result: Result, environment: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    introduction = f"{INTRODUCTION}\n{SHORT}" if result.parameters.get("form") == "short" else INTRODUCTION
    return section(result, environment, TITLE, introduction, tables(result), FIGURES)


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    values = [
        spread(row[key]) if key in row else "" for figure in _FIGURES for key in (f"without_{figure}", f"with_{figure}")
    ]
    kept = f"{row['kept']:.3f}" if "kept" in row else ""
    return (row["label"], *values[:2], kept, *values[2:], number(row["with_lost"] + row["without_lost"]))
