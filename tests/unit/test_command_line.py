"""The command line without a broker: help, refusals that say what to do, parsing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from sklearn.naive_bayes import GaussianNB

from deploy.cli import VERBS, main, skysail
from deploy.cli.app import _changed
from deploy.cli.common import Examples
from deploy.errors import SettingsError, UsageError
from schemas.records import Application
from workers.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> str:
    """Run a command line that must succeed; returns what it printed."""
    result = CliRunner().invoke(skysail, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def exit_of(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """Run the entry point as a shell does; returns the exit code."""
    monkeypatch.setattr(sys, "argv", ["skysail", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_explains_itself_with_examples(verb: str) -> None:
    """Help exists, and shows command lines that begin with the program's name."""
    shown = run(verb, "--help")
    assert "Examples:" in shown
    assert f"skysail {verb}" in shown


def test_help_lists_every_verb_without_importing_one() -> None:
    """The first thing a newcomer types must be quick: no scikit-learn, no plots, no clients."""
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom deploy.cli import skysail\n"
        "print(CliRunner().invoke(skysail, ['--help']).output)\n"
        "heavy = {'sklearn', 'matplotlib', 'aiokafka', 'confluent_kafka', 'torch', 'faust', 'numpy'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in VERBS)


def test_every_command_with_an_epilog_knows_how_to_write_it() -> None:
    """Examples keep their lines: click's own epilog would flow them together."""
    with click.Context(skysail) as context:
        commands = [skysail.get_command(context, verb) for verb in VERBS]
    assert all(isinstance(command, Examples) for command in commands)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("run", "--model", "svc"), "--model goes with --role worker"),
        (("query", "digits"), "give either --input or --npy"),
        (("query", "digits", "--input", "[1, "), "this is no input"),
        (("feedback", "q1"), "give either --label or --loss"),
        (("feedback", "q1", "--label", "3", "--loss", "0.5"), "give either --label or --loss"),
        (("topics", "describe", "--config", "none.yaml"), "there is no settings file none.yaml"),
        (("model", "show", "."), "is not a model package"),
        (("load", "run", "figure9"), "figure8"),
        (("demo", "--broker", "nonsense"), "apache, embedded, HOST:PORT"),
    ],
)
def test_a_refusal_is_one_message_that_says_what_to_do(
    arguments: tuple[str, ...],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """No traceback for what a person can put right; exit code 1."""
    monkeypatch.chdir(tmp_path)
    assert exit_of(arguments, monkeypatch) == 1
    shown = capsys.readouterr().err
    assert expected in shown
    assert "Traceback" not in shown


def test_a_broker_that_is_not_there_is_named_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The message names the address, how to start a broker and where to set another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("deploy.clients.TIMEOUT_S", 0.5)
    monkeypatch.setenv("SKYSAIL_KAFKA__BOOTSTRAP", "127.0.0.1:1")
    assert exit_of(["topics", "check"], monkeypatch) == 1
    shown = capsys.readouterr().err
    assert "127.0.0.1:1" in shown
    assert "skysail kafka start" in shown
    assert "SKYSAIL_KAFKA__BOOTSTRAP" in shown


def test_a_misspelt_verb_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Click's own exit code for what it does not understand."""
    assert exit_of(["dmeo"], monkeypatch) == 2
    assert "No such command 'dmeo'" in capsys.readouterr().err


def test_the_topology_is_described_without_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a drawing for people and as JSON for scripts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "skysail.yaml").write_text("partitions: 3\nmodels: {svc: models/svc}\n", encoding="utf-8")
    assert "models.svc.queries" in run("topics", "describe")
    described = json.loads(run("topics", "describe", "--json"))
    assert described["topics"]["queries"]["partitions"] == 3


def test_a_package_is_shown_with_its_digest(tmp_path: Path) -> None:
    """What `model add` will publish can be looked at first."""
    rows = np.arange(8.0).reshape(4, 2)
    package_sklearn(GaussianNB().fit(rows, [0, 1, 0, 1]), tmp_path / "nb", "nb", "7", rows)
    shown = json.loads(run("model", "show", str(tmp_path / "nb"), "--json"))
    assert (shown["name"], shown["version"], len(shown["digest"])) == ("nb", "7", 64)


def test_a_function_is_packaged_from_the_command_line(tmp_path: Path) -> None:
    """A dotted path and a sample of rows are all it takes."""
    sample = json.dumps([[0.0, 1.0], [2.0, 3.0]])
    made = run("model", "package", "tests.toys:parity", str(tmp_path / "p"), "--name", "parity", "--sample", sample)
    assert "skysail model add" in made
    assert (tmp_path / "p" / "manifest.json").is_file()


def test_a_pickle_is_only_read_on_its_owners_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reading a pickle runs code: the flag is the owner's consent."""
    (tmp_path / "m.joblib").write_bytes(b"\x80\x04N.")
    arguments = [
        "model",
        "package",
        str(tmp_path / "m.joblib"),
        str(tmp_path / "p"),
        "--name",
        "m",
        "--sample",
        "[[1]]",
    ]
    assert exit_of(arguments, monkeypatch) == 1
    assert "--trust-pickle" in capsys.readouterr().err


def test_changes_to_an_application_are_typed() -> None:
    """Lists, numbers, flags, parameters and labels end up as what the record holds."""
    changes = ("models=a, b", "slo_ms=50", "per_context=true", "parameters.eta=0.1", "default_output=7", "policy=exp4")
    changed = _changed(Application("digits", ("x",)), changes)
    assert changed == Application(
        "digits", ("a", "b"), "exp4", {"eta": 0.1}, per_context=True, slo_ms=50.0, default_output=7
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("modles=a", "did you mean 'models'"),
        ("slo_ms=soon", "slo_ms must be a number"),
        ("per_context=maybe", "per_context must be a bool"),
        ("models", "is no KEY=VALUE"),
        ("parameters.eta=x", "must be a number"),
        ("name=other", "did you mean"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: str, expected: str) -> None:
    """With the nearest key, or what the value should be."""
    with pytest.raises(UsageError, match=expected):
        _changed(Application("digits", ("x",)), (change,))


def test_an_expected_failure_inside_a_verb_reaches_the_caller_as_itself() -> None:
    """Only the entry point words failures; code that calls verbs sees the exception."""
    with pytest.raises(SettingsError):
        CliRunner().invoke(skysail, ["topics", "check", "--config", "none.yaml"], catch_exceptions=False)


def test_the_compose_file_runs_each_role_by_a_command_that_exists() -> None:
    """Every role is a service of its own, and the verbs and options it uses are there."""
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert {"kafka", "redis", "selection", "joiner", "learner", "worker", "control"} <= services.keys()
    for name in ("setup", "selection", "joiner", "learner", "worker", "control"):
        verb, *rest = services[name]["command"]
        with click.Context(skysail) as context:
            command = skysail.get_command(context, verb)
        if isinstance(command, click.Group):
            command = command.commands[rest.pop(0)]
        assert command is not None
        command.make_parser(click.Context(command)).parse_args(rest)
