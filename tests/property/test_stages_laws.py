"""Laws of texts in stages: whatever the text and the vectorizer, rows are scikit-learn's, compiled and in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer

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


# A few letters over and over: where features are few, one of them occurs more often than the text has letters.
REPEATED = st.builds(
    lambda text, times: text * times, st.text(LETTERS, min_size=1, max_size=3), st.sampled_from([1, 90, 900])
)


def row_of(
    way: Any, vectorizer: Any, text: str, monkeypatch: pytest.MonkeyPatch, weigher: Any = None
) -> tuple[Any, Any]:
    """Return the terms and the values of a text's row."""
    with monkeypatch.context() as patch:
        patch.setattr(texts, "grams", way)
        counting = texts.Counting.of(unpacked(packed(conversion._counting(vectorizer))))
        weighing = texts.Weighing.of(unpacked(packed(conversion._weighing(weigher or vectorizer))))
        row = texts.TextPart("", counting, weighing, 1.0).grams.row(text)
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


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.rpartition(".")[2])
@given(
    asked=st.lists(REPEATED, min_size=1, max_size=2),
    shape=SHAPES.map(lambda shape: {**shape, "norm": None}),
    most=st.integers(4, 12),
    features=st.sampled_from([1, 2, 7, 64]),
    norm=st.sampled_from([None, "l1", "l2"]),
    weighs=st.booleans(),
    sublinear=st.sampled_from([True, True, False]),
)
def test_hashed_counts_are_weighed_as_scikit_learn_weighs_them(
    way: Any,
    asked: list[str],
    shape: dict[str, Any],
    most: int,
    features: int,
    norm: Any,
    weighs: bool,
    sublinear: bool,
) -> None:
    """However often a term occurs: n-grams of all lengths share few features, and letters are repeated."""
    shape = {**shape, "ngram_range": (shape["ngram_range"][0], most)}
    if shape["analyzer"] != "word":
        shape = {**shape, "stop_words": None, "token_pattern": r"(?u)\b\w\w+\b"}
    vectorizer = HashingVectorizer(n_features=features, alternate_sign=False, **shape)
    weigher = TfidfTransformer(norm=norm, use_idf=weighs, sublinear_tf=sublinear)
    weigher.fit(vectorizer.transform([*asked, "ab ab 日 ab"]))
    expected = weigher.transform(vectorizer.transform(asked))
    for number, text in enumerate(asked):
        terms, values = row_of(way, vectorizer, text, pytest.MonkeyPatch(), weigher)
        one = expected[[number]]
        assert terms.tolist() == one.indices.tolist()
        assert values.tobytes() == one.data.tobytes()


@pytest.mark.skipif(not texts.IS_COMPILED, reason="the extension was not built: no C compiler at installation")
def test_another_row_may_be_made_while_logarithms_are_taken() -> None:
    """Rows are made in buffers of the process, and NumPy may let another thread run."""

    def of(logs: Any) -> Any:
        return texts.grams.Grams(1, False, None, 1, 1, 3, None, None, 4, False, False, logs, None, 0, 1.0)

    def logs(counts: Any) -> Any:
        if len(counts) < 256:  # not those that lie ready
            of(texts.logs).row("xyz" * 10_000)
        return texts.logs(counts)

    assert of(logs).row("ab" * 400) == of(texts.logs).row("ab" * 400)


@pytest.mark.skipif(not texts.IS_COMPILED, reason="the extension was not built: no C compiler at installation")
def test_a_text_that_has_more_n_grams_than_can_be_counted_is_refused() -> None:
    """2**31 of one term: 64 lengths from each of 17 million letters."""
    counting = texts.grams.Grams(1, False, None, 1, 1, 64, None, None, 1, False, False, None, None, 0, 1.0)
    with pytest.raises(ValueError, match="too long for so many lengths"):
        counting.row("a" * (1 << 24))
