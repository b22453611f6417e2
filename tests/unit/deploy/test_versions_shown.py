"""What `skysail model list` says about where versions run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from deploy.cli.versions import print_versions
from deploy.placement import Placement
from schemas.records import Model

if TYPE_CHECKING:
    import pytest

SERVING = Model("m", "1", "linear", "m-1", "digest-1", "label", "float32", (2,), shares={"2": 0.1})
OTHERS = [replace(SERVING, version=version, digest=f"digest-{version}", shares={}) for version in ("2", "3")]
INSIDE = {"m": Placement("digest-1", is_inside=True, reason="8 us a call", is_measured=True)}


def shown(placements: dict[str, Placement], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return where the three versions run: one serves, one is a canary, one does not run."""
    print_versions([(version, SERVING) for version in (SERVING, *OTHERS)], placements, as_json=True)
    return [row["runs"] for row in json.loads(capsys.readouterr().out)]


def test_each_version_that_runs_says_where_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    """A version that was not measured runs in a process of its own, even of a model inside."""
    assert shown(INSIDE, capsys) == ["inline: 8 us a call", "inline, in a child process: new since the start", ""]


def test_a_version_of_a_worker_runs_where_its_model_does(capsys: pytest.CaptureFixture[str]) -> None:
    """So does a version of a model that the settings name."""
    own = Placement("digest-1", is_inside=False, reason="pickle")
    assert shown({"m": own}, capsys) == ["own process: pickle", "own process: pickle", ""]
    named = Placement("digest-1", is_inside=True, reason="named in selection.inline")
    assert shown({"m": named}, capsys) == ["inline: named in selection.inline"] * 2 + [""]


def test_nothing_is_said_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    """The deployment was not started from here; or the model has come since, and has a worker."""
    assert shown({}, capsys) == ["", "", ""]
    assert shown({"other": INSIDE["m"]}, capsys)[0] == "own process: new since the start"


def test_labels_and_versions_that_stand_by_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside what a version is for; a label keeps its version loaded."""
    serving = replace(SERVING, labels={"nightly": "3", "tested": "1"}, standby=("1", "2"))
    versions = [(version, serving) for version in (SERVING, *OTHERS)]
    print_versions(versions, {}, as_json=False)
    assert "standby, nightly" in capsys.readouterr().out
    print_versions(versions, {}, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [(row["label"], row["labels"]) for row in found] == [
        ("stable", ["tested"]),
        ("canary", []),
        ("standby", ["nightly"]),
    ]
