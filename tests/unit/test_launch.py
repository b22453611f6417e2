"""What a deployment starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from deploy.launch import System, plan, replicated
from deploy.settings import Settings
from schemas.codec import Codec
from schemas.records import Model

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.supervisor import Child


def test_the_settings_say_how_many_workers_a_model_has() -> None:
    """At most as many as its topic has partitions; another would have nothing to do."""
    settings = Settings.model_validate({"roles": ["worker"], "worker": {"replicas": {"a": 2}}})
    found = replicated(plan(settings, ["a", "b"]), settings.worker.replicas)
    assert found == [("worker", "a", 1), ("worker", "a", 2), ("worker", "b", 1)]
    with pytest.raises(ValidationError, match="less than or equal to 4"):
        Settings.model_validate({"worker": {"replicas": {"a": 5}}})


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
