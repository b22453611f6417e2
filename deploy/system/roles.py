"""The composition root: builds roles from settings; `run` runs any set of them in this process.

settings ─▶ connection, codec, clock, one producer ─▶ selection │ joiner │ … │ record │ gateway ─▶ run_process
                                                     `control`: a Faust app beside them

A process loads only what its own roles need: each builder imports its part of the system itself. The client of Redis is
6 MB, Faust 40.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from deploy.config.addresses import connection, redis_url
from deploy.config.folder import STATE, load_notes, private
from deploy.connect.stores import state_store
from deploy.errors import StartError, UsageError
from deploy.process.ports import fault_of
from schemas import topics
from schemas.sizes import MAX_BYTES
from streams import topology
from streams.columns.fronts import Fronted, before_joiner, before_learner, before_selection
from streams.runtime.clock import SystemClock
from streams.runtime.kafka.consumer import ConsumerSettings, KafkaConsumer
from streams.runtime.kafka.fast.whole_batches import records_of, sound_records_of
from streams.runtime.kafka.log_reader import KafkaBroadcast, KafkaPositions, KafkaRecent
from streams.runtime.kafka.planned import planned
from streams.runtime.kafka.producer import KafkaTransport
from streams.runtime.process.run import kafka_loop
from streams.runtime.role.definition import Ports, Role
from streams.runtime.vetting import preparing
from streams.tape.about import about_inside, about_joiner, about_learner, about_selection
from streams.tape.taped import HeardAsking, Taped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import Model, Plan
    from streams.client import Client
    from streams.gateway.application import GatewayApplication
    from streams.gateway.role import GatewayRole
    from streams.gateway.rpc.server import RpcServer
    from streams.operators.contract import Record
    from streams.operators.join.kernel import JoinerSettings
    from streams.recorder.role import RecordRole
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.metrics import MetricsHook
    from streams.runtime.ports import Executors
    from streams.runtime.process.run import Runnable
    from streams.runtime.role.loop import RoleLoop
    from streams.runtime.stores.base import FeatureStore, StateStore
    from streams.runtime.stores.redis import RedisFeatures
    from streams.telemetry.role import TelemetryRole
    from streams.topology import Node
    from workers.packages.disk_cache import DiskCache
    from workers.runner import Worker
    from workers.settings import WorkerSettings

_log = logging.getLogger(__name__)

VERSION = metadata.version("skysail")  # for the headers of dead letters
# The joiner holds one record for each waiting prediction, for its window: far more than other roles hold. So many more
# than its kernel's own bounds (see `JoinerSettings`), so that those decide.
JOINER_SPARE = 600_000
# A waiting prediction takes 340 to 520 bytes (two to ten arms, a context; measured), early feedback 450.
WAITING_BYTES = 512
# Records that a kernel gets in one call. One of observations may hold 64, each a few microseconds to fold.
AT_ONCE: Mapping[str, int] = {"joiner": 512, "learner": 64}
# Of its pause after a poll, what the learner makes in an idle process: the joiner has gathered observations already.
LEARNER_IDLE = 0.125
# How long a call may take where selection shares the event loop: a query may meet some of them on its way.
SLICE_BESIDE_US = 500
# How long a stopping selection role waits for model predictions, so that it answers its own queries.
SELECTION_DRAIN_S = 1.0
# Of a batch that a schedule sizes.
MOST_ROWS = 4_096
NOBODY: Mapping[str, str] = MappingProxyType({})
Prepare: TypeAlias = "Callable[[Sequence[Record]], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class Shared:
    """What the roles of one process share.

    Attributes:
        instance: makes their names unique in the deployment.
        inside: digests of the models that were measured and run inside selection, by name.
        first: the role whose reports tell what the process costs; empty = each, as it is alone.
    """

    settings: Settings
    codec: Codec
    clock: SystemClock
    kafka: KafkaConnection
    transport: KafkaTransport
    instance: str
    hooks: tuple[MetricsHook, ...] = ()
    first: str = ""
    inside: Mapping[str, str] = field(default_factory=dict)

    def tells_process(self, role: str) -> bool:
        """Whether this role's reports tell CPU and memory of the process."""
        return self.first in ("", role)

    @property
    def slice_us(self) -> int:
        """How long a call of joiner or learner may take: not long where selection shares their event loop; 0 = any."""
        return SLICE_BESIDE_US if self.first == "selection" else 0

    def name(self, role: str) -> str:
        """Return a role's instance name."""
        return f"{role}@{self.instance}"


