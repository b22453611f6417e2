"""The columns of all applications, from a sample of queries and predictions; what has moved, and how surely."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.control.drift.columns import of_prediction, of_query
from streams.control.drift.kept import packed, unpacked
from streams.control.drift.trail import MOST_NAMED, DriftTrail
from streams.operators.statistics import as_label, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Prediction, Query
    from streams.control.drift.columns import DriftColumn, Reading
    from streams.control.drift.trail import MovedColumn

MINUTE_US: Final = 60_000_000
MOST_APPLICATIONS: Final = 64  # a full trail has a megabyte
DAY: Final = 1_440  # minutes
MOST_MOVED: Final = 12  # columns of an application that the figure names, the farthest ones
PER_MINUTE: Final = 200  # queries of an application that count in a minute, and predictions


class Drifted(NamedTuple):
    """An application whose inputs or outputs are no longer as they were."""

    application: str
    since_us: int
    moved: tuple[MovedColumn, ...]  # the farthest first


class NoRoom(NamedTuple):
    """What is not followed: there is no room for it. Of many names there are the first ones."""

    applications: tuple[str, ...]
    columns: dict[str, tuple[DriftColumn, ...]]  # by application


class DriftWatch:
    """What is known of the applications."""

    __slots__ = ("_asked", "_counts", "_minute", "_nobodies", "_trails")

    def __init__(self) -> None:
        self._trails: dict[str, DriftTrail] = {}
        self._nobodies: dict[str, None] = {}  # applications for which there is no room
        self._asked: dict[str, int] = {}  # the last minute of each, or that at which it was loaded
        self._minute = -1
        self._counts = Counter[tuple[str, str]]()  # of this minute, by application and kind

    def query(self, query: Query, now_us: int) -> None:
        """Take a query of the sample; an application without a prediction is none, whatever clients name."""
        if query.application in self._trails and self._has_room(query.application, "query", now_us):
            self._take(query.application, of_query(query))

    def prediction(self, made: Prediction, now_us: int) -> None:
        """Take a prediction of the sample; those without an application are nobody's."""
        if made.decision is not None and self._has_room(made.application, "prediction", now_us):
            self._take(made.application, of_prediction(made))

    @property
    def applications(self) -> tuple[str, ...]:
        """Those that are followed."""
        return tuple(self._trails)

    def judge(self, application: str, now_us: int) -> None:
        """Look at one that is followed, for some 20 ms; once a minute at most, as evidence has a bound for that."""
        self._trails[application].judge(now_us // MINUTE_US)

    def kept(self, application: str) -> str:
        """Return what is usual of one that is followed, as text: for some 60 ms, of one with all columns."""
        return packed(self._trails[application])

    def load(self, application: str, text: str, now_us: int) -> None:
        """Go on with what was usual before the process began; a text that is none counts as nothing."""
        if application not in self._trails and len(self._trails) < MOST_APPLICATIONS:
            with suppress(ValueError):
                self._trails[application] = unpacked(text)
                self._asked[application] = now_us // MINUTE_US

    def drifted(self) -> list[Drifted]:
        """Return the applications that are no longer as they were, by name."""
        found = [(name, trail.onset, tuple(trail.moved)) for name, trail in sorted(self._trails.items())]
        return [Drifted(name, onset * MINUTE_US, moved) for name, onset, moved in found if onset is not None and moved]

    def left_out(self) -> NoRoom:
        """Return what is not followed."""
        found = {name: tuple(trail.left_out) for name, trail in sorted(self._trails.items()) if trail.left_out}
        return NoRoom(tuple(self._nobodies), found)

    def statistics(self) -> dict[str, float]:
        """Return by the metrics' names: evidence as a share of what is sure, what has moved, what is not followed."""
        found = {"drift_applications_left_out": float(len(self._nobodies))}
        for name, trail in sorted(self._trails.items()):
            found[render(("drift_columns_left_out", "application", name))] = float(len(trail.left_out))
            for model, share in sorted(trail.evidence.items()):
                found[render(("drift_evidence", "application", name, "model", model))] = share
            for each in trail.moved[:MOST_MOVED]:
                whose = "model", each.column.model, "column", as_label(each.column.name)
                found[render(("drift_moved", "application", name, *whose))] = each.far
        return found

    def _has_room(self, application: str, kind: str, now_us: int) -> bool:
        if self._minute < now_us // MINUTE_US:
            self._minute = now_us // MINUTE_US
            self._counts.clear()
        self._counts[application, kind] += 1
        if application not in self._trails and len(self._trails) >= MOST_APPLICATIONS:
            self._forget_one()
        is_known = application in self._trails or len(self._trails) < MOST_APPLICATIONS
        if not is_known and len(self._nobodies) < MOST_NAMED:
            self._nobodies[application] = None
        return is_known and self._counts[application, kind] <= PER_MINUTE

    def _forget_one(self) -> None:
        """Forget the application that was asked last before all others, if that was a day ago."""
        oldest = min(self._trails, key=self._asked.__getitem__)
        if self._minute - self._asked[oldest] > DAY:
            del self._trails[oldest], self._asked[oldest]

    def _take(self, application: str, found: Mapping[DriftColumn, Reading]) -> None:
        self._asked[application] = self._minute
        self._nobodies.pop(application, None)
        self._trails.setdefault(application, DriftTrail()).take(found, self._minute)
