"""`models.require_signature`: every door through which a package comes asks for a signature, and says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config.configuration import load, masked, write
from deploy.config.settings import Settings
from deploy.diagnose.doctor import Level
from deploy.diagnose.health import check_applications, check_models
from deploy.diagnose.rehearsal import why_deadly
from deploy.diagnose.trust import check_keys
from deploy.errors import SettingsError, UsageError
from deploy.process.progress import Silent
from deploy.scoring.models import of_package
from deploy.state import catalog, desired
from deploy.state.packages import loaded, model_record, require_trusted
from deploy.watch.aspired import AspirePolicy
from deploy.watch.watcher import Watcher
from policies.errors import PolicyError
from schemas.codec import Codec
from schemas.records import Application
from tests.signed_packages import key_in
from workers.errors import PackageError
from workers.packages.packaging import package_function
from workers.packages.signing.refusal import SignatureError
from workers.packages.signing.signed import sign

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.packages.signing.keys import PrivateKey

SAMPLE = np.zeros((2, 2), np.float32)
CODEC = Codec()
FILE = """
models: {require_signature: keys, odd: models/odd-1}
worker: {code: [tests.toys]}
applications: {parity: {models: [odd]}}
"""


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivateKey:
    """Return a key that the settings in the folder of the test trust; their model is not signed yet."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "skysail.yaml").write_text(FILE)
    package_function("tests.toys:parity", tmp_path / "models/odd-1", "odd", "1", SAMPLE)
    return key_in(tmp_path / "keys")


