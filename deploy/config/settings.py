"""The settings of a deployment as frozen values; `deploy.config.configuration` reads, prints and writes them.

Kernels and clients take single values as arguments. They do not know this file.
"""

from __future__ import annotations

import re
import socket
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from deploy.config.schema_files import with_schema
from policies.conformal import MOST as MOST_COVERAGE
from schemas.sizes import MAX_BYTES, MOST_BYTES
from schemas.topics import MODEL_PARTITIONS

DAY_S = 86_400
PREDICTIONS_DAYS = 7.0  # as the topology keeps them
# Topic and group names are built from it; mixing dots and underscores would collide in broker metrics.
NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"

Role: TypeAlias = Literal[
    "selection", "joiner", "learner", "mapping", "worker", "host", "control", "record", "gateway", "telemetry"
]  # fmt: skip
# That run unless told otherwise; `mapping` does only where an application has topics of others.
ROLES: tuple[Role, ...] = ("selection", "joiner", "learner", "mapping", "worker", "control")
# Only values from files are SecretStr. It stands last because any string could be one.
Scalar: TypeAlias = bool | int | float | str | SecretStr
Name: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN)]
Partitions: TypeAlias = Annotated[int, Field(gt=0, le=1024)]
Kept: TypeAlias = Literal["queries", "predictions", "feedback", "observations"]
Seconds: TypeAlias = Annotated[float, Field(gt=0)]
Processes: TypeAlias = Annotated[int, Field(ge=0)]
Module: TypeAlias = Annotated[str, Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")]
MiB: TypeAlias = Annotated[int, Field(gt=0)]


def _place(place: str) -> str:
    """Refuse what would allow more, or less, than was meant: `file:/data` would allow /database, too."""
    scheme, _, path = place.partition(":")
    if not scheme.isalnum() or scheme == "local" or not path.endswith("/") or (scheme == "file" and path[0] != "/"):
        raise ValueError("write an address that ends with `/`, as file:/data/images/ or s3://bucket/images/")
    return place


Place: TypeAlias = Annotated[str, AfterValidator(_place)]
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


SIGNATURE_RULE: Final = "require_signature"  # among `models`
_RULE: Final = SIGNATURE_RULE.replace("_", "")
_NAMED_LOSSES = ("zero_one", "absolute", "squared", "log", "given")  # `policies.losses.LOSSES`, without NumPy


class Section(BaseModel):
    """A frozen group of settings that refuses unknown keys and reads `*_file` secrets."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        coerce_numbers_to_str=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        serialize_by_alias=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _secrets_from_files(cls, data: object) -> object:
        return _with_secrets(data) if isinstance(data, dict) else data


class Kafka(Section):
    """Where the brokers are, and how their clients behave."""

    bootstrap: str = "127.0.0.1:9092"
    """`host:port` of the brokers, separated by commas."""
    properties: dict[str, Scalar] = Field(default_factory=dict, repr=False)
    """Options for every Kafka client, under aiokafka's names: `security_protocol`, `sasl_mechanism`,
    `sasl_plain_username`, `sasl_plain_password_file`, `ssl_cafile`, ..."""
    fetch_wait_ms: int = Field(default=200, gt=0)
    """How long a broker may hold a fetch without data. With Kafka a longer wait costs no latency, and a shorter one
    costs idle CPU. The embedded broker holds every fetch for this time, data or not: use 10 there."""
    merge_ms: int = Field(default=5, ge=0, le=50)
    """How long a broker may gather records for one fetch under load, at most: 1 ms for each 1,000 records a second that
    a role takes, but 1 ms while its event loop is idle, and up to 5 ms the later or busier it is. Below 1,000 a second
    each record travels at once. Fewer requests take less CPU; 0 = none are merged."""
    linger_ms: int = Field(default=100, ge=0)
    """How long joiner and learner pause after a poll with records, so that the next one brings more. In an idle process
    the joiner pauses for half of it and the learner for an eighth, both longer the busier it is. They make no pause
    while they are behind. Use 0 for the embedded broker, which returns one batch at a time."""
    fast: bool = True
    """Fetch and produce with Skysail's own requests on aiokafka's connections. `false` uses aiokafka's public interface
    alone. That takes more CPU, and unpacks compressed batches without a bound. With an aiokafka that Skysail does not
    know, it is `false` by itself, and a warning in the log gives the reason."""
    topics_wait_s: float = Field(default=30.0, ge=0)
    """How long a starting role waits for topics that are being created."""
    member: str | None = None
    """A name that a process keeps over restarts, such as a host and a role. No other process may have it at the same
    time. A restarted process with a name has its partitions back at once, without Kafka's session timeout of 10 s.
    `{host}` stands for the name of the machine or container: use `skysail-{host}` where one process of a role or model
    runs there. `skysail run` names its processes."""
    leave: bool = True
    """Whether a stopping process leaves its groups, so that others have its partitions at once. `false` is for rolling
    restarts of processes with a name. Such a process falls silent, and its successor of the same name has the
    partitions back; others are undisturbed. If no successor comes within 10 s, the others take them. Processes that
    `skysail run` stops leave; a page with a name does not."""

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

    url: str = Field(default="redis://127.0.0.1:6379/0", repr=False)
    """`redis://`, `rediss://` (TLS) or `unix://`. Percent-encode a password in it."""
    password: SecretStr | None = None
    """The password, if it is not in the URL; better `password_file`."""

    @field_validator("url")
    @classmethod
    def _can_be_read(cls, url: str) -> str:
        """Refuse a URL that no client understands, without showing it: it may hold a password."""
        if not _is_redis_url(url):
            message = (
                "write redis://[user[:password]@]host[:port][/database]; in a password percent-encode `/`, `@`, `:`,"
                " `#` and `?`, or put it into a file and name that in `redis.password_file`"
            )
            raise ValueError(message)
        return url


class StoreSection(Section):
    """Which store keeps policy states. `store: embedded` is short for `store: {kind: embedded}`."""

    kind: Literal["redis", "embedded"] = "redis"
    """`redis`: a server, which roles on several machines reach. `embedded`: a file, for a deployment on one machine."""
    file: Path = Field(default=Path(".skysail/states.db"), validate_default=True)
    """The file of an embedded store. It is made for its owner alone."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"kind": data} if isinstance(data, str) else data

    @field_validator("file")
    @classmethod
    def _absolute(cls, file: Path) -> Path:
        """Name the same file in every process, whatever its folder."""
        return file.expanduser().absolute()


class RegistrySection(Section):
    """The schema registry."""

    url: str | None = Field(default=None, repr=False)
    """URL of Confluent's registry or a compatible one. Without it records are framed as Avro single objects."""
    user: str | None = None
    """User name, if the registry asks for one."""
    password: SecretStr | None = None
    """Its password; better `password_file`."""


class WorkerSection(Section):
    """How workers run and batch their models."""

    controller: Literal["aimd", "clockwork", "deferred", "fixed", "quantile"] = "aimd"
    """How batches are sized. `aimd` goes by steps, `quantile` by a line fitted to their times, and `clockwork` by the
    last ten batches of each size. `deferred` does the same as `quantile`, and also waits for more rows while there is
    time. `fixed` does not adapt."""
    parameters: dict[str, float] = Field(default_factory=dict)
    """Parameters of the controller: `add`, `backoff`, `dead_band` and `max_rows` of `aimd`, `rows` of `fixed`, `window`
    and `max_rows` of `quantile` and `deferred`, `max_rows` of `clockwork`. All have `linger_ms`: a free model waits so
    long for a full batch at most, and no longer than its most urgent row can. `deferred` waits only above a load of
    `eager_below`."""
    objective_ms: float | None = Field(default=None, gt=0)
    """Target duration of a batch. By default half of the time that the deadline leaves the worker (the best value of
    the last 30 s). It is at least twice the cost of one model call, and up to four times that if the whole time
    allows."""
    replicas: dict[Name, Partitions] = Field(default_factory=dict)
    """How many workers `skysail run` starts, by model; 1 by default. They share the model's queries. Use more for
    models that hold Python's lock or need more than one process. More can be started by hand; as many get queries as
    the model's topic has partitions."""
    partitions: dict[Name, Partitions] = Field(default_factory=dict)
    """Partitions of a model's topic, by model: so many workers can share its queries. Default: 4, or as many as
    `replicas`. `skysail topics create` adds partitions while everything runs; none are taken away."""
    queue_rows: int = Field(default=4096, gt=0)
    """How many rows may wait in a worker. It stops reading until there is room."""
    queue_mib: int = Field(default=256, gt=0)
    """How many MiB of inputs may wait in a worker. It stops reading until there is room. If rows already read exceed
    this by 64 MiB, the worker refuses the largest ones."""
    threads: int = Field(default=1, gt=0)
    """Arithmetic threads of the model's library. With one thread roles do not compete for cores."""
    processes: Processes | dict[Name, Processes] = 0
    """In how many child processes a model runs, for all models or by model; 0 = in the worker itself. Each costs a copy
    of its batch. A process that hangs is replaced. Several share each batch: use them for models that keep Python's
    lock, if cores are free."""
    patience_s: Seconds | dict[Name, Seconds] | None = None
    """How long a batch may take before the model counts as hung, for all models or by model. The worker (with
    `processes`, the model's process) then exits and is started again. Default: 10 objectives, at least 5 s."""
    load_s: float = Field(default=120.0, gt=0)
    """How long loading a model may take before it counts as hung. In a process of its own, as a version that was never
    loaded here, it is then refused. Otherwise the worker exits and is started again."""
    load_retries: int = Field(default=30, ge=0)
    """How often a version that could not be loaded is loaded again. Then it is given up, until the model's record is
    written again: `skysail model add` does so for a mended package. `skysail model list` and the page give the
    reason."""
    load_retry_s: float = Field(default=10.0, gt=0)
    """The time between two attempts to load a version."""
    allow_pickle: bool = False
    """Whether to load pickled models whose digest is the deployed one. Loading a pickle runs the code in it."""
    code: tuple[Module, ...] = ()
    """Modules and whole packages from which model packages may name functions and networks, such as
    `[my_nets, load.models.functions]`. Default: any module outside the standard library. Set it in production."""
    packages: Path | None = None
    """The folder that packages lie in, links resolved. A version whose package lies elsewhere is not loaded. Default:
    any folder. Set it in production: who may write `models` then has workers load what lies there, and nothing else."""
    unload_first: bool = False
    """Whether to unload a version before the next one is loaded, if memory does not hold both. Queries wait meanwhile,
    or are answered without the model. By default the new version is loaded beside the old one, and no query is late."""
    warm_up_rows: int = Field(default=64, ge=1, le=4096)
    """On how many of its model's latest rows a new version is tried before it answers. Their answers are discarded."""
    drain_ms: float = Field(default=100.0, ge=0)
    """How long a ready version waits for the present one to answer the rows read by then. With a longer time a rollback
    from a slow version waits for its queue. With 0 the new version answers everything at once."""
    isolated: bool | tuple[Name, ...] = ()
    """Models that keep a process of their own and are in no host, by name; `true` = all."""
    memory_mib: dict[Name, MiB] = Field(default_factory=dict)
    """The memory of a model's process, by model. Such a model runs in a process of its own, whatever `processes` says.
    Python and libraries count: 100 MiB, with scikit-learn 240, with torch 780. A batch that needs more fails, or the
    process ends and is started again. A version that does not fit is not loaded."""
    allowed_batch_sizes: dict[Name, BatchSizes] = Field(default_factory=dict)
    """The batch sizes of a model, by model, rising: for shapes that are fixed or compiled one by one. Smaller batches
    are padded with copies of a row, whose answers are discarded. All sizes are tried when the model is loaded."""

    references: tuple[Place, ...] = ()
    """The places from which workers read inputs that come as addresses, such as `[file:/data/images/,
    s3://bucket/images/]`. Each ends with `/`, and what lies below it may be read by whoever may ask. Default: none.
    Files and web servers (`http://host/images/`) need nothing else, other places the extra `references` and fsspec's
    package for them, such as `s3fs`. The model's package says that it takes addresses (`by_reference`)."""
    reference_mib: MiB = 16
    """The largest input that is read so. A batch holds `queue_mib` of them at most, at this size for models of bytes:
    set it to what your images take."""

    @model_validator(mode="after")
    def _enough_partitions(self) -> Self:
        """Refuse workers that would never get a query."""
        for model, count in self.partitions.items():
            if self.replicas.get(model, 1) > count:
                raise ValueError(
                    f"{model} has {self.replicas[model]} replicas and {count} partitions: one each at least"
                )
        return self

    def isolates(self, model: str) -> bool:
        """Tell whether a model has a process of its own."""
        is_named = self.isolated if isinstance(self.isolated, bool) else model in self.isolated
        processes = self.processes if isinstance(self.processes, int) else self.processes.get(model, 0)
        return bool(is_named or processes or self.replicas.get(model, 1) > 1 or model in self.memory_mib)

    def spread(self, model: str, now: int = MODEL_PARTITIONS) -> int:
        """Return how many partitions a model's topic is to have, where it is published with `now`."""
        return self.partitions.get(model) or max(now, self.replicas.get(model, 1))


class HostSection(Section):
    """One pool of models that share a process."""

    models: Literal["all others"] | tuple[Name, ...] = "all others"
    """The models, by name, or all that are in no other pool, not inline, and not in a process of their own
    (`worker.isolated`)."""
    memory_mib: MiB = 512
    """How many MiB the models may take that are in memory at a time. What fits is loaded before it takes queries.
    Beyond it the one that was not asked for longest makes room, and is loaded again when it is asked. Python and
    libraries come on top (60 MiB, scikit-learn 160), and for batches a quarter of this, at least 128 MiB."""
    cache_mib: int = Field(default=0, ge=0)
    """How many MiB of packages' files are kept in `.skysail/cache`, by their digests, so that a model is loaded again
    from there. Use it where packages lie on a disk of another machine; 0 = none."""
    controller: Literal["aimd", "deferred", "fixed", "quantile", "clockwork"] = "aimd"
    """What runs next, and in batches of which size. With `clockwork` it is the model whose latest start comes first, in
    the largest batch that is in time, and what cannot be in time is refused at once. With the others, which are those
    of workers, it is the model whose query has waited longest."""
    lanes: int = Field(default=1, gt=0)
    """How many batches run at a time. More than one pays off only for models that leave Python's lock, on free
    cores."""
    replicas: int = Field(default=1, gt=0)
    """How many hosts share the models, each with this memory. The control role plans which host runs which models
    (docs/planning.md)."""


class SelectionSection(Section):
    """How queries are answered."""

    margin_ms: float | None = Field(default=None, ge=0)
    """How long before its deadline an answer leaves: the way back to the client takes that long. Default: 5 ms, or a
    tenth of an objective under 50 ms."""
    cache_bytes: int = Field(default=0, ge=0)
    """How many bytes of outputs to cache by input. Repeated inputs are answered without their model. Use it for models
    whose answer follows from input and version alone; 0 = no cache."""
    admission: bool = False
    """Whether a query that its model cannot answer in time gets the default output at once, with the reason
    `overloaded`. The workers' reports decide, and the lowest priority goes first. So under overload answers are in
    time."""
    states: int = Field(default=100_000, gt=0)
    """How many policy states the role keeps in memory, about 2 KiB each (for `linucb` and `linear_thompson`
    8 bytes x features x features x models more). The least recently used is read again when it is needed. With a state
    for each context, set it to the number of contexts active at a time."""
    states_mib: int = Field(default=256, gt=0)
    """The memory that these states may take, estimated. Beyond it, the application that has most of them loses the
    states that it has not used for longest."""
    features_url: SecretStr | None = None
    """The Redis that has the features of sources with `store: redis`, as `redis.url`; better `features_url_file`.
    Default: the Redis of the policy states, on connections of their own."""
    features_mib: int = Field(default=64, gt=0)
    """The memory that features may take which are looked up, estimated. Beyond it, the source that has most of them
    loses the keys that it has not used for longest."""
    inline: Literal["auto"] | tuple[Name, ...] = "auto"
    """Models that run inside the selection role, without workers of their own. With `auto`, `skysail run` measures each
    model where roles share a process (`processes`). Inside run those whose call costs less than two trips over Kafka.
    `skysail model list` shows each decision and its reason. A list names the models instead, `[]` none. Batches and
    guarantees are the same, and the settings of `worker` apply."""

    write_behind: bool = False
    """Whether the answers of inline models are also written to `model-predictions`, within a tenth of a second. Nobody
    waits for them. Recordings then tell how long their batches took, for `skysail simulate`. Replay and evaluation do
    not need it, because predictions hold each model's answer. It costs a request a partition ten times a second."""

    @property
    def named_inline(self) -> tuple[str, ...]:
        """The models that are named; with `auto` none is."""
        return () if self.inline == "auto" else self.inline


class JoinerSection(Section):
    """How long predictions and feedback wait to be joined."""

    early_s: float = Field(default=60.0, gt=0)
    """How long feedback waits for its prediction before it becomes a dead letter, `unmatched`."""
    window_s: float = Field(default=600.0, gt=0, le=604_800)
    """The longest window of any application. A starting joiner reads back one such window, a starting learner two."""
    waiting_mib: MiB = 1_465
    """The memory for predictions that wait for their feedback, at half a KiB each (three million by default). An
    application may hold as much as it leaves free; its predictions beyond that are counted and not learnt from. Set it
    to 1/2048 of the predictions whose feedback one joiner waits for at a time: the rate of queries, divided by the
    joiners, times the window, or times the usual delay where all get feedback."""
    early_mib: MiB = 196
    """The memory for feedback that comes before its prediction, at half a KiB each (400,000 by default). A partition
    may hold as much as it leaves free; beyond that feedback becomes a dead letter, `over_limit`."""
    large_mib: int = Field(default=64, gt=0)
    """How many MiB waiting records may have beyond 1 KiB each, feedback beyond 128 bytes. Predictions get half of it;
    early feedback and the outputs of shadows get a quarter each. An application (or a partition's feedback, or a model)
    may hold as much as it leaves free. Records beyond that are counted and not learnt from; feedback becomes a dead
    letter, `over_limit`. For predictions with large contexts, labels or scores, set it to their size times their rate
    times the window."""


class LearnerSection(Section):
    """How many policy states stay in memory."""

    states: int = Field(default=100_000, gt=0)
    """How many policy states the role keeps in memory, about 1 KiB each. The least recently taught is read again when
    it is taught. With a state for each context, set it to the number of contexts taught within some minutes."""
    states_mib: int = Field(default=256, gt=0)
    """The memory that these states may take, estimated. Beyond it, the application that has most of them loses the
    states that it has not taught for longest."""


class RecordSection(Section):
    """What the role `record` keeps of the topics, to be replayed and evaluated. It does not run by default."""

    folder: Path | None = None
    """The folder of the trace, on the machine where the role runs. The role needs it, and the right to make others
    beside it: where a topic is made anew, `trace.2` follows `trace`."""
    topics: tuple[str, ...] = ()
    """The topics to record, without the prefix. Default: all that replay and evaluation need."""
    rotate_mib: int = Field(default=64, gt=0)
    """The size from which on a file is complete. Only complete files are deleted."""
    keep_gib: float | None = Field(default=16.0, gt=0)
    """How many GiB the trace may take on disk. Beyond that the oldest files are deleted. `null` keeps everything."""
    calls: bool | None = None
    """Whether selection, joiner and learner write down what their kernels are called with, in topic `calls`: by that a
    trace is replayed as it was. `null`: where there is a `folder`."""

    @field_validator("folder")
    @classmethod
    def _has_a_name(cls, folder: Path | None) -> Path | None:
        """Refuse a folder beside which none of its name can be made."""
        if folder is not None and folder.name in {"", ".."}:
            raise ValueError(
                f"{folder} has no name of its own: write one such as traces/shop, others are made beside it"
            )
        return folder

    @property
    def are_calls_written(self) -> bool:
        """Whether roles write down their calls."""
        return self.folder is not None if self.calls is None else self.calls


# Else a file that was emptied by mistake would let everybody in.
_NO_TOKENS: Final = "tokens_file holds no token: write a line for each, or leave the key out"


class GatewaySection(Section):
    """The role `gateway`: queries and feedback over HTTP. It does not run by default."""

    host: str = "127.0.0.1"
    """The address it listens on. Without `tokens_file` it has no log-in."""
    port: int = Field(default=8080, gt=0, lt=65536)
    """The port it listens on. A second gateway on one machine needs another one."""
    grpc_port: int | None = Field(default=None, gt=0, lt=65536)
    """The port of Open Inference over gRPC, with the same bounds, tokens and certificate. It is the slower door, and
    needs the extra `grpc`. Default: there is none."""
    shared: bool = False
    """Whether it runs in the process of selection, joiner and learner, where these share one (`processes`). That saves
    70 MB. Large bodies then delay the queries of others."""
    application: str = ""
    """The application that is meant where a path names none (`/invocations`, Personalizer's). Default: the only one
    that the token is for, or that there is."""
    tokens: SecretStr | None = None
    """Who may ask what; better `tokens_file`, the path of a file with a line for each token:
    `TOKEN APPLICATION[,APPLICATION...]`, or `TOKEN *` for all, and `as NAME` behind it for who teaches by that token.
    It is read when the gateway starts."""
    certificate: Path | None = None
    """A PEM file with the certificate (and its chain): then it speaks TLS alone."""
    key: Path | None = None
    """A PEM file with the certificate's key, if that is not in the same file."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may ask, such as `[https://shop.example]`. By default what a browser sends for a page
    is refused."""
    connections: int = Field(default=1_000, gt=0)
    """How many connections there may be. For a further one, that which has been silent longest is closed; where none is
    silent, the new one gets 503."""
    rows: int = Field(default=10_000, gt=0)
    """How many rows may wait for their answers. Requests beyond that get 503 with `Retry-After`."""
    body_kib: int = Field(default=4_096, gt=0)
    """The largest body of a request, unpacked. A row is also bounded by `max_input_kib`."""
    bodies_mib: int = Field(default=64, gt=0)
    """The memory for bodies that are being read or whose answers are waited for, with the queries and answers that are
    made of them. Requests beyond that get 503; one that alone takes more gets 413."""
    memory_mib: int = Field(default=64, ge=0)
    """The memory for replies that are kept, so that a repeated request with one `id` gets the same one. The oldest go
    first; 0 = only requests that are still under way are recognised."""
    within_s: Seconds = 10.0
    """How long a request's head may take to come, then its body, and then the other side to read on."""
    timeout_s: Seconds = 15.0
    """How long it waits for an answer beyond which selection is taken to be away: more than the longest `max_slo_ms`.
    Then the reply is 504."""

    @property
    def address(self) -> str:
        """Where it is found."""
        return f"{'https' if self.certificate else 'http'}://{self.host}:{self.port}"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.body_kib > self.bodies_mib << 10:
            raise ValueError("body_kib is more than all bodies together may have (bodies_mib)")
        if self.tokens is not None:
            from streams.gateway.tokens import BearerTokens

            if not BearerTokens(self.tokens.get_secret_value()):
                raise ValueError(_NO_TOKENS)
        return self


class KeepInputs(Section):
    """Inputs that are kept for datasets, backfill and replay: the topic `queries`, for longer than a day."""

    days: float | None = Field(default=None, gt=0)
    """For how many days; `predictions` are kept as long, and no shorter than usual. Default: as `retention_days` says.
    Topics that exist get it by `skysail topics check --mend`."""
    gib: float = Field(default=50.0, gt=0)
    """How many GiB `queries` may take then, over all partitions, times `replication`. Beyond it the oldest go, whole
    segments at a time. `skysail dataset` says how far back the inputs reach."""


class Control(Section):
    """The live page."""

    host: str = "127.0.0.1"
    """The address it listens on. It has no log-in."""
    port: int = Field(default=6066, gt=0, lt=65536)
    """The port it listens on."""
    names: tuple[str, ...] = ()
    """Further names under which browsers may ask for it, such as a proxy's. `localhost`, this host's name and its
    addresses always work."""
    connections: int = Field(default=200, gt=0)
    """How many connections there may be. For a further one, that which has been silent longest is closed; where none is
    silent, the new one gets 503."""
    tokens: SecretStr | None = None
    """Who may read records and act; better `tokens_file`, the path of a file with a line for each token: `TOKEN read`
    for stories, dead letters and logs, `TOKEN act` for actions, too. Without tokens nobody acts, and records are read
    only where the page listens on this machine alone and the broker asks nobody who they are."""
    logs: Path | None = None
    """The folder of the processes' logs, of which the page shows the last lines. `skysail run` sets it."""
    ids_mib: int = Field(default=36, gt=0)
    """How many MiB the ids of observations may take, 27 bytes each. They are remembered for as long as a copy may
    follow. Beyond it the oldest are forgotten, and a copy of such an observation counts twice on the page and in the
    evidence on candidates."""
    drift: bool = True
    """Whether it compares inputs, answers and confidences with those before, by a sample each minute, and tells which
    columns have moved."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.tokens is not None:
            from streams.gateway.tokens import BearerTokens

            if not BearerTokens(self.tokens.get_secret_value()):
                raise ValueError(_NO_TOKENS)
        return self


class Metrics(Section):
    """Where a process shows its latest figures to Prometheus, at `/metrics`."""

    host: str = "127.0.0.1"
    """The address it listens on. It has no log-in."""
    names: tuple[str, ...] = ()
    """Further names under which Prometheus may ask for it, such as a service's. `localhost`, this host's name, `host`
    and addresses always count; a web page that points a name of its own here is refused."""
    port: int = Field(default=0, ge=0, lt=65536)
    """The first port; 0 = none. `skysail run` gives each of its processes the next port, in the order of `roles`,
    workers last by model name. A role that is started by itself takes this port."""


class Telemetry(Section):
    """The role `telemetry`: where the time of sampled queries goes, for OpenTelemetry. It does not run by default."""

    endpoint: str = ""
    """Where a collector takes OTLP over HTTP, with the path: `http://127.0.0.1:4318/v1/traces`. Default: as
    OpenTelemetry's variables `OTEL_EXPORTER_OTLP_...` say, which may name headers and certificates too."""
    rate: float = Field(default=0.01, ge=0, le=1)
    """The share of the queries without a header `traceparent` that are sampled. With a header its flag decides."""
    held_mib: int = Field(default=64, gt=0)
    """The memory for the last record batches, in which the legs of sampled queries are looked for."""


class SourceSettings(Section):
    """Features that a query does not bring: they are looked up, and stand before its own, or are its candidates'."""

    name: Name
    """The name of the source."""
    width: int = Field(gt=0, le=256)
    """How many numbers it has for a key."""
    key: Literal["context", "input", "query_id", "candidate"] = "context"
    """By which field of the query they are looked up. `candidate`: by each of its candidates that are ids."""
    store: Literal["topic", "redis"] = "topic"
    """`topic`: the topic `features`, which each selection role holds as a table. `redis`: read when asked for."""
    wait: float = Field(default=0.5, ge=0, le=1)
    """For which share of its time a query may wait for them. Then their running mean stands in."""


class MetricSettings(Section):
    """What an application measures beside its loss, and how much worse it may get (docs/metrics.md)."""

    of: Literal["feedback", "latency", "price"] = "feedback"
    """What it measures. `feedback`: a number that is told about a query by the metric's name. `latency`: how long
    answers take, in ms. `price`: what it costs to ask the models that were asked. The last two need no feedback."""
    better: Literal["lower", "higher"] = "lower"
    """Whether less of it is better, or more."""
    span: float | Annotated[list[float], Field(min_length=2, max_length=2)]
    """The range of its values in the unit, `[0, 200]`, or its upper end alone. Values outside count as the nearest
    end."""
    unit: str = Field(default="", max_length=32)
    """The unit in which it is shown, such as EUR. Of latencies it is ms."""
    guardrail: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """How much worse, in the unit, its mean may get: a candidate takes over only when it is shown not to be worse by
    more, and goes back when it is shown to be. Default: any amount; it is shown alone."""
    absent: float | None = Field(default=None, allow_inf_nan=False)
    """The value of queries about which none was told when their window ended, such as 0 where nothing was sold.
    Default: such queries tell nothing."""
    prices: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Of `price`: what it costs to ask a model once, by model or `MODEL@VERSION`, in the unit. A model that is not here
    costs nothing."""

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value."""
        least, most = self.span if isinstance(self.span, list) else (0.0, self.span)
        return least, most


class CrossSettings(Section):
    """Products of the features of two sources: what suits whom ([rankings.md](rankings.md#crossed-features))."""

    of: tuple[str, ...] = Field(min_length=2, max_length=2)
    """The two sources. One of them may have the features of candidates, which then get the products."""
    width: int = Field(gt=0, le=256)
    """How many numbers it adds. As many products have a place each, more are hashed."""


class StageSettings(Section):
    """A stage of an application's graph: a model, and what it is asked about (docs/graphs.md)."""

    model: str = ""
    """The model that is asked. One stage names none: it asks the one that the policy chooses among `models`, and its
    answer is the application's."""
    after: str = ""
    """The stage about whose answer it is asked, once for each item of it. Default: the stage that `input` names, else
    it is asked about the query."""
    input: str | list[str] = "query"
    """What the model is given: `query`, a stage (an item of its answer), or `STAGE.FIELD`. Of several, such as
    `[detect.embedding, scene]`, numbers stand one behind the other, and texts a line each. The stage waits for all."""
    crop: str = ""
    """A field of the items: left, top, right and bottom in pixels, to which the query's image is cut."""
    where: str = ""
    """Which items it is asked about, such as `label == car and score >= 0.5`. Default: all."""
    most: int = Field(default=16, ge=1, le=256)
    """Of how many items of one answer it is asked at most; the answer says how many were left out."""
    items: float = Field(default=1.0, gt=0)
    """How many rows one row of the stage before makes, on the average: for splitting the time."""
    profile_ms: dict[Annotated[int, Field(gt=0)], Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """What batches of the model take (ms), by their rows. Default: as a host has measured it when the application is
    published. Where it is known of all stages, the time is split so that the models need as few workers as possible;
    else evenly."""
    share: float | None = Field(default=None, gt=0, le=1)
    """The share of the time to answer by whose end the stage must have answered. Default: as the time is split."""


class ApplicationSettings(Section):
    """The desired state of one application, published at start. A key that is not named has its default again."""

    models: tuple[str, ...] = Field(min_length=1)
    """The competing models, by name. `forest@nightly` is the model `forest`, of which the version with the label
    `nightly` answers, or with a number that version, unless a query names another."""
    policy: str = "exp3"
    """The policy that chooses among them. A policy of your own is `my_pkg.mine:MyPolicy`, or the name of an entry point
    ([extending.md](extending.md)). `single`, `epsilon_greedy`, `ucb1`, `discounted_ucb`, `thompson` and `exp3`
    ask one model. `linucb`, `linear_thompson` and `context_tree` do so by the query's features. `exp4`, `class_vote`
    and `timely` combine several. `cascade` asks them in their order, the next one where an answer is in doubt."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the policy, such as `{eta: 0.1}`. A wrong name is refused, and the message names the nearest
    one. Those of a policy of your own may be anything that JSON can hold."""
    per_context: bool = False
    """Whether each context (user, session, region) has a policy state of its own. A new context starts from what all
    have taught, weighted lightly, so that its own feedback soon outweighs it. It counts as one observation of each
    model; `exp3`, `exp4` and `timely` start with half the weights."""
    spread: bool = False
    """Whether the contexts lie in all partitions, so that several learners and nodes of a Redis cluster share them. A
    new context then starts from what the contexts of its partition have taught. For applications with more observations
    than one learner can fold. To change it is to start all contexts anew."""
    forget_s: float | None = Field(default=None, gt=0)
    """A context that was taught nothing for so long (s) is forgotten: it starts anew, as one that is new. For sessions.
    By default contexts are kept for ever. `skysail states prune` frees their room."""
    slo_ms: float = Field(default=100.0, gt=0)
    """The objective: a query is answered this long after it was sent, with the outputs that are there by then."""
    max_slo_ms: float | None = Field(default=None, gt=0)
    """The longest objective that a query may name for itself; waiting queries take room from others. Default: ten times
    `slo_ms`."""
    default_output: int | float | str | None = None
    """The answer if no model has one."""
    loss: str | dict[str, Any] = "zero_one"
    """How an answer's loss (0 to 1) follows from the label: `zero_one`, `absolute`, `squared`, `log`, or `given`, with
    which the feedback states the loss. Or what mistakes cost: `{cost: {fraud: {ok: 40}, ok: {fraud: 1}}, unit: EUR}`,
    `{quantile: 0.9, span: [0, 300]}`, `{asymmetric: {over: 1, under: 4}, span: 50}`, `{relative: true}`, or a function
    of yours, `my_pkg.losses:cost`. Of answers of several parts: `{outputs: {each: {boxes: absolute}}}`, `fields`,
    `cosine` ([losses.md](losses.md))."""
    span: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """For losses of numbers: the error that costs 1, in the unit of the answers. Larger errors cost 1, too. By default
    it is learnt: nine of ten recent errors lie below it. Of `relative` it is 1, the whole label, and of a function of
    yours the cost that counts as 1, by default 1. It may stand in `loss`, too."""
    max_weight: float = Field(default=1.0, gt=0, le=1e6)
    """The largest `weight` that feedback may have. A lesson of this weight counts whole, one of weight 1 as its part
    1 / `max_weight`. Feedback of a larger weight is refused."""
    window_s: float = Field(default=600.0, gt=0)
    """How long a prediction waits for feedback; at most `joiner.window_s`."""
    default_loss: float | None = Field(default=None, ge=0, le=1)
    """The loss that is learnt when the window ends without feedback. By default nothing is learnt."""
    combine: Literal["weighted_vote", "mean", "median"] = "weighted_vote"
    """How the answers of several models become one, by the policy's weights. A vote treats whole numbers as labels, and
    takes the mean of other numbers and of scores. `mean` and `median` treat all as numbers, and of named tensors make
    one answer output by output."""
    confidence_floor: float = Field(default=0.0, ge=0, le=1)
    """Below this confidence the answer is `default_output`, with the reason `low_confidence`. Confidence is the weight
    of the asked models that agree with the answer; of one model that gives scores, how likely its answer is right."""
    coverage: float = Field(default=0.0, ge=0, le=MOST_COVERAGE)
    """The share of the predictions whose set of labels has the true one in it, say 0.9. Each prediction carries such a
    set (`label_set`), which feedback keeps as large as the promise needs. With `combine: mean` or `median` it carries
    an `interval` instead, and the share is at most 0.99. By default there are none."""
    parity: str = ""
    """A parity model (`skysail parity train`). Rows of the model that it belongs to are asked in groups, and an output
    that is late is decoded from the others and from the parity model's. Such an answer is partial, with the reason
    `reconstructed`. By default nothing is coded."""
    missing: Literal["leave_out", "running_mean"] = "leave_out"
    """The substitute for a model that has not answered in time. `running_mean` uses the mean of its answers so far (for
    labels the most frequent one); it does not add to the confidence."""
    sources: tuple[SourceSettings, ...] = ()
    """Where features come from that queries do not bring, such as `[{name: users, width: 8, store: redis}]`
    ([features.md](features.md)). They stand before a query's own features, in this order."""
    crosses: tuple[CrossSettings, ...] = ()
    """Products of the features of two sources, such as `[{of: [users, films], width: 32}]`
    ([rankings.md](rankings.md#crossed-features)). They stand behind those of the sources, and count among the policy's
    features."""
    hedge: float = Field(default=0.0, ge=0, le=1)
    """The share of the questions that may be put twice: to another replica of a model, where one takes longer than 95
    of 100 rows do. The first answer counts. 0.05 is usual; by default none is. Not for `cascade`, which asks again
    itself."""
    stages: dict[str, StageSettings] = Field(default_factory=dict)
    """The application's graph: stages by name, each asked about the answers of an earlier one. By default the models
    are asked about the query, and that is all."""
    incoming: dict[str, Any] = Field(default_factory=dict, alias="from")
    """A topic of yours whose records are its queries, such as `{topic: orders, id: order_id, input: [amount, items]}`
    ([mapping.md](mapping.md)). By default it is asked through `queries` alone."""
    to: dict[str, Any] = Field(default_factory=dict)
    """A topic of yours that gets its answers, such as `{topic: orders.scored, fields: {score: answer}, keep: all}`."""
    feedback: tuple[dict[str, Any], ...] = ()
    """Topics of yours that tell what was right, such as `[{topic: chargebacks, id: order_id, label: is_fraud}]`."""
    lessons_per_teacher: int = Field(default=0, ge=0)
    """How many lessons a minute one teacher may give: a token of the gateway, or a topic of yours. Further ones are in
    the log and counted, and teach nothing ([security.md](security.md#what-one-teacher-can-move)). 0 = any number."""
    lessons_per_context: int = Field(default=0, ge=0)
    """How many lessons a minute of one context (user, session, region) teach what all contexts share. Further ones
    teach the context's own state alone, if it has one. 0 = any number."""
    teachers: tuple[str, ...] = ()
    """The teachers that `lessons_per_teacher` counts each by itself; all others together are one. By default every name
    counts, so nobody but the gateway and the mapping may have the right to write `feedback`."""
    metrics: dict[Name, MetricSettings] = Field(default_factory=dict)
    """What is measured beside the loss, by name, such as `{latency: {of: latency, span: 500, guardrail: 5}}`: shown for
    every candidate, and bounds what one may cost ([metrics.md](metrics.md))."""
    assign: Literal["query", "context", "episode"] = "query"
    """Who draws which version, which model and which arm answers: every query for itself, each context (a person) once
    for `sticky_s`, or each episode once ([people.md](people.md)). A query without one draws for itself, and is
    counted. Then queries are decided in Python, not in columns."""
    sticky_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """With `assign: context`: how long a draw stands (s), such as 604800 for a week. 0 = for ever."""
    salt: str = Field(default="", max_length=64)
    """Any text. With another one every context draws anew: for a new experiment."""
    holdout: float = Field(default=0.0, ge=0, le=0.5)
    """The share of the contexts for which the policy never decides: the first of `models` answers them, whatever the
    policy, the period and the salt are. `skysail app holdout` tells what the policy saves. Not where the policy itself
    answers or ranks, as `ridge` and `two_speed` do."""
    episodes: bool = False
    """Whether feedback may be about all answers of an episode: queries that name the same `episode`."""
    examination: tuple[float, ...] = ()
    """Of rankings: how likely each place is looked at, beside the first, such as `[1, 0.7, 0.5]`. Feedback may then
    name any of these places ([rankings.md](rankings.md#feedback-on-any-place)). By default only the first place
    teaches."""
    shuffle: float = Field(default=0.0, ge=0, le=1)
    """The share of the rankings whose places are all drawn evenly from the candidates. By these, `skysail evaluate`
    says what another ranking would have earned ([rankings.md](rankings.md#judge-another-ranking))."""
    timings: bool = False
    """Whether each output in its predictions says how long the row waited, how long its batch took and how many rows
    it had (`prediction.outputs[0].predict_us`). Where models run inside selection, such queries are decided in Python,
    not in columns: a few times the CPU of selection. Records of `model-predictions` always have these figures."""
    rate: float = Field(default=100.0, gt=0)
    """Queries a second for which the time is split over `stages`."""

    @field_validator("incoming", "to", "feedback")
    @classmethod
    def _reads_schemas(cls, given: Any) -> Any:
        """Put schemas in the place of their files."""
        return tuple(map(with_schema, given)) if isinstance(given, tuple) else with_schema(given)

    @model_validator(mode="after")
    def _costs(self) -> Self:
        """Check what mistakes cost; nothing of somebody's own is imported."""
        if isinstance(self.loss, dict) or self.loss not in _NAMED_LOSSES:
            from policies.loss_rules import written  # with NumPy, which `skysail --help` does without

            span = written(self.loss).span
            if None not in (span, self.span) and span != self.span:
                raise ValueError(f"span is {self.span:g}, and {span:g} in loss: say it once")
        return self

    @model_validator(mode="after")
    def _maps(self) -> Self:
        """Check what is said of topics of others."""
        if self.incoming or self.to or self.feedback:
            from streams.mapping.spec import TopicMapping

            found = TopicMapping.of({"from": self.incoming or None, "to": self.to or None, "feedback": self.feedback})
            told = [name for name, metric in self.metrics.items() if metric.of == "feedback"]
            for one in found.feedback:
                if one.metric and one.metric not in told:
                    there = ", ".join(told) or "none"
                    raise ValueError(f"feedback: {one.metric} is no metric that is told; in `metrics`: {there}")
        return self


class ModelsSection(Section):
    """Package folders by model name, published at start beside those of `skysail model add`.

    Relative paths start at the folder of the settings file; in the environment they start where the command is started.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Name, Path] = Field(init=False)
    require_signature: Path | None = None
    """A folder of public keys (`*.pub`, `*.pem`), such as `keys/`. Only packages that the owner of one of them has
    signed are deployed and loaded, as they were signed (docs/signing.md). Then an empty `worker.code` or `policy_code`
    allows no code by a path. An environment variable may name another folder, and cannot take the rule back. Default:
    no package needs a signature."""

    @model_validator(mode="before")
    @classmethod
    def _secrets_from_files(cls, data: object) -> object:
        """Leave the names of models as they are, as none holds a secret; but none may be the rule, misspelt."""
        for name in data if isinstance(data, dict) else ():
            if name != SIGNATURE_RULE and get_close_matches(re.sub("[-_]", "", str(name).lower()), [_RULE], 1, 0.9):
                raise ValueError(f"{name} would be a model: write {SIGNATURE_RULE}, or give the model another name")
        return data

    @field_validator(SIGNATURE_RULE, mode="before")
    @classmethod
    def _names_keys(cls, given: object) -> object:
        """Refuse a rule that is there and says nothing: every package would run, in silence."""
        if given is None or not str(given).strip():
            raise ValueError("names no folder: write that of your public keys, such as keys/, or leave the key out")
        return given

    @model_serializer(mode="wrap")
    def _without_nothing(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a rule that is not there: what is written has to be read again."""
        found: dict[str, Any] = plain(self)
        return {name: place for name, place in found.items() if place is not None}

    @property
    def packages(self) -> dict[str, Path]:
        """Package folders by model name."""
        return dict(self.__pydantic_extra__ or {})


class ClientQuota(Section):
    """How much one user of Kafka may write and read; beyond it the broker lets him wait, and nobody else."""

    write_kib: float | None = Field(default=None, gt=0)
    """KiB a second that he may write: queries, feedback. Default: any amount."""
    read_kib: float | None = Field(default=None, gt=0)
    """KiB a second that he may read: answers. Default: any amount."""


class Settings(Section):
    """All settings of a deployment."""

    policy_code: tuple[Module, ...] = ()
    """Modules and whole packages from which policies and losses may be named by a path, such as `[my_pkg]`. Default:
    none where `kafka.properties` has a `security_protocol` or `models.require_signature` is set, else any module
    outside the standard library. Who may write `applications` runs this code in every role. Entry points of installed
    packages are always allowed."""
    prefix: Name = "skysail"
    """Prefix of topics, groups and Redis keys. Deployments with different prefixes can share brokers and Redis."""
    partitions: Partitions = 4
    """Partitions of the loop's topics. They bound how far the roles scale out, and cannot be changed while policy
    states are kept."""
    retention_days: dict[Kept, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """How long topics are kept. Default: `queries` 1 day, `predictions` and `feedback` 7, `observations` 365. Replay
    and evaluation read what is kept, or a recorded trace. Topics that exist keep their own time: change it with
    `kafka-configs.sh --alter`."""
    max_input_kib: int = Field(default=MAX_BYTES >> 10, ge=MAX_BYTES >> 10, le=MOST_BYTES >> 10)
    """The largest query, in KiB: its input and some hundred bytes. An image of 224 x 224 x 3 float32 takes 588 KiB; set
    1024 for it. Buffers, and the `max.message.bytes` of new topics, follow from it. `skysail topics create` names the
    commands for topics that exist. Clients need the same value: `Client(..., max_input_kib=1024)`. Larger inputs travel
    as addresses: `worker.references`."""
    replication: int = Field(default=1, gt=0)
    """Copies of each topic; use 3 in production."""
    roles: tuple[Role, ...] = ROLES
    """The roles that `skysail run` starts. `worker` stands for the hosts of each pool of `hosts`, and one process per
    model that is in no pool; `host` for those of pools alone. `record` and `gateway` are started only if they are
    named here."""
    processes: Literal["auto", "each", "shared"] = "auto"
    """Which roles share a process. With `shared`, `skysail run` runs selection, joiner, learner and cheap models
    (`selection.inline`) in one. With `each`, every role has its own, and so has every model. `auto` shares on up to 4
    cores; what a container may use counts. Workers, `control` and `record` have processes of their own in any case."""
    niceness: int = Field(default=5, ge=0, le=19)
    """How much processes that only join, learn, record or show the page give way to those that answer, on up to 4 cores
    (nice(1), and the autogroup of a session): with 5, a quarter of a core that both want; 0 = not at all."""
    columns: bool = True
    """Whether the common query is answered, joined and learnt in C, many at a time. What is not common goes to the same
    kernels as with `false`, which gives the same answers. `skysail doctor` says which applications go by columns, and
    why others do not. Where Skysail was installed without a compiler, it is `false` by itself."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""
    profile: Path | None = None
    """A folder in which each process writes, when it exits, where its CPU time went. It costs about 1 % of that
    time."""
    quotas: dict[Name, ClientQuota] = Field(default_factory=dict)
    """By user without the prefix, such as `{asker: {write_kib: 512}, teacher: {write_kib: 64}}`: for
    `skysail topics quotas` and users on Kubernetes, so that no client fills the log or starves others. An asker and a
    teacher of each application of yours can have users of their own."""
    kafka: Kafka = Kafka()
    store: StoreSection = StoreSection()
    redis: Redis = Redis()
    registry: RegistrySection = RegistrySection()
    selection: SelectionSection = SelectionSection()
    worker: WorkerSection = WorkerSection()
    joiner: JoinerSection = JoinerSection()
    learner: LearnerSection = LearnerSection()
    control: Control = Control()
    record: RecordSection = RecordSection()
    gateway: GatewaySection = GatewaySection()
    keep_inputs: KeepInputs = KeepInputs()
    metrics: Metrics = Metrics()
    telemetry: Telemetry = Telemetry()
    hosts: dict[Name, HostSection] = Field(default_factory=dict)
    """Pools of models that share a process each, by name. `skysail run` makes one by itself, `others`, where more than
    8 models of an application would each get a process (docs/hosts.md)."""
    deployed: ModelsSection = Field(default=ModelsSection(), alias="models")
    applications: dict[Name, ApplicationSettings] = Field(default_factory=dict)
    """Applications by name, published at start beside those of `skysail app create`."""

    @property
    def models(self) -> dict[str, Path]:
        """Package folders by model name."""
        return self.deployed.packages

    @property
    def require_signature(self) -> Path | None:
        """Where the public keys are that packages have to be signed by; None = they need no signature."""
        return self.deployed.require_signature

    def pool_of(self, model: str) -> str | None:
        """Return the pool in which a model runs; None = in none."""
        named = next((pool for pool, host in self.hosts.items() if model in host.models), None)
        if named is not None or self.worker.isolates(model) or model in self.selection.named_inline:
            return named
        return next((pool for pool, host in self.hosts.items() if host.models == "all others"), None)

    @property
    def kept_days(self) -> dict[str, float]:
        """How long topics on the circle of data are kept, where it is not the usual time."""
        found: dict[str, float] = {topic: days for topic, days in self.retention_days.items()}  # noqa: C416
        if self.keep_inputs.days is not None:
            found["queries"] = self.keep_inputs.days
            found["predictions"] = max(found.get("predictions", PREDICTIONS_DAYS), self.keep_inputs.days)
        return found

    @model_validator(mode="after")
    def _inputs_are_kept_once(self) -> Self:
        """Refuse two words about one topic."""
        if self.keep_inputs.days is not None and "queries" in self.retention_days:
            raise ValueError("keep_inputs.days and retention_days.queries both say how long inputs are kept: give one")
        return self

    @model_validator(mode="after")
    def _one_pool_each(self) -> Self:
        """Refuse a model in two pools."""
        given = [models for host in self.hosts.values() for models in ([host.models] if host.models else [])]
        named = [name for models in given for name in ([models] if isinstance(models, str) else models)]
        if twice := {name for name in named if named.count(name) > 1}:
            raise ValueError(f"hosts: {', '.join(sorted(twice))}: in one pool each")
        for name in named:
            if self.worker.isolates(name) and self.worker.isolated is not True:
                raise ValueError(f"hosts: {name} has a process of its own in `worker`: name it in one of the two")
        return self

    @model_validator(mode="after")
    def _kept_for_long_enough(self) -> Self:
        """Refuse retention that is shorter than what roles read back when they start."""
        window_s = self.joiner.window_s
        needed_s = {"predictions": window_s, "feedback": window_s, "observations": 2 * window_s + 60}
        for topic, days in self.retention_days.items():
            if days * DAY_S < needed_s.get(topic, 0):
                raise ValueError(
                    f"retention_days.{topic} is {days:g}: roles read back {needed_s[topic]:g} s of it when they start"
                )
        return self
