"""The settings of a deployment as frozen values; `deploy.config.configuration` reads, prints and writes them.

Whoever needs a value gets the value, not these settings: kernels and clients know nothing of this file.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from streams.topology import MODEL_PARTITIONS

# Topic and group names are built from it; mixing dots and underscores would collide in broker metrics.
NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"

Role: TypeAlias = Literal["selection", "joiner", "learner", "worker", "control"]
ROLES: tuple[Role, ...] = ("selection", "joiner", "learner", "worker", "control")
# Only what came from a file is a SecretStr; it stands last because any string would do for one.
Scalar: TypeAlias = bool | int | float | str | SecretStr
Name: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN)]
Replicas: TypeAlias = Annotated[int, Field(gt=0, le=MODEL_PARTITIONS)]
Seconds: TypeAlias = Annotated[float, Field(gt=0)]
Processes: TypeAlias = Annotated[int, Field(ge=0)]
Module: TypeAlias = Annotated[str, Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")]
MiB: TypeAlias = Annotated[int, Field(gt=0)]
BatchSizes: TypeAlias = Annotated[
    tuple[Annotated[int, Field(gt=0)], ...],
    AfterValidator(lambda sizes: tuple(sorted(set(sizes)))),
    Field(min_length=1),
]

# Of aiokafka's options, those that never hold a secret.
SHOWN_PROPERTIES = frozenset(
    {
        "api_version",
        "client_id",
        "connections_max_idle_ms",
        "metadata_max_age_ms",
        "request_timeout_ms",
        "retry_backoff_ms",
        "sasl_kerberos_domain_name",
        "sasl_kerberos_service_name",
        "sasl_mechanism",
        "sasl_plain_username",
        "security_protocol",
        "ssl_cafile",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_crlfile",
        "ssl_keyfile",
    }
)


def _with_secrets(data: dict[str, object]) -> dict[str, object]:
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


def _is_redis_url(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return True
    try:
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in {"redis", "rediss"} and port != 0 and "@" not in parts.path + parts.query + parts.fragment


class Section(BaseModel):
    """A frozen group of settings that refuses unknown keys and reads `*_file` secrets."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        coerce_numbers_to_str=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _secrets_from_files(cls, data: object) -> object:
        return _with_secrets(data) if isinstance(data, dict) else data


class Kafka(Section):
    """Where the brokers are, and how their clients behave."""

    bootstrap: str = "127.0.0.1:9092"
    """`host:port` of the brokers, separated by commas."""
    properties: dict[str, Scalar] = Field(default_factory=dict)
    """Passed to the clients as they are, in aiokafka's words: `security_protocol`, `sasl_mechanism`,
    `sasl_plain_username`, `sasl_plain_password_file`, `ssl_cafile`, ..."""
    fetch_wait_ms: int = Field(default=200, gt=0)
    """How long a broker may hold a fetch without data. With Kafka that costs no latency, and shorter costs idle CPU;
    the embedded broker holds every fetch so long, data or not: 10 there."""
    linger_ms: int = Field(default=100, ge=0)
    """How long joiner and learner pause after a poll that brought something, so that the next one brings more: nobody
    waits for a join or a lesson as for an answer. 0 for the embedded broker, which gives one batch at a time."""
    fast: bool = True
    """Fetch and produce with requests of Skysail's own on aiokafka's connections. `false` uses aiokafka's public
    interface alone, which takes more CPU, and unpacks compressed batches without a bound. A version of aiokafka that
    Skysail does not know is used so by itself; a warning in the log names the reason."""
    topics_wait_s: float = Field(default=30.0, ge=0)
    """How long a role that starts waits for topics that are being created."""
    member: str | None = None
    """A name that a process keeps over restarts and no other process has at the same time, such as a host and a role:
    killed, it has its partitions back as soon as it is, and not only when Kafka's session timeout of 10 s is over.
    `{host}` in it is the machine's or container's (`skysail-{host}`, where one process of a role or model runs there).
    `skysail run` names what it starts."""
    leave: bool = True
    """Whether a process that is told to stop leaves its groups, so that others have its partitions at once. `false` is
    for rolling restarts of processes with a name: it falls silent, and the next one of its name has them back, the
    others undisturbed; if none comes within 10 s, they have them. What `skysail run` stops leaves; a page with a name
    does not."""

    @field_validator("member")
    @classmethod
    def _with_host(cls, member: str | None) -> str | None:
        return None if member is None else member.replace("{host}", socket.gethostname())

    @model_validator(mode="before")
    @classmethod
    def _secret_properties(cls, data: object) -> object:
        if isinstance(data, dict) and isinstance(data.get("properties"), dict):
            return {**data, "properties": _with_secrets(data["properties"])}
        return data


