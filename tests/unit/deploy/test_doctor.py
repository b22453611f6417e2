"""What `skysail doctor` says about machines and deployments."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest
from click.testing import CliRunner
from redis import Redis
from redis.exceptions import AuthenticationError

from deploy.cli import skysail
from deploy.config.folder import STATE
from deploy.config.settings import Settings
from deploy.connect.clients import Unreachable
from deploy.diagnose import health, servers
from deploy.diagnose.doctor import (
    Check,
    Level,
    check_compiled,
    check_cores,
    check_jars,
    check_memory,
    check_package,
    check_python,
    check_redis,
)
from deploy.diagnose.health import (
    advise,
    check_applications,
    check_clocks,
    check_mappings,
    check_models,
    check_senders,
    check_versions,
    examine,
    newest,
)
from deploy.diagnose.servers import check_kafka, check_page, check_redis_answers
from schemas.records import Application, Model, Report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import NoReturn


def test_this_interpreter_is_new_enough() -> None:
    """The Python that runs the tests passes its own check."""
    assert check_python().level is Level.OK


def test_an_absent_package_says_how_to_install_it() -> None:
    """The level and the advice given for the absent case come back."""
    check = check_package("no-such-distribution-at-all", "pip install it", Level.WARN)
    assert (check.level, check.found, check.advice) == (Level.WARN, "not installed", "pip install it")


def test_an_installed_package_shows_its_version() -> None:
    """What is there is reported without importing it."""
    assert check_package("pytest", "", Level.MISSING).level is Level.OK


def test_an_empty_cache_warns_and_names_the_way_without_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Jars that are not cached yet are no error: the first start fetches them, and embedded works without."""
    monkeypatch.setenv("SKYSAIL_CACHE", str(tmp_path))
    check = check_jars()
    assert check.level is Level.WARN
    assert check.found.startswith("0 of ")
    assert "BROKER=embedded" in check.advice


def test_one_core_and_little_memory_warn() -> None:
    """Scarce resources are a warning with advice; enough of them is not."""
    assert (check_cores(1).level, check_cores(2).level) == (Level.WARN, Level.OK)
    assert (check_memory(1024**3).level, check_memory(8 * 1024**3).level) == (Level.WARN, Level.OK)


def test_topics_of_others_that_are_not_there_are_named() -> None:
    """Else an application waits for records that nobody can write, and all looks well."""
    mapping = {"from": {"topic": "orders", "input": "text"}, "to": {"topic": "scored", "fields": {"answer": "answer"}}}
    mapped = Application("fraud", ("svc",), mapping=json.dumps(mapping))
    spoilt = Application("spoilt", ("svc",), mapping="{")
    given = {"fraud": mapped, "plain": Application("plain", ("svc",)), "spoilt": spoilt}
    fraud, broken = check_mappings(given, {"/orders": 3})
    assert (fraud.name, fraud.level) == ("topics of fraud", Level.DOWN)
    assert fraud.advice == "not there: scored; create them, or correct the names"
    assert (broken.level, broken.name) == (Level.DOWN, "topics of spoilt")
    (well,) = check_mappings({"fraud": mapped}, {"/orders": 3, "/scored": 1})
    assert well.level is Level.OK


@pytest.mark.parametrize(
    ("version", "is_old"),
    [
        ("6.2.14", True), ("6.2.20", False), ("7.0.15", True), ("7.2.10", True), ("7.2.11", False), ("7.4.5", True),
        ("7.4.6", False), ("8.0.3", True), ("8.0.4", False), ("8.2.1", True), ("8.2.2", False), ("8.4.0", False),
        ("5.0.7", True),
    ],
)  # fmt: skip
def test_a_redis_server_with_a_known_hole_is_a_warning_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_old: bool
) -> None:
    """Each series has a first version without it; whoever uses that one hears nothing."""
    check = look_at_redis(f"Redis server v={version} sha=00000000:0 malloc=libc bits=64", tmp_path, monkeypatch)
    assert check.level is (Level.WARN if is_old else Level.OK)
    assert version in check.found
    assert ("CVE-2025-49844" in check.advice and "7.2.11" in check.advice) is is_old


