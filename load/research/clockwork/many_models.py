"""Models of hosts: Clockwork's published ones, which only take time, and real small ones, as they are measured here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.models.training import digits, small_models
from load.research.models.published import SIZES
from load.research.models.published import published as published_models
from schemas.records import Profile
from workers.packages.packaging import package_sklearn
from workers.packages.sealed import sealed
from workers.packages.variants import runtime_module
from workers.simulation.host import HostModel
from workers.simulation.service import Recorded

if TYPE_CHECKING:
    from pathlib import Path

    from load.models.training import Digits, Estimator

# Batches take from 95 % of what is published, which is the 99th percentile, to all of it.
_SPREAD: Final = 0.05
_CALLS, _LOADS = 200, 5  # of each size, and of each package


class Family(NamedTuple):
    """Models that are alike: what batches and loading take (us), and bytes in memory."""

    name: str
    samples: dict[int, list[float]]
    load_us: int
    bytes: int

    def model(self) -> HostModel:
        """Return one of them, whose 99th percentiles are known."""
        p99s = tuple(round(float(np.quantile(self.samples[size], 0.99, method="higher"))) for size in self.samples)
        profile = Profile(self.name, "1", tuple(self.samples), p99s, self.load_us, self.bytes)
        return HostModel(Recorded.of(self.samples), self.load_us, self.bytes, profile)


def published() -> list[Family]:
    """Return Clockwork's models: nothing is computed, they only take the time."""
    return [
        Family(
            name,
            {
                size: [us * (1 - _SPREAD * step / 9) for step in range(10)]
                for size, us in zip(SIZES, its.times_us, strict=True)
            },
            its.load_us,
            its.bytes,
        )
        for name, its in published_models().items()
    ]


def real(folder: Path) -> list[Family]:
    """Measure small models of the digits, in the runtimes for linear models, for trees and ONNX, in one thread."""
    data = digits()
    return [_measured(name, estimator, data, folder / f"many-{name}") for name, estimator in small_models(data).items()]


def _measured(runtime: str, estimator: Estimator, data: Digits, path: Path) -> Family:
    manifest = package_sklearn(estimator, path, path.name, "1", data.test_x[:64], output="label", convert=runtime)
    module, loads = runtime_module(runtime), []
    for _ in range(_LOADS):
        begun_s = time.perf_counter()
        model = module.load(manifest, sealed(path, manifest), allow_pickle=False, threads=1)
        model.predict_batch(data.test_x[:1])
        loads.append((time.perf_counter() - begun_s) * 1e6)
    samples = {}
    for size in SIZES:
        times = []
        for call in range(_CALLS):
            rows = data.test_x[call : call + size]
            begun_s = time.perf_counter()
            model.predict_batch(rows)
            times.append((time.perf_counter() - begun_s) * 1e6)
        samples[size] = sorted(times)[: _CALLS * 99 // 100]  # the slowest two are pauses of the machine
    size_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return Family(runtime, samples, round(max(loads[1:])), size_bytes)
