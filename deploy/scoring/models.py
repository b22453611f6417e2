"""The packages that answer rows, loaded when they are first asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from deploy.errors import UsageError
from deploy.state.packages import keys_of, model_record, version_of
from policies import draw
from schemas.records import Outcome
from schemas.topics import MODEL_VERSION
from workers.executors.joining import joined
from workers.executors.predictor import predictor
from workers.inputs.columns import Stacked
from workers.kernel.model.routing import CANARY, STABLE, named
from workers.packages.loading import load_package

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deploy.config.settings import Settings
    from schemas.records import Input, Model
    from streams.operators.contract import Predicted
    from workers.manifest import Manifest

# Of one call: numbers of eight thousand rows lie in the caches of a core, and ten times as many are no faster.
CALL_ROWS: Final = 8_192
CALL_BYTES: Final = 32 << 20


class RunningModel(NamedTuple):
    """A package that is loaded.

    Attributes:
        manifest: of the package.
        digest: of the package.
        kinds: of its answers, as far as its classes and the rows that it keeps tell: whole, number, text.
        predict: answers any number of rows.
    """

    manifest: Manifest
    digest: str
    kinds: frozenset[str]
    predict: Callable[[Sequence[Input]], Predicted]


class PackagedModels:
    """Versions of models by name.

    Args:
        settings: of the deployment: what may be loaded.
        serving: the record of each model, with the shares and labels of its versions.
        known: all versions, by `MODEL@VERSION`.
    """

    def __init__(self, settings: Settings, serving: Mapping[str, Model], known: Mapping[str, Model]) -> None:
        self._settings = settings
        self._known = known
        self._loaded: dict[str, RunningModel] = {}
        self.serving = serving

    def loaded(self, name: str, version: str) -> RunningModel:
        """Return a version, loaded.

        Raises:
            UsageError: there is no such version.
            PackageError: it cannot be loaded.
        """
        key = f"{name}{MODEL_VERSION}{version}"
        if key not in self._loaded:
            record = self._known.get(key)
            if record is None:
                there = sorted(self._known)
                raise UsageError(f"there is no model {key}; there are: {', '.join(there) or 'none'}")
            self._loaded[key] = _loaded(self._settings, record)
        return self._loaded[key]

    def version(self, name: str, told: str) -> str | None:
        """Return the version that a version or label stands for; None = each query draws one.

        Args:
            name: of the model.
            told: what a query or application names, as its workers read it; "" = nothing.

        Raises:
            UsageError: there is no such model.
        """
        model = self.serving.get(name)
        if model is None:
            raise UsageError(f"there is no model {name}; there are: {', '.join(self.serving) or 'none'}")
        told = named(told, name)
        if told == CANARY or (not told and any(model.shares.values())):
            return None
        return model.version if told in ("", STABLE) else model.labels.get(told, told)

    def drawn(self, name: str, told: str, query_id: str) -> str:
        """Return the version that a query draws, as workers do."""
        model = self.serving[name]
        if named(told, name) == CANARY:
            canaries = {version: share for version, share in model.shares.items() if share}
            names, total = sorted(canaries), sum(canaries.values())
            parts = [canaries[version] / total for version in names]
            return names[draw.pick(parts, draw.uniform(query_id, "version"))] if names else model.version
        return draw.version(query_id, model.shares) or model.version


def of_package(settings: Settings, folder: Path) -> tuple[PackagedModels, Model]:
    """Return a package alone as the models that there are, and its record; no service is asked.

    Raises:
        PackageError: the folder is no package.
    """
    record = model_record(folder, settings)
    key = f"{record.name}{MODEL_VERSION}{record.version}"
    return PackagedModels(settings, {record.name: record}, {key: record}), record


def _loaded(settings: Settings, record: Model) -> RunningModel:
    worker = settings.worker
    root = "" if worker.packages is None else str(worker.packages)
    model = load_package(
        Path(record.path),
        allow_pickle=worker.allow_pickle,
        digest=record.digest,
        threads=worker.threads,
        sizes=(1, 64, CALL_ROWS),
        code=worker.code,
        root=root,
        keys=keys_of(settings),
        version=version_of(record),
    )
    ask = predictor(model)

    def predict(inputs: Sequence[Input]) -> Predicted:
        most = _rows_a_call(inputs)
        if len(inputs) <= most:
            return ask(inputs)
        return joined([ask(inputs[start : start + most]) for start in range(0, len(inputs), most)])

    return RunningModel(model.manifest, model.digest, _kinds(model.manifest, ask, model.warm_up), predict)


def _rows_a_call(inputs: Sequence[Input]) -> int:
    if not isinstance(inputs, Stacked) or not inputs.rows:
        return CALL_ROWS
    return max(1, min(CALL_ROWS, CALL_BYTES // max(1, len(inputs.data) // inputs.rows)))


def _kinds(manifest: Manifest, ask: Callable[[Sequence[Input]], Predicted], rows: Sequence[Input]) -> frozenset[str]:
    """Return of which kinds a model's answers are: by its output, its classes, else by what it answers to its rows."""
    if manifest.output == "value":
        return frozenset({"number"})
    if manifest.outputs:
        return frozenset({"text"})  # JSON
    if manifest.classes:
        return frozenset({"text" if isinstance(manifest.classes[0], str) else "whole"})
    found = ask(rows) if rows else None
    if found is None or Outcome.OK not in found.outcomes:
        return frozenset({"text"})
    if isinstance(found.answers, tuple):
        return frozenset({"text"})
    return frozenset({"whole" if np.asarray(found.answers).dtype.kind in "iub" else "number"})
