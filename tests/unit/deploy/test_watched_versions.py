"""Versions that a watched folder switches under load, in the broker-free driver: no query is lost or late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.config.settings import Settings
from deploy.process.progress import Silent
from deploy.state import catalog
from deploy.watch.aspired import AspirePolicy
from deploy.watch.watcher import Watcher
from schemas import topics
from schemas.records import Status
from tests.loops import CODEC, Loop, digits, version
from tests.unit.deploy.test_watch import Broker, package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from schemas.codec import Codec
    from schemas.records import Model, Prediction


class Deployment:
    """A loop whose only model `good` serves version 1, asked every 10 ms, and a watcher of a folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, policy: AspirePolicy) -> None:
        self.loop = Loop({"good": lambda _: 7}, digits(models=("good",)), has_workers=True, load_us=1_000_000)
        self.broker = Broker()
        self.put([version("good")], [version("good")])
        monkeypatch.setattr(catalog, "read", lambda *_: dict(self.broker.serving))
        monkeypatch.setattr(catalog, "versions", lambda *_: {n: [*found] for n, found in self.broker.listed.items()})
        monkeypatch.setattr(catalog, "aspire", self.aspire)
        folder.mkdir()
        self.folder = folder
        self.watcher = Watcher(Settings(), CODEC, folder, policy, self.broker.create)
        self.loop.driver.run(2.0)  # the runtime would join no group before version 1 is loaded

    def aspire(self, settings: Settings, codec: Codec, known: Iterable[Model], serving: Iterable[Model]) -> None:
        """Publish what the watcher does."""
        self.put([*known], [*serving])

    def put(self, known: list[Model], serving: list[Model]) -> None:
        """Write records to the topic `models`."""
        self.broker.aspire(Settings(), CODEC, known, serving)
        for model in known:
            self.loop.driver.produce(topics.MODELS, 0, CODEC.encode(model), f"good@{model.version}".encode())
        for model in serving:
            self.loop.driver.produce(topics.MODELS, 0, CODEC.encode(model), b"good")

    def ask(self, seconds: float, version: str | None = None) -> list[str]:
        """Ask every 10 ms, looking at the folder every second; returns the queries' ids."""
        ids = []
        for number in range(round(seconds * 100)):
            if number % 100 == 0:
                self.watcher.look(Silent())
            ids.append(self.loop.query(version=version))
            self.loop.driver.run(0.01)
        return ids

    def answers(self) -> dict[str, Prediction]:
        """Return the prediction of each query; there is one of each, and no model failed to give it."""
        self.loop.driver.run(1.0)
        found = self.loop.predictions()
        assert len(found) == len({prediction.query_id for prediction in found}) == self.loop.sent
        assert {prediction.status for prediction in found} == {Status.COMPLETE}
        assert all(prediction.answered_us <= prediction.deadline_us for prediction in found)
        return {prediction.query_id: prediction for prediction in found}

    def by(self, ids: Iterable[str]) -> list[str]:
        """Return the versions that answered these queries, each change once."""
        answers, names = self.answers(), []
        for query_id in ids:
            (output,) = answers[query_id].outputs
            if names[-1:] != [output.version]:
                names.append(output.version)
        return names


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[AspirePolicy], Deployment]:
    """Make a deployment with a folder that is watched by a policy."""
    return lambda policy: Deployment(monkeypatch, tmp_path / "models", policy)


def test_versions_that_come_into_the_folder_take_over_without_a_query_lost(
    deployment: Callable[[AspirePolicy], Deployment],
) -> None:
    """One after the other, under load; every answer names the version that gave it."""
    found = deployment(AspirePolicy())
    asked = found.ask(2)
    for name in ("2", "3"):
        package(found.folder, "good", name)
        asked += found.ask(4)
    assert found.by(asked) == ["1", "2", "3"]


def test_who_names_a_version_is_answered_by_it_while_the_folder_brings_the_next_one(
    deployment: Callable[[AspirePolicy], Deployment],
) -> None:
    """Of the two latest, the one that served stands by without a gap; the third is unloaded, and others are served."""
    found = deployment(AspirePolicy(latest=2))
    package(found.folder, "good", "2")
    asked = found.ask(4)
    package(found.folder, "good", "3")
    named = found.ask(4, "2")
    newest = found.ask(1)
    assert (found.by(asked), found.by(named), found.by(newest)) == (["1", "2"], ["2"], ["3"])
    assert found.broker.serving["good"].standby == ("2", "3")
