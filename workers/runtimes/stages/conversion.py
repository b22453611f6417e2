"""Reads a fitted pipeline of scikit-learn into steps and their graph. It neither imports scikit-learn nor calls a step.

It takes `Pipeline` and `FeatureUnion`; of texts the vectorizers by counts, TF-IDF and hashes, `TfidfTransformer` and a
linear model; of arrays `ColumnTransformer`, `StandardScaler`, `MinMaxScaler`, `PCA`, `KMeans`, and a linear model or
trees.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from workers.errors import PackageError
from workers.runtimes import linear_conversion, trees_conversion
from workers.runtimes.estimators import Family, refusal
from workers.runtimes.nodes import ROWS, PipelineNode
from workers.runtimes.stages.steps import SUFFIX, FittedStep, packed
from workers.runtimes.stages.texts import MOST_FEATURES
from workers.runtimes.stages.vocabulary import arrays_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from workers.manifest_form import NodeDocument

_UNIONS: Family[Any] = Family("FeatureUnion")
_COLUMNS: Family[Any] = Family("ColumnTransformer")
_VECTORIZERS: Family[Any] = Family("CountVectorizer", "TfidfVectorizer", "HashingVectorizer")
_TFIDF: Family[Any] = Family("TfidfTransformer")
_FUNCTIONS: Family[Any] = Family("FunctionTransformer")  # what a fitted ColumnTransformer passes columns through with
_PCA: Family[Any] = Family("PCA")
_KMEANS: Family[Any] = Family("KMeans", "MiniBatchKMeans")
_SCALERS: Family[Any] = Family("StandardScaler", "MinMaxScaler")
_PATTERNS: Final = {r"(?u)\b\w\w+\b": 2, r"(?u)\b\w+\b": 1, r"\b\w\w+\b": 2, r"\b\w+\b": 1}  # of words, by their least
_refusal = partial(refusal, "packaged step by step")


class ConvertedSteps:
    """The steps and the graph of a pipeline.

    Attributes:
        files: content by name, which is the digest.
        graph: the nodes, in order.
    """

    def __init__(self, pipeline: object, dtype: np.dtype[np.generic] | None) -> None:
        """Read a pipeline.

        Args:
            pipeline: fitted.
            dtype: of its rows; None = texts.

        Raises:
            PackageError: it has a step that cannot be read so.
        """
        self.files: dict[str, bytes] = {}
        self.graph: list[PipelineNode] = []
        self._is_text = dtype is None
        if dtype is not None and dtype != np.float64:
            raise PackageError(
                f"a pipeline of arrays is packaged step by step for float64, not {dtype}: cast the sample"
            )
        *before, last = _steps(pipeline)
        self._answer(last, self._chain(before, ROWS))

    def documents(self) -> list[NodeDocument]:
        """Return the graph as a manifest holds it."""
        return [
            {"file": node.file, "of": [*node.of], **({} if node.scale == 1.0 else {"scale": node.scale})}  # type: ignore[typeddict-item]
            for node in self.graph
        ]

    def _add(self, step: FittedStep | None, *of: int) -> int:
        name = ""
        if step is not None:
            content = packed(step)
            name = hashlib.sha256(content).hexdigest() + SUFFIX
            self.files[name] = content
        self.graph.append(PipelineNode(name, of))
        return len(self.graph) - 1

    def _chain(self, steps: Iterable[object], source: int) -> int:
        for step in steps:
            source = self._transform(step, source)
        return source

    def _transform(self, step: Any, source: int) -> int:
        """Add a step that makes something of another node's result."""
        if step is None or step == "passthrough" or (_FUNCTIONS.has(step) and step.func is None):
            return source
        if linear_conversion.PIPELINES.has(step):
            return self._chain(_steps(step), source)
        if _UNIONS.has(step):
            return self._union(step, source)
        if self._is_text:
            return self._text(step, source)
        return self._array(step, source)

    def _union(self, union: Any, source: int) -> int:
        weights: Mapping[str, float] = union.transformer_weights or {}
        parts = []
        for name, step in union.transformer_list:
            if step == "drop":
                continue
            first = len(self.graph)
            number = self._transform(step, source)
            if name in weights:
                if number < first or not self.graph[number].file or self.graph[number].scale != 1.0:
                    raise _refusal(union, f"the weight of {name} is not that of a single step")
                self.graph[number] = self.graph[number]._replace(scale=float(weights[name]))
            parts.append(number)
        return self._add(None, *parts)

    def _text(self, step: Any, source: int) -> int:
        if _TFIDF.has(step):
            if source < 0 or not self._is_counting(source):
                raise _refusal(step, "it does not follow a CountVectorizer or HashingVectorizer")
            return self._add(_weighing(step), source)
        if not _VECTORIZERS.has(step) or source != ROWS:
            raise _refusal(step, "before a linear model of texts there are vectorizers, side by side or one alone")
        counted = self._add(_counting(step), source)
        name = type(step).__name__
        if name == "CountVectorizer" or (name == "HashingVectorizer" and step.norm is None):
            return counted
        return self._add(_weighing(step), counted)

    def _is_counting(self, number: int) -> bool:
        return self.graph[number].of == (ROWS,) and self.graph[number].file != ""

    def _array(self, step: Any, source: int) -> int:
        if _COLUMNS.has(step):
            return self._columns(step, source)
        if _SCALERS.has(step):
            found = linear_conversion.operations_of(step, np.dtype("float64"))
            return self._add(
                FittedStep("scaling", {}, {f"{place}_{name}": each for place, (name, each) in enumerate(found)}), source
            )
        if _PCA.has(step):
            return self._add(_projecting(step), source)
        if _KMEANS.has(step):
            return self._add(FittedStep("distances", {}, {"centers": step.cluster_centers_}), source)
        raise _refusal(step, "of arrays scalers, PCA, KMeans and ColumnTransformer can be packaged so")

    def _columns(self, transformer: Any, source: int) -> int:
        parts, every = [], np.arange(transformer.n_features_in_)
        for _, step, columns in transformer.transformers_:
            chosen = every[columns] if not callable(columns) else every[:0]
            if step == "drop" or not len(chosen):
                continue
            taken = self._add(FittedStep("columns", {}, {"columns": chosen}), source)
            parts.append(self._transform(step, taken))
        if not parts or transformer.transformer_weights:
            raise _refusal(transformer, "it takes no columns by their places, or weighs them")
        return self._add(None, *parts)

    def _answer(self, step: Any, source: int) -> None:
        if not linear_conversion.LINEAR.has(step):
            if self._is_text:
                raise _refusal(step, "a pipeline of texts ends in a linear model")
            self._add(_trees(step), source)
            return
        link = linear_conversion.link_of(step)
        weights, intercept = linear_conversion.coefficients(step)
        if weights.dtype != np.float64:
            raise _refusal(step, f"its coefficients are {weights.dtype}")
        if self._is_text:
            weights = np.ascontiguousarray(weights)
        arrays = {"weights": weights, "intercept": np.asarray(intercept, np.float64)}
        self._add(FittedStep("linear", {"link": link}, arrays), source)