class Redis(Section):
    """Where policy states are kept."""

    url: str = "redis://127.0.0.1:6379/0"
    """`redis://`, `rediss://` (TLS) or `unix://`; a password in it is percent-encoded."""
    password: SecretStr | None = None
    """Instead of one in the URL; rather `password_file`."""

    @field_validator("url")
    @classmethod
    def _can_be_read(cls, url: str) -> str:
        """Refuse what no client would understand, without showing it: it may hold a password."""
        if not _is_redis_url(url):
            message = (
                "write redis://[user[:password]@]host[:port][/database]; in a password percent-encode `/`, `@`, `:`,"
                " `#` and `?`, or put it into a file and name that in `redis.password_file`"
            )
            raise ValueError(message)
        return url


class Registry(Section):
    """The schema registry."""

    url: str | None = None
    """Of Confluent's registry or one that speaks like it; without it records are framed as Avro single objects."""
    user: str | None = None
    """For its log-in, if it wants one."""
    password: SecretStr | None = None
    """For its log-in; rather `password_file`."""


class Worker(Section):
    """How a model's worker batches."""

    controller: Literal["aimd", "deferred", "fixed", "quantile"] = "aimd"
    """What sizes batches: `aimd` by steps, `quantile` by a line fitted to their times, and `deferred` likewise, which
    also waits for more rows while there is time; `fixed` does not adapt."""
    parameters: dict[str, float] = Field(default_factory=dict)
    """Of the controller: `add`, `backoff`, `dead_band` and `max_rows` of `aimd`, `rows` of `fixed`, `window` and
    `max_rows` of `quantile` and `deferred`. `linger_ms` of any of them is how long a free model waits for a full batch
    at most, and no longer than its most urgent row can: always, or with `deferred` above a load of `eager_below`."""
    objective_ms: float | None = Field(default=None, gt=0)
    """How long a batch may take; without it half of what the deadline leaves after the time outside the
    worker (the most that it has left in the last half minute), but at least twice what a call of the model
    costs, and up to four times as far as all of that time goes."""
    replicas: dict[Name, Replicas] = Field(default_factory=dict)
    """By model: how many workers `skysail run` starts, which share its queries; for models that hold Python's lock or
    take more than one process gives. One where nothing is said; more can be started by hand, 4 have something to do."""
    queue_rows: int = Field(default=4096, gt=0)
    """How many rows may wait in a worker; it reads no more until there is room."""
    queue_mib: int = Field(default=256, gt=0)
    """How many MiB of inputs may wait in a worker; it reads no more until there is room. Of what has been read then and
    is too much (64 MiB more), the largest rows are refused."""
    threads: int = Field(default=1, gt=0)
    """Arithmetic threads of the model's library; one keeps the roles from fighting for cores."""
    processes: Processes | dict[Name, Processes] = 0
    """Run the model in so many processes of its own, of all models or by model; costs a copy of each batch. One that
    hangs is replaced. Several share each batch: for models that keep Python's lock, where there are cores to spare."""
    patience_s: Seconds | dict[Name, Seconds] | None = None
    """A batch that takes longer means that the model hangs: the worker (with `processes`, the model's process) ends and
    is started again. Of all models, or by model. Without it 10 objectives, at least 5 s."""
    load_s: float = Field(default=120.0, gt=0)
    """Loading a model that takes longer hangs: the worker (with `processes`, the model's process) ends and is started
    again."""
    allow_pickle: bool = False
    """Load pickled models, if their digest is the one that was deployed. Loading a pickle runs the code in it."""
    code: tuple[Module, ...] = ()
    """Modules, and packages with all that is in them, out of which functions and networks may be named, such as
    `[my_nets, load.models.functions]`; where none is said, any that is not of the standard library. Set it in
    production."""
    unload_first: bool = False
    """Unload a model's version before the next one is loaded, where the two do not fit into memory together. Queries
    wait meanwhile, or are answered without the model; without it the new version is loaded beside the old one, and none
    is late."""
    warm_up_rows: int = Field(default=64, ge=1, le=4096)
    """A new version is tried on so many of the rows that its model was asked last, their answers discarded, before it
    answers."""
    drain_ms: float = Field(default=100.0, ge=0)
    """How long a new version that is ready waits for the present one to answer what had been read: longer, and a
    rollback from a slow version waits for its queue; none, and the new one answers everything at once."""
    memory_mib: dict[Name, MiB] = Field(default_factory=dict)
    """By model: the memory of a process of its own (`processes` or not), with Python and libraries (100; with
    scikit-learn 240, with torch 780). A batch that needs more fails, or the process ends and is started again; a
    version that does not fit is not loaded."""
    allowed_batch_sizes: dict[Name, BatchSizes] = Field(default_factory=dict)
    """By model, rising: rows of the batches that it is given, for shapes that are fixed or compiled one by one. Smaller
    batches are padded with copies of a row, whose answers are thrown away; all sizes are tried when it is loaded."""


