"""The settings of a deployment as frozen values; `deploy.configuration` reads, prints and writes them.

Whoever needs a value gets the value, not these settings: kernels and clients know nothing of this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

# Topic and group names are built from it; mixing dots and underscores would collide in broker metrics.
NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"

Role: TypeAlias = Literal["selection", "joiner", "learner", "worker", "control"]
ROLES: tuple[Role, ...] = ("selection", "joiner", "learner", "worker", "control")
# Only what came from a file is a SecretStr; it stands last because any string would do for one.
Scalar: TypeAlias = bool | int | float | str | SecretStr
Name: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN)]


def _with_secrets(data: dict[str, Any]) -> dict[str, Any]:
    """Replace every `x_file: PATH` by `x: <what the file holds>`."""
    filled = {key: value for key, value in data.items() if not key.endswith("_file")}
    for key in data.keys() - filled.keys():
        filled[key.removesuffix("_file")] = _read_secret(key, data[key])
    return filled


def _read_secret(key: str, path: object) -> SecretStr:
    try:
        return SecretStr(Path(str(path)).expanduser().read_text(encoding="utf-8").strip())
    except OSError as error:
        message = f"{key}: cannot read {path}: {error.strerror}"
        raise ValueError(message) from error


class Section(BaseModel):
    """A frozen group of settings that refuses unknown keys and reads `*_file` secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _secrets_from_files(cls, data: Any) -> Any:
        return _with_secrets(data) if isinstance(data, dict) else data


class Kafka(Section):
    """Where the brokers are, and what is passed through to the client as it is.

    `properties` are keyword arguments of the aiokafka clients: `security_protocol`, `sasl_plain_password_file`, ...
    `fetch_wait_ms` is how long a broker may hold a fetch without data; with Kafka it costs idle CPU, not latency, but
    the embedded broker holds every fetch that long, data or not: 10 there. `linger_ms` is how long joiner and learner
    pause after a poll that brought something, so that the next one brings more: nobody waits for a join or a lesson as
    for an answer. 0 for the embedded broker, which gives one batch of a partition at a time.
    """

    bootstrap: str = "127.0.0.1:9092"
    properties: dict[str, Scalar] = Field(default_factory=dict)
    fetch_wait_ms: int = Field(default=200, gt=0)
    linger_ms: int = Field(default=100, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _secret_properties(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("properties"), dict):
            return {**data, "properties": _with_secrets(data["properties"])}
        return data


class Redis(Section):
    """Where policy states are kept."""

    url: str = "redis://127.0.0.1:6379/0"
    password: SecretStr | None = None


class Registry(Section):
    """The schema registry; without a URL records are framed as Avro single objects."""

    url: str | None = None
    user: str | None = None
    password: SecretStr | None = None


class Worker(Section):
    """How a model's worker batches.

    Without `objective_ms` a batch may take half of what the deadline leaves after the time outside the worker.
    `threads` are the arithmetic threads of the model's library; one keeps the roles from fighting for cores.
    A batch that takes longer than `patience_s` (without it 10 objectives, at least 5 s) means that the model hangs: the
    worker ends and is started again, or, with `process`, the model's own process is, which costs a copy of each batch.
    `allow_pickle` loads pickled models, if their digest is the one that was deployed.
    """

    controller: Literal["aimd", "fixed"] = "aimd"
    parameters: dict[str, float] = Field(default_factory=dict)
    objective_ms: float | None = Field(default=None, gt=0)
    queue_rows: int = Field(default=4096, gt=0)
    threads: int = Field(default=1, gt=0)
    process: bool = False
    patience_s: float | None = Field(default=None, gt=0)
    allow_pickle: bool = False


class Selection(Section):
    """`margin_ms` is how long before its deadline an answer leaves: the leg back to the client takes that long."""

    margin_ms: float = Field(default=5.0, ge=0)


class Joiner(Section):
    """How long things wait to be joined.

    `early_s` is how long feedback waits for a prediction that has not been seen, before it is `unmatched`; `window_s`
    is the longest window of any application. One window is read back when a joiner starts, two when a learner does.
    """

    early_s: float = Field(default=60.0, gt=0)
    window_s: float = Field(default=600.0, gt=0, le=604_800)


class Control(Section):
    """The live page. It has no log-in, so it stays on the loopback address unless told otherwise."""

    host: str = "127.0.0.1"
    port: int = Field(default=6066, gt=0, lt=65536)


class ApplicationSettings(Section):
    """The desired state of one application, published at start; fields as in `schemas.records.Application`."""

    models: tuple[str, ...] = Field(min_length=1)
    policy: str = "exp3"
    parameters: dict[str, float] = Field(default_factory=dict)
    per_context: bool = False
    slo_ms: float = Field(default=100.0, gt=0)
    default_output: int | float | str | None = None
    loss: Literal["zero_one", "absolute", "squared", "log", "given"] = "zero_one"
    window_s: float = Field(default=600.0, gt=0)
    default_loss: float | None = Field(default=None, ge=0, le=1)


class Settings(Section):
    """Everything a deployment is told.

    `models` are package folders by name, published at start beside what `skysail model add` published; `reports` is the
    folder for the reports of the demo and of load scenarios.
    """

    prefix: Name = "skysail"
    partitions: int = Field(default=4, gt=0, le=1024)
    replication: int = Field(default=1, gt=0)
    kafka: Kafka = Kafka()
    redis: Redis = Redis()
    registry: Registry = Registry()
    roles: tuple[Role, ...] = ROLES
    selection: Selection = Selection()
    worker: Worker = Worker()
    joiner: Joiner = Joiner()
    control: Control = Control()
    models: dict[Name, Path] = Field(default_factory=dict)
    applications: dict[Name, ApplicationSettings] = Field(default_factory=dict)
    reports: Path = Path("reports")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
