"""`skysail model label`, `unlabel` and `keep`: what they publish and say."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from deploy.cli import model as commands
from deploy.cli import skysail
from deploy.diagnose import health
from deploy.diagnose.health import answering
from deploy.errors import UsageError
from deploy.state import catalog
from schemas.codec import Codec
from schemas.records import Model, Report

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.config.settings import Settings

VERSIONS = [Model("forest", name, "function", "", name, "label", "float32", (1,)) for name in ("1", "2", "3")]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Model]:
    """Version 3 serves, and 2 is loaded besides; what is published is appended."""
    found = [VERSIONS[2]]

    def serve(settings: Settings, codec: Codec, model: Model) -> None:
        found.append(model)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalog, "read", lambda *_: {"forest": found[-1]})
    monkeypatch.setattr(catalog, "versions", lambda *_: {"forest": VERSIONS})
    monkeypatch.setattr(catalog, "serve", serve)
    monkeypatch.setattr(commands, "_answering", lambda *_: {"2", "3"})
    return found


def run(*words: str) -> str:
    """Run a command of `skysail model`; returns what it printed."""
    arguments = ["model", *words]
    result = CliRunner(env=dict(os.environ)).invoke(skysail, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_version_that_is_loaded_gets_a_label_and_loses_it(served: list[Model]) -> None:
    """It says how to end it."""
    assert "forest@nightly is version 2 from now on" in run("label", "forest@2", "nightly")
    assert served[-1].labels == {"nightly": "2"}
    found = json.loads(run("unlabel", "forest", "nightly", "--json"))
    assert (found["labels"], served[-1].labels) == ({}, {})


def test_a_version_that_is_not_loaded_gets_a_label_only_if_forced(served: list[Model]) -> None:
    """The message says how to have it loaded first."""
    with pytest.raises(UsageError, match="skysail model keep forest --version 1"):
        run("label", "forest@1", "nightly")
    assert len(served) == 1
    run("label", "forest@1", "nightly", "--force")
    assert served[-1].labels == {"nightly": "1"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["label", "forest", "nightly"], "name the version: forest@VERSION"),
        (["label", "forest@9", "nightly", "--force"], "no version 9 of forest"),
        (["unlabel", "forest", "nightly"], "no version of forest has the label nightly"),
        (["keep", "forest"], "say which versions stay loaded"),
        (["keep", "forest", "--all", "--none"], "say which versions stay loaded"),
        (["keep", "forest", "--version", "9"], "no version 9"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(served: list[Model], words: list[str], why: str) -> None:
    """Nothing is published."""
    with pytest.raises(UsageError, match=why):
        run(*words)
    assert len(served) == 1


@pytest.mark.parametrize(
    ("words", "standby", "said"),
    [
        (["--latest", "2"], ("2", "3"), "forest 3 serves; loaded besides: 2"),
        (["--version", "1", "--version", "3"], ("1", "3"), "forest 3 serves; loaded besides: 1"),
        (["--all"], ("1", "2", "3"), "forest 3 serves; loaded besides: 1, 2"),
    ],
)
def test_versions_are_kept_and_unloaded(
    served: list[Model], words: list[str], standby: tuple[str, ...], said: str
) -> None:
    """Those that are named, or added last."""
    assert said in run("keep", "forest", *words)
    assert served[-1].standby == standby
    assert "loaded besides: none" in run("keep", "forest", "--none")
    assert (served[-1].standby, served[-1].latest) == ((), 0)


def report(instance: str, **gauges: str) -> Report:
    """Make a worker's report: versions by what they are for."""
    figures = {f"{name}{{model=forest,version={version}}}": 1.0 for name, version in gauges.items()}
    return Report(instance, "worker.forest", 0, {}, figures)


def test_a_version_counts_as_loaded_if_all_workers_of_its_model_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shadow answers nothing; processes of other models have no say."""
    settings: Any = None
    found = [report("1", serving="3", standby="2", shadow="1"), report("2", serving="3", canary="2")]
    other = Report("3", "worker.net", 0, {}, {"serving{model=net,version=7}": 1.0})
    monkeypatch.setattr(health, "_lately", lambda *_: [*found, other])
    assert answering(settings, Codec(), "forest") == {"2", "3"}
    monkeypatch.setattr(health, "_lately", lambda *_: [*found, report("3", serving="3")])
    assert answering(settings, Codec(), "forest") == {"3"}
    monkeypatch.setattr(health, "_lately", lambda *_: [])
    assert answering(settings, Codec(), "forest") == set()
