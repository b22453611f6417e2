"""Which models run inside selection."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from deploy.config.settings import Settings
from deploy.placement import placement
from deploy.state.packages import model_record
from workers.manifest import Manifest, Signature
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.records import Model

ROWS = np.array([[0, 0], [0, 1], [9, 9], [9, 8]], dtype=np.float32)
SHARED = Settings(processes="shared")


def dies(rows: np.ndarray) -> np.ndarray:
    """End the process, as a crash in a library does; not while it is packaged."""
    if "DIES" in os.environ:
        os._exit(3)
    return rows[:, 0].astype(np.int64)


def test_a_cheap_call_runs_inside() -> None:
    """What it costs is told."""
    placed = placement.judged("d", {1: 41.0, 16: 55.0, 128: 130.0})
    assert (placed.is_inside, str(placed)) == (True, "inline: 41 us a call")


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ({1: 950.0, 16: 960.0, 128: 970.0}, "own process: 950 us a call of 1 rows"),  # dearer than two legs
        ({1: 100.0, 16: 600.0, 128: 1_600.0}, "own process: 1,600 us a call of 128 rows"),  # grows faster than they do
        ({1: 100.0, 16: 60_000.0}, "own process: 60,000 us a call of 16 rows"),  # larger ones were not tried
        ("it answers no rows", "own process: it answers no rows"),
    ],
)
def test_a_dear_call_has_its_own_process(times: dict[int, float] | str, told: str) -> None:
    """The first size that costs too much is told."""
    placed = placement.judged("d", times)
    assert (placed.is_inside, str(placed)) == (False, told)


def manifest(**more: Any) -> Manifest:
    """Return a manifest of a linear model."""
    return replace(Manifest("m", "1", "linear", Signature("tensor", "float32", (2,)), "label"), **more)


def test_what_may_crash_wants_a_gpu_or_is_big_is_not_even_measured() -> None:
    """Each with its reason; a form that is arithmetic alone is measured."""
    assert placement.unfit(manifest(), 1_000) == ""
    assert placement.unfit(manifest(runtime="torch"), 1_000) == "torch"
    assert placement.unfit(manifest(runtime="function"), 1_000) == "function"
    assert placement.unfit(manifest(runtime="sklearn", files={"model.pickle": "d"}), 1_000) == "pickle"
    assert placement.unfit(manifest(), 100 << 20) == "100 MiB"


def answers(rows: np.ndarray) -> np.ndarray:
    """Answer at once."""
    return rows[:, 0].astype(np.int64)


def packaged(folder: Path, name: str, function: str) -> Model:
    """Package a function of this file."""
    package_function(f"tests.unit.deploy.test_placement:{function}", folder / name, name, "1", ROWS)
    return model_record(folder / name)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Model]:
    """Package two functions, which are measured here as they load quickly; the first one ends its process."""
    monkeypatch.setattr(placement, "RUNTIMES", ("function",))
    found = {"bad": packaged(tmp_path, "bad", "dies"), "cheap": packaged(tmp_path, "cheap", "answers")}
    monkeypatch.setenv("DIES", "1")
    return found


async def test_models_are_measured_beside_and_what_is_found_is_kept(
    tmp_path: Path, models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends the process spoils no other, and nothing is measured twice but what failed."""
    found = await placement.decided(SHARED, models, tmp_path / "run")
    assert {name: placed.is_inside for name, placed in found.items()} == {"bad": False, "cheap": True}
    assert "its process ended" in found["bad"].reason
    assert placement.read(tmp_path / "run") == found
    kept = {"cheap": models["cheap"]}
    monkeypatch.setattr(placement, "_trial", None)  # nobody calls it any more
    assert await placement.decided(SHARED, kept, tmp_path / "run") == {"cheap": found["cheap"]}


async def test_the_settings_may_decide(tmp_path: Path, models: dict[str, Model]) -> None:
    """A list names them, what asks for processes has them, and with `each` nobody is inside."""
    del models["bad"]

    async def told(**settings: Any) -> str:
        given = Settings.model_validate({"processes": "shared", **settings})
        return str((await placement.decided(given, models, tmp_path / "run"))["cheap"])

    assert await told(selection={"inline": ["cheap"]}) == "inline: named in selection.inline"
    assert await told(selection={"inline": []}) == "own process: not named in selection.inline"
    assert await told(worker={"replicas": {"cheap": 2}}) == "own process: worker.replicas"
    assert await told(worker={"processes": 1}) == "own process: worker.processes"
    assert await told(worker={"memory_mib": {"cheap": 500}}) == "own process: worker.memory_mib"
    assert await told(processes="each") == "own process: processes: each"
    assert await told(roles=["worker"]) == "own process: processes: each"


def test_an_unreadable_file_has_decided_nothing(tmp_path: Path) -> None:
    """Then the models are measured again."""
    (tmp_path / placement.FILE).write_text('{"cheap": {"digest')
    assert placement.read(tmp_path) == {}
