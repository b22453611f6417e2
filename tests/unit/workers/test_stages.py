"""Pipelines in stages: answers to the bit, steps that are there once, and files that hold what they should not."""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import LinearSVC

from workers import manifest as manifests
from workers.errors import PackageError
from workers.packages.loading import load_package
from workers.packages.packaging import package_sklearn
from workers.runtimes.stages import grams_python, texts
from workers.runtimes.stages.conversion import ConvertedSteps
from workers.runtimes.stages.plan import StagesRuntime, load
from workers.runtimes.stages.steps import FittedStep, packed, unpacked
from workers.runtimes.stages.store import HERE, Recent, Store, mapped
from workers.runtimes.stages.texts import IS_COMPILED
from workers.runtimes.stages.vocabulary import arrays_of, terms_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_RANDOM = np.random.default_rng(5)
_PIECES = ["ka", "lo", "mi", "né", "ß", "tu", "x", "Ab", "ro ", " ", "\n ", "  ", "_", "7", "İ", "日本", "and "]


def made_texts(count: int) -> list[str]:
    """Return texts of odd letters and spaces; some are empty."""
    return [
        " ".join("".join(_RANDOM.choice(_PIECES, _RANDOM.integers(1, 4))) for _ in range(_RANDOM.integers(0, 20)))
        for _ in range(count)
    ]


TEXTS, HELD_OUT = made_texts(200), [*made_texts(80), "", " ", "zz and zz"]
TWO, THREE = _RANDOM.integers(0, 2, len(TEXTS)), _RANDOM.integers(0, 3, len(TEXTS))
ROWS = _RANDOM.normal(size=(150, 8))
OTHERS = _RANDOM.normal(size=(60, 8))
COUNTS = _RANDOM.normal(size=len(ROWS))

OF_TEXTS = {
    "words": lambda: make_pipeline(TfidfVectorizer(ngram_range=(1, 2), stop_words="english"), LogisticRegression()),
    "characters": lambda: make_pipeline(CountVectorizer(analyzer="char", ngram_range=(2, 4)), LogisticRegression()),
    "in words, logarithms": lambda: make_pipeline(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 5), sublinear_tf=True, strip_accents="unicode", norm="l1"),
        LogisticRegression(),
    ),
    "hashed": lambda: make_pipeline(HashingVectorizer(ngram_range=(1, 2)), LogisticRegression()),
    "hashed without signs": lambda: make_pipeline(
        HashingVectorizer(norm=None, alternate_sign=False, n_features=300, analyzer="char_wb", ngram_range=(3, 3)),
        TfidfTransformer(sublinear_tf=True),
        SGDClassifier(loss="log_loss", random_state=0),
    ),
    "side by side": lambda: make_pipeline(
        FeatureUnion(
            [
                ("a", TfidfVectorizer(min_df=2)),
                ("b", TfidfVectorizer(analyzer="char", ngram_range=(3, 4), lowercase=False, strip_accents="ascii")),
                ("c", HashingVectorizer(n_features=512, binary=True)),
            ],
            transformer_weights={"a": 0.7, "b": 2.0},
        ),
        LogisticRegression(),
    ),
    "counted, then weighed": lambda: make_pipeline(
        CountVectorizer(binary=True, token_pattern=r"(?u)\b\w+\b", ngram_range=(2, 3)),
        TfidfTransformer(norm=None),
        LogisticRegression(),
    ),
}
OF_ARRAYS = {
    "scaled, side by side, trees": lambda: make_pipeline(
        StandardScaler(),
        make_union(PCA(3, random_state=0), KMeans(4, n_init=1, random_state=0), MinMaxScaler()),
        GradientBoostingRegressor(n_estimators=5, random_state=0),
    ),
    "whitened, linear": lambda: make_pipeline(PCA(3, whiten=True, random_state=0), Ridge()),
    "columns": lambda: make_pipeline(
        ColumnTransformer([("a", StandardScaler(), [0, 2, 5]), ("b", PCA(2), slice(4, 8))], remainder="passthrough"),
        Ridge(),
    ),
    "nothing before": lambda: make_pipeline(Ridge()),
}