def test_a_redis_server_that_does_not_tell_its_version_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program of that name may count otherwise."""
    assert look_at_redis("Valkey server v=8.0.0", tmp_path, monkeypatch).level is Level.OK


def look_at_redis(told: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Check a redis-server on the PATH that says this about its version."""
    program = folder / "redis-server"
    program.write_text(f"#!/bin/sh\necho '{told}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return check_redis()


def test_what_is_not_compiled_is_a_warning_with_advice() -> None:
    """Everything works without a C compiler, but slower."""
    assert check_compiled("codec", "it is slow", is_compiled=True).level is Level.OK
    slow = check_compiled("codec", "it is slow", is_compiled=False)
    assert slow.level is Level.WARN
    assert slow.advice.startswith("it is slow: install a C compiler")


@pytest.fixture
def listener() -> Iterator[int]:
    """Listen on a port, and answer nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield int(taken.getsockname()[1])


def settings(port: int) -> Settings:
    """Settings of a deployment whose servers should all be behind this port."""
    return Settings.model_validate(
        {
            "kafka": {"bootstrap": f"127.0.0.1:{port}"},
            "redis": {"url": f"redis://me:hunter2@127.0.0.1:{port}/0"},
            "control": {"port": port},
        }
    )


def test_where_nobody_listens_the_advice_starts_a_server_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the port, unless it is the usual one; nothing further is looked at without Kafka."""
    monkeypatch.chdir(tmp_path)
    kafka, redis = examine(settings(1))
    assert (kafka.level, redis.level) == (Level.DOWN, Level.DOWN)
    assert (kafka.found, kafka.advice) == ("nobody listens at 127.0.0.1:1", "skysail kafka start --port 1")
    assert redis.advice == "skysail redis start --port 1"
    assert advise((kafka, redis), settings(1)) == "Kafka: skysail kafka start --port 1"


def test_a_server_that_was_started_here_at_another_port_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another start would be refused as one runs already, so that is not the advice."""
    monkeypatch.chdir(tmp_path)
    me = psutil.Process()
    started = {"pid": me.pid, "started": me.create_time(), "address": "127.0.0.1:22092"}
    (tmp_path / ".skysail").mkdir()
    (tmp_path / ".skysail" / "kafka.json").write_text(json.dumps(started), encoding="utf-8")
    kafka, _ = examine(settings(1))
    assert kafka.found == "nobody listens at 127.0.0.1:1; the one started from here listens at 127.0.0.1:22092"
    assert kafka.advice == "name it in skysail.yaml, or: export SKYSAIL_KAFKA__BOOTSTRAP=127.0.0.1:22092"


def test_where_no_role_runs_that_is_mended_before_an_application_that_lacks_a_model() -> None:
    """Without roles nothing is answered, whatever an application names."""
    lacks = Check("application foo", Level.DOWN, "exp3 over nosuch", "not deployed: nosuch")
    roles = Check("roles", Level.DOWN, "none of selection reports", "skysail run")
    assert advise((lacks, roles), Settings()) == "roles: skysail run"


def test_a_broker_that_falls_silent_meanwhile_is_one_fault_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found until then is told all the same."""

    def silent(*_: object) -> Iterator[Check]:
        yield Check("topics", Level.OK, "can be used")
        raise Unreachable("no Kafka broker answers")

    for name in ("check_kafka", "check_redis_answers"):
        monkeypatch.setattr(health, name, lambda _: Check("server", Level.OK, "answers"))
    monkeypatch.setattr(health, "check_redis_keeps", lambda _: Check("Redis memory", Level.OK, "kept"))
    monkeypatch.setattr(health, "_deployed", silent)
    *first, last = examine(settings(1))
    assert [check.level for check in first] == [Level.OK] * 4
    assert (last.level, last.advice) == (Level.DOWN, "the broker or this machine may be too busy: try again")


def test_whoever_has_taken_the_place_is_named(listener: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A listener that is no Kafka, no Redis and no page of ours is told from one that is; no password is shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("deploy.diagnose.servers.ANSWER_S", 0.2)
    monkeypatch.setattr("deploy.diagnose.servers.PAGE_S", 0.2)
    checks = (check_kafka(settings(listener)), check_redis_answers(settings(listener)), check_page(settings(listener)))
    assert [check.level for check in checks] == [Level.DOWN, Level.DOWN, Level.WARN]
    assert all(f"process {os.getpid()}" in check.found for check in checks)
    assert not any("hunter2" in check.found + check.advice for check in checks)


def test_a_server_of_ones_own_that_is_silent_is_not_taken_for_a_strangers(
    listener: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody is told to stop it and take another port: what was started from this folder is known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("deploy.diagnose.servers.ANSWER_S", 0.2)
    place, started = f"127.0.0.1:{listener}", psutil.Process().create_time()
    for name, address in (("kafka", place), ("redis", f"redis://{place}/0")):
        file = tmp_path / STATE / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"pid": os.getpid(), "started": started, "address": address}))
        check = (check_kafka if name == "kafka" else check_redis_answers)(settings(listener))
        assert check.found == f"{place} does not answer; started from here (process {os.getpid()}): skysail {name} stop"
        assert check.advice.endswith(f"try again; if it stays so: skysail {name} stop, then skysail {name} start")


