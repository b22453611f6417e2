"""The command line without a broker: help, refusals that say what to do, parsing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import joblib
import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from sklearn.naive_bayes import GaussianNB

from deploy.cli import VERBS, main, skysail
from deploy.cli.app import _changed
from deploy.cli.feedback import _record
from deploy.cli.packing import labels, sample
from deploy.cli.query import ADVICE
from deploy.cli.run import _told
from deploy.config.configuration import load
from deploy.errors import SettingsError, UsageError
from load.results import results
from load.results.results import Result
from schemas.records import Application, Decision, LabelSet, ModelOutput, Outcome, Prediction, Status, Tensor
from streams.control.page.advice import REASONS
from workers.errors import PackageError
from workers.manifest import sha256
from workers.packages.loading import load_package
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[3]


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


def test_every_command_of_a_group_explains_itself_with_examples_of_its_own() -> None:
    """Of its group's, those that show it."""
    with click.Context(skysail) as context:
        groups = {verb: skysail.get_command(context, verb) for verb in VERBS}
    paths = [(verb, name) for verb, g in groups.items() if isinstance(g, click.Group) for name in g.commands]
    assert len(paths) > 20
    assert [path for path in paths if f"Examples:\n  skysail {' '.join(path)}" not in run(*path, "--help")] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("run", "--model", "svc"), "--model goes with --role worker"),
        (("query", "digits"), "give either --input or --npy"),
        (("query", "digits", "--input", "[1, "), "this is no input"),
        (("query", "digits", "--input", "great fun"), """quote a text: --input '"great fun"'"""),
        (("query", "digits", "--input", "[1]", "--features", "0.5"), "--features: features: a list of numbers"),
        (("query", "digits", "--input", "[1]", "--features", "[1"), "--features: "),
        (("feedback", "q1"), "give either --label or --loss"),
        (("feedback", "q1", "--label", "3", "--loss", "0.5"), "give either --label or --loss"),
        (("feedback", "--loss", "0.5", "q1", "--label", "3"), "give either --label or --loss"),
        (("feedback", "tell", "check"), "give either --label or --loss"),
        (("topics", "describe", "--config", "none.yaml"), "there is no settings file none.yaml"),
        (("model", "show", "."), "is not a model package"),
        (("load", "run", "figure9"), "figure8"),
        (("load", "run", "figure8", "--arrivals", "constant"), "goes with: floor, loop"),
        (
            ("load", "run", "loop", "--docs", "loop.md"),
            "goes with: guards, scale, matrix, soak, freshness, costs, ab, hedge, graph, controllers, runtimes, gpu, ",
        ),
        (("load", "run", "loop", "--short"), "peers"),
        (("load", "run", "peers", "--only", "triton"), "has no part triton"),
        (("load", "run", "loop", "--arrivals", "uniform"), "poisson, constant or trace:FILE"),
        (("feedback", "q1", "--label", '{"a": [[1], [1, 2]]}'), "label.a:"),
        (("model", "package", "nothing", "p", "--name", "m", "--sample", "[[1]]"), "neither a file nor a function"),
        (("model", "package", "nets:make", "p", "--name", "m", "--sample", "[[1"), "neither a readable .npy"),
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


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "check"),
        ("topics", "create"),
        ("model", "list"),
        ("model", "remove", "svc"),
        ("app", "list"),
        ("app", "apply"),
        ("app", "remove", "digits"),
        ("app", "create", "digits", "models=svc"),
        ("app", "set", "digits", "slo_ms=50"),
        ("query", "digits", "--input", "[1]"),
        ("feedback", "q1", "--label", "3"),
        ("feedback", "q1", "--label", "3", "--wait", "1"),
        ("tail", "predictions"),
    ],
)
def test_a_broker_that_is_not_there_is_named_with_the_way_out(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One sentence names the address, how to start a broker and where to set another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKYSAIL_KAFKA__BOOTSTRAP", "127.0.0.1:1")
    assert exit_of(arguments, monkeypatch) == 1
    [shown] = capsys.readouterr().err.splitlines()
    assert shown.startswith("skysail: no Kafka broker answers at 127.0.0.1:1")
    assert "skysail kafka start" in shown
    assert "SKYSAIL_KAFKA__BOOTSTRAP" in shown


def test_a_redis_that_is_not_there_is_named_before_any_role_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without its password."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKYSAIL_REDIS__URL", "redis://me:hunter2@127.0.0.1:1/0")
    assert exit_of(["run"], monkeypatch) == 1
    said = capsys.readouterr()
    assert "no Redis answers at redis://me:********@127.0.0.1:1/0" in said.err
    assert "skysail redis start" in said.err
    assert "hunter2" not in said.out + said.err