def in_stages(pipeline: Any, rows: Any, output: str, store: Store | None = None) -> StagesRuntime:
    """Package a pipeline's steps in memory, and load them."""
    dtype = rows.dtype if isinstance(rows, np.ndarray) else None
    steps = ConvertedSteps(pipeline, dtype)
    signature = manifests.Signature("string") if dtype is None else manifests.Signature("tensor", dtype.name, (8,))
    classes = () if output == "value" else tuple(pipeline.classes_.tolist())
    files = {name: name.partition(".")[0] for name in steps.files}
    manifest = manifests.Manifest("toy", "1", "stages", signature, output, classes, files, {"graph": steps.documents()})
    return load(manifest, steps.files, allow_pickle=False, threads=1, store=Store() if store is None else store)


@pytest.mark.parametrize("name", OF_TEXTS)
@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_answers_to_texts_are_scikit_learns_to_the_bit(name: str, labels: Any) -> None:
    """Labels and probabilities of texts that nothing was fitted on, in batches of one and of many."""
    pipeline = OF_TEXTS[name]().fit(TEXTS, labels)
    runtime = in_stages(pipeline, TEXTS, "scores")
    for batch in (HELD_OUT, HELD_OUT[:1], HELD_OUT[-3:]):
        found = runtime.predict_batch(batch)
        assert np.array_equal(np.asarray(found.scores), pipeline.predict_proba(batch))
        assert np.array_equal(np.asarray(found.answers), pipeline.predict(batch))


@pytest.mark.parametrize("estimator", [RidgeClassifier(), LinearSVC()], ids=["ridge", "vectors"])
def test_linear_classifiers_without_probabilities_answer_the_same_labels(estimator: Any) -> None:
    """Names, too."""
    names = np.array(["no", "so", "yes"])[THREE]
    pipeline = make_pipeline(TfidfVectorizer(), estimator).fit(TEXTS, names)
    assert in_stages(pipeline, TEXTS, "label").predict_batch(HELD_OUT).answers == tuple(pipeline.predict(HELD_OUT))


@pytest.mark.parametrize("name", OF_ARRAYS)
@pytest.mark.parametrize("rows", [1, 2, 60])
def test_values_of_arrays_are_scikit_learns_to_the_bit(name: str, rows: int) -> None:
    """In the same batch: as with scikit-learn, the last bits of a product depend on its size."""
    pipeline = OF_ARRAYS[name]().fit(ROWS, COUNTS)
    found = in_stages(pipeline, ROWS, "value").predict_batch(OTHERS[:rows])
    assert np.array_equal(np.asarray(found.answers), pipeline.predict(OTHERS[:rows]))


def test_a_forest_may_end_a_pipeline() -> None:
    """Its probabilities, too."""
    pipeline = make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0)).fit(ROWS, COUNTS > 0)
    steps = in_stages(pipeline, ROWS, "scores")
    assert np.allclose(np.asarray(steps.predict_batch(OTHERS).scores), pipeline.predict_proba(OTHERS), atol=1e-12)


def two_of_one_kind() -> tuple[Any, Any]:
    """Return two pipelines that differ in their last step."""
    vectorizer = TfidfVectorizer().fit(TEXTS)
    rows = vectorizer.transform(TEXTS)
    one, other = (Ridge(alpha).fit(rows, TWO) for alpha in (1.0, 2.0))
    return Pipeline([("a", vectorizer), ("b", one)]), Pipeline([("a", vectorizer), ("b", other)])