def test_an_application_whose_models_are_not_deployed_is_down() -> None:
    """It names them, and how they are deployed."""
    model = Model("svc", "1", "sklearn", "/no/such/package", "0" * 64, "label", "float32", (2,))
    apps = {name: Application(name, models) for name, models in {"good": ("svc",), "bad": ("svc", "net")}.items()}
    bad, good = check_applications(apps, {"svc": model})
    assert (good.level, bad.level) == (Level.OK, Level.DOWN)
    assert "not deployed: net" in bad.advice
    assert [check.level for check in check_models({"svc": model})] == [Level.WARN]
    assert [check.level for check in (*check_models({}), *check_applications({}, {}))] == [Level.DOWN, Level.DOWN]


@pytest.mark.parametrize(
    ("served", "of", "advice"),
    [
        ("1", None, "not deployed: parity; skysail model add PACKAGE"),
        ("1", "", "parity is no parity model; take one of svc: skysail parity train"),
        ("1", "net@1", "parity is of net@1; take one of svc: skysail parity train"),
        ("2", "svc@1", "parity is of svc@1, and 2 serves: train one of that"),
        ("1", "svc@1", ""),
        ("few", "svc@few", "parity does not fit svc: train it again, and see that worker.partitions is at least its k"),
    ],
)
def test_a_parity_model_that_decodes_nothing_is_told(served: str, of: str | None, advice: str) -> None:
    """Answers do not depend on it, so nothing else would say that late outputs are not decoded."""
    model = Model("svc", served, "sklearn", "/no/such/package", "0" * 64, "scores", "float32", (2,))
    models = {"svc": replace(model, partitions=1 if served == "few" else 4)}
    if of is not None:
        models["parity"] = replace(model, name="parity", version="1", parity_of=of, parity_k=2)
    (found,) = check_applications({"coded": Application("coded", ("svc",), parity="parity")}, models)
    assert (found.level, found.advice) == (Level.WARN if advice else Level.OK, advice)
    assert found.found.endswith("; late outputs are not decoded") is bool(advice)


def test_every_version_that_sees_queries_has_a_line() -> None:
    """The one that serves, and canaries and shadows with what they are for; a version that is only known has none."""
    serving = Model("svc", "1", "sklearn", "/no/such/one", "0" * 64, "label", "float32", (2,))
    serving = replace(serving, shares={"2": 0.1, "3": 0.0})
    known = [replace(serving, version=version, shares={}) for version in "1234"]
    found = [check.found for check in check_models({"svc": serving}, {"svc": known})]
    assert [text.partition(", ")[0] for text in found] == ["1 (serves)", "2 (canary 10%)", "3 (shadow)"]


def test_settings_that_cannot_be_read_are_one_fault_of_several(tmp_path: Path) -> None:
    """Each fault is a line; the machine is looked at all the same, and with --machine the settings are not read."""
    file = tmp_path / "skysail.yaml"
    file.write_text("prefx: a\nreplication: many\n", encoding="utf-8")
    told = CliRunner().invoke(skysail, ["doctor", "--config", str(file)])
    assert "DOWN     settings                   unknown setting `prefx`" in told.output
    assert "setting `replication`" in told.output
    assert "Python" in told.output
    assert told.output.splitlines()[-1].startswith("next: ")
    assert told.exit_code != 0
    assert "settings" not in CliRunner().invoke(skysail, ["doctor", "--machine", "--config", str(file)]).output


def test_what_to_do_next_is_to_ask_when_all_is_well() -> None:
    """An application that is there, and the page."""
    checks = (Check("Kafka", Level.OK, "answers"), Check("application digits", Level.OK, "exp3 over svc"))
    assert advise(checks, Settings()) == "ask: skysail query digits --input '[...]'; live page: http://127.0.0.1:6066/"


def test_a_process_whose_clock_is_off_is_told() -> None:
    """After its machine's clock has been set back, until it has followed."""
    off, right = (Report(name, "joiner", 0, {}, {"clock_off_ms": ms}) for name, ms in (("joiner@1", 59_000), ("j", 20)))
    (told,) = check_clocks([off, right])
    assert (told.level, told.name, told.found) == (Level.WARN, "clock of joiner@1", "+59,000 ms off its machine's")
    assert "NTP" in told.advice


@pytest.mark.parametrize(
    ("lag", "advice"), [(0.0, "set the senders' clocks"), (900.0, "has 900 records to read: wait")]
)
def test_senders_whose_queries_expire_on_arrival_are_told(lag: float, advice: str) -> None:
    """With how long before they had been sent; a role that is behind is the likelier cause."""
    gauges = {"lag": lag, "expired_sent_ago_us{application=digits}": 3_000_000.0}
    (told,) = check_senders(
        [Report("selection@1", "selection", 0, {}, gauges), Report("joiner@1", "joiner", 0, {}, {})]
    )
    assert (told.level, told.name) == (Level.WARN, "senders of digits")
    assert "sent 3.0 s ago by their senders' clocks" in told.found
    assert advice in told.advice


