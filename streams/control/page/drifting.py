"""Alerts of inputs and outputs that are no longer as they were: which columns, from what to what."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from streams.control.page.page_types import Alert, of, skysail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streams.control.drift.trail import MovedColumn
    from streams.control.drift.watch import Drifted

_SHOWN: Final = 3  # columns


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


def _words(moved: MovedColumn) -> str:
    whose = f"{moved.column.name} of {moved.column.model}" if moved.column.model else moved.column.name
    return f"{whose}: {moved.before} → {moved.now}"


def _time(time_us: int) -> str:
    return f"{datetime.fromtimestamp(time_us / 1e6, UTC):%H:%M} UTC"