def shared(
    settings: Settings,
    codec: Codec,
    instance: str,
    hooks: tuple[MetricsHook, ...] = (),
    first: str = "",
    inside: Mapping[str, str] = NOBODY,
) -> Shared:
    """Return the connections of a process; nothing is connected yet."""
    clock, kafka = SystemClock(), connection(settings, f"{settings.prefix}.{instance}")
    return Shared(settings, codec, clock, kafka, KafkaTransport(kafka, clock), instance, hooks, first, inside)


def selection(common: Shared, inline: Sequence[Model] = ()) -> Runnable:
    """Build the role that decides and combines, with the models that run inside it.

    Of a model that was measured (`common.inside`), only that version runs in this process. A version that comes later
    may be slow, or crash: until the next start it runs in a child process of this one.
    """
    from streams.operators.selection.kernel import Selection, SelectionSettings

    role = _role(
        "selection", common, replies=1, drain_s=SELECTION_DRAIN_S, patient=frozenset({topics.MODEL_PREDICTIONS})
    )
    given = common.settings.selection
    settings = SelectionSettings(
        common.settings.partitions,
        margin_us=None if given.margin_ms is None else int(given.margin_ms * 1_000),
        states=given.states,
        cache_bytes=given.cache_bytes,
        admission=given.admission,
        places=role.outstanding,
        state_bytes=given.states_mib << 20,
        inside=frozenset(topics.model_queries(model.name) for model in inline),
        feature_bytes=given.features_mib << 20,
    )
    features = _features(common)
    about = about_selection(settings)
    if not inline:
        alone = Selection(common.codec, settings)
        fronted = Fronted(alone)
        if common.settings.columns:
            fronted = before_selection(alone, alone, {}, common.codec, records_of, settings.margin_us)
        return _loop(role, fronted, common, about, _store(common), features=features)
    from streams.runtime.role.local import Local, LocalCodec
    from workers.executors.factory import executors_of
    from workers.kernel.model.worker import ModelWorker

    how = replace(_worker_settings(common), trusted=common.inside, is_inside=True)
    codec = LocalCodec(common.codec)
    models = {model.name: ModelWorker(codec, model, role.instance, how) for model in inline}
    executors = executors_of(how, common.clock.now_us)
    places = role.outstanding / how.queue_rows  # models inside have the room that they have in a worker
    own, asked_now = Selection(codec, settings), HeardAsking(executors.ask_now)
    fronted = Fronted(Local(own, models, codec, places, writes_behind=given.write_behind))
    if common.settings.columns and not given.write_behind:
        fronted = before_selection(fronted.kernel, own, models, common.codec, records_of, settings.margin_us, asked_now)
    about["inside"] = about_inside(
        inline,
        common.codec,
        role.instance,
        asdict(how),
        places=places,
        writes_behind=given.write_behind,
        is_columnar=bool(fronted.batched),
    )
    return _loop(role, fronted, common, about, _store(common), executors, features, asked_now=asked_now)


def joiner(common: Shared) -> RoleLoop:
    """Build the role that joins predictions and feedback."""
    from streams.operators.join.kernel import Joiner

    # No topic is read while too much is on its way out: feedback may lead to dead letters as large as itself.
    settings = joiner_settings(common.settings)
    role = _role(
        "joiner",
        common,
        outstanding=settings.predictions + settings.feedback + JOINER_SPARE,
        linger_s=common.settings.kafka.linger_ms / 1000,
        at_once=AT_ONCE["joiner"],
        slice_us=common.slice_us,
        wrote=frozenset((topics.OBSERVATIONS, number) for number in range(common.settings.partitions)),
    )
    kernel = Joiner(common.codec, settings)
    fronted = before_joiner(kernel, common.codec, records_of) if common.settings.columns else Fronted(kernel)
    return _loop(role, fronted, common, about_joiner(settings))


def joiner_settings(settings: Settings) -> JoinerSettings:
    """Return what the settings make of the joiner's kernel."""
    from streams.operators.join.kernel import JoinerSettings

    given = settings.joiner
    return JoinerSettings(
        settings.partitions,
        int(given.window_s * 1e6),
        int(given.early_s * 1e6),
        predictions=(given.waiting_mib << 20) // WAITING_BYTES,
        feedback=(given.early_mib << 20) // WAITING_BYTES,
        large_bytes=given.large_mib << 20,
    )


