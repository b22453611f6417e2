"""What a deployment starts."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from deploy.cli import load_stage
from deploy.cli.supervise import removed_by
from deploy.config.settings import Settings
from deploy.errors import StartError
from deploy.local.supervisor import ChildStatus
from deploy.placement import grouping
from deploy.placement.grouping import plan
from deploy.state import desired
from deploy.system import launch
from deploy.system.launch import System
from schemas.codec import Codec
from schemas.records import Application, Model, Report
from streams.operators.contract import Record

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.supervisor import Child


def test_a_role_has_as_many_processes_as_are_asked_for() -> None:
    """The first keeps its name, the others are numbered; roles that share a process stay one."""
    settings = Settings(processes="each", roles=("selection", "joiner"))
    found = plan(settings, [], several={"selection": 2})
    assert [process.instances for process in found] == [("selection",), ("selection@2",), ("joiner",)]
    assert [process.number for process in found] == [1, 2, 1]
    shared = plan(Settings(processes="shared", roles=("selection", "joiner")), [], several={"selection": 2})
    assert [process.instances for process in shared] == [("selection", "joiner")]


def test_the_settings_say_how_many_workers_a_model_has() -> None:
    """At most as many as its topic has partitions; another would have nothing to do."""
    settings = Settings.model_validate({"roles": ["worker"], "worker": {"replicas": {"a": 2}}})
    found = plan(settings, ["a", "b"], settings.worker.replicas)
    assert [process.name for process in found] == ["worker.a", "worker.a@2", "worker.b"]
    assert [(process.model, process.number) for process in found] == [("a", 1), ("a", 2), ("b", 1)]
    assert [settings.worker.spread(name) for name in "ab"] == [4, 4]
    many = Settings.model_validate({"worker": {"replicas": {"a": 8}, "partitions": {"b": 16, "c": 1}}})
    assert [many.worker.spread(name) for name in "abc"] == [8, 16, 1]
    with pytest.raises(ValidationError, match="a has 5 replicas and 4 partitions"):
        Settings.model_validate({"worker": {"replicas": {"a": 5}, "partitions": {"a": 4}}})


def test_the_settings_say_how_many_hosts_a_pool_has() -> None:
    """The second is numbered; a pool without a model has none."""
    hosts = {"many": {"models": ["a", "b"], "replicas": 2}, "none": {"models": ["c"]}}
    settings = Settings.model_validate({"roles": ["worker"], "hosts": hosts})
    found = plan(settings, ["a", "b"])
    assert [(process.name, process.pool, process.number) for process in found] == [
        ("host.many", "many", 1),
        ("host.many@2", "many", 2),
    ]


def test_each_role_and_model_has_its_process_if_wanted() -> None:
    """On any machine."""
    found = plan(Settings(processes="each"), ["a", "b"], {"b": 2})
    named = {process.name: process.roles for process in found}
    assert [*named] == ["selection", "joiner", "learner", "worker.a", "worker.b", "worker.b@2", "control"]
    assert named["joiner"] == ("joiner",)


def test_the_roles_of_the_loop_share_a_process_if_wanted() -> None:
    """Models that are not inside keep theirs, and so does the page; who reports is the same in both shapes."""
    found = plan(Settings(processes="shared"), ["a", "b"], inside={"a"})
    assert [process.name for process in found] == ["loop", "worker.b", "control"]
    assert found[0].roles == found[0].instances == ("selection", "joiner", "learner")


def test_a_host_that_gets_ready_says_how_far_it_is() -> None:
    """Nothing is said of other roles, nor of a host that knows no model yet."""
    gauges = {"host_known_models": 12.0, "host_resident_models": 3.0}
    assert launch.loading(Report("host.small@1", "host.small", 0, {}, gauges)) == " (3 of 12 models in memory)"
    assert launch.loading(Report("host.small@1", "host.small", 0, {}, {"host_known_models": 0.0})) == ""
    assert launch.loading(Report("joiner@1", "joiner", 0, {}, {"lag": 0.0})) == ""


def test_a_single_role_keeps_its_name() -> None:
    """There is nobody to share with."""
    assert plan(Settings(processes="shared", roles=("selection", "worker")), [])[0].name == "selection"


@pytest.mark.parametrize(("cores", "first"), [(1.5, "loop"), (4.0, "loop"), (8.0, "selection")])
def test_few_cores_have_few_processes(cores: float, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine decides unless the settings do."""
    monkeypatch.setattr(grouping, "cores", lambda: cores)
    assert plan(Settings(), [])[0].name == first


class Started:
    """A supervisor that only notes what it is to run."""

    def __init__(self) -> None:
        self.children: dict[str, Child] = {}

    @property
    def names(self) -> list[str]:
        """Return whom it runs."""
        return [*self.children]

    def add(self, child: Child) -> None:
        """Note it."""
        self.children[child.name] = child

    def remove(self, name: str, _grace_s: float | None = None) -> Child:
        """Stop it."""
        return self.children.pop(name)

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


async def test_a_process_that_is_stopped_has_more_variables_for_the_life_that_they_are_given_to(tmp_path: Path) -> None:
    """Then it is as it was planned."""
    system = System(Settings(), Codec(), tmp_path)
    supervisor = system._supervisor = Started()  # type: ignore[assignment]
    await system.serve({"rule": Model("rule", "1", "function", str(tmp_path), "", "value", None, ())})
    before = supervisor.children["worker.rule"]
    await system.stop("worker.rule")
    assert supervisor.names == []
    await system.start("worker.rule", {"TZ": "UTC"})
    assert supervisor.children["worker.rule"].env == {**before.env, "TZ": "UTC"}
    await system.stop("worker.rule", 0.0)
    await system.start("worker.rule")
    assert supervisor.children["worker.rule"] == before


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


@pytest.mark.parametrize("versions", [{}, {"forest": "nightly"}])
def test_an_application_of_a_scenario_comes_out_of_the_settings_as_it_was(versions: dict[str, str]) -> None:
    """Settings write a version that is asked for as MODEL@VERSION."""
    application = Application("digits", ("forest", "bayes"), "exp3", versions=versions)
    settings = Settings.model_validate({"applications": {"digits": load_stage._without_name(application)}})
    assert desired.applications(settings) == [application]
