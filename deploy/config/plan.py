"""A plan for `skysail simulate` as a file: read, checked key by key, and made into what is simulated."""

from __future__ import annotations

import difflib
import json
from pathlib import Path  # noqa: TC003 - pydantic reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from deploy.config.configuration import explained
from deploy.config.settings import Name, Section
from deploy.errors import SettingsError
from policies.errors import PolicyError
from policies.graph import faults, needed, ordered
from policies.stage_split import StageLoad, evenly
from schemas.records import Stage
from streams.trace.stamps import read_stamps
from workers.simulation import arrivals, plan
from workers.simulation.calibration import Calibration
from workers.simulation.errors import PlanError
from workers.simulation.legs import Leg, Legs
from workers.simulation.service import Line, Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from workers.simulation.service import SimulatedService

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
# The median of one leg with one broker on two cores; `skysail simulate --calibrate` measures those of a deployment.
LEG_MS = 1.2
USUAL = f"{LEG_MS:g} ms a leg, the median of one broker on two cores; measure yours: skysail simulate --calibrate FILE"


class ArrivalsOf(Section):
    """When queries come: one of the three."""

    poisson: Positive | None = None
    """Queries a second, at random."""
    constant: Positive | None = None
    """Queries a second, evenly spaced."""
    trace: Path | None = None
    """A recorded trace's folder, a CSV file with ISO times in a column TIMESTAMP, or a file with one time (s) a line.
    Relative paths start at the plan's folder."""
    speed: Positive = 1.0
    """How many times faster than recorded a trace is played."""

    @model_validator(mode="after")
    def _one(self) -> ArrivalsOf:
        if sum(each is not None for each in (self.poisson, self.constant, self.trace)) != 1:
            message = "name exactly one of poisson, constant, trace"
            raise ValueError(message)
        return self


class ServiceOf(Section):
    """How long a batch takes: a line, samples, or what a calibration has seen."""

    a_ms: NotNegative | None = None
    """What a call costs. A batch of n rows takes `a_ms + b_ms * n` on average."""
    b_ms: NotNegative = 0.0
    """What each row costs."""
    noise: NotNegative = 0.0
    """The standard deviation as a share of the time; 0 = always the same, 1 = exponential."""
    samples: dict[Annotated[int, Field(gt=0)], list[Positive]] | None = None
    """Measured times (ms) by rows, such as `{1: [5.1, 5.3], 8: [6.0]}`."""
    calibration: Path | None = None
    """A file of `skysail simulate --calibrate` that has seen this model."""

    @model_validator(mode="after")
    def _one(self) -> ServiceOf:
        if sum(each is not None for each in (self.a_ms, self.samples, self.calibration)) != 1:
            message = "name exactly one of a_ms (with b_ms and noise), samples, calibration"
            raise ValueError(message)
        if self.a_ms == 0 == self.b_ms:
            message = "a batch must take some time: a_ms or b_ms must be greater than 0"
            raise ValueError(message)
        return self


class ModelOf(Section):
    """One model and its workers."""

    service: ServiceOf
    """How long its batches take."""
    replicas: Annotated[int, Field(gt=0)] = 1
    """Workers. Today's deployments give queries to 4 of them at most, since a model's topic has 4 partitions."""
    controller: Literal["aimd", "clockwork", "deferred", "fixed", "quantile"] = "aimd"
    """What sizes its batches, as `worker.controller`."""
    parameters: dict[str, float] = Field(default_factory=dict)
    """Of the controller, as `worker.parameters`."""
    objective_ms: Positive | None = None
    """How long a batch may take, as `worker.objective_ms`."""
    queue_rows: Annotated[int, Field(gt=0)] = 4_096
    """How many rows may wait in a worker, as `worker.queue_rows`."""
    shared_queue: bool = False
    """Let all workers take from one queue, which Kafka does not have: shows what its partitions cost."""
    partitions: Annotated[int, Field(gt=0)] | None = None
    """Of its topic. Default: 4, or one for each worker where there are more."""
    load_ms: NotNegative = 0.0
    """How long it loads, where it shares a host."""
    mib: NotNegative = 1.0
    """What it takes in memory there."""
    answers: list[str] = Field(default_factory=list)
    """What it answers, drawn alike, such as `['[{"label": "car"}]', '[]']` before a stage that asks about cars.
    Default: one of two classes, with a confidence from 0.5 to 1."""