def learner(common: Shared) -> RoleLoop:
    """Build the role that folds observations into policy states."""
    from streams.operators.learn.kernel import Learner

    given = common.settings.learner
    memory_us = joiner_settings(common.settings).memory_us
    kept = given.states, given.states_mib << 20
    kernel = Learner(common.codec, memory_us, *kept)
    fronted = before_learner(kernel, common.codec, records_of) if common.settings.columns else Fronted(kernel)
    return _loop(
        _role(
            "learner",
            common,
            linger_s=common.settings.kafka.linger_ms / 1000,
            idle_share=LEARNER_IDLE,
            at_once=AT_ONCE["learner"],
            slice_us=common.slice_us,
        ),
        fronted,
        common,
        about_learner(memory_us, *kept),
        _store(common),
    )


def mapping(common: Shared, decides: Runnable | None = None) -> RoleLoop:
    """Build the role that makes queries and feedback of others' topics, and others' records of predictions.

    Args:
        common: of the process.
        decides: selection, where it runs here: nothing is mapped before it is ready, as its time would run out.
    """
    from deploy.connect.mapped_schemas import MappedSchemas
    from streams.mapping.kernel import TopicMapper
    from streams.runtime.mapped_topics import counting
    from streams.runtime.role.loop import RoleLoop

    counts: dict[str, int] = {}
    kernel = TopicMapper(common.codec, common.settings.partitions, counts)
    ready = decides.ready if isinstance(decides, RoleLoop) else None
    prepare = counting(common.codec, common.transport.partitions, counts, ready)
    schemas = MappedSchemas(common.settings)
    return _loop(_role("mapping", common), Fronted(kernel), common, features=schemas, prepare=prepare)


def record(common: Shared) -> RecordRole:
    """Build the role that records topics into a folder.

    Raises:
        UsageError: the settings name no folder.
        TraceError: the folder holds something else, or another process records into it.
    """
    from deploy.config.recorded import about
    from streams.recorder.recorder import FETCHING, Recorder
    from streams.recorder.role import FolderRecording, RecordRole, Reporting
    from streams.recorder.span import RecordedSpan
    from streams.runtime.kafka.log_reader import KafkaLogs
    from streams.trace.writer import MIB, Limits, TraceWriter

    given, now_us = common.settings.record, common.clock.now_us
    if given.folder is None:
        raise UsageError("role record needs a folder: set record.folder, or leave the role out of `roles`")
    limits = Limits(given.rotate_mib * MIB, None if given.keep_gib is None else int(given.keep_gib * 1024 * MIB))

    def begin(folder: Path) -> FolderRecording:
        writer = TraceWriter(folder, about(common.settings), common.codec, limits)
        logs = KafkaLogs(common.kafka, given.topics or topology.RECORDED, FETCHING)
        recorder = Recorder(logs, writer, RecordedSpan(follows=True), now_us, is_patient=True)
        return FolderRecording(recorder, writer.close)

    tells = common.tells_process("record")
    reporting = Reporting(common.name("record"), common.transport, common.codec.encode, now_us, common.hooks, tells)
    return RecordRole(given.folder, begin, reporting)


def telemetry(common: Shared) -> TelemetryRole:
    """Build the role that shows the legs of sampled queries to OpenTelemetry."""
    from streams.runtime.kafka.log_reader import KafkaTail
    from streams.telemetry.export import LegQueue
    from streams.telemetry.kernel import LegReader
    from streams.telemetry.otlp import OtlpExporter
    from streams.telemetry.role import TelemetryParts, TelemetryRole

    given, kafka = common.settings.telemetry, common.kafka
    exporter = OtlpExporter(given.endpoint, common.settings.prefix, VERSION)
    parts = TelemetryParts(
        LegReader(common.codec, sound_records_of, kafka.real, given.rate, given.held_mib << 20),
        LegQueue(exporter.give),
        lambda read: KafkaTail(kafka, read, frozenset(read)),
        lambda: KafkaBroadcast(kafka, (topics.MODELS,)),
        common.transport,
        common.codec.encode,
        common.clock.now_us,
        exporter.close,
    )
    tells = common.tells_process("telemetry")
    return TelemetryRole(common.name("telemetry"), parts, common.hooks, tells_process=tells)


