"""Tables, as Markdown for pages and as text for terminals."""

from __future__ import annotations

import io
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under their heads; the first column names the row, the others are numbers."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return the table in Markdown, without its title."""
        lines = [self.heads, ("---", *["---:"] * (len(self.heads) - 1)), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

    def shown(self, width: int | None = None) -> str:
        """Return the table for a terminal.

        Args:
            width: in characters; None = of the terminal, 160 where there is none.
        """
        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD)
        for index, head in enumerate(self.heads):
            table.add_column(head, justify="right" if index else "left")
        for row in self.rows:
            table.add_row(*row)
        console = Console(file=io.StringIO(), width=width or shutil.get_terminal_size((_WIDTH, 1)).columns)
        with console.capture() as captured:
            console.print(table)
        return captured.get()


def left_out(rows: Sequence[Mapping[str, str]]) -> Table:
    """Return which systems were left out, and why."""
    return Table("Left out", ("system", "why"), tuple((row["label"], row["why"]) for row in rows))


def present(heads: Mapping[str, str], rows: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """Return the heads of those figures that some row has: older results lack some."""
    return {figure: head for figure, head in heads.items() if any(figure in row for row in rows)}


def number(value: float | None) -> str:
    """Return a number as it stands in tables; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.1f}"


def spread(values: Sequence[float]) -> str:
    """Return `[median, least, most]` in words."""
    middle, least, most = (number(value) for value in values)
    return middle if least == most else f"{middle} ({least} to {most})"
