"""`forest`: a model that needs batching, under objectives of 20, 50 and 100 ms, against the alternatives.

A random forest on MNIST under scikit-learn costs milliseconds a call before the first row. Each row of a large batch
costs little. Goodput is the rate of right answers within the objective, at the best of the rates tried. Rates double
until most answers are late; then two between the best and the next are tried. Only Skysail's queries carry the
objective, so Skysail climbs once for each objective.

Each contender climbs once with every setting of its grid. In the end AIMD and fixed batches are asked in alternation,
at rates near AIMD's best. The full form takes some 30 minutes, the short one, with a third of the contenders, 15.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import joblib
import psutil

from load.errors import PeerFailedError, PeerUnavailableError
from load.figures import FAULTS, NONE, PER_S, RATIO_RATE, Figures, at_least
from load.harness.progress import say
from load.models.training import forest, images
from load.research.peers import batching, by_turns, ceiling, environments
from load.research.peers.answer_audit import OBJECTIVES_MS
from load.research.peers.client import Client
from load.research.peers.rate_search import Step, best_rate, climb
from load.research.peers.running import Ground
from load.results.results import Result
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from load.harness.system import Stage
    from load.research.peers.contenders import Contender
    from load.research.peers.running import Running

NAME = "forest"
_say = partial(say, NAME)
SECONDS = 3.0
ASKED = ("fixed", "aimd", "inline", "converted", "floor_confluent", "faststream", "bentoml")
SHORT = ("fixed", "aimd", "floor_confluent")
TREES = 30
_CEILING = (8_000, 16_000, 32_000, 64_000)
_TURNS = 3
_SAMPLE = 256
_FAILURES = (PeerFailedError, PeerUnavailableError, psutil.NoSuchProcess, TimeoutError)
_WARM_UP_RATE, _WARM_UP_S, _LIMIT_S = 100.0, 1.0, 20.0


@dataclass(slots=True)
class _Climbs:
    """The measurements.

    Attributes:
        ground: rows, models and truth.
        ceiling_per_s: of the harness.
        visits: one row for each contender, setting and objective.
        stretches: one row for each stretch.
        out: contenders left out, with the reason.
    """

    ground: Ground
    ceiling_per_s: float
    visits: list[dict[str, Any]] = field(default_factory=list)
    stretches: list[dict[str, Any]] = field(default_factory=list)
    out: dict[str, dict[str, str]] = field(default_factory=dict)

    async def visit(self, contender: Contender, setting: Mapping[str, object]) -> None:
        """Start a contender and climb each of its objectives; leave it out if it fails."""
        _say(f"{contender.label}: {batching.setting_words(setting)}")
        try:
            if contender.environment:
                environments.ensure(contender.environment, _say)
            async with contender.start(self.ground, setting) as running:
                await asyncio.to_thread(self._climb, contender, setting, running)
        except _FAILURES as error:
            self.leave_out(contender, error)

    def leave_out(self, contender: Contender, error: Exception) -> None:
        """Go on without a contender."""
        _say(f"{contender.label} is left out: {error}")
        self.out[contender.name] = {"label": contender.label, "why": " ".join(str(error).split())}

    def _climb(self, contender: Contender, setting: Mapping[str, object], running: Running) -> None:
        client = Client(self.ground, running, contender.wire_format)
        client.ready()
        client.stretch(_WARM_UP_RATE, _WARM_UP_S, _LIMIT_S)
        about = {
            "system": contender.name,
            "label": contender.label,
            "kind": contender.kind,
            "setting": batching.setting_words(setting),
        }
        for objectives in _apart(contender):
            client.slo_ms = float(max(objectives))

            def ask(rate: float) -> Step:
                return self._ask(client, rate, about)

            tried = climb(ask, objectives, self.ceiling_per_s)
            for objective in objectives:
                rate = best_rate(tried, objective)
                goodput = tried[rate].goodput[objective]
                row = {"objective_ms": objective, "goodput_per_s": goodput, "rate_per_s": rate}
                self.visits.append({**about, **row})

    def _ask(self, client: Client, rate: float, about: Mapping[str, Any]) -> Step:
        seconds = self.ground.stage.seconds
        part = client.stretch(rate, seconds, _LIMIT_S)
        goodput = {objective: part.tally.goodput_per_s(objective, seconds) for objective in OBJECTIVES_MS}
        row: dict[str, Any] = {**about, "slo_ms": client.slo_ms, "rate_per_s": rate, "late_ms": part.late_us / 1e3}
        row |= {f"goodput_{objective}ms_per_s": value for objective, value in goodput.items()}
        row |= {f"{point}_ms": value for point, value in part.tally.latency_ms().items()}
        row |= {"missing": part.tally.missing, "wrong": part.tally.wrong, "defaults": part.tally.defaults}
        self.stretches.append({**row, "cpu_us_per_query": part.cpu_us_per_query})
        return Step(goodput, part.settled)


def _apart(contender: Contender) -> Iterator[tuple[int, ...]]:
    """Yield the objectives that are climbed together."""
    if contender.kind == "skysail":
        yield from ((objective,) for objective in OBJECTIVES_MS)
    else:
        yield OBJECTIVES_MS


FIGURES = Figures(
    *(
        (
            *RATIO_RATE(f"best_{objective}ms_to_peer_ratio_rate", must=at_least(2.0)),
            *RATIO_RATE(f"aimd_{objective}ms_to_fixed_ratio_rate", must=at_least(0.95)),
        )
        for objective in OBJECTIVES_MS
    ),
    RATIO_RATE("*_ratio_rate"),
    PER_S("*_goodput_*ms_per_s", "ceiling_per_s"),
    FAULTS("wrong", must=NONE),
)


async def run(stage: Stage) -> Result:
    """Climb with all contenders."""
    ground, source = _ground(stage)
    climbed = await ceiling.climb(ground, _CEILING)
    climbs = _Climbs(ground, ceiling.ceiling_per_s(climbed))
    turns = _turns(stage)
    random.Random(stage.seed).shuffle(turns)  # noqa: S311  # an order, not a secret
    for contender, setting in turns:
        if contender.name not in climbs.out:
            await climbs.visit(contender, setting)
    turned = await _by_turns(stage, climbs)
    return _result(stage, source, climbed, climbs, turned)


async def _by_turns(stage: Stage, climbs: _Climbs) -> list[dict[str, Any]]:
    """Compare AIMD with fixed batches at the rates that suited it, unless one of them is not asked for."""
    mine = [visit for visit in climbs.visits if visit["system"] == batching.AIMD.name]
    if batching.FIXED.name not in _named(stage) or {visit["objective_ms"] for visit in mine} < {*OBJECTIVES_MS}:
        return []
    rates = {ms: median([visit["rate_per_s"] for visit in mine if visit["objective_ms"] == ms]) for ms in OBJECTIVES_MS}
    try:
        return await by_turns.compare(climbs.ground, rates, climbs.ceiling_per_s, _TURNS, _say)
    except _FAILURES as error:
        climbs.leave_out(batching.FIXED, error)
        return []


def _result(
    stage: Stage,
    source: str,
    climbed: Sequence[ceiling.Look],
    climbs: _Climbs,
    turned: list[dict[str, Any]],
) -> Result:
    systems = batching.rows(climbs.visits)
    return Result(
        NAME,
        figures={
            **batching.figures(systems),
            **by_turns.figures(turned),
            "wrong": sum(row["wrong"] for row in (*climbs.stretches, *turned)),
            "ceiling_per_s": climbs.ceiling_per_s,
        },
        parameters={
            "source": source,
            "trees": TREES,
            "form": stage.form,
            "seconds": stage.seconds,
            "seed": stage.seed,
        },
        series={
            "systems": systems,
            "by_turns": turned,
            "visits": climbs.visits,
            "stretches": climbs.stretches,
            "direct": climbed,
            "left_out": list(climbs.out.values()),
        },
        notes=(
            f"Rates end at {climbs.ceiling_per_s:,.0f}/s, the highest at which the harness was seen to keep up.",
            'All systems run the same scikit-learn forest. The lane "converted" has it as arrays.',
        ),
    )


def _turns(stage: Stage) -> list[tuple[Contender, Mapping[str, object]]]:
    named = _named(stage)
    return [(contender, setting) for contender in batching.ALL if contender.name in named for setting in contender.grid]


def _named(stage: Stage) -> set[str]:
    """Return who is asked; with fixed batches AIMD, which they are compared with."""
    named = {*(stage.only or (SHORT if stage.short else ASKED))}
    return named | {batching.AIMD.name} if batching.FIXED.name in named else named


def _ground(stage: Stage) -> tuple[Ground, str]:
    """Train, package as it is and converted, and write down what the model says about each row."""
    data, source = images()
    estimator = forest(data, TREES)
    model = stage.folder / f"{batching.MODEL}.joblib"
    joblib.dump(estimator, model)
    packages = {name: stage.folder / f"{name}-1" for name in (batching.MODEL, batching.CONVERTED)}
    for name, convert in zip(packages, ("none", "auto"), strict=True):
        package_sklearn(estimator, packages[name], name, "1", data.test_x[:_SAMPLE], output="label", convert=convert)
    said = estimator.predict(data.test_x).tolist()
    return Ground(stage, data, model, packages, dict.fromkeys(packages, said)), source