def gateway(common: Shared) -> GatewayRole:
    """Build the role that serves HTTP.

    Raises:
        StartError: its port is taken, or its certificate cannot be read.
    """
    from streams.gateway.application import GatewayApplication, GatewayParts
    from streams.gateway.asking import Asking
    from streams.gateway.bodies import Bodies
    from streams.gateway.catalog import Catalog
    from streams.gateway.figures import GatewayFigures
    from streams.gateway.memory import ReplyMemory
    from streams.gateway.role import GatewayRole
    from streams.gateway.server import GatewayServer, Listening
    from streams.gateway.tokens import BearerTokens

    given, now_us = common.settings.gateway, common.clock.now_us
    catalog = Catalog(common.codec)
    parts = GatewayParts(
        Asking(lambda: _client(common), now_us, given.rows, given.timeout_s),
        catalog,
        Bodies(given.body_kib << 10, given.bodies_mib << 20, given.within_s),
        ReplyMemory(given.memory_mib << 20),
        BearerTokens(given.tokens.get_secret_value() if given.tokens else ""),
        GatewayFigures(now_us),
        now_us,
        lambda: catalog.is_read,
        VERSION,
        given.application,
        frozenset(given.origins),
    )
    application = GatewayApplication(parts)
    place = Listening(given.host, given.port, given.connections, given.within_s, given.certificate, given.key)
    if fault := fault_of(given.host, given.port):
        raise StartError(f"the gateway cannot listen: {fault}; stop that process, or set gateway.port")
    try:
        server = GatewayServer(application, place)
    except OSError as error:
        raise StartError(f"the gateway cannot listen: {error}; see gateway.certificate, gateway.key") from error
    node = topology.build((), common.settings.partitions).node("gateway")
    followed = [name for name in node.follows if name != topics.PREDICTIONS]
    return GatewayRole(
        common.name("gateway"),
        parts,
        server,
        lambda: KafkaBroadcast(common.kafka, followed),
        common.transport,
        common.codec.encode,
        common.hooks,
        tells_process=common.tells_process("gateway"),
        rpc=_rpc(common, application),
    )


