"""The steps of texts: which n-grams are counted, and how counts are weighed; together they are a part of a row."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from workers.errors import PackageError
from workers.runtimes.stages.store import Users

try:
    from workers.runtimes.stages import grams
except ImportError:  # no compiler when Skysail was installed
    from workers.runtimes.stages import grams_python as grams  # type: ignore[no-redef] # the same names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from workers.runtimes.stages.steps import FittedStep

__all__ = ["IS_COMPILED", "PLAIN", "Counting", "TextPart", "Weighing", "grams"]

IS_COMPILED: Final = grams.__name__.endswith("grams")
ANALYZERS: Final = ("word", "char", "char_wb")
MOST_FEATURES: Final = 1 << 22  # of a hashed row: the counts of all of them lie in memory
NORMS: Final = (None, "l1", "l2")


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Counting:
    """Counts n-grams."""

    analyzer: int  # of ANALYZERS
    lower: bool
    accents: str | None  # stripped: `ascii`, `unicode`
    shortest: int  # characters of a word
    least: int  # words or characters of an n-gram
    most: int
    vocabulary: grams.Terms | None  # none: terms are hashed
    stopped: grams.Terms | None  # words that do not count
    features: int
    signed: bool  # a hash has a sign
    binary: bool

    @classmethod
    def of(cls, step: FittedStep) -> Counting:
        """Read the step.

        Raises:
            PackageError: it is not such a step.
        """
        options, arrays = step.options, step.arrays
        vocabulary, stopped = _terms(arrays, ""), _terms(arrays, "stopped_")
        features = vocabulary.count if vocabulary is not None else int(options["features"] or 0)
        if not 0 < features <= MOST_FEATURES:
            raise PackageError(f"rows of {features:,} terms are not counted: give fewer features")
        accents = options["accents"]
        return cls(
            ANALYZERS.index(str(options["analyzer"])),
            bool(options["lower"]),
            None if accents is None else str(accents),
            int(options["shortest"] or 0),
            int(options["least"] or 0),
            int(options["most"] or 0),
            vocabulary,
            stopped,
            features,
            bool(options["signed"]),
            bool(options["binary"]),
        )


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Weighing:
    """Weighs counts."""

    sublinear: bool
    norm: int  # of NORMS
    idf: NDArray[np.float64] | None

    @classmethod
    def of(cls, step: FittedStep) -> Weighing:
        """Read the step."""
        idf = step.arrays.get("idf")
        weights = None if idf is None else np.ascontiguousarray(idf, np.float64)
        return cls(bool(step.options["sublinear"]), NORMS.index(step.options["norm"]), weights)


PLAIN: Final = Weighing(sublinear=False, norm=0, idf=None)


class TextPart:
    """A part of a row: counting and weighing in one stage.

    Attributes:
        identity: of all that it does; equal ones make the same of a text.
        users: the models that have it.
    """

    def __init__(self, identity: str, counting: Counting, weighing: Weighing, scale: float) -> None:
        self.identity, self.users = identity, Users()
        self.grams = grams.Grams(
            counting.analyzer,
            counting.lower,
            None if counting.accents is None else _ACCENTS[counting.accents],
            counting.shortest,
            counting.least,
            counting.most,
            counting.vocabulary,
            counting.stopped,
            counting.features,
            counting.signed,
            counting.binary,
            logs if weighing.sublinear else None,
            weighing.idf,
            weighing.norm,
            scale,
        )


def logs(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 + the logarithms of counts, as NumPy computes them here."""
    found: NDArray[np.float64] = np.log(counts) + 1.0
    return found


def _terms(arrays: Mapping[str, NDArray[np.generic]], prefix: str) -> grams.Terms | None:
    if f"{prefix}slots" not in arrays:
        return None
    slots, ends = arrays[f"{prefix}slots"], arrays[f"{prefix}ends"]
    return grams.Terms(
        slots.astype(np.uint64, copy=False),
        ends.astype(np.uint32, copy=False),
        arrays[f"{prefix}text"].astype(np.uint8, copy=False),
    )


def _plain(text: str) -> str:
    """Strip accents as scikit-learn's `unicode` does."""
    if text.isascii():
        return text
    return "".join([letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter)])


def _ascii(text: str) -> str:
    """Strip accents as scikit-learn's `ascii` does."""
    return text if text.isascii() else unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


_ACCENTS: Mapping[str, Callable[[str], str]] = {"ascii": _ascii, "unicode": _plain}
