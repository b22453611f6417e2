"""`site`: the whole loop with several processes of each role, three brokers or TLS, each beside the least.

    one      a process for each role, one broker
    several  two selections, joiners and learners, two workers of each model
    three    as `several`, on three brokers: each record on all of them, acknowledged by all in sync (two at least)
    tls      as `several`, roles over TLS; the harness connects without

Each lane has 16 partitions, Exp3 over two linear models, a state for each of 1,000 contexts, spread over all learners,
and feedback for every answer. It gets 500 queries a second and then a backlog, whose rate counts until all of it is
learnt and committed. From these costs `workers.simulation.sizing` computes what 100,000 queries a second take, and
the simulator plays them with the legs of `several`: three brokers on two cores have none to spare.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from load.figures import CPU_US, FAULTS, NONE, PER_S, RATIO, SHOWN, SHOWN_MS, Figures, Kind
from load.harness import topics
from load.harness.driving import deployed
from load.harness.processes import total_cpu_s
from load.harness.progress import say
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.wire import Wire
from load.harness.workload import Rows
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.results.results import Result
from schemas import topics as names
from schemas.codec import Codec
from schemas.records import Application, ModelPredictions
from streams import topology
from streams.runtime.clock import SystemClock
from workers.simulation import arrivals
from workers.simulation import plan as plans
from workers.simulation.calibration import Answer, Calibration, Stamped, calibrate
from workers.simulation.errors import PlanError
from workers.simulation.simulator import simulate
from workers.simulation.sizing import Costs, SiteAssumptions, breaks, need

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from load.harness.driving import Driver, Stretch
    from load.harness.system import Brokers, Stage
    from load.models.training import Digits
    from schemas.records import Prediction

NAME = "site"
LANES: Final = ("one", "several", "three", "tls")
ROLES: Final = ("selection", "worker", "joiner", "learner")
RATE: Final = 500
SITE_PER_S: Final = 100_000.0
PARTITIONS: Final = 16
_APPLICATION, _CONTEXTS = "digits", 1_000
_SLO_MS = 600_000.0  # a backlog waits
_CALM_SLO_MS = 10_000.0  # so that latency is seen, and no default hides it
_DRAIN_S = 300.0
# Brokers that have just started are several times slower, until their code is compiled.
_WARM_UP, _SHORT_WARM_UP = 20_000, 3_000
_BACKLOG, _SHORT_BACKLOG = 60_000, 8_000
_CALM_S, _SHORT_CALM_S = 20.0, 4.0
_SIMULATED_S, _SHORT_SIMULATED_S = 10.0, 3.0
_SIMULATED_WARM_S = 1.0
_TOPICS = (names.QUERIES, names.MODEL_PREDICTIONS, names.PREDICTIONS, names.FEEDBACK, names.OBSERVATIONS)

_BYTES = Kind("B")
FIGURES = Figures(
    *(FAULTS(f"{lane}_lost", f"{lane}_duplicates", must=NONE) for lane in LANES),
    *(recorded(f"{lane}_at_{RATE}_", "p50_ms", "p99_ms", "defaults") for lane in LANES),
    *(PER_S(f"{lane}_learnt_per_s") for lane in LANES),
    CPU_US("*_cpu_us"),
    SHOWN("*_processes"),
    _BYTES("*_in_bytes", "*_out_bytes", "*_stored_bytes"),
    RATIO("*_cpu_ratio"),
    SHOWN_MS("simulated_p50_ms", "simulated_p99_ms"),
    SHOWN("simulated_*"),
)


class _Lane(NamedTuple):
    """Figures of a lane, bytes of one copy of a query by topic, and what its legs can be told from."""

    figures: Mapping[str, float]
    stored: Mapping[str, float]
    answers: Sequence[Answer]
    batches: Sequence[Stamped]


async def run(stage: Stage) -> Result:
    """Measure each lane on brokers of its own, compute what a site takes, and simulate its latency."""
    data = digits()
    packages = package_all(linear_models(data), data.test_x, stage.folder, LINEAR_RUNTIME)
    lanes: dict[str, _Lane] = {}
    for lane in LANES if not stage.only else stage.only:
        say(NAME, lane)
        with stage.brokers(3 if lane == "three" else 1, tls=lane == "tls") as brokers:
            lanes[lane] = await _measured(replace(stage, bootstrap=brokers.bootstrap), lane, brokers, packages, data)
    figures = {f"{lane}_{name}": value for lane, its in lanes.items() for name, value in its.figures.items()}
    series: dict[str, Sequence[Mapping[str, Any]]] = {}
    notes: tuple[str, ...] = ()
    if lanes.keys() >= {*LANES}:
        figures |= _ratios(figures)
        costs = site_costs(figures, lanes["three"].stored, sorted(packages))
        site = planned(sorted(packages))
        series |= _sized(costs, site)
        say(NAME, f"{SITE_PER_S:,.0f} queries/s, simulated")
        try:
            learnt = calibrate(lanes["several"].answers, lanes["several"].batches, f"lane 'several' of {NAME}")
            figures |= await asyncio.to_thread(_simulated, stage, learnt, costs["backlog"], site)
        except PlanError as error:  # what was measured and computed stands
            notes = (f"Not simulated: {error}.",)
    return Result(NAME, figures, {"form": stage.form, "seed": stage.seed, "partitions": PARTITIONS}, series, notes)


def _deployment(lane: str, brokers: Brokers, packages: Mapping[str, Path]) -> Deployment:
    application = Application(_APPLICATION, tuple(packages), "exp3", per_context=True, spread=True, max_slo_ms=_SLO_MS)
    count = 1 if lane == "one" else 2
    settings: dict[str, Any] = {
        "kafka": dict(brokers.kafka),
        "replication": len(brokers.pids),
        "selection": {"inline": []},
        "log_level": "warning",
    }
    several = dict.fromkeys((*packages, *(role for role in ROLES if role != "worker")), count)
    return Deployment(
        topics.new_prefix(NAME), (application,), packages, PARTITIONS, ROLES, settings=settings, replicas=several
    )


async def _measured(stage: Stage, lane: str, brokers: Brokers, packages: Mapping[str, Path], data: Digits) -> _Lane:
    """Run one lane: what warms it, a modest rate, a backlog."""
    contexts = [f"user-{number}" for number in range(_CONTEXTS)]
    deployment = _deployment(lane, brokers, packages)
    asked = [
        Rows(_APPLICATION, data.inputs, data.labels, contexts, stage.seed + turn, slo_ms)
        for turn, slo_ms in enumerate((_SLO_MS, _SLO_MS, _CALM_SLO_MS, _SLO_MS))  # an id is answered once
    ]
    warm_up, backlog, calm_s = (
        (_SHORT_WARM_UP, _SHORT_BACKLOG, _SHORT_CALM_S) if stage.short else (_WARM_UP, _BACKLOG, _CALM_S)
    )
    answers: list[Answer] = []

    def read(predictions: Sequence[Prediction]) -> None:
        now_us = SystemClock().now_us()
        answers.extend(Answer(prediction, now_us) for prediction in predictions)

    async with deployed(stage, deployment, data.inputs[0]) as driver:
        processes = float(len(driver.system.pids))
        await driver.backlog(warm_up, asked[0], _DRAIN_S)
        await driver.at(RATE, asked[1], calm_s / 2, drain_s=_DRAIN_S)
        before_s = total_cpu_s(brokers.pids)
        calm = await driver.at(RATE, asked[2], calm_s, on_predictions=read, drain_s=_DRAIN_S)
        between_s = total_cpu_s(brokers.pids)
        batches = await asyncio.to_thread(_batches, driver)
        stored, middle_s = _stored(brokers, deployment.prefix, packages), total_cpu_s(brokers.pids)
        drained = await driver.backlog(backlog, asked[3], _DRAIN_S)
        after_s, held = total_cpu_s(brokers.pids), _stored(brokers, deployment.prefix, packages)
    answered = max(1, drained.recorder.total.answered)
    each = {topic: (size - stored.get(topic, 0)) / answered / len(brokers.pids) for topic, size in held.items()}
    readers = read_by(sorted(packages))
    faults = (calm.faults, drained.faults)
    latency = calm.recorder.latency_ms()
    return _Lane(
        {
            "processes": processes,
            **{f"at_{RATE}_{name}": us for name, us in _cpu_us(calm, between_s - before_s).items()},
            **{f"backlog_{name}": us for name, us in _cpu_us(drained, after_s - middle_s).items()},
            **{f"at_{RATE}_{point}_ms": latency[point] for point in ("p50", "p99")},
            f"at_{RATE}_defaults": calm.faults["defaults"],
            "learnt_per_s": drained.learnt_per_s,
            **{name: sum(fault[name] for fault in faults) for name in ("lost", "duplicates")},
            "in_bytes": sum(each.values()),
            "out_bytes": sum(size * readers.get(topic, 0) for topic, size in each.items()),
            "stored_bytes": sum(each.values()) * len(brokers.pids),
        },
        each,
        answers,
        batches,
    )


def _cpu_us(stretch: Stretch, broker_s: float) -> dict[str, float]:
    """Return CPU time for each answered query (us): by role, and of all brokers."""
    answered = max(1, stretch.recorder.total.answered)
    spent = dict.fromkeys(ROLES, 0.0)
    for process, seconds in stretch.cpu_s.items():
        spent[process.partition("@")[0].partition(".")[0]] += seconds
    return {f"{name}_cpu_us": seconds / answered * 1e6 for name, seconds in (*spent.items(), ("broker", broker_s))}


def _batches(driver: Driver) -> list[Stamped]:
    """Return what workers have answered so far."""
    codec = Codec()
    with closing(Wire(driver.stage.bootstrap, driver.prefix, driver.stage.properties)) as wire:
        wire.follow((names.MODEL_PREDICTIONS,), from_start=True)
        return [
            Stamped(codec.decode(ModelPredictions, arrival.value), arrival.timestamp_us) for arrival in wire.written()
        ]


def _stored(brokers: Brokers, prefix: str, models: Iterable[str]) -> dict[str, float]:
    """Return the bytes that all brokers together hold, by topic, for the topics that grow with the queries."""
    found: dict[str, float] = {}
    wanted = {*_TOPICS, *map(names.model_queries, models)}
    for folder in (folder for log in brokers.logs for folder in log.glob(f"{prefix}.*")):
        topic = folder.name.removeprefix(f"{prefix}.").rpartition("-")[0]
        if topic in wanted:
            found[topic] = found.get(topic, 0.0) + sum(file.stat().st_size for file in folder.glob("*.log"))
    return found


def read_by(models: Sequence[str]) -> dict[str, int]:
    """Return how many groups, and clients, read each topic."""
    graph = topology.build(models).used_by(("selection", "joiner", "learner", *map(topology.worker_role, models)))
    found = {names.PREDICTIONS: 1}  # the clients
    for topic in (topic for node in graph.nodes for topic in node.consumes):
        found[topic] = found.get(topic, 0) + 1
    return found


def planned(models: Sequence[str]) -> SiteAssumptions:
    """Return the site that is planned, kept as long as topics are by default."""
    kept = {name: topic.retention_ms / 1e3 for name, topic in topology.build(models).topics.items()}
    return SiteAssumptions(SITE_PER_S, PARTITIONS, 3, kept)


def site_costs(figures: Mapping[str, float], stored: Mapping[str, float], models: Sequence[str]) -> dict[str, Costs]:
    """Return what a query costs three brokers and several processes: in full batches, and the same with TLS."""
    readers = read_by(models)

    def at(point: str, roles_ratio: float = 1.0, broker_ratio: float = 1.0) -> Costs:
        cpu_us = {role: figures[f"three_{point}_{role}_cpu_us"] * roles_ratio for role in ROLES}
        return Costs(cpu_us, figures[f"three_{point}_broker_cpu_us"] * broker_ratio, stored, readers)

    ratios = (figures["tls_backlog_roles_cpu_ratio"], figures["tls_backlog_broker_cpu_ratio"])
    return {"backlog": at("backlog"), "backlog, TLS": at("backlog", *ratios)}


def _ratios(figures: Mapping[str, float]) -> dict[str, float]:
    """Set CPU of roles and broker of each lane beside the lane that differs from it in one thing."""
    found: dict[str, float] = {}
    for lane, base in (("several", "one"), ("three", "several"), ("tls", "several")):
        for point in (f"at_{RATE}", "backlog"):
            roles, its_base = (sum(figures[f"{each}_{point}_{role}_cpu_us"] for role in ROLES) for each in (lane, base))
            broker, of_base = (figures[f"{each}_{point}_broker_cpu_us"] for each in (lane, base))
            found |= {f"{lane}_{point}_roles_cpu_ratio": roles / its_base}
            found |= {f"{lane}_{point}_broker_cpu_ratio": broker / of_base}
    return found


def _sized(costs: Mapping[str, Costs], site: SiteAssumptions) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return what the site takes by each of the costs, and what breaks first by those of full batches."""
    needs = [
        {"costs": name, **need(its, site)._asdict(), "brokers": need(its, site).brokers} for name, its in costs.items()
    ]
    first = [each._asdict() for each in breaks(costs["backlog"], site, 3)]
    assumed = {name: value for name, value in asdict(site).items() if name != "retention_s"}
    stored = [
        {"topic": topic, "bytes": size, "kept_s": site.retention_s[topic], "tb": needs[0]["disk_tb"][topic]}
        for topic, size in costs["backlog"].stored.items()
    ]
    return {"needs": needs, "breaks": first, "assumed": [assumed], "stored": stored}


