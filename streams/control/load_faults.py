"""Versions that could not be loaded, from the gauges of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.control.alerts import LoadFault
from streams.control.figures import parse
from streams.operators.statistics import from_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def load_faults(gauges: Iterable[Mapping[str, float]]) -> dict[tuple[str, str], LoadFault]:
    """Return the versions that some worker could not load, by model and version; of several workers the worst off.

    Args:
        gauges: of each process that reports.
    """
    found: dict[tuple[str, str], LoadFault] = {}
    for figures in gauges:
        named = [(*parse(full), value) for full, value in figures.items()]
        given_up = {(labels.get("model"), labels.get("version")) for n, labels, _ in named if n == "version_given_up"}
        for name, labels, attempts in named:
            if name == "version_fault":
                place = labels.get("model", ""), labels.get("version", "")
                fault = LoadFault(int(attempts), place in given_up, from_label(labels.get("reason", "")))
                found[place] = max(found.get(place, fault), fault)
    return found