def test_equal_steps_of_two_models_are_there_once() -> None:
    """The second model adds its linear model and the plan alone; the last one that leaves takes all with it."""
    one, other = two_of_one_kind()
    store = Store()
    first = in_stages(one, TEXTS, "value", store)
    before = len(store)
    second = in_stages(other, TEXTS, "value", store)
    assert len(store) == before + 1
    del first
    gc.collect()
    assert len(store) == before
    assert np.array_equal(np.asarray(second.predict_batch(HELD_OUT).answers), other.predict(HELD_OUT))
    del second
    gc.collect()
    assert len(store) == 0


def test_a_step_that_is_there_is_not_read_again() -> None:
    """A pipeline whose steps another one holds is loaded without their files."""
    one, _ = two_of_one_kind()
    store = Store()
    held = in_stages(one, TEXTS, "value", store)
    steps = ConvertedSteps(one, None)
    files = {name: name.partition(".")[0] for name in steps.files}
    manifest = manifests.Manifest(
        "toy", "2", "stages", manifests.Signature("string"), "value", (), files, {"graph": steps.documents()}
    )
    again = load(manifest, {}, allow_pickle=False, threads=1, store=store)
    assert np.array_equal(
        np.asarray(again.predict_batch(HELD_OUT).answers), np.asarray(held.predict_batch(HELD_OUT).answers)
    )


def test_a_row_that_another_model_was_asked_about_is_not_counted_again() -> None:
    """Its rows lie in the store's results of late; answers are the same to the bit."""
    one, other = two_of_one_kind()
    store = Store()
    first, second = in_stages(one, TEXTS, "value", store), in_stages(other, TEXTS, "value", store)
    first.predict_batch(["ka lo mi"])
    grew: list[int] = []
    store.recent.grew = grew.append  # type: ignore[method-assign] # to hear of it
    found = second.predict_batch(["ka lo mi"])
    assert grew == []
    assert np.array_equal(np.asarray(found.answers), other.predict(["ka lo mi"]))


def test_arrays_that_another_model_was_asked_about_are_not_scaled_again() -> None:
    """The whole batch is looked up."""
    scaler = StandardScaler().fit(ROWS)
    rows = scaler.transform(ROWS)
    store = Store()
    pipelines = [Pipeline([("a", scaler), ("b", Ridge(alpha).fit(rows, COUNTS))]) for alpha in (1.0, 2.0)]
    runtimes = [in_stages(pipeline, ROWS, "value", store) for pipeline in pipelines]
    runtimes[0].predict_batch(OTHERS)
    grew: list[int] = []
    store.recent.grew = grew.append  # type: ignore[method-assign] # to hear of it
    found = runtimes[1].predict_batch(OTHERS)
    assert grew == []
    assert np.array_equal(np.asarray(found.answers), pipelines[1].predict(OTHERS))


@pytest.mark.parametrize("letter", ["a", "é", "日", "😀"])
@pytest.mark.parametrize("way", [texts.grams, grams_python], ids=["installed", "python"])
def test_a_text_that_is_kept_with_its_row_counts_whole(way: Any, letter: str) -> None:
    """A row of few terms is small, however long the text of a client is that it was made of."""
    counting = way.Grams(1, False, None, 1, 1, 1, None, None, 1, False, False, None, None, 0, 1.0)
    text, rows = letter * 10_000, ({}, {})
    added = way.Scorer((counting,), np.ones((1, 1))).add([text], np.zeros((1, 1)), (rows,))
    assert sys.getsizeof(text) <= added <= sys.getsizeof(text) + 300
    assert [*rows[0]] == [text]


def test_results_of_late_are_bounded_in_bytes() -> None:
    """Two generations: what was not asked for while the young ones filled is gone."""
    recent = Recent(100)
    recent.tables("a")[0]["x"] = 1
    recent.grew(60)
    recent.grew(60)
    young, old = recent.tables("a")
    assert (young, old) == ({}, {"x": 1})
    recent.grew(101)
    assert recent.tables("a") == ({}, {})


