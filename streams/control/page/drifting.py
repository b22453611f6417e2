"""Alerts of inputs and outputs that are no longer as they were: which columns, from what to what."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from streams.control.drift.trail import MOST_NAMED
from streams.control.page.page_types import Alert, of, skysail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streams.control.drift.columns import DriftColumn
    from streams.control.drift.trail import MovedColumn
    from streams.control.drift.watch import Drifted, NoRoom

_SHOWN: Final = 3  # columns
_NAMED: Final = 8  # of what is left out


def drifting(found: Sequence[Drifted]) -> Iterator[Alert]:
    """Return an alert for each application whose inputs or outputs have moved; no label has told of errors yet."""
    for each in found:
        more = len(each.moved) - _SHOWN
        told = "; ".join([_words(moved) for moved in each.moved[:_SHOWN]]) + (f"; {more} more" if more > 0 else "")
        text = (
            f"{each.application} is asked or answers otherwise than before, since {_time(each.since_us)}: {told}. See"
            " whether who asks has changed, and give feedback: the loss says whether models still fit"
        )
        yield of(each.application, Alert(level="warn", text=text, command=skysail("app", "show", each.application)))


def left_out(found: NoRoom | None) -> list[str]:
    """Return sentences on what is not compared with what was before."""
    if found is None:
        return []
    told = [f"of {name} {_listed([_whose(column) for column in columns])}" for name, columns in found.columns.items()]
    more = len(told) - _NAMED
    last = [f"columns of {more} more applications"] if more > 0 else []
    nobodies = [f"all of the applications {_listed(found.applications)}"] if found.applications else []
    return [*told[:_NAMED], *last, *nobodies]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more + (", or others" if len(names) == MOST_NAMED else "")


def _words(moved: MovedColumn) -> str:
    return f"{_whose(moved.column)}: {moved.before} → {moved.now}"


def _whose(column: DriftColumn) -> str:
    return f"{column.name} of {column.model}" if column.model else column.name


def _time(time_us: int) -> str:
    return f"{datetime.fromtimestamp(time_us / 1e6, UTC):%H:%M} UTC"