class Selection(Section):
    """How queries are answered."""

    margin_ms: float | None = Field(default=None, ge=0)
    """How long before its deadline an answer leaves: the leg back to the client takes that long. Without it 5 ms, or a
    tenth of an objective under 50."""
    cache_bytes: int = Field(default=0, ge=0)
    """How much of the models' outputs to remember by input: what was asked before is answered without asking the
    model. For models whose answer follows from the input and the version alone; 0 = ask every time."""
    admission: bool = False
    """Whether a query that its model cannot answer in time, by the workers' reports, gets the default output at once,
    with the reason `overloaded`, and a query's priority counts. Under overload the answers given then are in time."""
    states: int = Field(default=100_000, gt=0)
    """How many policy states the role keeps in memory, about 2 KiB each (of `linucb` and
    `linear_thompson` 8 bytes x features x features x models more); the least recently used is read again when it is
    needed. Where each context has a state, as many as are active at a time."""
    states_mib: int = Field(default=256, gt=0)
    """The memory that these states may take, estimated; where they are too many, the application that has most of them
    loses those that it has not used for longest."""
    inline: tuple[Name, ...] = ()
    """Models that run inside the selection role, without a topic and workers of their own: for those whose rows cost
    less than two legs over Kafka. Batches and guarantees are the same; `worker` says how they are run. With them the
    role holds at most `worker.queue_rows` unfinished queries."""


class Joiner(Section):
    """How long things wait to be joined."""

    early_s: float = Field(default=60.0, gt=0)
    """How long feedback waits for a prediction that has not been seen, before it is a dead letter, `unmatched`."""
    window_s: float = Field(default=600.0, gt=0, le=604_800)
    """The longest window of any application. So much is read back when a joiner starts, twice that when a learner
    does."""
    large_mib: int = Field(default=64, gt=0)
    """What waits may have so much beyond 1 KiB a record: predictions half of it, feedback that comes before its
    prediction and what shadows answered a quarter each. An application (a partition's feedback, a model) may hold as
    much of it as it leaves free; what comes beyond that is not learnt from: counted, feedback a dead letter,
    `over_limit`. For predictions with large contexts, labels or scores, make it their size times their rate times the
    window."""


class Learner(Section):
    """How much of the policies is kept at hand."""

    states: int = Field(default=100_000, gt=0)
    """How many policy states the role keeps in memory, about 1 KiB each; the least recently taught is read again when
    it is taught. Where each context has a state, as many as are taught in some minutes."""


class Control(Section):
    """The live page."""

    host: str = "127.0.0.1"
    """The address it listens on. It has no log-in."""
    port: int = Field(default=6066, gt=0, lt=65536)
    """The port it listens on."""
    names: tuple[str, ...] = ()
    """By which browsers may ask for it, such as a proxy's, besides `localhost`, this host's name and its addresses."""


