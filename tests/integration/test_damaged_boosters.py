"""Boosters whose files are damaged: their library's parser ends its process, and the worker goes on."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from typing import TYPE_CHECKING

import lightgbm
import numpy as np
import pytest

from schemas.records import Model
from streams.operators.contract import Load, Loaded
from streams.runtime.clock import SystemClock
from streams.runtime.ports import ExecutorEvents
from workers.executors.factory import executors_of
from workers.manifest import digest
from workers.packages.packaging import package_lightgbm
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def damaged(tmp_path: Path) -> Model:
    """Package a booster, and put one number into its text that leads out of its tree, under the right checksums."""
    rows = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    trained = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(rows, (rows[:, 0] > 0).astype(int))
    folder = tmp_path / "booster"
    package_lightgbm(trained, folder, "m", "2", rows[:8])
    text = (folder / "booster.txt").read_bytes().replace(b"left_child=", b"left_child=77777777 ")
    (folder / "booster.txt").write_bytes(text)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["booster.txt"] = sha256(text).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Model("m", "2", "lightgbm", str(folder), digest(folder), "label", "float32", (4,))


async def test_a_damaged_booster_is_refused_by_its_signal_and_tried_no_more_after_twice(
    damaged: Model, tmp_path: Path
) -> None:
    """Whoever loads it goes on: this process would have ended with the first attempt."""
    told: asyncio.Queue[Loaded] = asyncio.Queue()
    executors = executors_of(WorkerSettings(notes=str(tmp_path / "notes")), SystemClock().now_us)
    faults = []
    async with asyncio.TaskGroup() as tasks:
        executors.connect(ExecutorEvents(lambda *_: None, told.put_nowait), tasks)
        for copy in range(3):
            executors.load(Load(damaged, copy))
            faults.append((await told.get()).fault or "")
        await executors.stop()
    assert all("SIGABRT" in fault or "SIGSEGV" in fault for fault in faults[:2])
    assert "skysail model retry m 2" in faults[2]