class HostOf(Section):
    """Models that share a process, as in the settings."""

    models: list[Name] = Field(min_length=1)
    """By name."""
    memory_mib: Positive = 512.0
    """That those may take which are in memory at a time."""
    controller: Literal["aimd", "clockwork", "deferred", "fixed", "quantile"] = "aimd"
    """As `hosts.NAME.controller`."""
    lanes: Annotated[int, Field(gt=0)] = 1
    """Batches that run at a time."""


class StageOf(Section):
    """A stage of the application's graph (docs/graphs.md). It is asked about the query, once for each item."""

    model: str = ""
    """That is asked. One stage names none: it asks the one that the policy chooses, which answers."""
    after: str = ""
    """The stage whose items it is asked about."""
    where: str = ""
    """Which items, such as `label == car`."""
    most: Annotated[int, Field(ge=1, le=256)] = 16
    """Of how many items at most."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Of the time to answer, by whose end it must have answered. Default: split evenly."""


class ApplicationOf(Section):
    """Who asks."""

    policy: str = "single"
    """What chooses among the models. It chooses as before any feedback: learning is not simulated."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Of the policy."""
    slo_ms: Positive = 100.0
    """The objective: an answer later than this is late."""
    margin_ms: NotNegative | None = None
    """As `selection.margin_ms`."""
    wanted: Annotated[float, Field(gt=0, le=1)] = 0.99
    """The share of queries that models should answer in time."""
    models: list[Name] = Field(default_factory=list)
    """Among which the policy chooses. Default: all."""
    hedge: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The share of the questions that may be put twice."""
    stages: dict[Name, StageOf] = Field(default_factory=dict)
    """Of its graph, by name."""


class OverheadsOf(Section):
    """What a query costs beside its model."""

    calibration: Path | None = None
    """A file of `skysail simulate --calibrate`, or a result of `skysail load run simulated`, instead of constants."""
    ask_ms: NotNegative = LEG_MS
    """From the client to selection."""
    dispatch_ms: NotNegative = LEG_MS
    """From selection to the worker."""
    reply_ms: NotNegative = LEG_MS
    """From the worker to selection."""
    answer_ms: NotNegative = LEG_MS
    """From selection to the client."""
    call_ms: NotNegative = 0.0
    """What each batch takes beside its service time."""
    turnaround_ms: NotNegative | None = None
    """From a batch to the next one. Default: that of the calibration, else 0."""
    source: str = USUAL
    """Where these numbers come from; printed with the result."""


class SelectionOf(Section):
    """The role that asks the models."""

    replicas: Annotated[int, Field(gt=0, le=256)] = 1
    """Processes of the role."""
    poll_ms: NotNegative = 0.0
    """The least time between two polls of one of them."""
    inline: list[Name] = Field(default_factory=list)
    """Models that run inside it."""
    cache_mib: NotNegative = 0.0
    """Of outputs that are kept by input."""
    admission: bool = False
    """Whether queries that would be late get the default output at once."""


class PlanOf(Section):
    """A plan."""

    arrivals: ArrivalsOf
    """When queries come."""
    seconds: Positive | None = None
    """For how long they come. Default: 60, or the whole trace."""
    warm_up_s: NotNegative = 0.0
    """Queries sent before this do not count: batch sizes are still being found."""
    seed: Annotated[int, Field(ge=0)] = 1
    """The same plan and seed give the same result, to the last byte."""
    models: dict[Name, ModelOf] = Field(min_length=1)
    """The models, by name."""
    application: ApplicationOf = ApplicationOf()
    """Who asks."""
    overheads: OverheadsOf = OverheadsOf()
    """What a query costs beside its model."""
    selection: SelectionOf = SelectionOf()
    """The role that asks the models."""
    hosts: dict[Name, HostOf] = Field(default_factory=dict)
    """Processes that models share, by name."""
    inputs: Annotated[int, Field(ge=0)] = 0
    """How many different inputs there are, for the cache; 0 = each query has its own."""
    kernels: bool = False
    """Simulate with the roles' own kernels, which takes some hundred us of CPU a query. So are all plans with hosts,
    stages, a hedge, a cascade, inline models, a cache or admission."""

    @property
    def needs_kernels(self) -> bool:
        """Whether it has what only the roles' own kernels know."""
        own, app = self.selection, self.application
        return bool(
            self.kernels
            or self.hosts
            or (own.inline or own.cache_mib or own.admission)
            or (app.models or app.hedge or app.stages or app.policy == "cascade")
        )