class Metrics(Section):
    """Where a process shows its latest figures to Prometheus, at `/metrics`."""

    host: str = "127.0.0.1"
    """The address it listens on. It has no log-in."""
    port: int = Field(default=0, ge=0, lt=65536)
    """0: nowhere. `skysail run` gives each of its processes the next port, in the order of `roles`, workers last by
    model name; a role that is started by itself takes the port as it stands."""


class ApplicationSettings(Section):
    """The desired state of one application, published at start; what is not named has its default again."""

    models: tuple[str, ...] = Field(min_length=1)
    """The competing models, by name."""
    policy: str = "exp3"
    """What chooses among them: `single`, `epsilon_greedy`, `ucb1`, `discounted_ucb`, `thompson` or `exp3`; by each
    query's features `linucb` or `linear_thompson`; of all together `exp4`, `class_vote` or `timely`."""
    parameters: dict[str, float] = Field(default_factory=dict)
    """Of the policy, such as `{eta: 0.1}`; a wrong name is refused with the nearest one."""
    per_context: bool = False
    """One policy state for each context (user, session, region) instead of one for all. A context starts
    from what all of them have taught, weighted lightly, so that its own feedback soon outweighs it: as one observation
    of each model, `exp3`, `exp4` and `timely` with half their weights."""
    slo_ms: float = Field(default=100.0, gt=0)
    """A query is answered so long after it was sent, with what is there by then."""
    max_slo_ms: float | None = Field(default=None, gt=0)
    """The longest objective that a query may name for itself, as what it waits with is room that others lack; without
    it ten times `slo_ms`."""
    default_output: int | float | str | None = None
    """The answer where no model has one."""
    loss: Literal["zero_one", "absolute", "squared", "log", "given"] = "zero_one"
    """What an answer costs, given the label, from 0 to 1; `given`: the feedback says it."""
    span: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Of the losses `absolute` and `squared`: the error that costs 1, as any larger one does, in the answers' unit.
    Without it one is learnt: nine of ten errors of late are below it."""
    window_s: float = Field(default=600.0, gt=0)
    """How long feedback is waited for; at most `joiner.window_s`."""
    default_loss: float | None = Field(default=None, ge=0, le=1)
    """What is learnt when the window ends without feedback; without it nothing is."""
    combine: Literal["weighted_vote", "mean", "median"] = "weighted_vote"
    """How the answers of several models become one, by the policy's weights. A vote takes whole numbers for labels, and
    the mean of other numbers and of scores; `mean` and `median` take them for numbers."""
    confidence_floor: float = Field(default=0.0, ge=0, le=1)
    """With less confidence (the weight of the asked models that agree with the answer) `default_output` is given, with
    the reason `low_confidence`."""
    missing: Literal["leave_out", "running_mean"] = "leave_out"
    """What becomes of a model that has not answered in time: `running_mean` takes the mean of its answers so far (of
    labels the most frequent) for its answer; it does not add to the confidence."""


class Settings(Section):
    """Everything a deployment is told."""

    prefix: Name = "skysail"
    """Of the names of topics, groups and keys: deployments with different ones share brokers and Redis."""
    partitions: int = Field(default=4, gt=0, le=1024)
    """Of the topics on the circle of data; bounds how far the roles scale out, and cannot be changed while policy
    states are kept."""
    replication: int = Field(default=1, gt=0)
    """Copies of each topic; 3 in production."""
    roles: tuple[Role, ...] = ROLES
    """What `skysail run` starts; `worker` stands for one process a model."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least serious lines that are logged."""
    profile: Path | None = None
    """A folder in which each process writes, when it ends, where its CPU time went; costs it about 1 %."""
    kafka: Kafka = Kafka()
    redis: Redis = Redis()
    registry: Registry = Registry()
    selection: Selection = Selection()
    worker: Worker = Worker()
    joiner: Joiner = Joiner()
    learner: Learner = Learner()
    control: Control = Control()
    metrics: Metrics = Metrics()
    models: dict[Name, Path] = Field(default_factory=dict)
    """Package folders by the models' names, published at start beside what `skysail model add` has published. Relative
    paths start at the folder of the settings file, those in the environment where the command is started."""
    applications: dict[Name, ApplicationSettings] = Field(default_factory=dict)
    """Applications by name, published at start beside what `skysail app create` has published."""
