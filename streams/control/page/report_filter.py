"""Filters reports: names must be names, numbers must be numbers, and both are bounded.

Anybody with the right to write `reports` writes these names. They end in commands that people copy, so all else is
dropped.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from streams.control.figures import is_forgotten, is_silent, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from schemas.records import Report
    from streams.control.figures import Figures

# Words of names, versions, policies, `(unknown)` and topics, of which foreign ones begin with /:
# nothing that a shell or a terminal would act on.
_WORD = re.compile(r"/?[A-Za-z0-9_.@:+()-]{1,200}", re.ASCII)
_METRIC = re.compile(r"[a-z][a-z0-9_]{0,99}", re.ASCII)
# A deployment that is watched by one page has a few dozen processes.
MOST_PROCESSES = 256
# A selection process with a thousand applications has ten thousand figures; small reports are not counted.
MOST_FIGURES, FEW_FIGURES = 200_000, 1_024


def sound(report: Report) -> Report | None:
    """Return a report without the figures that are none; None where its own name is no name."""
    if not (_WORD.fullmatch(report.instance) and _WORD.fullmatch(report.role)):
        return None
    return replace(report, counters=_sound(report.counters), gauges=_sound(report.gauges))


def make_room(live: MutableMapping[str, Figures], report: Report, now_us: int) -> bool:
    """Forget processes for one that is new, the longest silent first; tell whether its report may be taken."""
    if report.instance not in live:
        for instance in [name for name, entry in live.items() if is_forgotten(entry, now_us)]:
            live.pop(instance)
        while len(live) >= MOST_PROCESSES:
            oldest = min(live.values(), key=lambda entry: entry["time_us"])
            if not is_silent(oldest, now_us):
                return False
            live.pop(oldest["instance"])
    if len(report.counters) + len(report.gauges) <= FEW_FIGURES:
        return True
    others = (entry for name, entry in live.items() if name != report.instance)
    known = sum(len(entry["counters"]) + len(entry["gauges"]) for entry in others)
    return known + len(report.counters) + len(report.gauges) <= MOST_FIGURES


def _sound(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if _is_name(name) and math.isfinite(value)}


@lru_cache(maxsize=65_536)
def _is_name(full: str) -> bool:
    name, labels = parse(full)
    return bool(_METRIC.fullmatch(name)) and all(
        _METRIC.fullmatch(label) and (not value or _WORD.fullmatch(value)) for label, value in labels.items()
    )