def _steps(pipeline: object) -> list[object]:
    if linear_conversion.PIPELINES.has(pipeline):
        return [step for _, step in pipeline.steps]
    return [pipeline]


def _counting(step: Any) -> FittedStep:
    _check_vectorizer(step)
    is_hashing = type(step).__name__ == "HashingVectorizer"
    arrays: dict[str, NDArray[np.generic]] = {}
    if not is_hashing:
        arrays |= arrays_of(_terms(step))
    stopped = step.get_stop_words() if step.analyzer == "word" else None
    if stopped:
        arrays |= {f"stopped_{name}": each for name, each in arrays_of(sorted(stopped)).items()}
    least, most = step.ngram_range
    options = {
        "analyzer": step.analyzer,
        "lower": bool(step.lowercase),
        "accents": step.strip_accents,
        "shortest": _PATTERNS.get(step.token_pattern, 1),
        "least": int(least),
        "most": int(most),
        "features": int(step.n_features) if is_hashing else 0,
        "signed": bool(is_hashing and step.alternate_sign),
        "binary": bool(step.binary),
    }
    return FittedStep("counting", options, arrays)


def _check_vectorizer(step: Any) -> None:
    """Refuse what is not a count of n-grams.

    Raises:
        PackageError: it is something else.
    """
    if step.analyzer not in {"word", "char", "char_wb"} or step.tokenizer is not None or step.preprocessor is not None:
        raise _refusal(step, "its analyzer, tokenizer or preprocessor is a function")
    if step.input != "content" or step.strip_accents not in {None, "ascii", "unicode"}:
        raise _refusal(step, "it reads files, or strips accents by a function")
    if step.analyzer == "word" and step.token_pattern not in _PATTERNS:
        raise _refusal(step, f"its token_pattern is not one of {', '.join(_PATTERNS)}")
    counts = ("int64", "float64") if type(step).__name__ == "CountVectorizer" else ("float64",)
    if np.dtype(step.dtype).name not in counts:
        raise _refusal(step, f"its dtype is {np.dtype(step.dtype)}")
    if getattr(step, "n_features", 0) > MOST_FEATURES and not hasattr(step, "vocabulary_"):
        raise _refusal(step, f"its n_features is above {MOST_FEATURES}")


def _terms(step: Any) -> list[str]:
    found = sorted((int(number), term) for term, number in step.vocabulary_.items())
    if [number for number, _ in found] != list(range(len(found))):
        raise _refusal(step, "its vocabulary has gaps")
    return [term for _, term in found]


def _weighing(step: Any) -> FittedStep:
    is_hashing = type(step).__name__ == "HashingVectorizer"
    uses_idf = not is_hashing and step.use_idf
    arrays = {"idf": np.asarray(step.idf_, np.float64)} if uses_idf else {}
    return FittedStep("weighing", {"norm": step.norm, "sublinear": bool(not is_hashing and step.sublinear_tf)}, arrays)


def _projecting(step: Any) -> FittedStep:
    arrays = {"components": step.components_, "mean": step.mean_}
    if step.whiten:
        scale = np.sqrt(step.explained_variance_)
        arrays["scale"] = np.maximum(scale, np.finfo(scale.dtype).eps)
    return FittedStep("projecting", {}, arrays)


def _trees(step: object) -> FittedStep:
    trees = trees_conversion.compiled(step, np.dtype("float64"))
    found = {field.name: getattr(trees, field.name) for field in fields(trees)}
    plain = {name: found.pop(name) for name in ("depth", "stages", "link", "tie")}
    return FittedStep("trees", plain, {name: np.asarray(each) for name, each in found.items()})
