"""`grams` in Python, for where there was no compiler: the same classes, arguments and answers, to the bit."""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from workers.runtimes.stages.vocabulary import terms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

_WORDS: Final = re.compile(r"\w+")
_SPACES: Final = re.compile(r"\s\s+")
_ENTRY: Final = 12
_BLOCK: Final = struct.Struct("<I")


class Terms:
    """A vocabulary."""

    def __init__(self, slots: NDArray[np.uint64], ends: NDArray[np.uint32], text: NDArray[np.uint8]) -> None:
        size, rising = len(slots), np.all(ends[:-1] <= ends[1:])
        if size & (size - 1) or not 0 < len(ends) < size or not rising or ends[-1] > len(text):
            raise ValueError("a vocabulary's arrays do not fit each other")
        self.numbers = {term: number for number, term in enumerate(terms_of(ends, text))}
        self.count = len(ends)


class Grams:
    """How a text becomes a row."""

    def __init__(
        self,
        analyzer: int,
        lower: bool,
        accents: Callable[[str], str] | None,
        shortest: int,
        least: int,
        most: int,
        vocabulary: Terms | None,
        stopped: Terms | None,
        features: int,
        signed: bool,
        binary: bool,
        logs: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None,
        idf: NDArray[np.float64] | None,
        norm: int,
        scale: float,
    ) -> None:
        if not 1 <= least <= most <= 64 or not 0 <= analyzer <= 2 or not 0 < features < 1 << 30:
            raise ValueError("no n-grams can be counted so")
        if vocabulary is not None and vocabulary.count != features:
            raise ValueError("the vocabulary has another number of terms")
        if idf is not None and len(idf) != features:
            raise ValueError("the weights of terms do not fit the vocabulary")
        if logs is not None and signed:
            raise ValueError("counts with signs have no logarithm")
        self._spans = (self._words, self._characters, self._characters_in_words)[analyzer]
        self._lower, self._accents, self._shortest, self._least, self._most = lower, accents, shortest, least, most
        self._numbers = None if vocabulary is None else vocabulary.numbers
        self._stopped = {} if stopped is None else stopped.numbers
        self.features, self._signed, self._binary = features, signed, binary
        self._logs, self._idf, self._norm, self._scale = logs, idf, norm, scale

    def row(self, text: str) -> bytes:
        """Return the row of a text: its values (float64), then their terms (int32), as bytes."""
        text = text.lower() if self._lower else text
        text = text if self._accents is None else self._accents(text)
        counts = self._counts(text)
        terms = sorted(counts)
        values = np.array([1 if self._binary else counts[term] for term in terms], np.float64)
        if self._logs is not None:
            values = self._logs(values)
        if self._idf is not None:
            values *= self._idf[terms]
        if self._norm:
            values = _normal(values, self._norm)
        if self._scale != 1.0:
            values *= self._scale
        return values.tobytes() + np.array(terms, np.int32).tobytes()

    def _counts(self, text: str) -> Counter[int]:
        counts: Counter[int] = Counter()
        for span in self._spans(text):
            if self._numbers is not None:
                number = self._numbers.get(span)
                if number is not None:
                    counts[number] += 1
            else:
                hashed = murmur(span.encode("utf-8", "surrogatepass"))
                place = 2147483647 - (self.features - 1) if hashed == -2147483648 else abs(hashed)
                counts[place % self.features] += -1 if self._signed and hashed < 0 else 1
        return counts

    def _words(self, text: str) -> Iterator[str]:
        words = [word for word in _WORDS.findall(text) if len(word) >= self._shortest and word not in self._stopped]
        for size in range(self._least, min(self._most, len(words)) + 1):
            for start in range(len(words) - size + 1):
                yield " ".join(words[start : start + size])

    def _characters(self, text: str) -> Iterator[str]:
        text = _SPACES.sub(" ", text)
        for size in range(self._least, min(self._most, len(text)) + 1):
            for start in range(len(text) - size + 1):
                yield text[start : start + size]

    def _characters_in_words(self, text: str) -> Iterator[str]:
        for word in text.split():
            padded = f" {word} "
            if len(padded) <= self._least:  # a short word counts once
                yield padded
                continue
            for size in range(self._least, min(self._most, len(padded)) + 1):
                for start in range(len(padded) - size + 1):
                    yield padded[start : start + size]


class Scorer:
    """Adds up what a linear model says about rows that lie side by side, before its intercept."""

    def __init__(self, grams: tuple[Grams, ...], weights: NDArray[np.float64]) -> None:
        if sum(each.features for each in grams) != len(weights) or not weights.shape[1]:
            raise ValueError("the linear model has another number of features")
        self._grams, self._weights = grams, weights

    def add(
        self,
        texts: Sequence[str],
        sums: NDArray[np.float64],
        tables: tuple[tuple[dict[Any, Any], dict[Any, Any]] | None, ...],
    ) -> int:
        """Add to `sums` (n, k) what the model says about n texts; returns the bytes that were added to the tables."""
        added = 0
        for place, text in enumerate(texts):
            offset = 0
            for grams, table in zip(self._grams, tables, strict=True):
                known = None if table is None else table[0].get(text) or table[1].get(text)
                row = grams.row(text) if known is None else known
                if table is not None:
                    added += 0 if known is not None else len(row) + _width(text) * len(text) + 200
                    table[0][text] = row
                self._add(sums[place], offset, row)
                offset += grams.features
        return added

    def _add(self, sums: NDArray[np.float64], offset: int, row: bytes) -> None:
        """Add term by term: any other order gives other last bits."""
        count = len(row) // _ENTRY
        terms = np.frombuffer(row, np.int32, count, 8 * count) if count else ()
        for term, value in zip(terms, np.frombuffer(row, np.float64, count) if count else (), strict=True):
            sums += value * self._weights[offset + term]


def logistic(numbers: NDArray[np.float64]) -> None:
    """Replace numbers by their logistic function, as SciPy computes it."""
    for place, number in enumerate(numbers.tolist()):
        try:
            numbers[place] = 1.0 / (1.0 + math.exp(-number))
        except OverflowError:
            numbers[place] = 0.0


def _width(text: str) -> int:
    """Return how many bytes CPython takes for each character."""
    most = ord(max(text, default="a"))
    return 1 if most < 1 << 8 else 2 if most < 1 << 16 else 4


def _normal(values: NDArray[np.float64], norm: int) -> NDArray[np.float64]:
    """Divide by the norm, summed up in order."""
    total = 0.0
    for value in values.tolist():
        total += value * value if norm == 2 else abs(value)
    return values / (math.sqrt(total) if norm == 2 else total) if total else values


def murmur(data: bytes) -> int:
    """Return the MurmurHash3 (x86, 32 bits, seed 0), signed, as `HashingVectorizer` takes it."""
    hashed, whole = 0, len(data) // 4 * 4
    for at in range(0, whole, 4):
        hashed = (_rotated(hashed ^ _mixed(_BLOCK.unpack_from(data, at)[0]), 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    if len(data) > whole:
        hashed ^= _mixed(int.from_bytes(data[whole:], "little"))
    hashed ^= len(data)
    hashed = ((hashed ^ (hashed >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    hashed = ((hashed ^ (hashed >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _mixed(block: int) -> int:
    return (_rotated((block * 0xCC9E2D51) & 0xFFFFFFFF, 15) * 0x1B873593) & 0xFFFFFFFF


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & 0xFFFFFFFF