@pytest.fixture
def settings(key: PrivateKey) -> Settings:
    """Return the settings."""
    return load(None, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the model."""
    return tmp_path / "models/odd-1"


def run(*words: str) -> tuple[int, str]:
    """Run a command; returns its exit status, and what it said or why it refused."""
    found = CliRunner().invoke(skysail, words)
    return found.exit_code, found.output if found.exit_code == 0 else str(found.exception)


def test_the_folder_of_keys_starts_where_the_settings_are(key: PrivateKey, settings: Settings, tmp_path: Path) -> None:
    """It is no model, and children read the same."""
    assert settings.require_signature == tmp_path / "keys"
    assert settings.models == {"odd": tmp_path / "models/odd-1"}
    again = load(write(settings, tmp_path / "run/settings.yaml"), {})
    assert (again.require_signature, again.models) == (settings.require_signature, settings.models)
    shown: Any = masked(settings, only_changed=True)["models"]
    assert shown == {"require_signature": str(tmp_path / "keys"), "odd": str(tmp_path / "models/odd-1")}
    by_variable = load(None, {"SKYSAIL_MODELS__REQUIRE_SIGNATURE": "others"})
    assert (by_variable.require_signature, by_variable.models) == (tmp_path / "others", settings.models)


@pytest.mark.parametrize("name", ["require_signatures", "require-signature_", "Require"])
def test_a_misspelt_setting_is_no_model(tmp_path: Path, name: str) -> None:
    """Else nobody would be asked for a signature, in silence."""
    (tmp_path / "skysail.yaml").write_text(f"models: {{{name}: keys}}\n")
    with pytest.raises(SettingsError, match=r"write require_signature, or|must be lower-case letters, digits and"):
        load(tmp_path / "skysail.yaml", {})


@pytest.mark.parametrize("name", ["require-signature", "requiresignature", "require-signatures", "required-signature"])
def test_a_model_whose_name_is_nearly_the_rule_is_refused(tmp_path: Path, name: str) -> None:
    """It would be one for the pattern of names."""
    (tmp_path / "skysail.yaml").write_text(f"models: {{{name}: keys}}\n")
    with pytest.raises(SettingsError, match=f"{name} would be a model: write require_signature, or"):
        load(tmp_path / "skysail.yaml", {})
    (tmp_path / "skysail.yaml").write_text("models: {signature: keys, design-requirements: keys}\n")
    assert load(tmp_path / "skysail.yaml", {}).models.keys() == {"signature", "design-requirements"}


@pytest.mark.parametrize("text", ["", "null", "~", "''", "'  '"])
def test_a_rule_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    """Whether the file has it or the environment; what is left out is no rule, also once it was written."""
    file = tmp_path / "skysail.yaml"
    file.write_text(f"models: {{require_signature: {text}}}\n")
    with pytest.raises(SettingsError, match=r"`models.require_signature` in .*: names no folder: write that of your"):
        load(file, {})
    file.write_text("partitions: 2\n")
    with pytest.raises(SettingsError, match="names no folder: write that of your public keys, such as keys/"):
        load(file, {"SKYSAIL_MODELS__REQUIRE_SIGNATURE": text})
    again = load(write(load(file, {}), tmp_path / "run/settings.yaml"), {})
    assert (again.require_signature, masked(again)["models"]) == (None, {})


@pytest.mark.parametrize(
    "variables",
    [
        {"SKYSAIL_MODELS": "{forest: x}"},
        {"SKYSAIL_MODELS": "{}"},
        {"SKYSAIL_MODELS": ""},
        {"SKYSAIL_MODELS": "{require_signature: }"},
        {"SKYSAIL_MODELS__REQUIRE_SIGNATURE": ""},
        {"SKYSAIL_MODELS__REQUIRE_SIGNATURE": "'  '"},
    ],
)
def test_no_variable_takes_back_a_rule_of_the_file(tmp_path: Path, variables: dict[str, str]) -> None:
    """It may name another folder of keys, and further models."""
    file = tmp_path / "skysail.yaml"
    file.write_text("models: {require_signature: keys/}\n")
    with pytest.raises(SettingsError, match="would take it back, so that any package runs"):
        load(file, variables)
    beside = {"SKYSAIL_MODELS": "{forest: x, require_signature: more}", "SKYSAIL_MODELS__SVC": "y"}
    found = load(file, beside)
    assert (found.require_signature, {*found.models}) == (Path("more").absolute(), {"forest", "svc"})


@pytest.mark.parametrize(
    "text",
    [
        "models: {require_signature: keys}\npartitions: 2\nmodels: {odd: odd}\n",
        "models:\n  require_signature: keys\n  odd: odd\n  require_signature: others\n",
    ],
)
def test_a_key_of_the_file_that_comes_twice_is_refused(tmp_path: Path, text: str) -> None:
    """YAML would take the last one, and a rule of the first would be lost."""
    file = tmp_path / "skysail.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"skysail.yaml, line \d, column \d: the key \w+ stands there twice: leave"):
        load(file, {})
    file.write_text("hosts: {a: &a {memory_mib: 1, lanes: 2}, b: {<<: *a, lanes: 3, models: [m]}}\n")
    assert load(file, {}).hosts["b"].lanes == 3


def test_config_check_refuses_an_unsigned_package(key: PrivateKey, folder: Path) -> None:
    """So does the start: it checks the same. Once the package is signed, both take it."""
    status, said = run("config", "check")
    assert status
    assert f"skysail model sign {folder} --key KEY" in said
    sign(folder, key)
    assert run("config", "check") == (0, run("config", "check")[1])
    assert run("model", "verify", str(folder))[0] == 0


def test_config_check_refuses_a_connection_that_a_start_would_refuse(tmp_path: Path) -> None:
    """A misspelt property, a file that is not there; it warns of what is only hardly ever meant."""
    file, text = tmp_path / "connection.yaml", "kafka: {properties: {security_protocol: SSL, PROPERTY: gone.pem}}\n"
    for name, said in (("ssl_cafil", "did you mean `ssl_cafile`"), ("ssl_cafile", "cannot build the TLS context")):
        file.write_text(text.replace("PROPERTY", name))
        status, refusal = run("config", "check", "--config", str(file))
        assert (status != 0, said in refusal) == (True, True)
    file.write_text("gateway: {host: 0.0.0.0}\n")
    status, warning = run("config", "check", "--config", str(file))
    assert (status, "whoever reaches port 8080 may ask and teach" in warning) == (0, True)


def test_code_by_a_path_has_to_be_allowed(key: PrivateKey, folder: Path, tmp_path: Path) -> None:
    """Of models and of policies, by whole names; what is not allowed is not even imported."""
    sign(folder, key)
    for code in ("", "worker: {code: [tests.toy]}"):
        (tmp_path / "skysail.yaml").write_text(FILE.replace("worker: {code: [tests.toys]}", code))
        assert "add tests.toys to worker.code" in run("config", "check")[1]
    policy = FILE.replace("models: [odd]", "models: [odd], policy: 'tests.toys:parity'")
    (tmp_path / "skysail.yaml").write_text(policy)
    assert "nothing allows here: add tests.toys to policy_code" in run("config", "check")[1]
    (tmp_path / "skysail.yaml").write_text(policy + "policy_code: [tests.toys]\n")
    assert "is no class" in run("config", "check")[1]


def test_without_keys_nothing_starts(key: PrivateKey, settings: Settings, tmp_path: Path) -> None:
    """A folder that is empty or missing is a mistake, and not a deployment that trusts nobody."""
    (tmp_path / "keys/release.pub").unlink()
    for words in (("config", "check"), ("run",), ("run", "--role", "worker")):
        assert "holds no public keys" in run(*words)[1]
    (tmp_path / "keys").rmdir()
    assert "cannot be read" in run("run")[1]


def _scored(settings: Settings, folder: Path) -> None:
    """Score with a version whose record came from elsewhere."""
    models, _ = of_package(Settings.model_validate({"worker": {"code": ["tests.toys"]}}), folder)
    models._settings = settings
    models.loaded("odd", "1")


@pytest.mark.parametrize(
    "door",
    [
        lambda settings, folder: desired.models(settings),
        lambda settings, folder: desired.add(settings, CODEC, folder),
        lambda settings, folder: model_record(folder, settings),
        loaded,  # replays, what-ifs, backfills
        _scored,
    ],
)
def test_every_door_is_closed_to_an_unsigned_package(
    key: PrivateKey, settings: Settings, folder: Path, door: Callable[[Settings, Path], object]
) -> None:
    """The message names the package, the reason, and the command."""
    with pytest.raises(SignatureError, match=r"not trusted \(unsigned\): .*skysail model sign .*odd-1 --key KEY"):
        door(settings, folder)


def test_a_signed_package_passes_through_them(key: PrivateKey, settings: Settings, folder: Path) -> None:
    """And is loaded."""
    sign(folder, key)
    assert [model.name for model in desired.models(settings)] == ["odd"]
    record, model = loaded(settings, folder)
    assert (record.name, model.runtime.predict_batch(SAMPLE).answers is not None) == ("odd", True)
    assert of_package(settings, folder)[0].loaded("odd", "1").digest == record.digest


def test_no_version_is_promoted_that_would_not_be_loaded(
    key: PrivateKey, settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as the one that serves nor as a canary; ending it is always possible."""
    record = model_record(folder)
    monkeypatch.setattr(catalog, "read", lambda *_: {"odd": record})
    monkeypatch.setattr(catalog, "versions", lambda *_: {"odd": [record]})
    served: list[object] = []
    monkeypatch.setattr(catalog, "serve", lambda *given: served.append(given))
    for change in (
        lambda: desired.switch(settings, CODEC, "odd", "1"),
        lambda: desired.run_beside(settings, CODEC, "odd", "1", 0.5),
        lambda: desired.run_beside(settings, CODEC, "odd", "1", 0.0),
    ):
        with pytest.raises(UsageError, match="odd 1 would not be loaded: not trusted"):
            change()
    assert not served
    sign(folder, key)
    desired.switch(settings, CODEC, "odd", "1")
    assert served


def test_a_package_on_another_machine_is_judged_there(key: PrivateKey, settings: Settings, folder: Path) -> None:
    """Here nobody can tell."""
    record = model_record(folder)
    (folder / "manifest.json").unlink()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    require_trusted(settings, record)


def test_a_watched_folder_names_what_is_not_signed(
    key: PrivateKey, settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is published at the look after it was signed."""
    published: list[str] = []
    monkeypatch.setattr(catalog, "read", lambda *_: {})
    monkeypatch.setattr(catalog, "versions", lambda *_: {})
    monkeypatch.setattr(catalog, "aspire", lambda _s, _c, known, _: published.extend(m.version for m in known))
    watcher = Watcher(settings, CODEC, folder.parent, AspirePolicy(), lambda *_: None)
    look = watcher.look(Silent(), is_patient=False)
    assert look is not None
    assert "(unsigned)" in look.faults[folder]
    assert not published
    sign(folder, key)
    look = watcher.look(Silent(), is_patient=False)
    assert look is not None
    assert (dict(look.faults), published) == ({}, ["1"])


def test_the_doctor_tells_of_keys_packages_and_code(
    key: PrivateKey, settings: Settings, folder: Path, tmp_path: Path
) -> None:
    """Each with what to do."""
    record = model_record(folder)
    (check,) = check_keys(settings)
    assert (check.level, "1 there" in check.found) == (Level.OK, True)
    (check,) = check_models({"odd": record}, settings=settings)
    assert (check.level, "skysail model sign" in check.advice) == (Level.DOWN, True)
    app = Application("a", ("odd",), policy="tests.toys:parity")
    (check,) = check_applications({"a": app}, {"odd": record})
    assert (check.level, "add tests.toys to policy_code" in check.advice) == (Level.DOWN, True)
    sign(folder, key)
    assert [check.level for check in check_models({"odd": record}, settings=settings)] == [Level.OK]
    (tmp_path / "keys/release.pub").unlink()
    (check,) = check_keys(settings)
    assert (check.level, "no version is loaded" in check.advice) == (Level.DOWN, True)
    assert not [*check_keys(Settings())]


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        (
            "tests.toys:parity",
            "loss tests.toys:parity is named by a path, which nothing allows here: add tests.toys to",
        ),
        ('{"own":"tests.toys:parity","unit":"EUR"}', "add tests.toys to policy_code"),
        ("{}", "loss: name one of"),
    ],
)
def test_the_doctor_tells_of_a_loss_that_the_joiner_refuses(
    key: PrivateKey, settings: Settings, folder: Path, loss: str, why: str
) -> None:
    """By a path that nothing allows, or because it is no rule; others are sound."""
    models = {"odd": model_record(folder)}
    (check,) = check_applications({"a": Application("a", ("odd",), loss=loss)}, models)
    assert (check.level, why in check.advice) == (Level.DOWN, True)
    (check,) = check_applications({"a": Application("a", ("odd",), loss="given")}, models)
    assert check.level == Level.OK


def test_what_a_package_does_to_its_process_is_tried_only_where_it_is_trusted(
    key: PrivateKey, settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that loads it in advance asks for the signature, too."""
    given: list[Any] = []

    class Child:
        def __init__(self, package: object, *_: object, **__: object) -> None:
            given.append(package)

        async def start(self) -> None:
            raise PackageError

        async def stop(self) -> None:
            pass

    monkeypatch.setattr("deploy.diagnose.rehearsal.ProcessExecutor", Child)
    monkeypatch.setattr("deploy.diagnose.rehearsal._names_code", lambda _: False)
    why_deadly(settings, model_record(folder))
    assert (given[0].keys, given[0].version) == (str(Path("keys").absolute()), "odd@1")


def test_a_policy_by_a_path_that_is_not_allowed_is_not_imported(key: PrivateKey, settings: Settings) -> None:
    """Whoever names it, such as a record that somebody else has written."""
    with pytest.raises(PolicyError, match="nothing allows here"):
        desired.checked(Application("a", ("odd",), policy="tests.no_such_module:Policy"))
