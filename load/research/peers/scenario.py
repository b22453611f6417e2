"""`peers`: Skysail and the alternatives, on the same queries, model, partitions and machine.

The full form has the grid of settings and five interleaved rounds (about 25 minutes on two cores). All are visited in
the first one. From the second on it is Skysail, the floors and the two others that were quickest. Backlogs are of the
first two rounds, as their medians differ less than a p99 does; latencies at given rates are of all five, in stretches
of five seconds.

The independent judge is a part of its own (`--only judge`, about 20 minutes): with it this would take longer than
anything here should. It needs no more than those that it asks, and both results make one page.

The short form has the best known settings and one round. Unless others are named, it has six of the contenders (about 5
minutes). A contender that cannot be installed or that fails is left out, and the result gives the reason.
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
    FAULTS,
    IN_FULL,
    NONE,
    RATIO,
    RATIO_RATE,
    Bound,
    Figures,
    at_least,
    at_most,
)
from load.harness.environment import usable_cores
from load.harness.progress import say
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.research.peers import ceiling, environments, grid, loadgen
from load.research.peers.contenders import CONTENDERS, DIRECT, KINDS, SHORTEST, WHOLE, WHOLE_ONE
from load.research.peers.measurement import COUNTS, Plan, visit
from load.research.peers.running import Ground
from load.research.peers.summary import LANES, RATES, RATIOS, Summary, behind, declared, figures, judged_figures
from load.results.results import Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.system import Stage
    from load.research.peers.contenders import Chosen, Contender
    from load.research.peers.summary import Row

NAME = "peers"
_say = partial(say, NAME)
NAMES = tuple(contender.name for contender in CONTENDERS)
JUDGE = "judge"
PARTS = (*NAMES, JUDGE)
JUDGED = (WHOLE_ONE.name, "floor_aiokafka", "kafka_streams")  # the loop, and who last kept most; `to_judge` says
SECONDS = 5.0
SHORT = ("floor_confluent", "floor_confluent_two", SHORTEST.name, WHOLE.name, WHOLE_ONE.name, "quix")
_ROUNDS, _SHORT_ROUNDS = 5, 1
_DRAINED = 2  # rounds with a backlog
_NEAREST = 2
_PLAN = Plan(SECONDS, 4.0, 10.0, RATES, (RATES[0], RATES[-1]))


@dataclass(slots=True)
class _Comparison:
    """The contenders that are left, with their settings."""

    ground: Ground
    plan: Plan
    left: list[Contender]
    settings: dict[str, Chosen] = field(default_factory=dict)
    tried: list[grid.Tried] = field(default_factory=list)
    out: list[dict[str, str]] = field(default_factory=list)

    def leave_out(self, contender: Contender, why: object) -> None:
        """Go on without a contender."""
        _say(f"{contender.label} is left out: {why}")
        self.left = [other for other in self.left if other is not contender]
        self.out.append({"system": contender.name, "label": contender.label, "why": " ".join(str(why).split())})

    def install(self) -> None:
        """Install all environments; leave out those that fail."""
        for contender in tuple(self.left):
            try:
                if contender.environment:
                    environments.ensure(contender.environment, _say)
            except PeerUnavailableError as error:
                self.leave_out(contender, error)

    def chosen(self, contender: Contender) -> Chosen:
        """Return the settings of a contender: found, or known beforehand."""
        return self.settings.get(contender.name, contender.known)

    async def search(self) -> None:
        """Find the best settings of those that have a choice."""
        for contender in [each for each in self.left if len(each.grid) > 1]:
            try:
                self.settings[contender.name], rows = await grid.search(contender, self.ground, _say)
                self.tried += rows
            except PeerFailedError as error:
                self.leave_out(contender, error)

    async def round(self, summary: Summary, index: int, seed: int) -> None:
        """Visit each contender once, in an order of this round; after the first only those nearest to Skysail.

        After some rounds there are no backlogs, and so no visits to those that are sent nothing else.
        """
        near, plan = nearest(summary.rows()), replace(self.plan, drains=index < _DRAINED)
        order = [contender for contender in self.left if not near or contender.name in near]
        random.Random(seed + index).shuffle(order)  # noqa: S311  # an order, not a secret
        for contender in order:
            started_s, capacity_per_s = time.monotonic(), summary.capacity_per_s(contender)
            if not plan.drains and not plan.at(contender, capacity_per_s):
                continue
            try:
                summary.add(
                    contender, await visit(contender, self.ground, self.chosen(contender), plan, capacity_per_s)
                )
            except PeerFailedError as error:
                self.leave_out(contender, error)
            _say(f"{contender.label}: {time.monotonic() - started_s:.0f} s")

    async def judge(self) -> list[Row]:
        """Ask the judge what it can do without any system, and about each of those that are left."""
        judged = []
        for contender in (DIRECT, *self.left):
            _say(f"LoadGen asks {contender.label}")
            judged.append(await loadgen.bounded_rate(contender, self.ground, self.chosen(contender).bounded))
        return judged


def nearest(rows: Sequence[Row]) -> set[str]:
    """Return who is visited again: Skysail and the floors, and of all others the two with the highest rate."""
    fixed = {row["name"] for row in rows if row["kind"] in ("skysail", "floor")}
    others = sorted((row for row in rows if row["name"] not in fixed), key=lambda row: row["drained_per_s"][0])
    return {*fixed, *(row["name"] for row in others[-_NEAREST:])}


def to_judge(rows: Sequence[Row]) -> set[str]:
    """Return whom the judge is to ask: the loop in one process, and the floor and peer that keep most within its bound.

    That is at the highest rate, of those that are sent any; of equals the faster one.
    """
    share = f"at_{RATES[-1]}_within_{loadgen.OBJECTIVE_MS:.0f}ms_percent"
    paced = [row for row in rows if f"at_{RATES[0]}_p50_ms" in row]
    best = (
        max(
            (row for row in paced if row["kind"] == kind),
            key=lambda row: (row.get(share, [0.0])[0], row["drained_per_s"][0]),
            default=None,
        )
        for kind in ("floor", "peer")
    )
    return {WHOLE_ONE.name, *(row["name"] for row in best if row is not None)}


# What must be reached beside the best floor, which has Skysail's codec and the model as arrays and nothing else.
_BOUNDS: Mapping[str, Bound] = {
    "skysail_shortest_to_floor_ratio_drained": at_least(0.6),
    "skysail_shortest_to_floor_ratio_cpu": at_most(1.7),
    "skysail_whole_one_to_floor_ratio_drained": at_least(0.3),
    **{
        f"skysail_whole_one_to_floor_ratio_at_{rate}_{point}": at_most(2.0)
        for rate, point in product(RATES, ("p50", "p99"))
    },
    "skysail_whole_one_to_peer_ratio_judged_no_default": at_least(1.0, IN_FULL),
}
_MORE_IS_BETTER = ("drained", "judged", "judged_no_default")
FIGURES = Figures(
    *(
        (RATIO_RATE if end in _MORE_IS_BETTER else RATIO)(name, must=_BOUNDS.get(name, ()))
        for name, end in ((f"{lane}_to_{kind}_ratio_{end}", end) for lane, kind, end in product(LANES, KINDS, RATIOS))
    ),
    *(FAULTS(*(f"{lane}_{count}" for count in COUNTS), must=NONE) for lane in LANES),
    FAULTS("impossible_rates", must=NONE),
    declared("skysail_*"),
)


async def run(stage: Stage) -> Result:
    """Measure everybody, or ask the judge."""
    if JUDGE in stage.only:
        return await _judged(stage)
    comparison = _comparison(stage, stage.only or (SHORT if stage.short else NAMES))
    climbed = await ceiling.climb(comparison.ground, ceiling.SHORT_RATES if stage.short else ceiling.RATES)
    comparison.plan = replace(comparison.plan, ceiling_per_s=ceiling.ceiling_per_s(climbed))
    if not stage.short:
        await comparison.search()
    summary, rounds = Summary(CONTENDERS), _rounds(stage)
    for index in range(rounds):
        _say(f"round {index + 1} of {rounds}")
        await comparison.round(summary, index, stage.seed)
    return _result(stage, comparison, summary, climbed)


async def _judged(stage: Stage) -> Result:
    """Ask the judge about those that are named, or else about those known to keep most."""
    environments.ensure(loadgen.ENVIRONMENT, _say)
    comparison = _comparison(stage, tuple(name for name in stage.only if name != JUDGE) or JUDGED)
    await comparison.search()
    judged = await comparison.judge()
    return Result(
        NAME,
        figures=judged_figures(judged),
        parameters=_parameters(stage),
        series={"judged": judged},
        notes=("LoadGen's queries carry its bound of 50 ms; those at a rate carry 100 ms. Nobody else looks at it.",),
    )


def _comparison(stage: Stage, names: Sequence[str]) -> _Comparison:
    """Return a comparison of these contenders, as far as they can be installed."""
    chosen = [contender for contender in CONTENDERS if contender.name in names]
    comparison = _Comparison(_ground(stage), replace(_PLAN, seconds=stage.seconds), chosen)
    comparison.install()
    return comparison


def _rounds(stage: Stage) -> int:
    return _SHORT_ROUNDS if stage.short else _ROUNDS


def _parameters(stage: Stage) -> dict[str, float | str]:
    """Return what both parts of a comparison have in common."""
    return {
        "form": stage.form,
        "rounds": _rounds(stage),
        "seconds": stage.seconds,
        "seed": stage.seed,
        "runtime": LINEAR_RUNTIME,
    }


def _ground(stage: Stage) -> Ground:
    """Train, and write down what each model says about each row."""
    data = digits()
    estimators = linear_models(data)
    model = stage.folder / "logistic.joblib"
    joblib.dump(estimators["logistic"], model)
    packages = package_all(estimators, data.test_x, stage.folder, LINEAR_RUNTIME)
    truth = {name: each.predict(data.test_x).tolist() for name, each in estimators.items()}
    return Ground(stage, data, model, packages, truth)


def _result(stage: Stage, comparison: _Comparison, summary: Summary, climbed: list[ceiling.Look]) -> Result:
    rows = summary.rows()
    return Result(
        NAME,
        figures=figures(rows, usable_cores()),
        parameters=_parameters(stage),
        series={
            "systems": rows,
            "behind": behind(rows),
            "visits": summary.visits(),
            "grid": comparison.tried,
            "direct": climbed,
            "left_out": comparison.out,
        },
        notes=(
            _limit(comparison.plan.ceiling_per_s, climbed),
            f"Those that keep most within {loadgen.OBJECTIVE_MS:.0f} ms: {', '.join(sorted(to_judge(rows)))}.",
            "Floors and Skysail have one codec, and the model as arrays. Others have fastavro and scikit-learn.",
            "Kafka Streams has Apache's Avro, in Java, and ONNX Runtime.",
            "A default is no answer: it counts as one that takes for ever. A backlog's queries have ten minutes.",
            "CPU time of broker and Redis has what they do for the harness in it, which is the same for everybody.",
            "MLServer reads and writes JSON, four times the bytes, and loses the queries that it holds when it dies.",
            "Ray Serve and BentoML have no Kafka. One poll at a time goes through load/research/peers/bridge.py.",
        ),
    )


def _limit(ceiling_per_s: float, climbed: list[ceiling.Look]) -> str:
    """Say at which rate the harness itself is saturated, or that the rates tried end before it."""
    if all(row["saturated"] for row in climbed):
        least = min(row["rate_per_s"] for row in climbed)
        return f"The harness was saturated at {least:,.0f}/s. Latencies of this run say nothing."
    if ceiling_per_s >= max(row["rate_per_s"] for row in climbed):
        return f"The harness kept up with {ceiling_per_s:,.0f}/s, the highest rate that it tried without any system."
    return f"Rates beyond {ceiling_per_s:,.0f}/s are left out. Without any system the harness is saturated there."
