"""Models that only take time, as Clockwork has published it, under the runtime for functions.

    published:resnet50        naming one takes what loading its weights took; calling it, what a batch took
    published:resnet50_8      the same on a device that is eight times slower

Nothing is computed. A runtime names its function each time that a package is loaded, and so the time to load is taken
whenever a host loads one. Each holds a 64th of the weights' bytes.
"""

from __future__ import annotations

import mmap
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SIZES: Final = (1, 2, 4, 8, 16)
# Of ResNet-50 on a V100, all sizes are published (us), and that its 102 MB of weights are loaded within 8.33 ms. Of the
# others one row and sixteen are; the sizes between lie where those of ResNet-50 do. Weights are four bytes for each
# parameter that torchvision's documentation gives (Clockwork, OSDI'20, and its docs).
_RESNET50: Final = (2_610, 3_780, 5_610, 9_130, 15_670)
_ENDS: Final = {
    "resnet18": ((1_270, 7_020), 46_758_048),
    "resnet50": ((2_610, 15_670), 102_228_128),
    "resnet152": ((7_710, 44_600), 240_771_232),
    "densenet169": ((5_180, 21_850), 56_597_920),
    "inceptionv3": ((4_460, 26_170), 95_338_272),
}
_LOAD_US_A_BYTE: Final = 8_330 / 102_228_128
PART: Final = 64  # of the weights' bytes, one that is held
_PIECE: Final = 1 << 16


class Published(NamedTuple):
    """What is published of a model: of each size of a batch what it takes (us), of the weights how many bytes."""

    name: str
    times_us: tuple[float, ...]
    bytes: int

    @property
    def load_us(self) -> int:
        """How long loading the weights takes."""
        return round(self.bytes * _LOAD_US_A_BYTE)

    def batch_us(self, rows: int) -> float:
        """Return what a batch takes: as much as the next size that is published, or several of the largest."""
        whole, rest = divmod(rows, SIZES[-1])
        return whole * self.times_us[-1] + (self.times_us[bisect_left(SIZES, rest)] if rest else 0.0)


def published() -> dict[str, Published]:
    """Return all, by name."""
    found, span = {}, _RESNET50[-1] - _RESNET50[0]
    for name, ((first, last), size_bytes) in _ENDS.items():
        times = (first + (us - _RESNET50[0]) * (last - first) / span for us in _RESNET50)
        found[name] = Published(name, tuple(times), size_bytes)
    return found


class Sleeping:
    """One that is loaded; it can be called with rows, and answers 0.

    Attributes:
        held_bytes: that it takes.
    """

    leaves_lock = True

    def __init__(self, model: Published) -> None:
        begun_s = time.perf_counter()
        self._model = model
        self.held_bytes = model.bytes // PART
        self._weights = mmap.mmap(-1, self.held_bytes)
        for _ in range(0, self.held_bytes - _PIECE, _PIECE):  # in pieces that leave nothing behind
            self._weights.write(b"\1" * _PIECE)
        time.sleep(max(0.0, model.load_us / 1e6 - (time.perf_counter() - begun_s)))

    def __call__(self, rows: Sequence[object] | NDArray[np.generic]) -> NDArray[np.int64]:
        """Take the time."""
        time.sleep(self._model.batch_us(len(rows)) / 1e6)
        return np.zeros(len(rows), np.int64)


def __getattr__(name: str) -> Sleeping:
    kind, _, slower = name.partition("_")
    model = published().get(kind)
    if model is None or not (slower or "1").isdigit():
        raise AttributeError(name)
    return Sleeping(model._replace(times_us=tuple(us * int(slower or "1") for us in model.times_us)))
