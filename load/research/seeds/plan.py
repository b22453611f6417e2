"""The plan that a seed stands for: a deployment, its traffic, and its faults by time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from load.research.seeds.askers import GATEWAY, drawn_askers
from load.research.seeds.faults import Fault, drawn, struck_down
from load.research.seeds.mapped import ROLE, drawn_mapping
from policies import registry
from schemas.records import Application, Source, Stage
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.topology import host_role, worker_role
from workers.kernel.schedule.registry import SCHEDULES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.research.seeds.askers import AskerPlan
    from load.research.seeds.mapped import Mapped

MODELS = ("good", "bad")
COMPUTING = ("wide", "wide-parity")  # compute features, of a query's input and of the sum of two
PARTITIONS = 2
POOL = "small"
HOST = host_role(POOL)
# Of hosts, one in three takes long to load models, such as large ones from a far disk.
_LOADS_S = (0.0, 0.0, 20.0)
_ROOM = (50, 300)  # for predictions, where there is little
_POLICIES = ("exp3", "thompson", "epsilon_greedy", "exp4")
_APPRENTICES = ("exp3", "thompson", "epsilon_greedy")  # each asks one model: what it costs is in the log
# Of the seeds with models inside, the share where all are, and answer at once; of their applications, those that are
# plain, so that columns answer; and how many ask at once.
_AT_ONCE, _PLAIN = 0.5, 0.9
# Of all others, the share whose applications are plain, too: columns ask their models, which are elsewhere.
_OUTSIDE = 0.4
_DRAWING = (*_APPRENTICES, "ucb1")
_VOTES = ("exp4", "class_vote")
_VOLLEYS = (1, 5, 30)
# The share of processes that poll when something has happened, which costs a simulation little; how often roles commit.
# Those of calm seeds commit seldom: they have little to commit.
_PARKED, _COMMIT_S, _CALM_COMMIT_S = (0.0, 0.9, 0.9, 0.9), (0.5, 2.0, 4.0), (2.0, 4.0)
# Seeds from here on are of calm deployments: hours with a burst now and then, and no fewer faults in an hour.
CALM = 1_000_000
_CALM_H, _PAUSES_S, _CALM_PAUSES_S = (4.0, 12.0), ((1.0, 30.0), (30.0, 300.0)), ((60.0, 600.0), (600.0, 3_600.0))
# The traffic is over after this share of a plan's time, so that the last faults meet what is left of it.
_TRAFFIC = 0.85
# One in so many seeds has an outage that is longer than most people try.
_LONG = 12
# Messages are on their way for so long, and windows end by whole seconds.
TOLERANCE_US = 1_500_000


@dataclass(frozen=True, slots=True)
class Burst:
    """Queries for a while.

    Attributes:
        at_s: when it begins.
        for_s: how long it lasts.
        rate: queries a second, or volleys.
        volley: so many queries at the same moment.
    """

    at_s: float
    for_s: float
    rate: float
    volley: int = 1


@dataclass(frozen=True, slots=True)
class HostPlan:
    """How models run in a host.

    Attributes:
        schedule: what chooses the next batch.
        models: so many of them its memory holds.
        lanes: batches that run at a time.
        load_s: what a load takes at most, drawn for each from 0 on; 0 = all are as quick as usual.
    """

    schedule: str
    models: int
    lanes: int
    load_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Deploy:
    """A model's record while it runs: another version serves, or answers a share, or none (0).

    Attributes:
        at_s: when it is written.
        model: name.
        version: that serves.
        shares: of the queries, of versions beside it.
        labels: versions by label.
    """

    at_s: float
    model: str
    version: str = "1"
    shares: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Configure:
    """An application's record while it runs.

    Attributes:
        at_s: when it is written.
        application: as it is from then on.
    """

    at_s: float
    application: Application


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a seed decides; what happens follows from it.

    Attributes:
        seed: of all draws.
        length_s: of traffic and faults; a quiet time follows.
        replicas: processes by role.
        applications: that are deployed.
        joiner: its settings; windows and bounds are small, so that they are met.
        selection: its settings.
        faulty: the share of batches on which models are slow, fail in part, or hang.
        bursts: the traffic.
        faults: in order of time.
        inside: models that run inside selection and have no workers.
        host: how all models run in a host; None = they do not.
        changes: of models and applications, in order of time.
        slow: the share of batches for which versions beside the first take longer than anybody waits.
        is_at_once: all models that answer labels are inside and mostly answer at once; clients ask oddly.
        flipped: the share of the batches read of which a bit is another than was written.
        parked: the share of the processes that poll when something has happened; the others poll as often as they would
            on a broker.
        commit_s: how often roles commit.
        mapped: topics of others, where there are any.
        askers: of the gateway, where there is one.
    """

    seed: int
    length_s: float
    replicas: Mapping[str, int]
    applications: tuple[Application, ...]
    joiner: JoinerSettings
    selection: SelectionSettings
    faulty: float
    bursts: tuple[Burst, ...]
    faults: tuple[Fault, ...] = field(default=())
    inside: tuple[str, ...] = ()
    host: HostPlan | None = None
    changes: tuple[Deploy | Configure, ...] = ()
    slow: float = 0.0
    is_at_once: bool = False
    flipped: float = 0.0
    parked: float = 0.0
    commit_s: float = 0.5
    mapped: Mapped | None = None
    askers: AskerPlan | None = None

    @property
    def asked(self) -> tuple[Application, ...]:
        """The applications that clients ask; one is left to topics of others."""
        return tuple([application for application in self.applications if not application.mapping])

    @property
    def tolerance_us(self) -> int:
        """How far times of several clocks may differ."""
        return TOLERANCE_US + int(sum(abs(fault.amount) * 1e6 for fault in self.faults if fault.kind == "clock_steps"))

    @property
    def models(self) -> tuple[str, ...]:
        """The models that are deployed."""
        asked = {model for application in self.applications for model in application.models}
        is_computed = COMPUTING[0] in asked or worker_role(COMPUTING[0]) in self.replicas
        return MODELS + (COMPUTING if is_computed else ())

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources of features; those of one name are one."""
        return tuple([source for application in self.applications for source in application.sources])

    @property
    def is_bounded(self) -> bool:
        """Whether the joiner has no room for all that is asked and told."""
        return self.joiner.predictions <= _ROOM[-1]

    @property
    def quiet_s(self) -> float:
        """How long nothing is asked at the end, until everything must have had its outcome."""
        return 2 * (self.joiner.window_us + self.joiner.early_us) / 1e6 + 60.0


def plan(seed: int, minutes: float | None = None, processes: str = "each") -> Plan:
    """Return what a seed stands for.

    Args:
        seed: any; from `CALM` on it is hours long, and mostly quiet.
        minutes: its length; by default the seed decides.
        processes: with `shared` one model runs inside selection, or all that answer labels, at once; with `hosted` all
            run in a host.
    """
    random = Random(f"plan {seed}")  # noqa: S311
    is_long = minutes is None and random.randrange(_LONG) == 0
    is_calm = seed >= CALM
    if is_calm:
        minutes = minutes or 60 * Random(f"calm {seed}").uniform(*_CALM_H)  # noqa: S311
    length_s = 60 * (minutes or (60.0 if is_long else random.uniform(5.0, 30.0)))
    replicas = {role: random.choice((1, 2, 2)) for role in ("selection", "joiner", "learner")}
    at_once = Random(f"at once {seed}")  # noqa: S311
    is_at_once = processes == "shared" and at_once.random() < _AT_ONCE
    inside: tuple[str, ...] = MODELS if is_at_once else ()
    if processes == "shared" and not is_at_once:
        inside = (Random(f"inside {seed}").choice(MODELS),)  # noqa: S311
    replicas |= {f"worker.{model}": random.choice((1, 1, 2)) for model in MODELS if model not in inside}
    answering = _answering(Random(f"answering {seed}"))  # noqa: S311
    answering += _ranking(Random(f"ranking {seed}"))  # noqa: S311
    replicas |= {f"worker.{model}": 1 + (model == COMPUTING[0]) for model in COMPUTING if answering}
    host = _host(seed) if processes == "hosted" else None
    if host is not None:
        replicas = {role: count for role, count in replicas.items() if not role.startswith("worker.")}
        replicas[HOST] = random.choice((1, 1, 2))
    applications = tuple(_application(random, number) for number in range(random.randint(1, 3)))
    learning = Random(f"apprentices {seed}")  # noqa: S311
    again = Random(f"second questions {seed}")  # noqa: S311
    applications = tuple(_asking_again(again, application) for application in applications)
    promising = Random(f"coverage {seed}")  # noqa: S311
    applications = tuple(replace(each, coverage=promising.choice((0.0, 0.0, 0.6, 0.9))) for each in applications)
    staged = Random(f"graphs {seed}")  # noqa: S311
    applications = tuple(_with_stages(staged, application) for application in applications)
    joining = Random(f"joins {seed}")  # noqa: S311
    applications = tuple(_with_join(joining, application) for application in applications)
    sourced = Random(f"sources {seed}")  # noqa: S311
    applications = tuple(_with_sources(sourced, application) for application in applications)
    outside = Random(f"outside {seed}")  # noqa: S311
    is_plain = is_at_once or outside.random() < _OUTSIDE
    if is_plain:
        drawing = at_once if is_at_once else outside
        applications = tuple(_plain(drawing, application) for application in applications)
    voting = Random(f"votes {seed}")  # noqa: S311
    applications = tuple(_voting(voting, application, is_at_once=is_at_once) for application in applications)
    applications += answering
    applications = tuple(_with_apprentice(learning, application) for application in applications)
    changing = Random(f"changes {seed}")  # noqa: S311
    changes, slow = _changes(changing, length_s, applications, processes), changing.choice((0.0, 0.0, 0.3))
    made = Plan(
        seed=seed,
        length_s=length_s,
        replicas=replicas,
        applications=applications,
        joiner=_joiner(random),
        selection=SelectionSettings(
            PARTITIONS,
            remembered=1_000,
            cache_bytes=random.choice((0, 0, 1 << 20)),
            admission=random.random() < 0.3,
        ),
        faulty=random.choice((0.0, 0.02, 0.1)),
        bursts=_bursts(random, _TRAFFIC * length_s, _CALM_PAUSES_S if is_calm else _PAUSES_S),
        faults=drawn(random, length_s, replicas, is_long=is_long),
        inside=inside,
        host=host,
        changes=changes,
        slow=slow,
        parked=Random(f"parked {seed}").choice(_PARKED),  # noqa: S311
        commit_s=Random(f"commits {seed}").choice(_CALM_COMMIT_S if is_calm else _COMMIT_S),  # noqa: S311
    )
    if is_at_once:
        made = _answering_at_once(at_once, made)
    elif is_plain:
        made = replace(made, selection=_bare(outside, made.selection))
    return with_askers(with_mapping(made, drawn_mapping(seed, length_s, MODELS)), drawn_askers(seed, length_s))


def with_mapping(made: Plan, mapped: Mapped | None) -> Plan:
    """Return a plan with topics of others beside what it has."""
    if mapped is None:
        return made
    changes = () if mapped.changed is None else (Configure(*mapped.changed),)
    return replace(
        made,
        mapped=mapped,
        applications=(*made.applications, mapped.application),
        replicas={**made.replicas, ROLE: mapped.processes},
        faults=tuple(sorted((*made.faults, *mapped.faults), key=lambda fault: fault.at_s)),
        changes=tuple(sorted((*made.changes, *changes), key=lambda change: change.at_s)),
    )


def with_askers(made: Plan, askers: AskerPlan | None) -> Plan:
    """Return a plan with the gateway and its askers beside what it has."""
    if askers is None:
        return made
    faults = tuple(sorted((*made.faults, *askers.faults), key=lambda fault: fault.at_s))
    return replace(made, askers=askers, replicas={**made.replicas, GATEWAY: askers.processes}, faults=faults)


def _answering_at_once(random: Random, made: Plan) -> Plan:
    """Return a plan whose queries come together, whose processes are killed between effects, and that misreads."""
    volley, flipped = random.choice(_VOLLEYS), random.choice((0.0, 0.0, 0.02))
    bursts = tuple(replace(each, rate=min(1.0, 3 / volley) * each.rate, volley=volley) for each in made.bursts)
    selection = _bare(random, made.selection)
    cut_down = struck_down(random, made.length_s, made.replicas)
    faults = tuple(sorted((*made.faults, *cut_down), key=lambda fault: fault.at_s))
    return replace(made, bursts=bursts, selection=selection, faults=faults, is_at_once=True, flipped=flipped)


def _bare(random: Random, settings: SelectionSettings) -> SelectionSettings:
    """Return settings without a cache and admission, in most cases."""
    return replace(settings, cache_bytes=0, admission=False) if random.random() < 0.8 else settings


def _plain(random: Random, application: Application) -> Application:
    """Return an application that asks one model and nothing else, in most cases."""
    policy, per_context = random.choice(_DRAWING), random.random() < 0.3
    if random.random() > _PLAIN:
        return application
    return replace(
        application,
        policy=policy,
        parameters={},
        per_context=per_context,
        sources=(),
        stages=(),
        hedge=0.0,
        coverage=0.0,
    )


def _voting(random: Random, application: Application, *, is_at_once: bool) -> Application:
    """Have all models vote, by what each is known to be right about, for one of two applications whose models vote.

    Where models answer at once, one in four applications that ask one model has them vote.
    """
    votes, begins = random.choice(_VOTES), random.random() < 0.25
    is_plain = application.policy in _DRAWING and not (application.stages or application.hedge)
    if application.policy in _VOTES or (is_at_once and begins and is_plain):
        return replace(application, policy=votes, parameters={})
    return application


def _changes(
    random: Random, length_s: float, applications: tuple[Application, ...], processes: str
) -> tuple[Deploy | Configure, ...]:
    """Draw what is deployed anew meanwhile: versions in two of three seeds, applications in one of two.

    A version goes from shadow to canary, to a larger share, and then back, or it takes over and leaves a holdback.
    """
    found: list[Deploy | Configure] = []
    name, end = random.choice(MODELS), random.choice(("back", "holdback", "takes over"))
    is_versioned, is_labelled = random.random() < 2 / 3, random.random() < 0.5
    if is_versioned and processes == "each":
        labels = {"nightly": "2"} if is_labelled else {}
        ways = {"back": ("1", {}), "holdback": ("2", {"1": 0.1}), "takes over": ("2", {})}
        stations: list[tuple[str, Mapping[str, float]]] = [("1", {"2": share}) for share in (0.0, 0.2, 0.5)]
        for place, (version, shares) in enumerate([*stations, ways[end]]):
            found.append(Deploy((0.1 + 0.2 * place) * length_s, name, version, shares, labels))
    drawn_anew = [application for application in applications if random.random() < 0.5]
    found += [Configure(random.uniform(0.3, 0.7) * length_s, _changed(random, each)) for each in drawn_anew]
    return tuple(sorted(found, key=lambda change: change.at_s))


def _changed(random: Random, application: Application) -> Application:
    """Return an application with another objective, and another policy if it asks one model by one that learns."""
    application = replace(application, slo_ms=random.choice((150.0, 500.0)))
    others = [name for name in _APPRENTICES if name != application.policy]
    if application.policy in _APPRENTICES and not application.apprentice:
        return replace(application, policy=random.choice(others), parameters={})
    return application


def _host(seed: int) -> HostPlan:
    random, slow = Random(f"host {seed}"), Random(f"slow loads {seed}")  # noqa: S311
    schedule, models, lanes = random.choice(sorted(SCHEDULES)), random.choice((1, 2)), random.choice((1, 2))
    return HostPlan(schedule, models, lanes, slow.choice(_LOADS_S))


def _application(random: Random, number: int) -> Application:
    return Application(
        name=f"app{number}",
        models=MODELS,
        policy=random.choice(_POLICIES),
        per_context=random.random() < 0.3,
        spread=bool(number % 2),
        slo_ms=random.choice((100.0, 300.0, 1_000.0)),
        default_output=-1,
        window_s=random.choice((5.0, 20.0, 60.0, 120.0)),
        default_loss=random.choice((None, 0.0, 1.0, 1.0)),
    )


def _answering(random: Random) -> tuple[Application, ...]:
    """Draw an application whose state answers, one in four; in half of them by coded features, where those are late."""
    if random.random() >= 0.25:
        return ()
    return (
        Application(
            name="ratings",
            models=COMPUTING[:1],
            policy="ridge",
            parameters={"features": 2, "low": 0, "high": 2},
            per_context=random.random() < 0.5,
            slo_ms=random.choice((100.0, 1_000.0)),
            default_output=-1,
            window_s=random.choice((5.0, 20.0)),
            default_loss=random.choice((None, 1.0)),
            parity=random.choice(("", COMPUTING[1])),
        ),
    )


def _ranking(random: Random) -> tuple[Application, ...]:
    """Draw an application that ranks, one in four: films by features of two stores, or items of a model."""
    if random.random() >= 0.25:
        return ()
    if random.random() < 0.3:
        users = Source("users", 2, "query_id", "redis", random.choice((0.0, 0.5)))
        known = {"features": 2, "items": 2}
        return (_ranked(random, name="items", policy="two_speed", parameters=known, sources=(users,)),)
    sources = (
        Source("films", 1, "candidate", "redis", random.choice((0.0, 0.5, 1.0))),
        Source("lately", 1, "candidate", "topic", random.choice((0.0, 0.3))),
    )
    parameters = {"features": 2, "low": 0, "high": 2, "gamma": 0.2}
    return (_ranked(random, name="films", policy="ridge", parameters=parameters, sources=sources),)


def _ranked(random: Random, **fields: Any) -> Application:
    return Application(
        models=COMPUTING[:1],
        per_context=random.random() < 0.5,
        slo_ms=random.choice((100.0, 1_000.0)),
        default_output=-1,
        window_s=random.choice((5.0, 20.0)),
        default_loss=random.choice((None, 1.0)),
        **fields,
    )


def _with_sources(random: Random, application: Application) -> Application:
    """Look features up for one application in three; one in two of those that may decides by them."""
    is_drawn, decides = random.randrange(3) == 0, random.random() < 0.5
    users = Source("users", 2, random.choice(("context", "query_id")), "redis", random.choice((0.0, 0.5, 1.0)))
    events = Source("events", 1, "query_id", "topic", random.choice((0.0, 0.3)))
    if not is_drawn:
        return application
    application = replace(application, sources=random.choice(((users,), (events, users))))
    if not decides or application.stages or application.policy not in _APPRENTICES:
        return application
    return replace(application, policy="linear_thompson", parameters={"features": 3})


def _asking_again(random: Random, application: Application) -> Application:
    """Let an application ask again, one in four by a cascade, as many by hedging."""
    way = random.choice(("cascade", "hedge", "", ""))
    if way == "cascade":
        parameters = {"risk": random.choice((0.0, 0.3)), "budget": random.choice((0.3, 1.0))}
        return replace(application, policy=way, parameters=parameters)
    return replace(application, hedge=random.choice((0.05, 1.0))) if way else application


def _with_stages(random: Random, application: Application) -> Application:
    """Give one application in four a graph, of those that choose one model and ask once."""
    is_drawn, share, kind = random.randrange(4) == 0, random.choice((0.3, 0.6)), random.choice(("==", "!="))
    if not is_drawn or application.hedge or application.policy in ("cascade", "exp4"):
        return application
    first = Stage("first", random.choice(MODELS), share=share)
    beside = Stage("beside", random.choice(MODELS), after="first", where=f"label {kind} 0")
    return replace(application, stages=(first, Stage("second", "", after="first"), beside), coverage=0.0)


def _with_join(random: Random, application: Application) -> Application:
    """Let a stage of a graph wait for two others, in three of four: the one that answers, or one more."""
    way, name = random.choice(("", "last", "more", "both")), random.choice(MODELS)
    if not application.stages or not way:
        return application
    first, last, beside = application.stages
    scene = Stage("scene", name, share=first.share)
    last = last if way == "more" else last._replace(input="query, first, scene")
    more = (Stage("more", name, after="first", input="query, beside"),) if way != "last" else ()
    beside = beside if way == "last" else beside._replace(share=(1 + first.share) / 2)
    return replace(application, stages=(first, scene, last, beside, *more))


def _with_apprentice(random: Random, application: Application) -> Application:
    """Let another policy learn along, for one in two applications."""
    others = [name for name in _APPRENTICES if name != application.policy]
    learning = registry.spec(registry.create(random.choice(others), {}))
    return replace(application, apprentice=learning if random.random() < 0.5 else "")


def _joiner(random: Random) -> JoinerSettings:
    """Return settings whose bounds are met by a backlog, in some seeds."""
    bounds = {"predictions": random.choice(_ROOM), "feedback": random.choice((20, 100))}
    return JoinerSettings(
        PARTITIONS,
        window_us=120_000_000,
        early_us=random.choice((10_000_000, 30_000_000)),
        **(bounds if random.random() < 0.3 else {}),
    )


def _bursts(random: Random, until_s: float, pauses_s: Sequence[tuple[float, float]]) -> tuple[Burst, ...]:
    found, at_s = [], 5.0
    while at_s < until_s:
        for_s = random.uniform(1.0, 40.0)
        found.append(Burst(at_s, for_s, random.choice((1.0, 3.0, 10.0, 20.0))))
        at_s += for_s + random.choice([random.uniform(*pause_s) for pause_s in pauses_s])
    return tuple(found)