def test_the_ends_of_several_roles_are_a_sentence_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can be put right stays one message a fault, also out of a group; what cannot keeps its traceback."""
    found = ExceptionGroup("", [UsageError("first"), ExceptionGroup("", [SettingsError("second")])])

    def fail() -> None:
        raise found

    monkeypatch.setitem(skysail.commands, "fail", click.Command("fail", callback=fail))
    monkeypatch.setattr(type(skysail), "get_command", lambda *_: skysail.commands["fail"])
    assert exit_of(["fail"], monkeypatch) == 1
    assert capsys.readouterr().err.splitlines() == ["skysail: first", "skysail: second"]
    found = ExceptionGroup("", [UsageError("first"), ZeroDivisionError()])
    with pytest.raises(ExceptionGroup):
        main()


def test_a_package_that_is_not_there_is_told_before_anything_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither broker nor Redis are needed to see a wrong path."""
    config = tmp_path / "skysail.yaml"
    config.write_text('{kafka: {bootstrap: "127.0.0.1:1"}, models: {svc: models/svc-1}}')
    assert exit_of(("run", "--quiet", "--config", str(config)), monkeypatch) == 1
    assert "models/svc-1" in capsys.readouterr().err


def test_a_wrong_parameter_of_a_policy_is_all_that_run_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the last line below all the settings."""
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "skysail.yaml"
    config.write_text("applications: {d: {models: [a, b], policy: exp3, parameters: {etta: 0.1}}}")
    assert exit_of(("run", "--config", str(config)), monkeypatch) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "etta" in said.err


def test_verbs_are_completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As README says, by the shell that asks for it."""
    for name, value in {"_SKYSAIL_COMPLETE": "bash_complete", "COMP_WORDS": "skysail mod", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    exit_of((), monkeypatch)
    assert capsys.readouterr().out.strip() == "plain,model"


def test_a_misspelt_verb_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Click's own exit code for what it does not understand; the nearest verb is named, in groups too."""
    assert exit_of(["dmeo"], monkeypatch) == 2
    assert "No such command 'dmeo'; did you mean: skysail demo?" in capsys.readouterr().err
    assert exit_of(["model", "lst"], monkeypatch) == 2
    assert "did you mean: skysail model list?" in capsys.readouterr().err


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


def test_a_package_is_shown_to_people_in_words(tmp_path: Path) -> None:
    """What it takes and answers, and each of its files; nothing looks like Python."""
    rows = np.arange(8.0).reshape(4, 2)
    package_sklearn(GaussianNB().fit(rows, ["a", "b", "a", "b"]), tmp_path / "nb", "nb", 7, rows)
    shown = [line.split(maxsplit=1) for line in run("model", "show", str(tmp_path / "nb")).splitlines() if line.strip()]
    assert {"model": "nb 7", "input": "float64[2]", "classes": "a, b"}.items() <= dict(shown).items()
    assert not any(sign in line[-1] for line in shown for sign in "{}'")


def package(source: object, folder: Path, *options: str, rows: str = "[[0.0, 1.0], [2.0, 3.0]]") -> dict[str, Any]:
    """Package a model named m from the command line; returns what a script would read."""
    given = ("model", "package", str(source), str(folder), "--name", "m", "--sample", rows, *options, "--json")
    found: dict[str, Any] = json.loads(run(*given))
    return found


def test_a_function_is_packaged_from_the_command_line(tmp_path: Path) -> None:
    """A dotted path and a sample of rows are all it takes; JSON rows are float32, as queries are."""
    made = package("tests.toys:parity", tmp_path / "p")
    assert (made["runtime"], made["input"]["dtype"], len(made["digest"])) == ("function", "float32", 64)
    assert (tmp_path / "p" / "manifest.json").is_file()


def test_people_are_told_how_to_deploy_what_they_packaged(tmp_path: Path) -> None:
    """The next command, and the digest."""
    made = run("model", "package", "tests.toys:parity", str(tmp_path / "p"), "--name", "m", "--sample", "[[1.0]]")
    assert f"skysail model add {tmp_path / 'p'}" in made
    assert "digest" in made


@pytest.fixture
def estimator(tmp_path: Path) -> Path:
    """Return the file of a fitted estimator."""
    path = tmp_path / "m.joblib"
    joblib.dump(GaussianNB().fit(np.arange(8.0).reshape(4, 2), [0, 1, 0, 1]), path)
    return path


def test_a_pickle_is_only_read_on_its_owners_word(
    estimator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reading a pickle runs code: its digest is the owner's consent, and says to which bytes."""
    arguments = ["model", "package", str(estimator), str(tmp_path / "p"), "--name", "m", "--sample", "[[1, 2]]"]
    assert exit_of(arguments, monkeypatch) == 1
    assert f"--trust-pickle {sha256(estimator)}" in capsys.readouterr().err
    assert exit_of([*arguments, "--trust-pickle", "0" * 64], monkeypatch) == 1
    assert "is not the file that you trust" in capsys.readouterr().err
    made = package(estimator, tmp_path / "p", "--trust-pickle", sha256(estimator))
    assert list(made["files"]) == ["model.skops", "warm-up.avro"]


def test_an_estimator_is_kept_as_a_pickle_only_if_that_is_asked_for(estimator: Path, tmp_path: Path) -> None:
    """Loading it then takes the flag and the digest that packaging printed."""
    made = package(estimator, tmp_path / "p", "--trust-pickle", sha256(estimator), "--allow-pickle")
    assert list(made["files"]) == ["model.pickle", "warm-up.avro"]
    with pytest.raises(PackageError, match="allow_pickle"):
        load_package(tmp_path / "p", digest=made["digest"])
    assert load_package(tmp_path / "p", allow_pickle=True, digest=made["digest"]).manifest.name == "m"


@pytest.mark.skipif(importlib.util.find_spec("skl2onnx") is None, reason="the extra `onnx` is not installed")
def test_an_estimator_is_converted_if_that_is_asked_for(
    estimator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """How far they are apart, what was refused and what each takes is printed; the graph alone is a model, too."""
    arguments = [str(estimator), str(tmp_path / "p"), "--name", "m", "--sample", "[[1, 2], [5, 6]]"]
    trust = ["--trust-pickle", sha256(estimator), "--output", "scores", "--convert", "auto"]
    told = run("model", "package", *arguments, *trust)
    assert "converted to onnx: 256 rows agree within" in told
    assert "not to trees: GaussianNB cannot be compiled" in told
    shown = run("model", "show", str(tmp_path / "p"))
    assert all(word in shown for word in ("us a batch of", "sklearn", "onnx", "1024"))
    assert package(tmp_path / "p" / "model.onnx", tmp_path / "q")["runtime"] == "onnx"
    again = ["model", "package", str(tmp_path / "p" / "model.onnx"), str(tmp_path / "r"), *arguments[2:]]
    assert exit_of([*again, "--convert", "onnx"], monkeypatch) == 1
    assert "--convert is for scikit-learn estimators" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x04N.", b"\x80\x04K\x01."])
def test_a_pickle_that_holds_no_estimator_is_refused(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Garbage, and things that cannot predict, are one sentence."""
    path = tmp_path / "m.joblib"
    path.write_bytes(content)
    arguments = ["model", "package", str(path), str(tmp_path / "p"), "--name", "m", "--sample", "[[1, 2]]"]
    assert exit_of([*arguments, "--trust-pickle", sha256(path)], monkeypatch) == 1
    assert str(path) in capsys.readouterr().err


def test_samples_are_rows_of_numbers_or_texts(tmp_path: Path) -> None:
    """Numbers are float32 unless they say otherwise; tensors by name are records with a field for each."""
    np.savez(tmp_path / "rows.npz", left=np.ones((2, 3)), right=np.arange(2, dtype=np.int8))
    for text in (str(tmp_path / "rows.npz"), '{"left": [[1, 1, 1], [1, 1, 1]], "right": [0, 1]}'):
        found: Any = sample(text)
        assert found.shape == (2,)
        assert found["left"].tolist() == [[1, 1, 1]] * 2
        assert found["right"].tolist() == [0, 1]
    assert sample("[[1, 2]]").dtype == np.float32
    assert sample('{"values": [[1, 2]], "dtype": "uint8"}').dtype == np.uint8
    assert sample('["a", "b"]') == ["a", "b"]
    assert (labels("1, 2"), labels("a,2"), labels(None)) == ((1, 2), ("a", "2"), ())


@pytest.mark.parametrize(
    ("text", "label"),
    [("3", 3), ("3.5", 3.5), ("yes", "yes"), ("true", "true"), ("null", "null"), ('"3"', "3"), ("3rd", "3rd")],
)
def test_a_label_is_a_number_where_it_looks_like_one(text: str, label: object) -> None:
    """Nothing else is read into a word: yes is a text, and not a truth value."""
    assert _record("q", text, None).label == label


def test_lists_of_scores_are_labels_too() -> None:
    """For the losses that compare distributions."""
    assert _record("q", "[0.5, 0.5]", None).label == Tensor.of(np.array([0.5, 0.5], dtype=np.float32))


@pytest.mark.parametrize(("changes", "shown"), [((), "the defaults"), (("SKYSAIL_PARTITIONS",), "partitions: 8")])
def test_run_prints_what_differs_from_the_defaults(
    changes: tuple[str, ...],
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """And everything only when it is asked to."""
    monkeypatch.chdir(tmp_path)
    settings = load(environment=dict.fromkeys(changes, "8"))
    assert shown in _told(settings, verbose=False)
    assert "queue_rows" not in _told(settings, verbose=False)
    assert "queue_rows" in _told(settings, verbose=True)


def test_the_settings_are_shown_for_people_and_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In force, masked; and as a schema for editors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "skysail.yaml").write_text("partitions: 3\nredis: {password: hunter2}\n", encoding="utf-8")
    assert yaml.safe_load(run("config", "show", "--changed")) == {"partitions": 3, "redis": {"password": "********"}}
    assert json.loads(run("config", "show", "--json"))["kafka"]["fetch_wait_ms"] == 200
    assert "partitions" in json.loads(run("config", "reference", "--json"))["properties"]


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
    assert {"kafka", "redis", "setup", "selection", "joiner", "learner", "control"} <= services.keys()
    for name in services.keys() - {"kafka", "redis", "prometheus", "grafana"}:
        verb, *rest = services[name]["command"]
        with click.Context(skysail) as context:
            command = skysail.get_command(context, verb)
        if isinstance(command, click.Group):
            command = command.commands[rest.pop(0)]
        assert command is not None
        command.make_parser(click.Context(command)).parse_args(rest)


def test_a_result_is_printed_as_a_page(tmp_path: Path) -> None:
    """With the machine it was measured on, as `load run --docs` would have written it."""
    path = results.write(Result("peers", {}, {}, {"systems": []}), tmp_path, {"broker": "Apache Kafka"})
    assert "and system. Software: Apache Kafka, Python" in run("load", "page", str(path))


def test_parts_that_were_run_one_by_one_make_one_page(tmp_path: Path) -> None:
    """The later figure counts; the pictures lie beside the page."""
    first = results.write(Result("parm", {"none_p50_ms": 1.0, "none_queries_sent": 5.0}, {"seed": 1}), tmp_path / "a")
    second = results.write(Result("parm", {"none_p50_ms": 2.0}, {"seed": 1}, notes=("so it is",)), tmp_path / "b")
    run("load", "page", str(first), str(second), "--docs", str(tmp_path / "page.md"))
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| 12 workers | 5 | 2.0 |" in page
    assert "- so it is" in page
    assert (tmp_path / "parm.png").exists()


def test_results_that_were_measured_otherwise_make_no_page_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another seed is another result."""
    paths = [results.write(Result("parm", {}, {"seed": seed}), tmp_path / f"{seed}") for seed in (1, 2)]
    command = ["load", "page", *map(str, paths), "--docs", str(tmp_path / "page.md")]
    assert exit_of(command, monkeypatch) == 1
    assert "of one scenario, with the same parameters" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (
            "loop",
            "these have: guards, scale, matrix, soak, freshness, costs, ab, hedge, graph, controllers, runtimes, gpu, ",
        ),
        ("peers", "is missing"),
    ],
)
def test_a_result_that_makes_no_page_says_why(
    scenario: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scenario has none, or nobody knows on what machine it ran."""
    path = results.write(Result(scenario, {}), tmp_path)
    if scenario == "peers":
        (tmp_path / results.ENVIRONMENT).unlink()
    assert exit_of(["load", "page", str(path)], monkeypatch) == 1
    assert expected in " ".join(capsys.readouterr().err.split())


def test_reasons_for_a_default_have_words_where_they_are_printed_as_where_they_are_watched() -> None:
    """Both know the same ones; an unknown application is refused before it is asked."""
    assert ADVICE.keys() | {"unknown_application"} == REASONS.keys()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"status": Status.PARTIAL}, 0),
        ({"status": Status.DEFAULT, "reason": "deadline"}, 3),
        ({"status": Status.DEFAULT, "reason": "low_confidence"}, 3),
        ({"status": Status.DEFAULT, "reason": "deadline", "answer": None}, 1),
        ({"status": Status.DEFAULT, "reason": "invalid_input"}, 1),
        ({"status": Status.DEFAULT, "reason": "unknown_version"}, 1),
    ],
)
def test_a_query_fails_where_the_caller_erred_or_no_model_has_answered(
    changes: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts tell a default output from both by its code; what a model has said about the input is printed."""
    found = Prediction("q", "digits", None, None, Status.COMPLETE, None, 3, 1.0, (), 0, 0, 0, 0, "", "takes float32[4]")

    async def ask(*_: object) -> Prediction:
        return found._replace(**changes)

    monkeypatch.setattr("deploy.cli.query._ask", ask)
    result = CliRunner().invoke(skysail, ["query", "digits", "--input", "[1]"])
    assert result.exit_code == code
    assert "takes float32[4]" in result.output


@pytest.mark.parametrize(("policy", "told"), [("single()", "0.75 (its own 0.99),"), ("exp4()", "0.75,")])
def test_an_answer_of_one_model_is_shown_with_what_the_model_says_of_itself(
    policy: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what feedback has made of that."""
    decision = Decision((0,), 0, "digits", policy, ("m",), (1.0,))
    outputs = (ModelOutput("m", "1", Outcome.OK, 7, Tensor.of(np.array([0.01, 0.99]))),)
    found = Prediction("q", "digits", None, decision, Status.COMPLETE, None, 7, 0.75, outputs, 0, 0, 0, 0)

    async def ask(*_: object) -> Prediction:
        return found

    monkeypatch.setattr("deploy.cli.query._ask", ask)
    assert f"7   confidence {told}" in CliRunner().invoke(skysail, ["query", "digits", "--input", "[1]"]).output


@pytest.mark.parametrize(
    ("is_all", "told"), [(False, '0.9: 7, "x"\n'), (True, "0.9: any label, as too little is known")]
)
def test_an_answer_is_shown_with_its_set_of_labels(is_all: bool, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And with the coverage that is promised."""
    made = LabelSet((7, "x"), is_all, 0.9, 0.1, 0.2, (0.6, 0.3))
    found = Prediction("q", "digits", None, None, Status.COMPLETE, None, 7, 1.0, (), 0, 0, 0, 0, label_set=made)

    async def ask(*_: object) -> Prediction:
        return found

    monkeypatch.setattr("deploy.cli.query._ask", ask)
    assert f"with coverage {told}" in CliRunner().invoke(skysail, ["query", "digits", "--input", "[1]"]).output


def test_an_input_that_no_model_takes_is_told_once_and_asks_for_no_feedback(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the model says of it is better than the general advice, which stands where it says nothing."""
    decision = Decision((0,), 0, "digits", "exp3", ("m",), (1.0,))
    said = "model m takes float32[4], got float32[1]"
    found = Prediction("q", "digits", None, decision, Status.DEFAULT, "invalid_input", 3, 0.0, (), 0, 0, 0, 0, "", said)

    async def ask(*_: object) -> Prediction:
        return found

    monkeypatch.setattr("deploy.cli.query._ask", ask)
    told = CliRunner().invoke(skysail, ["query", "digits", "--input", "[1]"]).output
    assert said in told
    assert ADVICE["invalid_input"] not in told
    assert "feedback" not in told
    found = found._replace(message="")
    assert ADVICE["invalid_input"] in CliRunner().invoke(skysail, ["query", "digits", "--input", "[1]"]).output