def _rpc(common: Shared, application: GatewayApplication) -> RpcServer | None:
    """Build the gateway's door of gRPC, if the settings ask for one."""
    given = common.settings.gateway
    if given.grpc_port is None:
        return None
    from streams.gateway.rpc.server import RpcServer
    from streams.gateway.server import Listening

    if fault := fault_of(given.host, given.grpc_port):
        raise StartError(f"the gateway cannot listen: {fault}; stop that process, or set gateway.grpc_port")
    place = Listening(given.host, given.grpc_port, given.connections, given.within_s, given.certificate, given.key)
    return RpcServer(application, place, given.body_kib << 10, (given.bodies_mib << 10) // given.body_kib)


def _client(common: Shared) -> Client:
    from deploy.config.addresses import properties
    from streams.client import Client

    place = common.settings.kafka.bootstrap, common.settings.prefix, properties(common.settings)
    return Client(*place, codec=common.codec, clock=common.clock, partitions=common.settings.partitions)


BUILDERS: Mapping[str, Callable[[Shared], Runnable]] = {
    "joiner": joiner, "learner": learner, "mapping": mapping, "record": record, "gateway": gateway,
    "telemetry": telemetry,
}  # fmt: skip


def worker(common: Shared, model: Model) -> Worker:
    """Build the role that runs one model."""
    from workers import runner

    node = topology.build([model.name]).node(topology.worker_role(model.name))
    ports, tells = _model_ports(common, node), common.tells_process(node.role)
    settings = _worker_settings(common)
    return runner.worker(model, common.name(node.role), settings, ports, common.codec, tells_process=tells)


def host(common: Shared, pool: str) -> Worker:
    """Build the role that runs the models of one pool."""
    from workers import runner
    from workers.executors.factory import hosted_by
    from workers.kernel.host.kernel import Host
    from workers.kernel.schedule.registry import scheduled

    node, given = topology.build((), hosts={pool: ()}).node(topology.host_role(pool)), common.settings.hosts[pool]
    settings, memory_bytes = _hosted_settings(common, given.controller), given.memory_mib << 20
    kernel = Host(
        common.codec,
        common.name(node.role),
        settings,
        lambda model: common.settings.pool_of(model) == pool and model not in common.inside,
        *scheduled(given.controller, given.lanes, memory_bytes),
        given.lanes,
        pool,
    )
    ports = _model_ports(common, node, lambda: kernel.plan)
    executors = hosted_by(settings, common.clock.now_us, given.lanes, memory_bytes, _disk_cache(given.cache_mib))
    return runner.host(kernel, pool, settings, ports, executors, tells_process=common.tells_process(node.role))


def _model_ports(common: Shared, node: Node, plan: Callable[[], Plan | None] | None = None) -> Ports:
    """Return the connections of a role that runs models; by the last `plan` of a pool its partitions are spread."""
    spread = None if plan is None else planned(common.name(node.role), common.kafka.real(""), plan)
    return Ports(
        consumer=KafkaConsumer(common.kafka, node.consumes, node.group, common.clock, _consumer(common), spread),
        transport=common.transport,
        clock=common.clock,
        encode=common.codec.encode,
        version=VERSION,
        broadcast=KafkaBroadcast(common.kafka, node.follows),
        positions=KafkaPositions(common.kafka),
        recent=KafkaRecent(common.kafka),
        hooks=common.hooks,
    )


def _disk_cache(mib: int) -> DiskCache | None:
    """Return the cache of packages' files in this folder; None = there is to be none."""
    from workers.packages.disk_cache import DiskCache

    return DiskCache(str(private(STATE.absolute() / "cache")), mib << 20) if mib else None


def _hosted_settings(common: Shared, controller: str) -> WorkerSettings:
    """Return how each model of a host is batched; with `clockwork` the schedule sizes the batches."""
    settings = _worker_settings(common)
    if controller == settings.controller:
        return settings
    sized = {"rows": float(MOST_ROWS)} if controller == "clockwork" else None
    return replace(settings, controller="fixed" if sized else controller, parameters=sized)


def _worker_settings(common: Shared) -> WorkerSettings:
    from deploy.state.packages import keys_of
    from workers.settings import WorkerSettings

    given = common.settings.worker
    return WorkerSettings(
        partitions=common.settings.partitions,
        controller=given.controller,
        parameters=given.parameters,
        objective_us=None if given.objective_ms is None else int(given.objective_ms * 1000),
        queue_rows=given.queue_rows,
        queue_bytes=given.queue_mib << 20,
        threads=given.threads,
        processes=given.processes,
        patience_s=given.patience_s,
        load_s=given.load_s,
        load_retries=given.load_retries,
        load_retry_us=int(given.load_retry_s * 1e6),
        allow_pickle=given.allow_pickle,
        code=given.code,
        packages=str(given.packages.expanduser().absolute()) if given.packages else "",
        keys=keys_of(common.settings),
        unload_first=given.unload_first,
        # Larger inputs, fewer of them: they take 32 MiB together by default, whatever a row may be.
        warm_up_rows=max(1, given.warm_up_rows * MAX_BYTES // common.codec.max_bytes),
        drain_us=int(given.drain_ms * 1000),
        memory_bytes={name: mib << 20 for name, mib in given.memory_mib.items()},
        allowed_batch_sizes=given.allowed_batch_sizes,
        references=given.references,
        reference_bytes=given.reference_mib << 20,
        notes=str(load_notes()),
    )


def _role(name: str, common: Shared, replies: int = 0, patient: Collection[str] = (), **options: object) -> Role:
    """Make a role of its node in the topology; the last `replies` of its topics complete what it holds."""
    node = topology.build((), common.settings.partitions).node(name)
    last = frozenset(node.consumes[len(node.consumes) - replies :])
    options |= {"owns_states": node.states == "writes", "tells_process": common.tells_process(name)}
    options["patient"] = frozenset({topics.CALLS}).union(patient)
    return Role(node.group, common.name(name), node.consumes, node.follows, last, **options)  # type: ignore[arg-type]


def _consumer(common: Shared) -> ConsumerSettings:
    given = common.settings.kafka
    return ConsumerSettings(
        fetch_wait_ms=given.fetch_wait_ms, merge_ms=given.merge_ms, member=given.member, leave=given.leave
    )


def _loop(
    role: Role,
    fronted: Fronted,
    common: Shared,
    about: Mapping[str, Any] | None = None,
    store: StateStore | None = None,
    executors: Executors | None = None,
    features: FeatureStore | None = None,
    asked_now: HeardAsking | None = None,
    prepare: Prepare | None = None,
) -> RoleLoop:
    """Return a loop; one with `prepare` reads topics of others, all their partitions."""
    kernel = fronted.kernel
    if about and common.settings.record.are_calls_written:
        kernel = Taped(kernel, common.codec, role.instance, about, asked_now)
    return kafka_loop(
        role,
        kernel,
        common.kafka,
        common.transport,
        common.clock,
        common.codec.encode,
        store,
        replace(_consumer(common), is_ahead=role.linger_s == 0),
        common.hooks,
        version=VERSION,
        executors=executors,
        features=features,
        partitions=common.settings.partitions if prepare is None else None,
        prepare=prepare or preparing(common.codec),
        batched=fronted.batched,
    )


def _features(common: Shared) -> RedisFeatures:
    from streams.runtime.stores.redis import RedisFeatures, RedisSettings

    url = common.settings.selection.features_url
    place = redis_url(common.settings) if url is None else url.get_secret_value()
    return RedisFeatures(RedisSettings(place, common.settings.prefix))


def _store(common: Shared) -> StateStore:
    return state_store(common.settings, common.codec)
