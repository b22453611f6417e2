"""Settings: one file, the environment over it, secrets from files, and errors that name the nearest key."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from deploy.config.addresses import connection, redis_url
from deploy.config.configuration import doubts, load, masked, to_yaml, write
from deploy.config.reference import reference
from deploy.config.settings import Settings
from deploy.errors import SettingsError
from deploy.state import desired
from policies import outside
from streams.runtime.stores.redis import RedisSettings
from streams.topology import DAY_MS


def settings_from(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> Settings:
    """Load a file with this text."""
    file = tmp_path / "skysail.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, environment or {})


def test_without_file_and_environment_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder is a valid deployment on this machine."""
    monkeypatch.chdir(tmp_path)
    assert load(environment={}) == Settings()


def test_the_environment_overrides_the_file_and_nests(tmp_path: Path) -> None:
    """A variable changes one nested key and leaves its neighbours as the file says."""
    text = "redis: {url: 'redis://a:1/0'}\nkafka: {bootstrap: 'a:1', properties: {request_timeout_ms: 100}}\n"
    environment = {"SKYSAIL_KAFKA__BOOTSTRAP": "b:2", "SKYSAIL_KAFKA__PROPERTIES__CLIENT_RACK": "x", "HOME": "/"}
    settings = settings_from(tmp_path, text, environment)
    assert settings.redis.url == "redis://a:1/0"
    assert settings.kafka.bootstrap == "b:2"
    assert settings.kafka.properties == {"request_timeout_ms": 100, "client_rack": "x"}


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    """SKYSAIL_CONFIG is where the file is, not a setting."""
    file = tmp_path / "other.yaml"
    file.write_text("partitions: 2\n", encoding="utf-8")
    assert load(environment={"SKYSAIL_CONFIG": str(file)}).partitions == 2


