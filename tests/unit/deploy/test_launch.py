"""What a deployment starts."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from deploy.config.settings import Settings
from deploy.errors import StartError
from deploy.launch import System, plan, replicated
from deploy.local.supervisor import ChildStatus
from deploy.new_models import removed_by
from deploy.state import desired
from schemas.codec import Codec
from schemas.records import Model
from streams.operators.contract import Record

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.supervisor import Child


def test_the_settings_say_how_many_workers_a_model_has() -> None:
    """At most as many as its topic has partitions; another would have nothing to do."""
    settings = Settings.model_validate({"roles": ["worker"], "worker": {"replicas": {"a": 2}}})
    found = replicated(plan(settings, ["a", "b"]), settings.worker.replicas)
    assert found == [("worker", "a", 1), ("worker", "a", 2), ("worker", "b", 1)]
    assert [settings.worker.spread(name) for name in "ab"] == [4, 4]
    many = Settings.model_validate({"worker": {"replicas": {"a": 8}, "partitions": {"b": 16, "c": 1}}})
    assert [many.worker.spread(name) for name in "abc"] == [8, 16, 1]
    with pytest.raises(ValidationError, match="a has 5 replicas and 4 partitions"):
        Settings.model_validate({"worker": {"replicas": {"a": 5}, "partitions": {"a": 4}}})


def test_a_model_has_as_many_workers_as_it_is_given() -> None:
    """Numbered from 1; roles and other models have one each."""
    settings = Settings(roles=("selection", "worker"))
    found = replicated(plan(settings, ["a", "b"]), {"b": 3})
    assert found == [("selection", None, 1), ("worker", "a", 1), *(("worker", "b", number) for number in (1, 2, 3))]


class Started:
    """A supervisor that only notes what it is to run."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, child: Child) -> None:
        """Note it."""
        self.names.append(child.name)

    def remove(self, name: str) -> None:
        """Stop it."""
        self.names.remove(name)

    def status(self) -> tuple[ChildStatus, ...]:
        """Describe them."""
        return tuple(ChildStatus(name, 1, alive=True, restarts=0, exit_code=None) for name in self.names)


async def test_a_model_whose_package_comes_later_gets_its_worker_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and it has been said once that the package is not here."""
    system = System(Settings(), Codec(), tmp_path)
    supervisor = system._supervisor = Started()  # type: ignore[assignment]
    models = {
        name: Model(name, "1", "function", str(tmp_path / name), "", "value", None, ()) for name in ("here", "later")
    }
    (tmp_path / "here").mkdir()
    for _ in range(2):
        await system.serve(models)
    assert supervisor.names == ["worker.here"]
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [f"model later gets no worker until its package {tmp_path / 'later'} is here"]
    (tmp_path / "later").mkdir()
    for _ in range(2):
        await system.serve(models)
    assert supervisor.names == ["worker.here", "worker.later"]


async def test_a_model_that_is_removed_loses_its_workers_and_has_them_again_when_it_comes_back(tmp_path: Path) -> None:
    """All of them, and no others."""
    system = System(Settings(), Codec(), tmp_path, replicas={"rule": 2})
    supervisor = system._supervisor = Started()  # type: ignore[assignment]
    models = {name: Model(name, "1", "function", str(tmp_path), "", "value", None, ()) for name in ("rule", "rules")}
    await system.serve(models)
    await system.retire({"rule", "stranger"})
    assert supervisor.names == ["worker.rules"]
    await system.serve(models)
    assert supervisor.names == ["worker.rules", "worker.rule", "worker.rule@2"]


def test_only_a_record_without_a_value_removes_a_model() -> None:
    """One version that is taken away is no model, and what cannot be read may be mended."""
    values = {b"rule": None, b"forest@1": None, b"svc": b"garbage"}
    assert removed_by(Record("models", 0, 0, 0, key, value) for key, value in values.items()) == {"rule"}


async def test_a_taken_port_is_found_before_anything_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was started, and nothing was changed."""
    published: list[object] = []
    monkeypatch.setattr(desired, "establish", lambda *given: published.append(given))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = Settings.model_validate({"control": {"port": taken.getsockname()[1]}})
        with pytest.raises(StartError, match=r"control\.port.*is taken by"):
            await System(settings, Codec(), tmp_path).__aenter__()
    assert published == []
