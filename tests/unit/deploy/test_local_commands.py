"""What `skysail kafka start` and `skysail redis start` say of a server that they have started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.local import daemons
from deploy.local.daemons import RunningServer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("verb", "port", "usual", "said"),
    [
        ("kafka", 19092, 9092, 'write `kafka: {bootstrap: "127.0.0.1:19092"}` into skysail.yaml'),
        ("redis", 16379, 6379, 'write `redis: {url: "redis://127.0.0.1:16379/0"}` into skysail.yaml'),
    ],
)
def test_a_server_at_another_port_says_how_commands_find_it(
    verb: str, port: int, usual: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the usual port nothing has to be said: the settings name it."""

    def start(_argv: object, _state: object, address: str, *_: object) -> RunningServer:
        return RunningServer(1, 0.0, address)

    monkeypatch.setattr(daemons, "start", start)
    monkeypatch.chdir(tmp_path)
    other = CliRunner().invoke(skysail, [verb, "start", "--port", str(port)])
    assert other.exit_code == 0, other.output
    assert said in other.output
    assert "skysail.yaml" not in CliRunner().invoke(skysail, [verb, "start", "--port", str(usual)]).output


@pytest.mark.parametrize(
    ("verb", "settings", "port"),
    [
        ("kafka", 'kafka: {bootstrap: "127.0.0.1:19092"}', 19092),
        ("kafka", 'kafka: {bootstrap: "kafka.example:19092"}', 9092),
        ("redis", 'redis: {url: "redis://localhost:16379/3"}', 16379),
        ("redis", 'redis: {url: "redis://redis.example:16379/0"}', 6379),
        ("redis", "redis: {url: [}", 6379),
    ],
)
def test_a_server_starts_where_the_settings_look_for_it(
    verb: str, settings: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that name another machine, or cannot be read, change nothing; nothing has to be written then."""
    seen: list[str] = []

    def start(argv: list[str], _state: object, address: str, *_: object) -> RunningServer:
        seen.append(argv[argv.index("--port") + 1])
        return RunningServer(1, 0.0, address)

    monkeypatch.setattr(daemons, "start", start)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "skysail.yaml").write_text(settings)
    found = CliRunner().invoke(skysail, [verb, "start"])
    assert (found.exit_code, seen) == (0, [str(port)]), found.output
    assert "for the other commands" not in found.output


@pytest.mark.parametrize(("version", "is_told"), [("6.2.14", True), ("7.2.11", False)])
def test_a_redis_with_a_known_hole_is_named_as_it_starts(
    version: str, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what anybody with its password can do, and what to install."""
    program = tmp_path / "redis-server"
    program.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(daemons, "start", lambda *_: RunningServer(1, 0.0, "redis://127.0.0.1:6379/0"))
    monkeypatch.chdir(tmp_path)
    lines = CliRunner().invoke(skysail, ["redis", "start"]).output.splitlines()
    assert sum("CVE-2025-49844" in line and "7.2.11" in line for line in lines) == is_told
