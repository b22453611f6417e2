"""How many cores a process may use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from deploy.config.cores import cores

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process run on eight cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)


def group(root: Path, path: str, **files: str) -> None:
    """Make a control group."""
    (root / path).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / path / name.replace("__", ".")).write_text(content + "\n")


@pytest.mark.usefixtures("eight")
def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    """As on a machine of another system."""
    assert cores(tmp_path, tmp_path / "none") == 8.0


@pytest.mark.usefixtures("eight")
def test_the_tightest_group_above_a_process_counts(tmp_path: Path) -> None:
    """Version 2: its own may use everything, one above it 1.5 cores."""
    (tmp_path / "own").write_text("0::/pod/box\n")
    group(tmp_path, "", cpu__max="max 100000")
    group(tmp_path, "pod", cpu__max="150000 100000")
    group(tmp_path, "pod/box", cpu__max="max 100000")
    assert cores(tmp_path, tmp_path / "own") == 1.5


@pytest.mark.usefixtures("eight")
def test_groups_of_the_first_version_count(tmp_path: Path) -> None:
    """Their controllers have folders of their own."""
    (tmp_path / "own").write_text("4:memory:/box\n3:cpu,cpuacct:/box\n")
    group(tmp_path, "cpu", **{"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"})
    group(tmp_path, "cpu/box", **{"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"})
    assert cores(tmp_path, tmp_path / "own") == 2.0


@pytest.mark.usefixtures("eight")
def test_what_cannot_be_read_bounds_nothing(tmp_path: Path) -> None:
    """A file of a form that nobody knows."""
    (tmp_path / "own").write_text("0::/\nnonsense\n")
    group(tmp_path, "", cpu__max="plenty")
    assert cores(tmp_path, tmp_path / "own") == 8.0
