"""A folder is watched: what is published look by look, and what is said of packages that cannot be used."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config.settings import Settings
from deploy.errors import DeployError, UsageError
from deploy.process.progress import Silent
from deploy.state import catalog
from deploy.watch import watcher as watching
from deploy.watch.aspired import AspirePolicy
from deploy.watch.watcher import Look, Watcher
from schemas.codec import Codec
from workers import manifest as manifests
from workers.manifest import Manifest, Signature

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from schemas.records import Model
    from streams.topology import Topology

CODEC = Codec()


def package(folder: Path, name: str, version: str) -> Path:
    """Write a package with one file, beside the folder, and move it there whole."""
    made = folder.parent / "made"
    made.mkdir()
    (made / "weights").write_text(f"{name} {version}")
    signature = Signature("tensor", "float32", (1,))
    options = {"function": "some.module:answer"}
    manifests.write(
        made,
        Manifest(name, version, "function", signature, "label", files={"weights": ""}, options=options),  # type: ignore[arg-type]
    )
    place = folder / f"{name}-{version}"
    place.parent.mkdir(exist_ok=True, parents=True)
    made.rename(place)
    return place


class Broker:
    """The topic `models` in memory.

    Attributes:
        serving: records by model.
        listed: versions by model, in the order of addition.
        topics: of models, that were created.
        writes: how often something was published.
        fault: that the broker answers.
    """

    def __init__(self) -> None:
        self.serving: dict[str, Model] = {}
        self.listed: dict[str, list[Model]] = {}
        self.topics: list[str] = []
        self.writes = 0
        self.fault = ""

    def aspire(self, settings: Settings, codec: Codec, known: Iterable[Model], serving: Iterable[Model]) -> None:
        """Take records."""
        if self.fault:
            raise DeployError(self.fault)
        self.writes += 1
        for model in known:
            listed = self.listed.setdefault(model.name, [])
            listed[:] = [other for other in listed if other.version != model.version] + [model]
        self.serving |= {model.name: model for model in serving}

    def create(self, settings: Settings, topology: Topology) -> None:
        """Create topics."""
        self.topics += [name for name in topology.topics if name.endswith(".queries")]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker without topics."""
    found = Broker()
    monkeypatch.setattr(catalog, "read", lambda *_: dict(found.serving))
    monkeypatch.setattr(catalog, "versions", lambda *_: {name: [*listed] for name, listed in found.listed.items()})
    monkeypatch.setattr(catalog, "aspire", found.aspire)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of packages."""
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


class Watched:
    """A watcher of a folder and what it does at each look."""

    def __init__(self, broker: Broker, folder: Path, policy: AspirePolicy | None = None) -> None:
        self.broker = broker
        self.watcher = Watcher(Settings(), CODEC, folder, policy or AspirePolicy(), broker.create)

    def look(self, *, is_patient: bool = True) -> Look:
        """Look, where something has changed."""
        found = self.watcher.look(Silent(), is_patient=is_patient)
        assert found is not None
        return found

    def is_idle(self) -> bool:
        """Whether a look finds nothing new."""
        return self.watcher.look(Silent()) is None


def test_fifty_models_of_one_folder_are_deployed_by_one_look_with_their_topics(broker: Broker, folder: Path) -> None:
    """In one write, after one creation of topics; packages may lie in folders of their models."""
    for number in range(50):
        package(folder / "grouped" if number % 2 else folder, f"model-{number:02}", "1")
    look = Watched(broker, folder).look()
    assert sorted(broker.serving) == [f"model-{number:02}" for number in range(50)]
    assert (len(look.changes), look.packages, look.faults) == (50, 50, {})
    assert (broker.writes, len({*broker.topics} - {"queries"})) == (1, 50)


def test_a_version_that_comes_takes_over_and_one_that_goes_is_unloaded(broker: Broker, folder: Path) -> None:
    """Look by look; nothing is written where nothing has changed."""
    first = package(folder, "net", "1")
    watched = Watched(broker, folder, AspirePolicy(latest=2))
    watched.look()
    assert watched.is_idle()
    package(folder, "net", "2")
    watched.look()
    assert (broker.serving["net"].version, broker.serving["net"].standby) == ("2", ("1", "2"))
    package(folder, "net", "10")
    watched.look()
    assert (broker.serving["net"].version, broker.serving["net"].standby) == ("10", ("2", "10"))
    shutil.rmtree(first)
    watched.look()
    assert broker.serving["net"].standby == ("2", "10")
    shutil.rmtree(folder / "net-10")
    watched.look()
    assert (broker.serving["net"].version, broker.serving["net"].standby) == ("2", ("2",))


def test_a_package_that_cannot_be_used_is_named_and_the_others_are_deployed(broker: Broker, folder: Path) -> None:
    """With `--once` at the first look."""
    bad = package(folder, "bad", "1")
    (bad / "weights").write_text("damaged")
    package(folder, "good", "1")
    look = Watched(broker, folder).look(is_patient=False)
    assert [*broker.serving] == ["good"]
    assert "weights is not the file that was packaged" in look.faults[bad]


def test_a_folder_with_a_dot_before_its_name_is_left_out(broker: Broker, folder: Path) -> None:
    """It is being made, and renamed when it is whole."""
    place = package(folder, "net", "1").rename(folder / ".net-1")
    watched = Watched(broker, folder)
    assert watched.is_idle()
    place.rename(folder / "net-1")
    watched.look()
    assert [*broker.serving] == ["net"]


def test_a_package_that_is_still_being_copied_is_not_named(broker: Broker, folder: Path) -> None:
    """It is if it stays as it is, once; when it is whole it is deployed."""
    place = package(folder, "net", "1")
    weights = (place / "weights").read_text()
    (place / "weights").unlink()
    watched = Watched(broker, folder)
    assert watched.look().faults == {}
    assert [*watched.look().faults] == [place]
    assert watched.is_idle()
    (place / "weights").write_text(weights)
    assert watched.look().faults == {}
    assert [*broker.serving] == ["net"]


def test_a_package_that_is_damaged_and_mended_keeps_running_and_is_tried_anew(broker: Broker, folder: Path) -> None:
    """Its record is written again, which begins the workers' attempts anew; no other version takes over meanwhile."""
    package(folder, "net", "1")
    place = package(folder, "net", "2")
    watched = Watched(broker, folder)
    watched.look()
    weights, before = (place / "weights").read_text(), broker.serving["net"]
    (place / "weights").write_text("damaged")
    watched.look()
    assert broker.serving["net"] == before
    writes = broker.writes
    (place / "weights").write_text(weights)
    watched.look()
    assert (broker.serving["net"], broker.writes) == (before, writes + 1)


