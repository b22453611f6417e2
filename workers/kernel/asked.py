"""How many rows a host has read for each model: of a bounded number, those that were asked last.

A count that comes back begins at 0 again, as that of a process that was started again does. Rates are right all the
same.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from streams.operators.statistics import render

# Models that a report names, of some 40 bytes each.
MOST: Final = 1_024
# A model that nobody has asked for so long (us) is named no more: rates are counted over less.
LATELY_US: Final = 60_000_000


class AskedLately:
    """Counts of models that were asked lately."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()  # rows, and when (us); asked last at the end

    def add(self, model: str, rows: int, now_us: int) -> None:
        """Take that rows were read for a model."""
        known, _ = self._counts.pop(model, (0, 0))
        self._counts[model] = known + rows, now_us
        while len(self._counts) > MOST or now_us - next(iter(self._counts.values()))[1] > LATELY_US:
            self._counts.popitem(last=False)

    def figures(self) -> dict[str, float]:
        """Return the counts, by name and model."""
        return {render(("host_asked_total", "model", model)): float(rows) for model, (rows, _) in self._counts.items()}
