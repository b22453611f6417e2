"""Models whose answers stand in the input: predictions made beforehand, replayed through real workers.

A row holds the answer of each of n models. After those it may hold how many milliseconds each model sleeps over it.
Packaged by dotted path (`package`), so a worker needs no file and no state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

MOST = 16


@dataclass(frozen=True, slots=True)
class Replayed:
    """The model of one column."""

    column: int

    def prompt(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Answer column `column` of `rows` (n, models)."""
        return rows[:, self.column]

    def late(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Answer that column of `rows` (n, 2 * models) after as long as the slowest row takes: a batch is as late."""
        models = rows.shape[1] // 2
        time.sleep(int(rows[:, models + self.column].max()) / 1e3)
        return rows[:, self.column]


c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15 = map(Replayed, range(MOST))


def package(folder: Path, names: Sequence[str], sample: NDArray[np.uint8], how: str = "prompt") -> dict[str, Path]:
    """Package a model for each of the first columns of a row.

    Args:
        folder: of the packages' folders.
        names: of the models, at most 16, by column.
        sample: rows.
        how: `prompt` or `late`.

    Returns:
        The packages' folders by the model's name.
    """
    folders = {name: folder / name for name in names}
    for column, (name, path) in enumerate(folders.items()):
        package_function(f"load.research.models.recorded:c{column}.{how}", path, name, "1", sample[:5])
    return folders
