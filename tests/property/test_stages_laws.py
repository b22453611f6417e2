"""Laws of texts in stages: whatever the text and the vectorizer, rows are scikit-learn's, compiled and in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

from workers.runtimes.stages import conversion, grams_python, texts
from workers.runtimes.stages.steps import packed, unpacked

WAYS = [texts.grams, grams_python] if texts.IS_COMPILED else [grams_python]
LETTERS = st.sampled_from([*"abAB éß_7İ日\n\t\u3000ς.,-"])
TEXTS = st.lists(st.text(LETTERS, max_size=30) | st.text(max_size=15), min_size=1, max_size=5)
GRAMS = st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda sizes: (sizes[0], sum(sizes)))
SHAPES = st.fixed_dictionaries(
    {
        "analyzer": st.sampled_from(["word", "char", "char_wb"]),
        "ngram_range": GRAMS,
        "lowercase": st.booleans(),
        "strip_accents": st.sampled_from([None, "ascii", "unicode"]),
        "binary": st.booleans(),
        "norm": st.sampled_from([None, "l1", "l2"]),
        "stop_words": st.sampled_from([None, ["ab", "日"]]),
        "token_pattern": st.sampled_from([r"(?u)\b\w\w+\b", r"(?u)\b\w+\b"]),
    }
)


def row_of(way: Any, vectorizer: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return the terms and the values of a text's row."""
    with monkeypatch.context() as patch:
        patch.setattr(texts, "grams", way)
        counting = texts.Counting.of(unpacked(packed(conversion._counting(vectorizer))))
        weighing = texts.Weighing.of(unpacked(packed(conversion._weighing(vectorizer))))
        row = texts.Part("", counting, weighing, 1.0).grams.row(text)
    count = len(row) // 12
    return np.frombuffer(row[8 * count :], np.int32), np.frombuffer(row[: 8 * count])


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.rpartition(".")[2])
@given(known=TEXTS, asked=TEXTS, shape=SHAPES, sublinear=st.booleans())
def test_rows_by_a_vocabulary_are_scikit_learns(
    way: Any, known: list[str], asked: list[str], shape: dict[str, Any], sublinear: bool
) -> None:
    """Terms, their order and their weights, to the bit."""
    if shape["analyzer"] != "word":
        shape = {**shape, "stop_words": None, "token_pattern": r"(?u)\b\w\w+\b"}
    vectorizer = TfidfVectorizer(sublinear_tf=sublinear, **shape)
    try:
        vectorizer.fit([*known, "ab ab 日 ab"])
    except ValueError:  # no text has a term
        return
    expected = vectorizer.transform(asked)
    for number, text in enumerate(asked):
        terms, values = row_of(way, vectorizer, text, pytest.MonkeyPatch())
        one = expected[[number]]
        assert terms.tolist() == one.indices.tolist()
        assert values.tobytes() == one.data.tobytes()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.rpartition(".")[2])
@given(asked=TEXTS, shape=SHAPES, features=st.sampled_from([1, 7, 64, 4096, 1 << 20]), signed=st.booleans())
def test_hashed_rows_are_scikit_learns(
    way: Any, asked: list[str], shape: dict[str, Any], features: int, signed: bool
) -> None:
    """Terms whose signs cancel out are there with 0, as in scikit-learn's."""
    if shape["analyzer"] != "word":
        shape = {**shape, "stop_words": None, "token_pattern": r"(?u)\b\w\w+\b"}
    vectorizer = HashingVectorizer(n_features=features, alternate_sign=signed, **shape)
    expected = vectorizer.transform(asked)
    for number, text in enumerate(asked):
        terms, values = row_of(way, vectorizer, text, pytest.MonkeyPatch())
        one = expected[[number]]
        assert terms.tolist() == one.indices.tolist()
        assert values.tobytes() == one.data.tobytes()