def test_a_list_or_a_number_in_the_environment_is_read_as_yaml() -> None:
    """Variables are text; YAML gives them their types, and a password of digits stays text."""
    environment = {"SKYSAIL_ROLES": "[joiner, learner]", "SKYSAIL_PARTITIONS": "8", "SKYSAIL_REDIS__PASSWORD": "123"}
    settings = load(environment=environment)
    assert settings.roles == ("joiner", "learner")
    assert settings.partitions == 8
    assert settings.redis.password is not None
    assert settings.redis.password.get_secret_value() == "123"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prefx: a", "did you mean `prefix`"),
        ("kafka: {boostrap: x}", "did you mean `bootstrap`"),
        ("applications: {d: {models: [a], polcy: exp3}}", "did you mean `policy`"),
        ("quotas: {asker: {write_kb: 3}}", "did you mean `write_kib"),
        ("hosts: {small: {memory_mb: 3}}", "did you mean `memory_mib`"),
        ("zzzz: 1", "did you mean"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(tmp_path: Path, text: str, expected: str) -> None:
    """A misspelt key never passes silently."""
    with pytest.raises(SettingsError, match=expected):
        settings_from(tmp_path, text)


def test_a_member_may_be_called_after_its_host() -> None:
    """One setting for many machines; without it nobody has a name."""
    named = load(environment={"SKYSAIL_KAFKA__MEMBER": "skysail-{host}"}).kafka
    assert named.member == f"skysail-{socket.gethostname()}"
    assert load(environment={"SKYSAIL_KAFKA__MEMBER": "null"}).kafka.member is load(environment={}).kafka.member is None


def test_a_misspelt_environment_variable_is_an_error() -> None:
    """A variable with our prefix that fits nothing is refused like a key in the file."""
    with pytest.raises(SettingsError, match="did you mean `bootstrap`"):
        load(environment={"SKYSAIL_KAFKA__BOOTSTAP": "x:1"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("partitions: 0", "partitions.*greater than 0"),
        ("prefix: my_prefix", "prefix.*lower-case"),
        ("models: {a_b: x}", "models"),
        ("gateway: {tokens: '# none yet'}", "holds no token"),
        ("control: {tokens: ' '}", "holds no token"),
        ("[1]", "must hold keys and values"),
        ("a: [", "not a readable YAML"),
        ("redis: {password_file: /no/such}", "password_file: cannot read"),
        ("redis: {url: 'localhost:6379'}", "write redis://"),
        ("record: {folder: .}", "has no name of its own"),
        ("record: {folder: /}", "has no name of its own"),
        ("record: {folder: ..}", "has no name of its own"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(tmp_path: Path, text: str, expected: str) -> None:
    """Each fault says which key and what is expected."""
    with pytest.raises(SettingsError, match=expected):
        settings_from(tmp_path, text)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    """A mistyped --config is not taken for an empty one."""
    with pytest.raises(SettingsError, match="skysail run --help"):
        load(tmp_path / "none.yaml", {})


def test_a_variable_that_names_a_file_which_is_gone_is_named_itself(tmp_path: Path) -> None:
    """As after the end of a deployment whose settings other commands were given."""
    with pytest.raises(SettingsError, match="unset SKYSAIL_CONFIG"):
        load(None, {"SKYSAIL_CONFIG": str(tmp_path / "gone.yaml")})


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    """A file of comments only is no error."""
    assert settings_from(tmp_path, "# nothing yet\n") == Settings()


def test_settings_that_somebody_logs_show_no_secret() -> None:
    """Wherever one may stand: in a property of Kafka's clients, in a URL, in a field of its own."""
    secret = "mallow"
    settings = Settings.model_validate(
        {
            "kafka": {"properties": {"sasl_plain_password": secret}},
            "redis": {"url": f"redis://me:{secret}@host:1/0", "password": secret},
            "registry": {"url": f"http://me:{secret}@host:1", "password": secret},
            "control": {"tokens": f"{secret}-0123456789012345 act"},
            "gateway": {"tokens": f"{secret}-0123456789012345 *"},
            "selection": {"features_url": f"redis://me:{secret}@host:1/0"},
        }
    )
    assert secret not in repr(settings) + str(settings)


def test_secrets_come_from_files_and_are_masked_when_printed(tmp_path: Path) -> None:
    """What was read from a file, sits in a URL or has a telling name is never printed; other values are."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n", encoding="utf-8")
    text = f"""
kafka: {{properties: {{sasl_plain_password_file: {secret}, ssl_password: hunter2, sasl_mechanism: PLAIN}}}}
redis: {{url: "redis://me:hunter2@host:1/0", password_file: {secret}}}
"""
    settings = settings_from(tmp_path, text)
    assert settings.redis.password is not None
    assert settings.redis.password.get_secret_value() == "hunter2"
    printed = to_yaml(masked(settings))
    assert "hunter2" not in printed
    assert "PLAIN" in printed
    assert "redis://me:********@host:1/0" in printed


def test_written_settings_load_back_equal_and_are_private(tmp_path: Path) -> None:
    """Child processes read the same values, and nobody else can read the file."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2", encoding="utf-8")
    text = f"kafka: {{properties: {{sasl_plain_password_file: {secret}}}}}\nmodels: {{a: ./x}}\n"
    settings = settings_from(tmp_path, text)
    path = write(settings, tmp_path / "run" / "settings.yaml")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = load(path, {})
    assert again.models == settings.models
    assert again.kafka.properties["sasl_plain_password"] == "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "redis: {password: [hunter2",
        "redis: {password: !hunter2 x}",
        "redis: {password: *hunter2}",
        "redis:\n  password: a: hunter2\n",
        "redis: {url: 'redis://me:hun/ter2@host:1/0'}",
        "redis: {url: 'redis://me:a@hunter2/x@host:1/0'}",
        "redis: {password: {hunter2: 1}}",
    ],
)
def test_a_file_that_is_refused_is_not_quoted(tmp_path: Path, text: str) -> None:
    """The line at fault may be the one with the password."""
    with pytest.raises(SettingsError) as refused:
        settings_from(tmp_path, text)
    assert "ter2" not in str(refused.value)


def test_a_model_by_an_address_is_refused(tmp_path: Path) -> None:
    """It would be looked for in a folder of that name, in a pod first; a key in the address is not shown."""
    with pytest.raises(
        SettingsError, match=r"models\.forest: s3://… is an address, and a package is a folder"
    ) as refused:
        settings_from(tmp_path, "models: {forest: 's3://hunter2@bucket/forest-1'}")
    assert "hunter2" not in str(refused.value)


def test_only_what_differs_from_the_defaults_can_be_shown(tmp_path: Path) -> None:
    """What a person has set is a few lines, and masked as well."""
    settings = settings_from(
        tmp_path, "redis: {password: hunter2}\napplications: {d: {models: [a], slo_ms: 100, policy: ucb1}}\n"
    )
    assert masked(settings, only_changed=True) == {
        "redis": {"password": "********"},
        "applications": {"d": {"models": ["a"], "policy": "ucb1"}},
    }
    assert to_yaml(masked(Settings(), only_changed=True)) == ""


def test_what_roles_read_back_must_be_kept() -> None:
    """A joiner reads one window, a learner two; how long queries are kept is nobody's business."""
    kept = Settings.model_validate({"retention_days": {"observations": 30, "queries": 0.001}})
    topics_ = desired.build(kept, {}).topics
    assert {name: topics_[name].retention_ms for name in ("observations", "queries", "feedback")} == {
        "observations": 30 * DAY_MS,
        "queries": DAY_MS // 1_000,
        "feedback": 7 * DAY_MS,
    }
    with pytest.raises(ValidationError, match=r"retention_days\.observations is 0\.01: roles read back 1260 s"):
        Settings.model_validate({"retention_days": {"observations": 0.01}})


def test_inputs_are_kept_longer_within_a_bound() -> None:
    """So are the answers to them; two words about one topic are refused."""
    kept = Settings.model_validate({"partitions": 4, "keep_inputs": {"days": 30, "gib": 8}})
    topics_ = desired.build(kept, {}).topics
    assert {name: topics_[name].retention_ms // DAY_MS for name in ("queries", "predictions", "feedback")} == {
        "queries": 30,
        "predictions": 30,
        "feedback": 7,
    }
    assert topics_["queries"].config()["retention.bytes"] == str(2 << 30)
    assert "retention.bytes" not in topics_["predictions"].config()
    assert "retention.bytes" not in desired.build(Settings(), {}).topics["queries"].config()
    with pytest.raises(ValidationError, match="give one"):
        Settings.model_validate({"keep_inputs": {"days": 30}, "retention_days": {"queries": 2}})


def test_the_settings_page_is_the_one_that_the_settings_write() -> None:
    """A key that is added without its line in docs/settings.md fails here."""
    page = Path(__file__).resolve().parents[3] / "docs" / "settings.md"
    assert page.read_text(encoding="utf-8") == reference(), "run: skysail config reference > docs/settings.md"


def test_every_key_says_what_it_means() -> None:
    """No cell of the page is empty but a default."""
    rows = [line.split("|")[1:-1] for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    assert all(row[-1].strip() and row[0].strip() for row in rows)


def test_no_connection_shows_its_password_when_it_is_printed() -> None:
    """An exception or a log line that prints one gives nothing away."""
    settings = Settings.model_validate(
        {
            "kafka": {"properties": {"sasl_plain_password": "kafka-secret"}},
            "redis": {"url": "redis://user:redis-secret@there"},
        }
    )
    shown = repr(connection(settings)) + repr(RedisSettings(redis_url(settings)))
    assert "secret" not in shown


def test_packages_are_looked_for_beside_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the command is started; what the environment names is where that is."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = tmp_path / "skysail.yaml"
    file.write_text("models: {forest: models/forest, svc: /packages/svc}")
    found = load(file, {"SKYSAIL_MODELS__NET": "net"}).models
    assert found == {
        "forest": tmp_path / "models" / "forest",
        "svc": Path("/packages/svc"),
        "net": tmp_path / "elsewhere" / "net",
    }


@pytest.mark.parametrize("text", ["0123", "12:30", "1e5", "true", "#a", "a: b", "!x", "2026-01-01"])
def test_a_password_in_the_environment_is_taken_as_it_stands(text: str) -> None:
    """Digits are no number there, and what YAML would read otherwise is text."""
    settings = load(
        environment={"SKYSAIL_REDIS__PASSWORD": text, "SKYSAIL_KAFKA__PROPERTIES__SASL_PLAIN_PASSWORD": text}
    )
    assert settings.redis.password is not None
    assert settings.redis.password.get_secret_value() == text
    assert settings.kafka.properties["sasl_plain_password"] == text


def test_a_text_in_the_environment_may_be_quoted_or_nothing() -> None:
    """As it could be in the file."""
    assert load(environment={"SKYSAIL_KAFKA__MEMBER": "'null'"}).kafka.member == "null"
    assert load(environment={"SKYSAIL_KAFKA__MEMBER": "null"}).kafka.member is None
    assert load(environment={"SKYSAIL_KAFKA__MEMBER": "0123"}).kafka.member == "0123"
    assert load(environment={"SKYSAIL_PARTITIONS": "8"}).partitions == 8


def test_a_misspelt_property_is_masked(tmp_path: Path) -> None:
    """It may be the password; only properties that are known to hold none are shown."""
    text = "kafka: {properties: {sasl_plain_pasword: hunter2, ssl_pwd: hunter2, security_protocol: SASL_SSL}}"
    settings = settings_from(tmp_path, text)
    for only_changed in (False, True):
        shown = to_yaml(masked(settings, only_changed=only_changed))
        assert "hunter2" not in shown
        assert "SASL_SSL" in shown


def test_settings_are_written_over_nothing_that_others_could_read(tmp_path: Path) -> None:
    """A file that is there already, readable for all, does not stay so; nor is a link followed."""
    path, elsewhere = tmp_path / "settings.yaml", tmp_path / "elsewhere"
    path.write_text("old")
    path.chmod(0o644)
    write(Settings(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    path.symlink_to(elsewhere)
    write(Settings(), path)
    assert not elsewhere.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("partitions: many", "`partitions` .*must be a whole number"),
        ("joiner: {window_s: long}", "`joiner.window_s` .*must be a number"),
        ("selection: {admission: 7}", "`selection.admission` .*must be true or false"),
        ("worker: {controller: fast}", "`worker.controller` .*must be one of 'aimd'"),
        ("kafka: here", "`kafka` .*must hold keys and values"),
        ("applications: {a: {policy: exp3}}", "`applications.a.models` .*is needed"),
    ],
)
def test_what_is_wrong_with_a_setting_is_said_in_plain_words(tmp_path: Path, text: str, said: str) -> None:
    """The words of the library that reads them mean nothing to whoever wrote the file."""
    with pytest.raises(SettingsError, match=said) as refused:
        settings_from(tmp_path, text)
    assert "Input should" not in str(refused.value)


def test_the_redis_that_was_started_here_is_let_in_by_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by whoever needs it, from the folder where it was started; never for another Redis, or over a given one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".skysail" / "redis").mkdir(parents=True)
    (tmp_path / ".skysail" / "redis" / "password").write_text("5ecre7")
    remembered = {"pid": 1, "started": 1.0, "address": "redis://127.0.0.1:6379/0"}
    (tmp_path / ".skysail" / "redis.json").write_text(json.dumps(remembered))
    urls = {
        "redis://127.0.0.1:6379/3": "redis://:5ecre7@127.0.0.1:6379/3",
        "redis://127.0.0.1:6380/0": "redis://127.0.0.1:6380/0",
        "redis://:mine@127.0.0.1:6379/0": "redis://:mine@127.0.0.1:6379/0",
    }
    for url, expected in urls.items():
        assert redis_url(Settings.model_validate({"redis": {"url": url}})) == expected
    given = Settings.model_validate({"redis": {"password": "other"}})
    assert redis_url(given) == "redis://:other@127.0.0.1:6379/0"


@pytest.mark.parametrize(
    ("protocol", "mechanism", "count"),
    [("SASL_PLAINTEXT", "PLAIN", 1), ("SASL_SSL", "PLAIN", 0), ("SASL_PLAINTEXT", "SCRAM-SHA-512", 0)],
)
def test_a_password_in_clear_text_is_warned_of(protocol: str, mechanism: str, count: int) -> None:
    """It is allowed, for a broker behind something else that encrypts."""
    properties = {"security_protocol": protocol, "sasl_mechanism": mechanism, "sasl_plain_password": "hunter2"}
    said = doubts(Settings.model_validate({"kafka": {"properties": properties}}))
    assert len(said) == count
    assert "hunter2" not in "".join(said)


@pytest.mark.parametrize(
    ("gateway", "count"),
    [
        ({}, 0),
        ({"host": "::1"}, 0),
        ({"host": "0.0.0.0"}, 1),
        ({"host": "0.0.0.0", "tokens": "secret-of-the-shop *"}, 0),
    ],
)
def test_a_gateway_that_lets_everybody_in_is_warned_of(gateway: dict[str, object], count: int) -> None:
    """Where only this machine reaches it, or tokens are asked for, nothing is said."""
    said = doubts(Settings.model_validate({"gateway": gateway}))
    assert len(said) == count
    assert "secret" not in "".join(said)


@pytest.mark.parametrize(
    ("more", "allowed"),
    [
        ({}, None),
        ({"kafka": {"properties": {"security_protocol": "PLAINTEXT"}}}, None),
        ({"kafka": {"properties": {"security_protocol": "SSL"}}}, []),
        ({"kafka": {"properties": {"security_protocol": "SSL"}}, "policy_code": ["mine"]}, ["mine"]),
        ({"policy_code": ["mine"]}, ["mine"]),
    ],
)
def test_no_path_names_a_policy_where_the_broker_is_guarded_unless_it_is_said(
    tmp_path: Path, more: dict[str, object], allowed: list[str] | None
) -> None:
    """Elsewhere any may be named, as on a machine of one's own."""
    file = tmp_path / "skysail.yaml"
    file.write_text(yaml.safe_dump(more))
    load(file, {})
    assert outside._allowed == allowed