@pytest.mark.parametrize(
    ("policy", "level"),
    [
        ("noeviction", Level.OK),
        ("volatile-lru", Level.OK),
        ("", Level.OK),
        ("allkeys-lru", Level.DOWN),
        ("allkeys-random", Level.DOWN),
    ],
)
def test_a_redis_that_evicts_what_was_learnt_is_told(
    policy: str, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policy states never expire, so only what evicts any key is a fault; the advice says how to change it."""
    monkeypatch.setattr(servers, "redis_eviction", lambda *_: policy)
    check = servers.check_redis_keeps(Settings())
    assert check.level is level
    assert ("noeviction" in check.advice) == (level is Level.DOWN)


def test_a_version_that_is_wanted_and_fails_is_down() -> None:
    """The worker reports it, though the version before answers; a model without any is told as such."""
    failing, lost = "version_failing{model=forest,version=4}", "model_not_loaded{model=rule}"
    reports = [
        Report("worker.forest@1", "worker.forest", 0, {}, {"serving{model=forest,version=2}": 1.0, failing: 1.0}),
        Report("worker.rule@1", "worker.rule", 0, {}, {"version_failing{model=rule,version=1}": 1.0, lost: 1.0}),
    ]
    forest, rule = check_versions(reports)
    assert (forest.level, forest.found) == (Level.DOWN, "forest 4 is wanted, 2 answers; see its worker's log")
    assert forest.advice == "skysail model rollback forest"
    assert (rule.level, rule.found.partition(",")[0]) == (Level.DOWN, "rule cannot be loaded")


def test_why_a_version_could_not_be_loaded_is_told() -> None:
    """With the attempts, also of a version that is to run beside the one that serves."""
    why = "reason=net.onnx_is_missing"
    gauges = {
        "serving{model=forest,version=2}": 1.0,
        f"version_fault{{model=forest,version=3,{why}}}": 31.0,
        "version_given_up{model=forest,version=3}": 1.0,
    }
    lost = {"model_not_loaded{model=rule}": 1.0, f"version_fault{{model=rule,version=1,{why}}}": 2.0}
    forest, rule = check_versions(
        [Report("worker.forest@1", "worker.forest", 0, {}, gauges), Report("worker.rule@1", "worker.rule", 0, {}, lost)]
    )
    assert forest.found == (
        "forest 3 cannot run beside the version that serves; tried 31 times, and no more: add it again once it is"
        " mended (net.onnx is missing)"
    )
    assert rule.found.endswith("its queries fail; tried 2 times (net.onnx is missing)")


def test_a_redis_that_wants_a_password_is_told_without_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """They speak of HELLO and AUTH, which nobody has typed."""

    def info(*_: object) -> NoReturn:
        raise AuthenticationError("HELLO must be called with the client already authenticated, AUTH <user> <pass>")

    monkeypatch.setattr(Redis, "info", info)
    check = check_redis_answers(Settings())
    assert (check.level, check.found) == (
        Level.DOWN,
        "Redis at redis://127.0.0.1:6379/0 wants a password (or another one)",
    )
    assert check.advice.startswith("set redis.password_file")
    assert "HELLO" not in check.advice


def test_of_each_process_the_last_report_counts_unless_it_is_long_ago() -> None:
    """What failed a minute ago may serve by now."""
    old, before, now = (
        Report(name, "", at_us, {}, {}) for name, at_us in (("a", 0), ("b", 59_000_000), ("b", 60_000_000))
    )
    assert [*newest([old, before, now], 60_000_000)] == [now]


def test_the_list_of_models_says_which_version_is_wanted_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the table, which shows what is wanted."""
    model = Model("forest", "4", "function", "", "", "value", "float32", (4,))
    said = Check("version of forest", Level.DOWN, "forest 4 is wanted, 2 answers", "skysail model rollback forest")
    monkeypatch.setattr("deploy.state.catalog.read", lambda *_: {"forest": model})
    monkeypatch.setattr("deploy.state.catalog.versions", lambda *_: {"forest": [model]})
    monkeypatch.setattr("deploy.diagnose.health.failing_versions", lambda *_: [said])
    monkeypatch.setattr("deploy.diagnose.health.hosts_lately", lambda *_: [])
    result = CliRunner().invoke(skysail, ["model", "list"])
    assert "forest 4 is wanted, 2 answers; skysail model rollback forest" in result.output