@pytest.mark.parametrize(
    ("pipeline", "rows", "why"),
    [
        (make_pipeline(TfidfVectorizer(tokenizer=str.split, token_pattern=None), Ridge()), TEXTS, "is a function"),
        (make_pipeline(TfidfVectorizer(token_pattern=r"\S+"), Ridge()), TEXTS, "its token_pattern is not one of"),
        (make_pipeline(TfidfVectorizer(dtype=np.float32), Ridge()), TEXTS, "its dtype is float32"),
        (make_pipeline(CountVectorizer(dtype=np.uint8), Ridge()), TEXTS, "its dtype is uint8"),
        (make_pipeline(TfidfVectorizer(), TruncatedSVD(2), Ridge()), TEXTS, "side by side or one alone"),
        (make_pipeline(TfidfVectorizer(), RandomForestClassifier(2)), TEXTS, "ends in a linear model"),
        (make_pipeline(make_union(CountVectorizer(), CountVectorizer()), TfidfTransformer(), Ridge()), TEXTS, "follow"),
        (make_pipeline(TruncatedSVD(2), Ridge()), ROWS, "of arrays scalers, PCA"),
        (make_pipeline(Ridge()), ROWS.astype(np.float32), "for float64, not float32"),
    ],
)
def test_a_pipeline_that_cannot_be_packaged_so_is_refused_with_the_reason(pipeline: Any, rows: Any, why: str) -> None:
    """Nothing is approximated."""
    pipeline.fit(rows, TWO[: len(rows)])
    with pytest.raises(PackageError, match=why):
        ConvertedSteps(pipeline, rows.dtype if isinstance(rows, np.ndarray) else None)


def test_a_package_is_a_file_a_step_and_no_original(tmp_path: Path) -> None:
    """The files are named by what is in them, and equal steps of two packages have equal names."""
    one, other = two_of_one_kind()
    first = package_sklearn(one, tmp_path / "one", "one", "1", TEXTS[:5], convert="stages")
    second = package_sklearn(other, tmp_path / "other", "other", "1", TEXTS[:5], convert="stages")
    steps = first.files.keys() - {"warm-up.avro"}
    assert all(name == f"{first.files[name]}.step" for name in steps)
    assert len(steps & second.files.keys()) == 2
    assert {path.name for path in (tmp_path / "one").iterdir()} == {*first.files, "manifest.json"}
    assert np.array_equal(
        np.asarray(load_package(tmp_path / "one").runtime.predict_batch(HELD_OUT).answers), one.predict(HELD_OUT)
    )


def test_models_that_are_loaded_in_one_process_share_their_steps(tmp_path: Path) -> None:
    """Whoever loads them: a worker, selection, or the child process of a host."""
    for name, pipeline in zip(("one", "other"), two_of_one_kind(), strict=True):
        package_sklearn(pipeline, tmp_path / name, name, "1", TEXTS[:5], convert="stages")
    gc.collect()
    before = len(HERE)
    held = [load_package(tmp_path / "one")]
    alone = len(HERE) - before
    held.append(load_package(tmp_path / "other"))
    assert len(HERE) - before == alone + 1


def test_a_changed_step_is_refused_when_it_is_read(tmp_path: Path) -> None:
    """Files are checked when they are read, and no others are read."""
    pipeline = make_pipeline(TfidfVectorizer(), Ridge(3.0)).fit(TEXTS, TWO)
    manifest = package_sklearn(pipeline, tmp_path / "one", "one", "1", TEXTS[:5], convert="stages")
    gc.collect()  # nobody holds its steps any more
    changed = tmp_path / "one" / next(iter(manifest.files))
    changed.write_bytes(changed.read_bytes() + b" ")
    with pytest.raises(PackageError, match="is not the file that was packaged"):
        load_package(tmp_path / "one")


def stored(step: FittedStep) -> FittedStep:
    """Return a step after it was written and read."""
    return unpacked(packed(step))


