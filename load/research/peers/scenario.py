"""`peers`: Skysail and the alternatives, on the same queries, model, partitions and machine.

The full form has the grid of settings and five interleaved rounds, with the independent judge in the last (about 50
minutes on two cores). The short form has the best known settings, two rounds and fewer rates. Unless others are named,
it has six of the contenders (about 6 minutes). A contender that cannot be installed or that fails is left out, and the
result gives the reason.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import joblib

from load.errors import PeerFailedError, PeerUnavailableError
from load.figures import (
    DEFAULTS,
    FAULTS,
    IN_FULL,
    NONE,
    RATIO,
    RATIO_RATE,
    Better,
    Bound,
    Figures,
    Kind,
    at_least,
    at_most,
)
from load.harness.progress import say
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.research.peers import ceiling, environments, grid, loadgen
from load.research.peers.contenders import CONTENDERS, DIRECT, SHORTEST, UNCONVERTED_MODEL, WHOLE
from load.research.peers.measurement import Plan, visit
from load.research.peers.running import Ground
from load.research.peers.summary import Summary, behind, declared, figures
from load.results.results import Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.harness.system import Stage
    from load.research.peers.contenders import Contender

NAME = "peers"
_say = partial(say, NAME)
NAMES = tuple(contender.name for contender in CONTENDERS)
SECONDS = 2.0
SHORT = ("hand_aiokafka", "hand_confluent", SHORTEST.name, WHOLE.name, "faststream", "quix")
_ROUNDS, _SHORT_ROUNDS = 5, 2
_RATES = (200.0, 500.0)
_FULL = Plan(SECONDS, 3.0, _RATES, (0.06, 0.12, 0.25, 0.5, 0.75, 0.9), judged=(0.75, 0.5, 0.25, 0.125, 0.0625, 0.03))
_SHORT = Plan(SECONDS, 2.0, _RATES, (0.5,))


@dataclass(slots=True)
class _Comparison:
    """The contenders that are left, with their settings."""

    ground: Ground
    plan: Plan
    left: list[Contender]
    settings: dict[str, Mapping[str, object]] = field(default_factory=dict)
    tried: list[grid.Tried] = field(default_factory=list)
    out: list[dict[str, str]] = field(default_factory=list)

    def leave_out(self, contender: Contender, why: object) -> None:
        """Go on without a contender."""
        _say(f"{contender.label} is left out: {why}")
        self.left = [other for other in self.left if other is not contender]
        self.out.append({"system": contender.name, "label": contender.label, "why": " ".join(str(why).split())})

    def install(self) -> None:
        """Install all environments; leave out those that fail, the judge too."""
        for contender in tuple(self.left):
            try:
                if contender.environment:
                    environments.ensure(contender.environment, _say)
            except PeerUnavailableError as error:
                self.leave_out(contender, error)
        try:
            if self.plan.judged:
                environments.ensure(loadgen.ENVIRONMENT, _say)
        except PeerUnavailableError as error:
            self.plan = replace(self.plan, judged=())
            self.out.append({"system": loadgen.ENVIRONMENT, "label": "MLCommons LoadGen", "why": str(error)})

    async def search(self) -> None:
        """Find the best settings."""
        for contender in tuple(self.left):
            try:
                rows = await grid.search(contender, self.ground, self.plan, _say)
            except PeerFailedError as error:
                self.leave_out(contender, error)
                continue
            self.tried += rows
            self.settings[contender.name] = contender.grid[next(row["index"] for row in rows if row["chosen"])]

    async def round(self, summary: Summary, plan: Plan, seed: int) -> None:
        """Visit each contender once, in an order of this round."""
        order = [*self.left]
        random.Random(seed).shuffle(order)  # noqa: S311  # an order, not a secret
        for contender in (DIRECT, *order):
            started_s = time.monotonic()
            setting = self.settings.get(contender.name, contender.grid[0])
            try:
                seen = await visit(contender, self.ground, setting, plan, summary.capacity_per_s(contender))
                summary.add(contender, seen)
                if contender is DIRECT and seen.judgement:
                    plan = replace(plan, judged_up_to_per_s=seen.judgement["valid_per_s"])
            except PeerFailedError as error:
                self.leave_out(contender, error)
            _say(f"{contender.label}: {time.monotonic() - started_s:.0f} s")


# Hand loops and peers read and write records with fastavro, which most of these ratios are made of.
_BOUNDS: Mapping[str, Bound] = {
    "shortest_to_hand_ratio_rate": at_least(0.75),
    "shortest_to_peer_ratio_rate": at_least(1.3),
    "shortest_to_hand_ratio_at_200_p50": at_most(1.3),
    "shortest_to_hand_ratio_at_500_p50": at_most(1.3),
    "unconverted_to_hand_ratio_rate": at_least(0.75, IN_FULL),
    "unconverted_to_peer_ratio_rate": at_least(1.3, IN_FULL),
    "whole_to_hand_ratio_rate": at_least(0.4),
    "whole_to_hand_ratio_cpu": at_most(3.0),
}
_RATIOS: Mapping[str, Kind] = {
    "rate": RATIO_RATE,
    "flat": Kind("", Better.HIGHER, 0.4),
    **dict.fromkeys(("cpu", "at_200_p50", "at_500_p50"), RATIO),
}
FIGURES = Figures(
    *(
        kind(f"skysail_{lane}_to_{other}_ratio_{end}", must=_BOUNDS.get(f"{lane}_to_{other}_ratio_{end}", ()))
        for lane, other, (end, kind) in product(("shortest", "unconverted", "whole"), ("hand", "peer"), _RATIOS.items())
    ),
    *(
        FAULTS(*(f"skysail_{lane}_{count}" for count in ("lost", "unanswered", "duplicates", "wrong")), must=NONE)
        for lane in ("shortest", "whole")
    ),
    FAULTS(*(f"skysail_unconverted_{count}" for count in ("lost", "unanswered", "duplicates", "wrong"))),
    DEFAULTS("skysail_*_defaults"),
    declared("skysail_*"),
)


async def run(stage: Stage) -> Result:
    """Measure everybody."""
    plan, rounds = (_SHORT, _SHORT_ROUNDS) if stage.short else (_FULL, _ROUNDS)
    named = stage.only or (SHORT if stage.short else NAMES)
    chosen = [contender for contender in CONTENDERS if contender.name in named]
    comparison = _Comparison(_ground(stage), replace(plan, seconds=stage.seconds), chosen)
    comparison.install()
    climbed = await ceiling.climb(comparison.ground)
    comparison.plan = replace(comparison.plan, ceiling_per_s=ceiling.ceiling_per_s(climbed))
    if not stage.short:
        await comparison.search()
    summary = Summary((DIRECT, *CONTENDERS))
    for index in range(rounds):
        _say(f"round {index + 1} of {rounds}")
        last = index == rounds - 1
        plan = comparison.plan if last else replace(comparison.plan, judged=())
        await comparison.round(summary, plan, stage.seed + index)
    return _result(stage, comparison, summary, climbed, rounds)


def _ground(stage: Stage) -> Ground:
    """Train, and write down what each model says about each row."""
    data = digits()
    estimators = linear_models(data)
    model = stage.folder / "logistic.joblib"
    joblib.dump(estimators["logistic"], model)
    unconverted = {UNCONVERTED_MODEL: estimators["logistic"]}
    packages = package_all(estimators, data.test_x, stage.folder, LINEAR_RUNTIME)
    packages |= package_all(unconverted, data.test_x, stage.folder)
    truth = {name: each.predict(data.test_x).tolist() for name, each in (estimators | unconverted).items()}
    return Ground(stage, data, model, packages, truth)


def _result(
    stage: Stage, comparison: _Comparison, summary: Summary, climbed: list[ceiling.Look], rounds: int
) -> Result:
    rows = summary.rows()
    return Result(
        NAME,
        figures=figures(rows),
        parameters={
            "form": stage.form,
            "rounds": rounds,
            "seconds": stage.seconds,
            "seed": stage.seed,
            "runtime": LINEAR_RUNTIME,
        },
        series={
            "systems": rows,
            "behind": behind(rows),
            "judged": summary.judged(),
            "grid": comparison.tried,
            "direct": climbed,
            "left_out": comparison.out,
        },
        notes=(
            _limit(comparison.plan.ceiling_per_s, climbed),
            "Skysail runs the model as arrays unless its name says otherwise. The others run scikit-learn.",
            "Flat at: the highest of the rates tried at which no backlog grew. Shares of the drain rate count too.",
            "CPU time of the whole loop includes joining and learning. No other system does either.",
            "CPU time and memory of Redis, where the whole loop keeps its states, are left out like the broker's.",
            "LoadGen runs in the last round alone, and gives no feedback. It counts a default answer as missing.",
            "MLServer reads and writes JSON, four times the bytes, and loses the queries that it holds when it dies.",
            "Ray Serve and BentoML have no Kafka. One poll at a time goes through load/research/peers/bridge.py.",
        ),
    )


def _limit(ceiling_per_s: float, climbed: list[ceiling.Look]) -> str:
    """Say at which rate the harness itself is saturated, or that the rates tried end before it."""
    if all(row["saturated"] for row in climbed):
        return f"Even at {ceiling_per_s:,.0f}/s the harness was saturated. Latency and goodput of this run say nothing."
    if ceiling_per_s >= max(row["rate_per_s"] for row in climbed):
        return (
            f"The highest rate tried was {ceiling_per_s:,.0f}/s. The harness kept up with it, and a system that reaches"
            " it may do more."
        )
    return f"Rates beyond {ceiling_per_s:,.0f}/s are left out. Without any system the harness is saturated there."
