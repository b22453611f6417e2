"""The last day in minutes, for charts: a column a figure, bounded, and kept in a table that outlives the process.

overview of a minute ──▶ figures_of() ──▶ Minutes.put() ──▶ column[minute] ──▶ Minutes.between() ──▶ the page
                                               └──▶ packed() ──▶ table[minute of the day] ──▶ Minutes.load()
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from schemas.records import STOPPED
from streams.control.figures import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence

    from streams.control.figures import Figures
    from streams.control.page.page_types import Overview

MINUTE_US: Final = 60_000_000
MINUTES: Final = 1_440
# Figures of a minute: an application of some models has a dozen, a process three.
MOST_FIGURES: Final = 400
MOST_POINTS: Final = 360
MOST_MARKS: Final = 400  # of a day
_UNPACKED: Final = 256 << 10  # bytes of a minute: 400 figures have 30,000
_UNKNOWN: Final = math.nan
# Of steps that are shown as one: the longest wait counts, not the mean.
_LARGEST: Final = ("p50_ms", "p99_ms", "lag", "memory_mb", "cpu")


class Mark(NamedTuple):
    """Something that was done, and may explain what figures did next."""

    time_us: int
    kind: str  # start | restart | end | deploy | version
    text: str


class ChartColumns(TypedDict):
    """Some figures over time: a value a step, None where nothing was reported."""

    step_s: float
    times: list[int]  # starts of the steps, in seconds
    columns: dict[str, list[float | None]]
    marks: list[dict[str, object]]


def figures_of(view: Overview) -> dict[str, float]:
    """Return what charts show of the last minute, those of processes first, then busy applications."""
    found: dict[str, float | None] = {}
    for process in view["processes"]:
        for figure in ("lag", "cpu", "memory_mb"):
            found[f"{figure}{{process={process['instance']}}}"] = process[figure]
    for row in view["applications"]:
        own = f"application={row['name']}"
        for figure in ("rate", "defaults", "late", "loss", "p50_ms", "p99_ms", "joined"):
            found[f"{figure}{{{own}}}"] = row[figure]  # type: ignore[literal-required]
        for model in row["models"]:
            for figure in ("share", "weight", "loss", "p99_ms", "failed", "queue_rows"):
                found[f"model_{figure}{{{own},model={model['name']}}}"] = model[figure]  # type: ignore[literal-required]
    known = [(name, value) for name, value in found.items() if value is not None]
    return dict(known[:MOST_FIGURES])


def packed(figures: Mapping[str, float], marks: Sequence[Mark], minute: int) -> str:
    """Return a minute as text."""
    said = json.dumps({"minute": minute, "figures": figures, "marks": marks}, separators=(",", ":"))
    return base64.b64encode(zlib.compress(said.encode())).decode()


def unpacked(text: str) -> tuple[int, dict[str, float], list[Mark]]:
    """Return minute, figures and marks.

    Raises:
        ValueError: the text is no minute.
    """
    try:
        said = zlib.decompressobj().decompress(base64.b64decode(text), _UNPACKED)
        found: dict[str, Any] = json.loads(said)
        figures = {str(name): float(value) for name, value in found["figures"].items()}
        marks = [Mark(int(time_us), str(kind), str(words)) for time_us, kind, words in found["marks"]]
        return int(found["minute"]), dict([*figures.items()][:MOST_FIGURES]), marks
    except (binascii.Error, zlib.error, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"no minute of figures: {error}") from error


class Minutes:
    """A day of minutes.

    Args:
        table: keeps each minute as text, by its number in the day.
    """

    def __init__(self, table: MutableMapping[str, str]) -> None:
        self._table = table
        self._columns: dict[str, array[float]] = {}
        self._at = array("q", [-1]) * MINUTES  # which minute a row is of
        self._last: dict[str, int] = {}  # by figure: the last minute that had it
        self._marks: list[Mark] = []
        self._fresh: list[Mark] = []  # of the minute that is not over
        self._newest = -1
        self._is_loaded = False

    def mark(self, mark: Mark) -> None:
        """Take something that was done."""
        self._fresh.append(mark)
        self._fresh = self._fresh[-MOST_MARKS:]

    def marks(self, since_us: int, now_us: int) -> list[dict[str, object]]:
        """Return what was done in that time."""
        return [mark._asdict() for mark in (*self._marks, *self._fresh) if since_us <= mark.time_us <= now_us]

    def is_due(self, now_us: int) -> bool:
        """Tell whether a minute has ended that is not kept."""
        return now_us // MINUTE_US - 1 > self._newest

    def load(self) -> None:
        """Take what the table has, once."""
        if self._is_loaded:
            return
        self._is_loaded = True
        for text in list(self._table.values()):
            try:
                minute, figures, marks = unpacked(text)
            except ValueError:
                continue
            self._put(minute, figures)
            self._marks += marks

    def put(self, now_us: int, figures: Mapping[str, float]) -> None:
        """Keep the minute that ended last, in the table, too."""
        minute = now_us // MINUTE_US - 1
        self._put(minute, figures)
        self._table[str(minute % MINUTES)] = packed(figures, self._fresh, minute)
        self._marks = sorted((*self._marks, *self._fresh))[-MOST_MARKS:]
        self._fresh = []

    def between(self, since_us: int, now_us: int, application: str | None) -> ChartColumns:
        """Return figures over time: of an application, or of the processes; a day has every fourth minute.

        Args:
            since_us: of the first step; at most a day is known.
            now_us: the time.
            application: whose; None = of the processes.
        """
        last = now_us // MINUTE_US
        first = max(since_us // MINUTE_US, last - MINUTES)
        step = -(-(last - first) // MOST_POINTS) or 1
        starts = range(first // step * step, last, step)
        shown = {name: column for name, column in self._columns.items() if _is_of(name, application)}
        columns = {name: [self._value(name, column, each, step) for each in starts] for name, column in shown.items()}
        return ChartColumns(
            step_s=step * 60.0,
            times=[each * 60 for each in starts],
            columns={name: values for name, values in columns.items() if any(each is not None for each in values)},
            marks=self.marks(since_us, now_us),
        )

    def _value(self, name: str, column: array[float], start: int, step: int) -> float | None:
        rows = [each % MINUTES for each in range(start, start + step) if self._at[each % MINUTES] == each]
        known = [column[row] for row in rows if not math.isnan(column[row])]
        if not known:
            return None
        is_largest = name.partition("{")[0].removeprefix("model_") in _LARGEST
        return round(max(known) if is_largest else sum(known) / len(known), 4)

    def _put(self, minute: int, figures: Mapping[str, float]) -> None:
        row = minute % MINUTES
        if self._at[row] > minute:
            return
        self._at[row] = minute
        self._newest = max(self._newest, minute)
        for column in self._columns.values():
            column[row] = _UNKNOWN
        for name, value in figures.items():
            if name not in self._columns and not self._made_room(minute):
                continue
            self._columns.setdefault(name, array("f", [_UNKNOWN]) * MINUTES)[row] = value
            self._last[name] = max(minute, self._last.get(name, minute))

    def _made_room(self, minute: int) -> bool:
        """Tell whether one more figure has room; the one that has not been told for longest gives its place."""
        if len(self._columns) < MOST_FIGURES:
            return True
        oldest = min(self._last, key=lambda name: self._last[name])
        if self._last[oldest] >= minute:
            return False
        del self._columns[oldest], self._last[oldest]
        return True


def marks_of(before: Figures | None, after: Figures, now_us: int) -> Iterator[Mark]:
    """Yield what a process's report tells of what was done: its own start and end, versions that now serve."""
    if before is after:
        return
    name = after["instance"]
    if before is None:
        yield Mark(now_us, "start", f"{name} started")
        return
    if after["restarts"] > before.get("restarts", 0):
        yield Mark(now_us, "restart", f"{name} started again")
    if after["gauges"].get(STOPPED) and not before["gauges"].get(STOPPED):
        yield Mark(now_us, "end", f"{name} was stopped")
    for full in after["gauges"].keys() - before["gauges"].keys():
        metric, labels = parse(full)
        if metric == "serving":
            yield Mark(now_us, "version", f"{labels.get('model', '')} {labels.get('version', '')} serves")
        elif metric == "deployed":
            yield Mark(now_us, "deploy", f"{labels.get('application', '')}: policy {labels.get('policy', '')}")


def _is_of(name: str, application: str | None) -> bool:
    labels = parse(name)[1]
    return "process" in labels if application is None else labels.get("application") == application
