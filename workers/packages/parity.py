"""Makes parity models: packages whose model answers the sum of k rows with the sum of another package's outputs.

    rows ─▶ the package's own outputs ─▶ affine? ─ yes ─▶ exact, without training
                                            └──── no ──▶ trained on sums of k rows, judged on rows held back

The manifest says whose outputs are summed (MODEL@VERSION) and of how many rows. A parity model belongs to that version
alone. It also says how often decoded answers were right, by how sure they seem: the scores that are decoded are
approximate, and tell too much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies import calibration
from policies.confidence import share_of
from schemas.topics import model_version
from streams.operators.selection.coded.code import ROWS, decoded
from workers.entry_point import resolve
from workers.errors import PackageError
from workers.packages.loading import load_package
from workers.packages.packaging import package_torch
from workers.runtimes.contract import own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.manifest_form import Parity
    from workers.packages.loading import LoadedModel
    from workers.runtimes.contract import Outputs

HELD_OUT = 0.1  # of the rows
_NETWORKS = "workers.runtimes.parity"
_BATCH_ROWS = 1_024
_PROBES = 64  # sums by which a model is found to be affine
_CLOSE = {"float32": 1e-4, "float64": 1e-9}  # of the largest output: what rounding makes of sums
_SAMPLE = 32


class Judged(NamedTuple):
    """How well missing outputs are decoded, on rows that were held back.

    Attributes:
        epoch: after so many; 0 = nothing was trained.
        loss: mean squared error of the epoch's sums.
        difference: mean absolute difference between a decoded output and the model's own.
        agreement: share of decoded answers that equal the model's own; NaN for numbers.
        own: share of the model's own answers that are right; NaN without labels.
        accuracy: share of decoded answers that are right; NaN without labels.
    """

    epoch: int
    loss: float
    difference: float
    agreement: float = math.nan
    own: float = math.nan
    accuracy: float = math.nan


@dataclass(frozen=True, slots=True)
class Training:
    """How a parity model is trained; batches and rates are ParM's unless said otherwise.

    Attributes:
        k: rows that are summed: 2, 3 or 4.
        epochs: how often all rows are taken.
        batch: sums in a step; None = 64 for k = 2, else 32.
        rate: of Adam.
        seed: of the groups, of the rows held back and of the network's start.
        held_out: share of the rows that are held back.
        threads: of the arithmetic.
        architecture: factory of the network, `module:name`; "" = the coded model's own, or dense layers.
        arguments: keyword arguments of the factory.
    """

    k: int = 2
    epochs: int = 50
    batch: int | None = None
    rate: float = 1e-3
    seed: int = 0
    held_out: float = HELD_OUT
    threads: int = 1
    architecture: str = ""
    arguments: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class _Coded:
    """The model that is coded, and what it answers: outputs (n, m), and labels (n,) of scores."""

    manifest: Manifest
    rows: NDArray[np.floating]
    outputs: NDArray[np.floating]
    answers: NDArray[np.generic] | None


def package_parity(
    base: Path,
    folder: Path,
    name: str,
    version: str,
    rows: NDArray[np.generic],
    training: Training,
    *,
    labels: NDArray[np.generic] | None = None,
    on_epoch: Callable[[Judged], None] = lambda _: None,
) -> Manifest:
    """Make the parity model of a package.

    Args:
        base: the package whose missing outputs are to be decoded; its output is `scores` or `value`.
        folder: of the parity model's package; created.
        name: of the parity model.
        version: of it.
        rows: of the kind that will be asked, (n, ...); for a trained model as many as the base was trained on.
        training: how.
        labels: right answers to the rows, (n,): tells the accuracy of what is decoded.
        on_epoch: told after each epoch; once for a model that is exact.

    Raises:
        PackageError: its outputs cannot be added, or these rows do not fit.
    """
    model = load_package(base)
    _check(model.manifest, rows, training)
    coded = _answered(model, rows)
    held = np.random.default_rng(training.seed).permutation(len(rows))
    # At least so many groups, or the figures say nothing.
    count = max(training.k * 2, int(len(rows) * training.held_out) // training.k * training.k)
    judge = _Judge(coded, held[:count].reshape(-1, training.k), labels)
    network, built = _affine(model, coded, training.k), ""
    arguments: Mapping[str, object] = {}
    if network is not None:
        on_epoch(judge(network, 0, 0.0))
        built = f"{_NETWORKS}:affine"
        arguments = {
            "inputs": math.prod(model.manifest.input.shape),
            "outputs": coded.outputs.shape[1],
            "dtype": coded.rows.dtype.name,
        }
    else:
        built, arguments = _architecture(coded, training)
        network = _trained(coded, held[count:], training, judge, on_epoch, built, arguments)
    parity: Parity = {"of": model_version(model.manifest.name, model.manifest.version), "k": training.k}
    if right := judge.right(network):
        parity["right"] = [*right]
    return package_torch(
        network,
        folder,
        name,
        version,
        coded.rows[:_SAMPLE],
        architecture=built,
        arguments=arguments,
        output=model.manifest.output,
        classes=model.manifest.classes,
        min_rows=model.manifest.options.get("min_rows"),
        parity=parity,
    )


def _check(manifest: Manifest, rows: NDArray[np.generic], training: Training) -> None:
    if training.k not in ROWS:
        raise PackageError(f"groups have 2, 3 or 4 rows, not {training.k}")
    if manifest.output in {"label", "tensors"}:
        raise PackageError(
            f"{manifest.name} answers {manifest.output}s, which cannot be added: package it with --output scores"
            if manifest.output == "label"
            else f"{manifest.name} answers several tensors, and sums are of one output: package it with --output scores"
        )
    if manifest.input.kind != "tensor" or manifest.input.inputs:
        raise PackageError(f"{manifest.name} takes {manifest.input}; only arrays of numbers can be added")
    if rows.shape[1:] != manifest.input.shape:
        raise PackageError(f"{manifest.name} takes {manifest.input}; the rows that were given have {rows.shape[1:]}")
    if len(rows) < 4 * training.k:
        raise PackageError(f"{len(rows)} rows are too few for groups of {training.k}: give at least {4 * training.k}")


def _answered(model: LoadedModel, rows: NDArray[np.generic]) -> _Coded:
    """Return what a model answers to rows, which the parity model gets as floating-point numbers."""
    given = rows.astype(str(model.manifest.input.dtype), copy=False)
    found = [
        model.runtime.predict_batch(own(given[start : start + _BATCH_ROWS]))
        for start in range(0, len(given), _BATCH_ROWS)
    ]
    numbers = np.concatenate([_numbers(each) for each in found])
    labels = None if model.manifest.output == "value" else np.concatenate([np.asarray(each.answers) for each in found])
    kind = given.dtype if given.dtype.name in _CLOSE else np.dtype("float32")
    return _Coded(model.manifest, given.astype(kind, copy=False), numbers.astype(kind, copy=False), labels)


def _numbers(outputs: Outputs) -> NDArray[np.floating]:
    found = np.asarray(outputs.answers if outputs.scores is None else outputs.scores)
    kind = np.float32 if found.dtype == np.float32 else np.float64
    return found.reshape(len(found), -1).astype(kind, copy=False)


def _affine(model: LoadedModel, coded: _Coded, k: int) -> object | None:
    """Return the exact parity network of an affine model: its weights, and k times its intercept; None for others."""
    shape, inputs = model.manifest.input.shape, math.prod(model.manifest.input.shape)
    if model.manifest.input.dtype not in _CLOSE:
        return None
    rows, outputs = coded.rows, coded.outputs
    probes = min(_PROBES, len(rows) // 2)
    close = _CLOSE[rows.dtype.name] * max(1.0, float(np.abs(outputs).max()))
    zero = _asked(model, np.zeros((1, *shape), rows.dtype))
    sums = _asked(model, rows[:probes] + rows[probes : 2 * probes])
    if np.abs(sums + zero - outputs[:probes] - outputs[probes : 2 * probes]).max() > close:
        return None
    weights = _asked(model, np.eye(inputs, dtype=rows.dtype).reshape(inputs, *shape)) - zero
    network = resolve(f"{_NETWORKS}:filled_affine")(weights.astype(rows.dtype), (k * zero[0]).astype(rows.dtype))
    found = resolve(f"{_NETWORKS}:answers")(network, rows[:probes])
    is_same = np.abs(np.asarray(found) - outputs[:probes] - (k - 1) * zero).max() <= k * close
    return network if is_same else None


def _asked(model: LoadedModel, rows: NDArray[np.floating]) -> NDArray[np.float64]:
    parts = [
        _numbers(model.runtime.predict_batch(own(rows[start : start + _BATCH_ROWS])))
        for start in range(0, len(rows), _BATCH_ROWS)
    ]
    return np.concatenate(parts).astype(np.float64)


def _architecture(coded: _Coded, training: Training) -> tuple[str, Mapping[str, object]]:
    """Return the factory of the parity network, and its arguments."""
    if training.architecture:
        return training.architecture, training.arguments or {}
    options = coded.manifest.options
    if "architecture" in options:
        return options["architecture"], options.get("arguments", {})
    inputs = math.prod(coded.manifest.input.shape)
    return f"{_NETWORKS}:mlp", {"inputs": inputs, "outputs": coded.outputs.shape[1]}


def _trained(
    coded: _Coded,
    places: NDArray[np.intp],
    training: Training,
    judge: _Judge,
    on_epoch: Callable[[Judged], None],
    built: str,
    arguments: Mapping[str, object],
) -> object:
    resolve(f"{_NETWORKS}:seeded")(training.seed)
    network = resolve(built)(**arguments)
    batch = training.batch or (64 if training.k == 2 else 32)
    epochs: Iterator[float] = resolve(f"{_NETWORKS}:fit")(  # type: ignore[assignment] # found by name
        network,
        coded.rows[places],
        coded.outputs[places],
        k=training.k,
        epochs=training.epochs,
        batch=batch,
        rate=training.rate,
        seed=training.seed,
        threads=training.threads,
    )
    for epoch, loss in enumerate(epochs, start=1):
        on_epoch(judge(network, epoch, loss))
    return network


@dataclass(frozen=True, slots=True)
class _Judge:
    """Decodes each row of groups that were held back, as if it were missing.

    Attributes:
        coded: the model and its outputs.
        groups: places of rows, (groups, k).
        labels: right answers to all rows; None = not known.
    """

    coded: _Coded
    groups: NDArray[np.intp]
    labels: NDArray[np.generic] | None

    def __call__(self, network: object, epoch: int, loss: float) -> Judged:
        """Return how well that goes."""
        coded, outputs, places = self.coded, self._decoded(network), self._places
        difference = float(np.abs(outputs - coded.outputs[places]).mean())
        if coded.answers is None:
            return Judged(epoch, loss, difference)
        answers = self._classes[outputs.argmax(axis=1)]
        agreement = float((answers == coded.answers[places]).mean())
        if self.labels is None:
            return Judged(epoch, loss, difference, agreement)
        right = self.labels[places]
        own, accuracy = float((coded.answers[places] == right).mean()), float((answers == right).mean())
        return Judged(epoch, loss, difference, agreement, own, accuracy)

    def right(self, network: object) -> tuple[float, ...]:
        """Return how often decoded answers are right at each of `calibration.KNOTS`; empty for numbers.

        Without labels an answer is right as likely as the model's own output says.
        """
        if self.coded.answers is None:
            return ()
        outputs, own = self._decoded(network), self.coded.outputs[self._places]
        best = outputs.argmax(axis=1)
        right = _shares(own, best)
        if self.labels is not None:
            right = (self._classes[best] == self.labels[self._places]).astype(np.float64).tolist()
        return calibration.curve(calibration.counted(_shares(outputs, best), right))

    @property
    def _places(self) -> NDArray[np.intp]:
        return self.groups.T.reshape(-1)

    @property
    def _classes(self) -> NDArray[np.generic]:
        return np.asarray(self.coded.manifest.classes or range(self.coded.outputs.shape[1]))

    def _decoded(self, network: object) -> NDArray[np.floating]:
        """Return each output (rows, m) as if it were missing, in the order of `_places`."""
        coded, groups = self.coded, self.groups
        sums = coded.rows[groups].astype(np.float64).sum(axis=1).astype(coded.rows.dtype)
        parity = np.asarray(resolve(f"{_NETWORKS}:answers")(network, sums))
        found: list[NDArray[np.generic]] = []
        for missing in range(groups.shape[1]):
            others = [coded.outputs[column] for at, column in enumerate(groups.T) if at != missing]
            found.append(decoded(parity, others))
        return np.concatenate(found)


def _shares(outputs: NDArray[np.floating], places: NDArray[np.intp]) -> list[float]:
    """Return one score of each row (n, m) as a share."""
    rows = np.nan_to_num(outputs.astype(np.float64))
    return [share_of(row, place) for row, place in zip(rows, places.tolist(), strict=True)]