def test_a_step_is_read_as_it_was_written() -> None:
    """Dtypes, shapes and the order in memory are kept."""
    step = FittedStep("toy", {"a": 1}, {"x": np.arange(6.0).reshape(2, 3), "y": np.asfortranarray(np.ones((3, 2)))})
    found = stored(step)
    assert found.options == {"a": 1}
    assert np.array_equal(found.arrays["x"], step.arrays["x"])
    assert found.arrays["y"].flags.f_contiguous
    assert packed(step) == packed(found)


def test_large_content_is_mapped_and_the_same() -> None:
    """Small content stays as it is."""
    content = bytes(range(256)) * 512
    assert mapped(content)[:] == content
    assert mapped(content) is not content
    assert mapped(b"few") == b"few"


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", packed(FittedStep("a", {}, {}))[:70], b"x" * 500])
def test_a_file_that_holds_no_step_is_refused(content: bytes) -> None:
    """Whatever is in it."""
    with pytest.raises(PackageError, match="holds no step"):
        unpacked(content)


VOCABULARY = arrays_of(["ab", "b", "é", ""])


@pytest.mark.skipif(not IS_COMPILED, reason="the extension was not built: no C compiler at installation")
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("slots", lambda slots: slots | np.uint64(1 << 40 | 99)),
        ("slots", lambda slots: np.full_like(slots, 1 << 40)),
        ("slots", lambda slots: np.full_like(slots, (1 << 40) + 1)),
        ("slots", lambda slots: slots[:-1]),
        ("slots", lambda slots: slots[:4]),
        ("ends", lambda ends: ends[::-1].copy()),
        ("ends", lambda ends: ends + np.uint32(1000)),
        ("text", lambda text: text[:2]),
    ],
)
def test_a_vocabulary_that_leads_elsewhere_is_refused(name: str, change: Any) -> None:
    """A package may be damaged: nothing beside the arrays is read, and every search ends."""
    from workers.runtimes.stages.grams import Terms

    with pytest.raises(ValueError, match=r"vocabulary|term"):
        Terms(**{**VOCABULARY, name: change(VOCABULARY[name])})  # type: ignore[arg-type] # arrays


def test_terms_are_read_as_they_were_written() -> None:
    """The empty one, too."""
    assert terms_of(VOCABULARY["ends"], VOCABULARY["text"]) == ["ab", "b", "é", ""]  # type: ignore[arg-type] # numbers


def changed(documents: list[Any], number: int, change: Mapping[str, Any]) -> list[Any]:
    """Return a graph with one node changed."""
    found = json.loads(json.dumps(documents))
    found[number] |= change
    return list(found)


@pytest.mark.parametrize(
    ("number", "change", "why"),
    [
        (0, {"of": [1]}, "do not come before it"),
        (0, {"of": []}, "do not come before it"),
        (0, {"file": "other.step"}, "lists no other.step"),
        (1, {"of": [-1]}, "is counted"),
        (2, {"of": [-1]}, "is counted"),
        (2, {"file": ""}, "no graph of steps"),
    ],
)
def test_a_graph_that_makes_no_plan_is_refused(number: int, change: Mapping[str, Any], why: str) -> None:
    """Nodes in another order, files that are not there, texts where counts should be."""
    steps = ConvertedSteps(two_of_one_kind()[0], None)
    files = {name: name.partition(".")[0] for name in steps.files}
    manifest = manifests.Manifest(
        "toy", "1", "stages", manifests.Signature("string"), "value", (), files, {"graph": steps.documents()}
    )
    spoilt = replace(manifest, options={"graph": changed(steps.documents(), number, change)})
    with pytest.raises(PackageError, match=why):
        load(spoilt, steps.files, allow_pickle=False, threads=1, store=Store())


def test_python_hashes_as_the_compiled_module_does() -> None:
    """MurmurHash3 of the empty text, and of texts of every remainder by four."""
    from sklearn.utils.murmurhash import murmurhash3_32

    for size in range(10):
        data = bytes(range(250, 250 - size, -1))
        assert grams_python.murmur(data) == murmurhash3_32(data, seed=0)
