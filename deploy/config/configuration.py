"""Reads settings from one YAML file and the environment, prints them masked, and writes them for children.

    skysail.yaml  ◀── SKYSAIL_KAFKA__BOOTSTRAP=… (`__` nests)  ◀── `password_file: PATH`

pydantic-settings is not used for the environment: it ignores misspelt variables, and here they must be errors.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict, get_args, get_origin

import yaml
from pydantic import BaseModel, SecretStr, ValidationError

from deploy.config.schema_files import located
from deploy.config.settings import SHOWN_PROPERTIES, SIGNATURE_RULE, ApplicationSettings, Settings, StageSettings
from deploy.config.variables import value_of
from deploy.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ENVIRONMENT_PREFIX = "SKYSAIL_"
# Variables with the prefix that are no settings: where the file is, and where downloads are kept.
OTHER_VARIABLES = frozenset({"SKYSAIL_CONFIG", "SKYSAIL_CACHE", "SKYSAIL_DATA", "SKYSAIL_LAST_EXIT"})
DEFAULT_FILE = Path("skysail.yaml")
SECRET_WORDS = re.compile(r"passw|passphrase|secret|token|credential|jaas|api[-_]?key", re.IGNORECASE)
MASK = "********"
# Where passwords stand in a URL: in its query (`?password=`), and between user and last `@`, since they may hold any
# character; without a colon it may be a token. What is hidden too much does no harm.
URL_SECRETS = (
    (re.compile(rf"((?:{SECRET_WORDS.pattern})[^=]*=).*", re.DOTALL | re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(r"(://[^:]*:).*@", re.DOTALL), rf"\1{MASK}@"),
    (re.compile(r"(://)[^:]*@", re.DOTALL), rf"\1{MASK}@"),
)
# YAML's complaints about these quote the value; it may be a password that begins with `!` or `*`.
QUOTED = re.compile(r"(tag|alias) '.*", re.DOTALL)

# By pydantic's types of errors; what stands in braces is its own context. The value is never shown: it may be a secret.
WORDS = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "path_type": "must be a path",
    "dict_type": "must hold keys and values, such as {{key: value}}",
    "tuple_type": "must be a list, such as [a, b]",
    "list_type": "must be a list, such as [a, b]",
    "model_type": "must hold keys and values, such as {{key: value}}",
    "model_attributes_type": "must hold keys and values, such as {{key: value}}",
    "literal_error": "must be one of {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "too_short": "must not be empty",
    "missing": "is needed",
    "string_pattern_mismatch": "must be lower-case letters, digits and dashes, at most 63, no dash first",
}
OURS = "Value error, "


class _Once(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
    """YAML in which a key that comes twice is a mistake, and not what comes last: it may take a rule back."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """Read keys and values; what `<<` brings may be overridden.

        Raises:
            SettingsError: a key comes twice.
        """
        node = super().compose_mapping_node(anchor)
        known: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in known:
                    mark = key.start_mark
                    place = f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}"
                    raise SettingsError(f"{place}: the key {key.value:.80} stands there twice: leave one of them")
                known.add(key.value)
        return node


class Fault(TypedDict):
    """The used parts of pydantic's description of one fault."""

    type: str
    loc: tuple[int | str, ...]
    msg: str
    ctx: NotRequired[dict[str, object]]