def test_what_an_operator_says_stands_until_the_packages_change(broker: Broker, folder: Path) -> None:
    """Other models may change meanwhile."""
    for version in ("1", "2"):
        package(folder, "net", version)
    watched = Watched(broker, folder, AspirePolicy(latest=2))
    watched.look()
    rolled_back = replace(broker.listed["net"][0], shares={"2": 0.1})
    broker.serving["net"] = rolled_back
    package(folder, "other", "1")
    watched.look()
    assert broker.serving["net"] == rolled_back
    assert Watched(broker, folder, AspirePolicy(latest=2)).look().changes[0].before == "1"
    assert broker.serving["net"].version == "1"


def test_a_model_whose_last_package_goes_keeps_what_runs(broker: Broker, folder: Path) -> None:
    """And that is said."""
    place = package(folder, "net", "1")
    watched = Watched(broker, folder)
    watched.look()
    shutil.rmtree(place)
    assert watched.look().empty == ["net"]
    assert broker.serving["net"].version == "1"


def test_what_the_broker_refused_is_tried_again_at_the_next_look(broker: Broker, folder: Path) -> None:
    """Although the folder is as it was."""
    package(folder, "net", "1")
    watched, broker.fault = Watched(broker, folder), "it is away"
    with pytest.raises(DeployError, match="away"):
        watched.look()
    broker.fault = ""
    watched.look()
    assert [*broker.serving] == ["net"]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError, match="there is no folder"):
        Watcher(Settings(), CODEC, tmp_path / "nothing", AspirePolicy())


def command(*arguments: str) -> tuple[int, str, str]:
    """Run the command; returns its exit status and what it printed."""
    result = CliRunner(env=dict(os.environ)).invoke(skysail, ["model", "watch", *arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_the_command_says_what_came_of_one_look(
    broker: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A line for each model that changed, one for each package that cannot be used, and a sum; 1 if there is such."""
    monkeypatch.setattr(watching.topics, "create", broker.create)
    monkeypatch.setattr(Watcher.__init__, "__defaults__", (broker.create,))
    monkeypatch.chdir(tmp_path)
    package(folder, "net", "1")
    package(folder, "net", "2")
    code, out, _ = command(str(folder), "--latest", "2", "--once")
    assert code == 0
    assert "net 2 is new: it serves; loaded besides: 1" in out
    assert "2 packages, 1 models: 1 new, 0 changed, 0 as before" in out
    bad = package(folder, "net", "3")
    (bad / "weights").unlink()
    code, out, err = command(str(folder), "--latest", "2", "--once")
    assert (code, out) == (
        1,
        "3 packages, 1 models: 0 new, 0 changed, 1 as before; cannot be used: 1\n",
    )
    assert f"{bad} cannot be used" in err
    code, out, _ = command(str(folder), "--latest", "2", "--once", "--json")
    assert json.loads(out)["unchanged"] == ["net"]
    assert [*json.loads(out)["faults"]] == [str(bad)]


def test_policies_that_contradict_each_other_are_refused(folder: Path) -> None:
    """With what to say."""
    with pytest.raises(UsageError, match="say one of"):
        command(str(folder), "--latest", "2", "--all")
