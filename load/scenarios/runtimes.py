"""`runtimes`: what a batch takes under scikit-learn and under each runtime that a model of it can be converted to.

Trees and linear models of the digits, one thread. Nothing here goes over Kafka.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from load.results import Result
from load.section import section
from load.tables import Table, number
from load.training import digits
from workers.choice import measure
from workers.forms import runtime_module
from workers.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from load.system import Stage
    from load.training import Digits
    from workers.runtimes.contract import Runtime

NAME = "runtimes"
SIZES: Final = (1, 16, 256, 1_024)
_SAMPLE_ROWS = 256
_SEED = 1
TITLE: Final = "What a batch takes under each runtime"
INTRODUCTION: Final = """\
Microseconds, the shortest of five calls, one thread. The models are fitted on scikit-learn's digits (64 features,
float32, ten classes) and packaged with `--convert auto`. Written by `skysail load run runtimes`.
"""
MODELS: Mapping[str, tuple[Any, str]] = {
    "random forest of 100 trees": (RandomForestClassifier(100, random_state=_SEED), "label"),
    "random forest of 100 trees, 6 deep": (RandomForestClassifier(100, max_depth=6, random_state=_SEED), "label"),
    "gradient boosting of 300 trees": (GradientBoostingClassifier(n_estimators=30, random_state=_SEED), "label"),
    "histogram boosting of 1,000 trees": (HistGradientBoostingClassifier(random_state=_SEED), "label"),
    "logistic regression": (LogisticRegression(max_iter=200), "label"),
    "logistic regression, probabilities": (LogisticRegression(max_iter=200), "scores"),
    "ridge classifier": (RidgeClassifier(), "label"),
    "linear support vectors": (LinearSVC(random_state=_SEED), "label"),
    "scaler and logistic regression": (make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)), "label"),
    "ridge regression": (Ridge(), "value"),
}


async def run(stage: Stage) -> Result:
    """Measure one model after the other."""
    data = digits()
    rows = [row for name in MODELS for row in await asyncio.to_thread(_measured, name, data, stage.folder)]
    return Result(
        NAME,
        figures={f"{_slug(row['model'])}_{row['runtime']}_{size}_us": row[str(size)] for row in rows for size in SIZES},
        parameters={"seed": _SEED},
        series={"batches": rows},
    )


def _measured(name: str, data: Digits, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each runtime of a model."""
    estimator, output = MODELS[name]
    fitted = estimator.fit(data.train_x, data.train_y)
    path, sample = folder / _slug(name), data.test_x[:_SAMPLE_ROWS]
    manifest = package_sklearn(fitted, path, _slug(name), "1", sample, output=output, convert="auto")
    runtimes: dict[str, Runtime] = {
        runtime: runtime_module(runtime).load(manifest, path, allow_pickle=False, threads=1)
        for runtime in (manifest.runtime, *manifest.options["conversion"]["to"])
    }
    taken = measure(runtimes, data.test_x, SIZES).batch_us
    return [
        {"model": name, "runtime": runtime, **{str(size): us for size, us in sizes.items()}}
        for runtime, sizes in taken.items()
    ]


def _slug(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def tables(result: Result) -> list[Table]:
    """Return the table."""
    heads = ("model", "runtime", "1 row", *(f"{size:,}" for size in SIZES[1:]))
    rows = tuple(
        (row["model"], row["runtime"], *(number(row[str(size)]) for size in SIZES)) for row in result.series["batches"]
    )
    return [Table("Microseconds a batch", heads, rows)]


def page(result: Result, environment: Mapping[str, Any]) -> str:
    """Return the page."""
    return section(result, environment, TITLE, INTRODUCTION, tables(result)).replace("## ", "# ", 1)