def load(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings.

    Args:
        path: the file; without it `SKYSAIL_CONFIG`, else `skysail.yaml` if it exists, else defaults alone.
        environment: instead of the process's own.

    Raises:
        SettingsError: no such file, no YAML, an unknown key, or a value of the wrong form; names file and key.
    """
    variables = os.environ if environment is None else environment
    file = _find(path, variables)
    given = _from_folder(_read(file), file.parent) if file else {}
    data = _from_folder(_overridden(given, variables), Path())
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        source = f"in {file} or the environment" if file else "in the environment"
        raise SettingsError("\n".join(_explain(item, source) for item in error.errors())) from None
    from policies import outside  # with NumPy, which `skysail --help` does without

    must_name = is_guarded(settings) or settings.require_signature is not None
    outside.allow(settings.policy_code or (() if must_name else None))
    return settings


def as_given(path: Path | None = None) -> tuple[Settings, dict[str, object], str]:
    """Return the settings of a file alone, whatever the environment says; then what it holds, and its text.

    Raises:
        SettingsError: there is no file; and see `load`.
    """
    file = _find(path, os.environ)
    if file is None:
        raise SettingsError(f"there is no {DEFAULT_FILE} here: write one (`skysail run --help` shows one), or --config")
    return load(file, {}), _read(file), file.read_text(encoding="utf-8")


def is_guarded(settings: Settings) -> bool:
    """Tell whether the broker asks who somebody is, or hides what is said: then not everybody names code."""
    return settings.kafka.properties.get("security_protocol", "PLAINTEXT") != "PLAINTEXT"


def _find(path: Path | None, variables: Mapping[str, str]) -> Path | None:
    by_variable = variables.get("SKYSAIL_CONFIG", "")
    named = path or (Path(by_variable) if by_variable else None)
    if named is None:
        return DEFAULT_FILE if DEFAULT_FILE.is_file() else None
    if not named.is_file():
        without = "leave --config out" if path else "`unset SKYSAIL_CONFIG`, which names it"
        message = f"there is no settings file {named}; write one (`skysail run --help` shows one) or {without}"
        raise SettingsError(message)
    return named


def _read(file: Path) -> dict[str, object]:
    try:
        with file.open(encoding="utf-8") as text:
            data = yaml.load(text, _Once)  # noqa: S506 - it is a safe one
    except yaml.MarkedYAMLError as error:
        raise SettingsError(f"{file} is not a readable YAML file: {_complaint(error)}") from None
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise SettingsError(f"{file} is not a readable YAML file: {error}") from error
    if data is not None and not isinstance(data, dict):
        message = (
            f"{file} must hold keys and values, it holds a {type(data).__name__}; `skysail run --help` shows an example"
        )
        raise SettingsError(message)
    return data or {}


def _from_folder(data: dict[str, object], folder: Path) -> dict[str, object]:
    """Return the data with packages' folders and schemas' files as absolute paths; relative ones start at `folder`."""
    applications = data.get("applications")
    if isinstance(applications, dict):
        data = {**data, "applications": {name: located(its, folder) for name, its in applications.items()}}
    models = data.get("models")
    if not isinstance(models, dict):
        return data
    return {**data, "models": {name: _place(name, path, folder) for name, path in models.items()}}


def _place(name: object, path: object, folder: Path) -> object:
    """Return where a package lies; an address would be taken for a folder of an odd name.

    Raises:
        SettingsError: it is one.
    """
    if not isinstance(path, str) or (name == SIGNATURE_RULE and not path.strip()):
        return path  # which is refused
    if "://" in path:
        raise SettingsError(
            f"models.{name}: {path.partition('://')[0]}://… is an address, and a package is a folder: copy it to this"
            " machine, or mount what holds it (docs/kubernetes.md, where models come from)"
        )
    return str((folder / Path(path).expanduser()).resolve())


def _complaint(error: yaml.MarkedYAMLError) -> str:
    """Return where YAML stopped and why, without its excerpt: that line may hold a password."""
    mark = error.problem_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return place + QUOTED.sub(
        r"unknown \1; put quotes around a value that begins with `!`, `*` or `&`", error.problem or ""
    )


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[list[str], object]]:
    for name, text in sorted(environment.items()):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in OTHER_VARIABLES:
            location = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            try:
                yield location, value_of(location, text)
            except yaml.YAMLError as error:
                message = f"the environment variable {name} does not hold YAML; put quotes around it"
                raise SettingsError(message) from error


def _overridden(given: dict[str, object], variables: Mapping[str, str]) -> dict[str, object]:
    """Return what a file holds with what the environment says instead.

    Raises:
        SettingsError: a variable is no YAML, or would have packages run that the file lets nobody run.
    """
    data = dict(given)
    for location, value in _variables(variables):
        _put(data, location, value)
    if _asks_for_signatures(given) and not _asks_for_signatures(data):
        raise SettingsError(
            f"the file has `models.{SIGNATURE_RULE}`, and SKYSAIL_MODELS or SKYSAIL_MODELS__{SIGNATURE_RULE.upper()}"
            " would take it back, so that any package runs: name single models by SKYSAIL_MODELS__NAME, another folder"
            f" of keys by SKYSAIL_MODELS__{SIGNATURE_RULE.upper()}, or change the file"
        )
    return data


def _asks_for_signatures(data: Mapping[str, object]) -> bool:
    models = data.get("models")
    place = models.get(SIGNATURE_RULE) if isinstance(models, dict) else None
    return place is not None and bool(str(place).strip())


def _put(data: dict[str, object], location: list[str], value: object) -> None:
    for key in location[:-1]:
        known = data.get(key)
        inner: dict[str, object] = dict(known) if isinstance(known, dict) else {}
        data[key] = data = inner
    data[location[-1]] = value


def _explain(item: Fault, source: str) -> str:
    """One line for one fault that pydantic found; the value itself is left out, it may be a secret."""
    location = [str(part) for part in item["loc"]]
    if item["type"] != "extra_forbidden":
        return f"setting `{'.'.join(location)}` {source}: {explained(item)}"
    known = _known_keys(location[:-1])
    nearest = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.0)[0]
    listed = ", ".join(sorted(known))
    return f"unknown setting `{'.'.join(location)}` {source}: did you mean `{nearest}`? There are: {listed}"


def _known_keys(location: list[str]) -> list[str]:
    if location[:1] == ["applications"] and location[2:3] == ["stages"]:
        return list(StageSettings.model_fields)
    section: type[BaseModel] = ApplicationSettings if location[:1] == ["applications"] else Settings
    parts = iter(location if section is Settings else ())
    for part in parts:
        kind = section.model_fields[part].annotation
        if get_origin(kind) is dict:  # of sections by name, such as hosts
            kind = get_args(kind)[1]
            next(parts, None)
        section = kind  # type: ignore[assignment]  # sections nest by class
    return [field.alias or name for name, field in section.model_fields.items()]


def masked(settings: Settings, *, only_changed: bool = False) -> dict[str, object]:
    """Return the settings, or those that differ from their defaults, as plain values with every secret masked.

    Properties of Kafka are shown where they are known not to be secret: a misspelt one may be a password.
    """
    shown = _plain_keys(settings.model_dump(exclude_defaults=only_changed), mask=True)
    kafka = shown.get("kafka")
    if isinstance(kafka, dict) and (given := kafka.get("properties")):
        kafka["properties"] = {key: v if key in SHOWN_PROPERTIES else MASK for key, v in given.items()}
    return shown


def is_local(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def doubts(settings: Settings) -> list[str]:
    """Return what is allowed and hardly ever meant."""
    found = []
    given = {name: str(value).upper() for name, value in settings.kafka.properties.items() if isinstance(value, str)}
    if given.get("security_protocol") == "SASL_PLAINTEXT" and given.get("sasl_mechanism", "PLAIN") == "PLAIN":
        found.append(
            "kafka.properties: SASL_PLAINTEXT with PLAIN sends the password in clear: use SASL_SSL, or SCRAM-SHA-512"
        )
    gateway = settings.gateway
    if gateway.tokens is None and not is_local(gateway.host):
        found.append(
            f"gateway.host is {gateway.host}, and there is no gateway.tokens_file: whoever reaches port {gateway.port}"
            " may ask and teach"
        )
    return found


def to_yaml(values: Mapping[str, object]) -> str:
    """Return plain values as YAML, in their order, the innermost on one line; nothing if there are none."""
    if not values:
        return ""
    return str(yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, default_flow_style=None, width=110))


def without_secrets(text: str) -> str:
    """Return a text, such as a URL, without the passwords in it."""
    for pattern, replacement in URL_SECRETS:
        text = pattern.sub(replacement, text)
    return text


def write(settings: Settings, path: Path) -> Path:
    """Write the settings, secrets included, to a new file that only its owner can read; return its path."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # one that is there may be readable for others, or open in their hands
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(to_yaml(_plain_keys(settings.model_dump(), mask=False)))
    return path


def _plain_keys(values: Mapping[str, object], *, mask: bool) -> dict[str, object]:
    return {name: _plain(item, mask=mask, key=name) for name, item in values.items()}


def _plain(value: object, *, mask: bool, key: str = "") -> object:
    if isinstance(value, dict):
        return _plain_keys(value, mask=mask)
    if isinstance(value, list | tuple):
        return [_plain(item, mask=mask, key=key) for item in value]
    if mask and value is not None and (isinstance(value, SecretStr) or SECRET_WORDS.search(key)):
        return MASK
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, str | Path):
        return without_secrets(str(value)) if mask else str(value)
    return value


def explained(item: Fault) -> str:
    """Return one fault as pydantic reports it, in our words; in its own where we have none."""
    words = WORDS.get(item["type"])
    if words is None:
        return str(item["msg"]).removeprefix(OURS)
    return words.format(**item.get("ctx", {}))
