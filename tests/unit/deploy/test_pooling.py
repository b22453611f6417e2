"""The pool that is made by itself: when, of which models, and what stays as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deploy.config import configuration
from deploy.config.settings import Settings
from deploy.local.supervisor import ChildStatus
from deploy.placement import placement, pooling
from deploy.placement.grouping import plan
from deploy.placement.placement import Placement
from deploy.state import catalog
from deploy.system.launch import System
from schemas.codec import Codec
from schemas.records import Application, Model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deploy.local.supervisor import Child

NINE = tuple(f"m{number}" for number in range(9))
MANY, FEW = Application("many", NINE, "exp3"), Application("few", ("hot",), "single")


def test_nine_models_of_an_application_share_a_host() -> None:
    """Each says why; the model of another application keeps its process."""
    found = pooling.shared(Settings(), [MANY, FEW], {*NINE, "hot"})
    assert found == dict.fromkeys(NINE, "one of 9 models of application many")


def test_models_that_nobody_asks_count_together() -> None:
    """They may have been added before their application."""
    assert {*pooling.shared(Settings(), [FEW], {*NINE, "hot"})} == {*NINE}
    assert {*pooling.shared(Settings(), [FEW], {*NINE[:8], "hot"})} == set()


@pytest.mark.parametrize(
    "settings",
    [
        {"processes": "each"},
        {"worker": {"isolated": True}},
        {"worker": {"isolated": ["m0"]}},
        {"worker": {"replicas": {"m0": 2}}},
        {"hosts": {"mine": {}}},
        {"hosts": {"others": {"models": ["hot"]}}},
    ],
)
def test_settings_that_say_otherwise_are_obeyed(settings: Mapping[str, Any]) -> None:
    """Eight are not more than eight, and a pool that is named is the one there is."""
    assert pooling.shared(Settings.model_validate(settings), [MANY], NINE) == {}


def test_the_pool_takes_what_has_no_process(tmp_path: Path) -> None:
    """A model that comes later is in it, too, and the settings can be written and read."""
    settings = pooling.pooled(Settings(), {"hot"})
    assert [settings.pool_of(name) for name in ("m0", "later", "hot")] == ["others", "others", None]
    assert [process.name for process in plan(settings, ["m0", "hot"])][-3:] == ["worker.hot", "host.others", "control"]
    assert configuration.load(configuration.write(settings, tmp_path / "settings.yaml"), {}) == settings


async def test_what_was_decided_is_known_to_other_commands(tmp_path: Path) -> None:
    """The settings do not name the pool; the file of placements does."""
    models = {name: _model(name, tmp_path) for name in (*NINE, "hot")}
    settings = Settings.model_validate({"processes": "shared"})
    found = await placement.decided(settings, models, tmp_path, [MANY, FEW])
    assert str(found["m0"]) == "host others: one of 9 models of application many"
    assert placement.with_pool(settings, placement.read(tmp_path)).pool_of("m0") == "others"
    assert placement.with_pool(settings, {"hot": Placement("", is_inside=False, reason="")}) is settings


class Supervisor:
    """Notes what it is to run."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, child: Child) -> None:
        """Note it."""
        self.names.append(child.name)

    def status(self) -> tuple[ChildStatus, ...]:
        """Describe them."""
        return tuple(ChildStatus(name, 1, alive=True, restarts=0, exit_code=None) for name in self.names)


async def test_models_that_come_while_it_runs_share_a_host_from_the_ninth_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that run already keep their processes, and one host is started for all that follow."""
    monkeypatch.setattr(catalog, "read", lambda *_: {})
    system = System(Settings(), Codec(), tmp_path)
    supervisor = system._supervisor = Supervisor()  # type: ignore[assignment]
    names = [f"m{number}" for number in range(12)]
    for count in (8, 9, 12):
        await system.serve({name: _model(name, tmp_path) for name in names[:count]})
    assert supervisor.names == [*(f"worker.{name}" for name in names[:8]), "host.others"]
    assert configuration.load(system.settings_file, {}).pool_of("m11") == "others"
    told = placement.read(tmp_path)
    assert str(told["m7"]) == "own process: new since the start"
    assert str(told["m11"]) == "host others: new since the start"


def _model(name: str, folder: Path) -> Model:
    return Model(name, "1", "function", str(folder), "", "value", None, ())