def read(path: Path) -> PlanOf:
    """Read a plan.

    Raises:
        SettingsError: no such file, no YAML, an unknown key, or a value of the wrong form; names file and key.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise SettingsError(f"{path} is not a readable YAML file: {error}") from error
    if not isinstance(data, dict):
        raise SettingsError(f"{path} must hold keys and values; `skysail simulate --help` shows an example")
    try:
        return PlanOf.model_validate(data)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(item, path) for item in error.errors())) from None


def made(given: PlanOf, folder: Path, seed: int | None = None) -> tuple[plan.SimulationPlan, np.random.Generator]:
    """Return what is simulated, and the generator that decides its draws.

    Args:
        given: the plan.
        folder: where relative paths start.
        seed: instead of the plan's own.

    Raises:
        SettingsError: a file cannot be read, or a policy, controller or parameter does not exist.
    """
    of_arrivals, of_run = np.random.default_rng(given.seed if seed is None else seed).spawn(2)
    try:
        arrivals_us, seconds, left_out = _arrivals(given, folder, of_arrivals)
        legs = _legs(given.overheads, folder)
        models = tuple(_model(name, model, folder) for name, model in given.models.items())
        found = plan.SimulationPlan(
            arrivals_us,
            seconds,
            models,
            _application(given.application),
            legs,
            given.selection.replicas,
            _us(given.selection.poll_ms),
            _us(given.warm_up_s * 1e3),
            left_out,
            _roles(given) if given.needs_kernels else None,
        )
        found.policy()
        for model in models:
            model.batcher()
    except (PlanError, PolicyError) as error:
        raise SettingsError(f"the plan cannot be simulated: {error}") from error
    return found, of_run


def calibration(path: Path) -> Calibration:
    """Read a file of `skysail simulate --calibrate`, or a result of `skysail load run simulated`.

    Raises:
        SettingsError: it cannot be read, or is neither.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        kept = data.get("series", {}).get("calibration") if isinstance(data, dict) else None
        return Calibration.of(kept[0] if kept else data)
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise SettingsError(f"{path} is no calibration: {error!r:.200}") from error


def _arrivals(given: PlanOf, folder: Path, random: np.random.Generator) -> tuple[NDArray[np.int64], float, int]:
    """Return when queries come (us), for how long (s), and how many of a trace come later."""
    of = given.arrivals
    if of.trace is not None:
        stamps_us = _stamps(folder / of.trace.expanduser())
        found = arrivals.trace(stamps_us, of.speed, given.seconds)
        return found, given.seconds or (int(found[-1]) + 1) / 1e6, len(stamps_us) - len(found)
    seconds = given.seconds or 60.0
    if of.poisson is not None:
        return arrivals.poisson(of.poisson, seconds, random), seconds, 0
    return arrivals.constant(of.constant or 1.0, seconds), seconds, 0


def _stamps(path: Path) -> NDArray[np.int64]:
    """Return the times (us) of a trace."""
    try:
        if path.is_dir():
            return np.fromiter(_recorded(path), np.int64)
        if path.suffix == ".csv":
            return np.fromiter(read_stamps(path), np.int64)
        return (np.loadtxt(path, ndmin=1) * 1e6).astype(np.int64)
    except (OSError, KeyError, ValueError, OverflowError) as error:
        message = (
            "it must be a recorded trace's folder, a CSV file with ISO times in a column TIMESTAMP,"
            " or a file with one time (s) a line"
        )
        raise SettingsError(f"arrivals.trace: cannot read {path}: {message} ({error!r})") from error


def _recorded(folder: Path) -> Iterator[int]:
    """Yield when the queries of a recorded trace were sent (us)."""
    from deploy.config.recorded import sent_us

    return sent_us(folder)