def _simulated(stage: Stage, learnt: Calibration, costs: Costs, site: SiteAssumptions) -> dict[str, float]:
    """Play the site's rate with measured legs and service times, and as many workers as the costs ask for."""
    seconds = _SHORT_SIMULATED_S if stage.short else _SIMULATED_S
    of_arrivals, of_run = np.random.default_rng(stage.seed).spawn(2)
    sized = need(costs, site)
    workers = max(1, -(-sized.processes["worker"] // len(learnt.samples)))
    plan = plans.SimulationPlan(
        arrivals.poisson(site.rate, seconds, of_arrivals),
        seconds,
        tuple(plans.SimulatedModel(name, learnt.service(name), workers) for name in sorted(learnt.samples)),
        plans.SimulatedApplication("exp3"),
        learnt.legs,
        selections=sized.processes["selection"],
        warm_up_us=int(_SIMULATED_WARM_S * 1e6),
    )
    found = simulate(plan, of_run).figures()
    return {
        "simulated_workers": float(workers * len(learnt.samples)),
        "simulated_selections": float(sized.processes["selection"]),
        "simulated_queries": found["queries"],
        "simulated_share_in_time": found["share_in_time"],
        "simulated_p50_ms": found["p50_ms"],
        "simulated_p99_ms": found["p99_ms"],
    }
