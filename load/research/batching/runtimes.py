"""`runtimes`: the time of a batch under scikit-learn and under each runtime that one of its models can be converted to.

It measures trees and linear models of the digits in one thread, and the loading of two of them. Kafka is not used.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from load.figures import SHOWN_US, Figures
from load.models.training import digits
from load.results.results import Result
from load.results.tables import Table, number
from load.scenario import Scenario
from workers.errors import PackageError
from workers.packages.autotune import measure
from workers.packages.packaging import package_sklearn
from workers.packages.sealed import sealed
from workers.packages.variants import ON_REQUEST, answers, apart, compiled, runtime_module

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from load.harness.system import Stage
    from load.models.training import Digits, Estimator
    from workers.runtimes.contract import Runtime

NAME = "runtimes"
SIZES: Final = (1, 16, 256, 1_024)
_SAMPLE_ROWS = 256
_SEED = 1
# Model -> in which forms it is loaded, by a process that has done nothing else: s of CPU time, and bytes in memory.
_LOADED: Final = {
    "random forest of 100 trees, 6 deep": ("none", "load", "trees", "onnx", "hummingbird"),
    "logistic regression": ("none", "load", "linear"),
}
_LOAD = (
    "import sys, time, psutil; from workers.packages.loading import load_package; load_package(sys.argv[1]); "
    "print(time.process_time(), psutil.Process().memory_info().rss)"
)
MODELS: Mapping[str, tuple[Estimator, str]] = {
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


FIGURES = Figures(SHOWN_US("*_us"))


async def run(stage: Stage) -> Result:
    """Measure one model after the other."""
    data = digits()
    left_out: list[str] = []
    loading = [row for name in _LOADED for row in await asyncio.to_thread(_loading, name, data, stage.folder, left_out)]
    rows = [row for name in MODELS for row in await asyncio.to_thread(_measured, name, data, stage.folder, left_out)]
    return Result(
        NAME,
        figures={f"{_slug(row['model'])}_{row['runtime']}_{size}_us": row[str(size)] for row in rows for size in SIZES},
        parameters={"seed": _SEED},
        series={"batches": rows, "loading": loading},
        notes=tuple(left_out),
    )


def _measured(name: str, data: Digits, folder: Path, left_out: list[str]) -> list[dict[str, Any]]:
    """Return a row for each runtime of a model; says of those that were left out why."""
    estimator, output = MODELS[name]
    fitted = estimator.fit(data.train_x, data.train_y)
    path, sample = folder / _slug(name), data.test_x[:_SAMPLE_ROWS]
    manifest = package_sklearn(fitted, path, _slug(name), "1", sample, output=output, convert="auto")
    runtimes: dict[str, Runtime] = {
        runtime: runtime_module(runtime).load(manifest, sealed(path, manifest), allow_pickle=False, threads=1)
        for runtime in (manifest.runtime, *manifest.options["conversion"]["to"])
    }
    for also in ON_REQUEST:
        try:
            form = compiled(also, manifest, fitted, sample.dtype)
            apart(answers(runtimes[manifest.runtime], sample), form, sample)
            runtimes[also] = form
        except PackageError as error:
            left_out.append(f"No {also} for {name}, because {_why(error)}.")
    taken = measure(runtimes, data.test_x, SIZES).batch_us
    return [
        {"model": name, "runtime": runtime, **{str(size): us for size, us in sizes.items()}}
        for runtime, sizes in taken.items()
    ]


def _loading(name: str, data: Digits, folder: Path, left_out: list[str]) -> list[dict[str, Any]]:
    """Return what loading a model takes, by how it was packaged; says of what cannot be packaged so why."""
    estimator, output = MODELS[name]
    fitted, rows = estimator.fit(data.train_x, data.train_y), []
    for convert in _LOADED[name]:
        path = folder / f"{_slug(name)}-{convert}"
        try:
            package_sklearn(fitted, path, "toy", "1", data.test_x[:_SAMPLE_ROWS], output=output, convert=convert)
        except PackageError as error:
            left_out.append(f"No loading of {name} as {convert}, because {_why(error)}.")
            continue
        command = (sys.executable, "-c", _LOAD, str(path))
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603  # our own command
        s, size = map(float, said.split())
        rows.append({"model": name, "convert": convert, "s": s, "mib": size / 2**20})
    return rows


def _why(error: PackageError) -> str:
    """Return the first sentence of an error; libraries add paragraphs to theirs."""
    first = str(error).partition(". ")[0]
    return first + ")" * (first.count("(") - first.count(")"))


def _slug(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def tables(result: Result) -> list[Table]:
    """Return the table."""
    heads = ("model", "runtime", "1 row", *(f"{size:,}" for size in SIZES[1:]))
    rows = tuple(
        (row["model"], row["runtime"], *(number(row[str(size)]) for size in SIZES)) for row in result.series["batches"]
    )
    loading = tuple(
        (row["model"], row["convert"], f"{row['s']:.1f}", number(row["mib"])) for row in result.series["loading"]
    )
    return [
        Table("Microseconds a batch", heads, rows),
        Table(
            "Loading a package, in a process that does nothing else", ("model", "--convert", "s of CPU", "MiB"), loading
        ),
    ]


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "trees and linear models under scikit-learn and all that they can be converted to: time by batch size",
    tables=tables,
    page="research/batching/runtimes.md.j2",
)
