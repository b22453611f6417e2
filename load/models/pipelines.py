"""Pipelines of two families in the manner of PRETZEL's: sentiment of texts, and attendee counts of rows of numbers.

    sentiment   words and pairs, characters of words, each counted and weighed ─▶ side by side ─▶ a linear classifier
    attendees   scaled ─▶ components, distances from centres, ranges ─▶ side by side ─▶ boosted trees

Texts are made of words, words of letters, and all of it from seeds: PRETZEL's own pipelines and data are not public.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SENTIMENT, ATTENDEES = "sentiment", "attendees"
FAMILIES: Final = (SENTIMENT, ATTENDEES)
_WORDS, _TEXTS, _LENGTH = 4_000, 700, (12, 40)  # of a language; to fit on; words of a text
_ROWS, COLUMNS = 400, 40
_LETTERS: Final = np.array([*"etaoinsrhdlucmfywgpbvk"])
_COMMON: Final = 1.0 / np.arange(1, len(_LETTERS) + 1)


class Language:
    """Words, the first ones common, of which some are good and some are bad."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        lengths = self._random.integers(2, 11, 2 * _WORDS)
        letters = self._random.choice(_LETTERS, (2 * _WORDS, 10), p=_COMMON / _COMMON.sum())
        made = ("".join(row[:length]) for row, length in zip(letters, lengths.tolist(), strict=True))
        self.words = np.array([*dict.fromkeys(made)][:_WORDS])
        chances = 1.0 / np.arange(1, len(self.words) + 1) ** 0.8
        self._chances = chances / chances.sum()
        self._mood = self._random.choice([-1, 0, 0, 0, 0, 0, 0, 0, 0, 1], len(self.words))

    def texts(self, count: int, seed: int) -> tuple[list[str], NDArray[np.int64]]:
        """Return texts, and whether each of them is good."""
        random = np.random.default_rng((seed, count))
        chosen = [
            random.choice(len(self.words), length, p=self._chances)
            for length in random.integers(*_LENGTH, count).tolist()
        ]
        texts = [" ".join(self.words[words]).capitalize() + "." for words in chosen]
        good = [int(self._mood[words].sum() + random.normal(0.0, 0.5) > 0) for words in chosen]
        return texts, np.array(good, np.int64)


@dataclass(frozen=True)
class Operators:
    """The fitted operators of a family before its last step, and what they were fitted on."""

    family: str
    seed: int

    @cached_property
    def _data(self) -> tuple[Any, NDArray[Any]]:
        if self.family == SENTIMENT:
            return Language(self.seed).texts(_TEXTS, self.seed)
        random = np.random.default_rng(self.seed)
        rows = random.normal(random.normal(0.0, 2.0, COLUMNS), random.uniform(0.5, 3.0, COLUMNS), (_ROWS, COLUMNS))
        return rows, np.exp(0.1 * rows[:, :5].sum(axis=1)) + random.normal(0.0, 0.1, _ROWS)

    @cached_property
    def fitted(self) -> Pipeline:
        """The operators: five steps."""
        parts: Sequence[tuple[str, object]]
        if self.family == SENTIMENT:
            parts = [
                ("words", TfidfVectorizer(ngram_range=(1, 2))),
                ("letters", TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4))),
            ]
            return make_pipeline(FeatureUnion(parts)).fit(self._data[0])
        parts = [
            ("components", PCA(10, random_state=self.seed)),
            ("distances", KMeans(8, n_init=1, random_state=self.seed)),
            ("ranges", MinMaxScaler()),
        ]
        return make_pipeline(StandardScaler(), FeatureUnion(parts)).fit(self._data[0])

    @cached_property
    def _transformed(self) -> Any:
        return self.fitted.transform(self._data[0])

    def pipeline(self, number: int) -> Pipeline:
        """Return a pipeline with a last step of its own, fitted on two thirds of the rows."""
        random = np.random.default_rng((self.seed, number))
        chosen = np.sort(random.permutation(self._transformed.shape[0])[: 2 * self._transformed.shape[0] // 3])
        last: Any = GradientBoostingRegressor(n_estimators=20, random_state=number)
        if self.family == SENTIMENT:
            last = SGDClassifier(loss="log_loss", max_iter=5, tol=None, random_state=number)
        last.fit(self._transformed[chosen], self._data[1][chosen])
        return Pipeline([*self.fitted.steps, ("answer", last)])

    def rows(self, count: int) -> Any:
        """Return rows that nothing was fitted on: texts, or numbers (count, COLUMNS)."""
        if self.family == SENTIMENT:
            return Language(self.seed).texts(count, self.seed + 1)[0]
        random = np.random.default_rng((self.seed, count))
        return self._data[0][random.integers(0, _ROWS, count)] + random.normal(0.0, 0.5, (count, COLUMNS))


def hashed(features: int, most: int) -> tuple[Pipeline, list[str]]:
    """Return a pipeline whose n-grams of 1 to `most` letters share few features, and texts like those it knows."""
    texts, good = Language(0).texts(100, 0)
    counted = HashingVectorizer(
        analyzer="char", ngram_range=(1, most), n_features=features, norm=None, alternate_sign=False
    )
    weighed, last = TfidfTransformer(sublinear_tf=True), SGDClassifier(loss="log_loss", max_iter=5, tol=None)
    return make_pipeline(counted, weighed, last.set_params(random_state=0)).fit(texts, good), texts