def _legs(given: OverheadsOf, folder: Path) -> Legs:
    call_us = _us(given.call_ms)
    if given.calibration is not None:
        found = calibration(folder / given.calibration.expanduser()).legs
        turnaround_us = found.turnaround_us if given.turnaround_ms is None else _us(given.turnaround_ms)
        return Legs(found.ask, found.dispatch, found.reply, found.answer, call_us, turnaround_us, found.source)
    ask, dispatch, reply, answer = (
        Leg.constant(ms * 1e3) for ms in (given.ask_ms, given.dispatch_ms, given.reply_ms, given.answer_ms)
    )
    return Legs(ask, dispatch, reply, answer, call_us, _us(given.turnaround_ms or 0.0), given.source)


def _model(name: str, given: ModelOf, folder: Path) -> plan.SimulatedModel:
    return plan.SimulatedModel(
        name,
        _service(name, given.service, folder),
        given.replicas,
        given.controller,
        given.parameters,
        None if given.objective_ms is None else _us(given.objective_ms),
        given.queue_rows,
        given.shared_queue,
        given.partitions,
    )


def _service(name: str, given: ServiceOf, folder: Path) -> SimulatedService:
    if given.calibration is not None:
        return calibration(folder / given.calibration.expanduser()).service(name)
    if given.samples is not None:
        return Recorded.of({rows: [ms * 1e3 for ms in times] for rows, times in given.samples.items()})
    return Line((given.a_ms or 0.0) * 1e3, given.b_ms * 1e3, given.noise)


def _application(given: ApplicationOf) -> plan.SimulatedApplication:
    margin_us = None if given.margin_ms is None else _us(given.margin_ms)
    return plan.SimulatedApplication(given.policy, given.parameters, _us(given.slo_ms), margin_us, given.wanted)


def _roles(given: PlanOf) -> plan.RolePlan:
    hosts = tuple(
        plan.HostedModels(pool, tuple(its.models), _bytes(its.memory_mib), its.controller, its.lanes)
        for pool, its in given.hosts.items()
    )
    own, app = given.selection, given.application
    return plan.RolePlan(
        frozenset(own.inline),
        hosts,
        _stages(app),
        tuple(app.models),
        app.hedge,
        _bytes(own.cache_mib),
        own.admission,
        given.inputs,
        {name: (_us(its.load_ms), _bytes(its.mib)) for name, its in given.models.items()},
        {name: tuple(its.answers) for name, its in given.models.items() if its.answers},
    )


def _stages(app: ApplicationOf) -> tuple[Stage, ...]:
    """Return the graph; stages without a share of their own have it as the time is split evenly."""
    stages = tuple(
        Stage(name, its.model, its.after, "query", "", its.where, its.most, its.share or 1.0)
        for name, its in app.stages.items()
    )
    if not stages:
        return ()
    if found := faults(stages):
        raise PlanError("; ".join(found))
    loads = [StageLoad(stage.name, needed(stage), 1.0, (), 0) for stage in ordered(stages)]
    until_us = evenly(loads, _us(app.slo_ms)).until_us(loads)
    last = {load.name for load in loads}.difference(*[load.before for load in loads])
    even = {name: 1.0 if name in last else at_us / _us(app.slo_ms) for name, at_us in until_us.items()}
    return tuple([stage._replace(share=app.stages[stage.name].share or even[stage.name]) for stage in stages])


def _bytes(mib: float) -> int:
    return int(mib * 2**20)


def _us(ms: float) -> int:
    return round(ms * 1e3)


def _explain(item: Any, path: Path) -> str:
    """Say what is wrong with one key, and what is allowed."""
    location = [str(part) for part in item["loc"]]
    where = f"`{'.'.join(location)}` in {path}" if location else str(path)
    if item["type"] != "extra_forbidden":
        return f"{where}: {explained(item)}"
    known = sorted(_keys(location[:-1]))
    nearest = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.0)[0]
    return f"unknown key {where}: did you mean `{nearest}`? There are: {', '.join(known)}"


def _keys(location: list[str]) -> list[str]:
    """Return the keys that a section has; the names of models are between two sections."""
    section: type[BaseModel] = PlanOf
    for part in location:
        field = section.model_fields.get(part)
        if field is None:
            continue
        kinds = [field.annotation, *get_args(field.annotation)]
        section = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))
    return list(section.model_fields)
