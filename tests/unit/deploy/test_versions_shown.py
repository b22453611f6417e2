"""What `skysail model list` says about where versions run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from deploy.cli.versions import print_columns, print_versions
from deploy.config.settings import Settings
from deploy.placement import placement
from deploy.placement.placement import Placement
from deploy.placement.whereabouts import Whereabouts
from schemas.records import Model
from streams.control.page.hosts import HeardProcess, host_rows
from workers.manifest import digest
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from streams.control.page.hosts import HostRow

SERVING = Model("m", "1", "linear", "m-1", "digest-1", "label", "float32", (2,), shares={"2": 0.1})
OTHERS = [replace(SERVING, version=version, digest=f"digest-{version}", shares={}) for version in ("2", "3")]
INSIDE = {"m": Placement("digest-1", is_inside=True, reason="8 us a call", is_measured=True)}


def shown(
    placements: dict[str, Placement],
    capsys: pytest.CaptureFixture[str],
    hosts: Sequence[HostRow] = (),
    settings: Settings | None = None,
) -> list[str]:
    """Return where the three versions run: one serves, one is a canary, one does not run."""
    where = Whereabouts(placements, hosts, settings)
    print_versions([(version, SERVING) for version in (SERVING, *OTHERS)], where, as_json=True)
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


def test_a_version_in_a_host_says_in_which_one_it_is_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """Of several hosts by name; also where the pool is known from a report alone."""
    gauges = {"resident{model=m,version=1}": 1.0, "resident{model=other,version=2}": 1.0}
    first = HeardProcess("host.small@1", "host.small", {}, {})
    hosts = host_rows([first, HeardProcess("host.small@2", "host.small", {}, gauges)])
    named = {"m": Placement("digest-1", is_inside=False, reason="named in hosts", pool="small")}
    there = "host small: named in hosts; in memory of host.small@2"
    assert shown(named, capsys, hosts) == [there, "host small: named in hosts; not in memory", ""]
    assert shown(named, capsys) == ["host small: named in hosts"] * 2 + [""]
    assert shown({}, capsys, hosts)[0] == "host small: new since the start; in memory of host.small@2"


def test_a_model_that_came_later_is_in_the_pool_that_the_settings_say(capsys: pytest.CaptureFixture[str]) -> None:
    """It was not there when placements were decided."""
    settings = Settings(hosts={"small": {"models": "all others"}})
    hosts = host_rows([HeardProcess("host.small@1", "host.small", {}, {})])
    assert shown({"other": INSIDE["m"]}, capsys, hosts, settings)[0] == "host small: new since the start; not in memory"
    own = Settings(hosts={"small": {"models": "all others"}}, worker={"isolated": ["m"]})
    assert shown({"other": INSIDE["m"]}, capsys, hosts, own)[0] == "own process: new since the start"


def test_where_models_run_that_came_later_is_noted(tmp_path: Path) -> None:
    """Beside what was decided at the start."""
    placement._write(tmp_path, INSIDE)
    settings = Settings(hosts={"small": {"models": ["late"]}})
    placement.add(settings, {"late": replace(SERVING, name="late"), "own": replace(SERVING, name="own")}, tmp_path)
    found = {name: str(placed) for name, placed in placement.read(tmp_path).items()}
    told = {"late": "host small: new since the start", "own": "own process: new since the start"}
    assert found == {"m": "inline: 8 us a call", **told}


def test_the_columns_of_tables_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the list by name, and each with its type; nothing is made up where the package is another one by now."""
    frame = pd.DataFrame({"traffic": [1.0, 2.0], "day": ["mo", "tu"]})
    package_function("tests.toys:nought", tmp_path / "m", "m", "1", frame, output="value")
    record = replace(SERVING, runtime="function", path=str(tmp_path / "m"), dtype=None, shape=(), shares={})
    deployed = replace(record, digest=digest(tmp_path / "m"))
    print_versions([(deployed, deployed)], Whereabouts(), as_json=False)
    print_columns(deployed)
    said = capsys.readouterr().out
    assert "columns traffic, day" in said
    assert re.search(r"traffic +float64\n *day +string", said)
    print_versions([(record, record)], Whereabouts(), as_json=False)
    print_columns(record)
    assert "text or bytes" in (said := capsys.readouterr().out)
    assert "traffic" not in said


def test_labels_and_versions_that_stand_by_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside what a version is for; a label keeps its version loaded."""
    serving = replace(SERVING, labels={"nightly": "3", "tested": "1"}, standby=("1", "2"))
    versions = [(version, serving) for version in (SERVING, *OTHERS)]
    print_versions(versions, Whereabouts(), as_json=False)
    assert "standby, nightly" in capsys.readouterr().out
    print_versions(versions, Whereabouts(), as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [(row["label"], row["labels"]) for row in found] == [
        ("stable", ["tested"]),
        ("canary", []),
        ("standby", ["nightly"]),
    ]
