"""`promotion`: a better version takes over, a worse one goes back before it has cost much; how long that takes.

In virtual time the promotion kernel sees scripted losses, 20 seeds each, with late feedback. Then one better and one
worse version of a real model come in turn to a live deployment, and the control role carries them on.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from sklearn.ensemble import RandomForestClassifier

from load.figures import FAULTS, NONE, RIGHT, SHOWN, SHOWN_S, Figures, at_least, at_most
from load.harness import topics
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows, query_id
from load.models.training import digits
from load.results.results import Result
from load.results.tables import Table
from load.scenarios.parts.scripted_versions import Errors, queries_to_tell, walk
from schemas.records import Application, Candidate, Outcome
from streams.runtime.clock import SystemClock
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from load.harness.driving import Driver
    from load.harness.system import Stage
    from load.models.training import Digits
    from schemas.records import Prediction

NAME = "promotion"
MODEL = "digits"
SECONDS = 60.0  # of each of the two live turns
SEEDS, _FEW = 20, 5
STEPS = (0.05, 0.1, 0.25, 0.5, 1.0)
# Wrong answers of either version: the incumbent's, and those of a candidate that is better or worse.
BASE, BETTER, WORSE = 0.15, 0.10, 0.25
BUDGET = 50.0
# A candidate may cost its budget, what it answers until its feedback is there, and the chance in what is counted.
MOST_COST = 80.0
_RATE, _DELAY_US, _LIMIT_US = 200.0, 1_000_000, 1_800_000_000
_ALPHA = 0.05
SHARES, GAPS = (0.0, 0.1, 0.2, 0.5), (0.05, 0.1)  # 0 = a shadow
_LIMIT = 100_000  # queries after which nobody waits
_LIVE_RATE = 150.0
_LIVE_STEPS, _LEAST, _DWELL_US = (0.1, 0.5, 1.0), 40, 3_000_000
_SLO_MS = 500.0
_LATELY = 50  # answers: all of them of one version = it answers everything

FIGURES = Figures(
    RIGHT("better_promoted", "worse_rolled_back", must=at_least(0.95)),
    FAULTS("worse_promoted", must=NONE),
    SHOWN("better_rolled_back", "worse_cost_max", "worse_cost_median", "better_queries_median", "worse_queries_median"),
    SHOWN_S("better_s_median", "better_s_max", "worse_s_median", "worse_s_max"),
    SHOWN("queries_at_*", "cost_at_*", "told_at_*"),
    RIGHT("live_better_promoted", "live_worse_rolled_back", must=at_least(1)),
    FAULTS("live_worse_errors", must=at_most(MOST_COST)),
    SHOWN_S("live_better_s", "live_worse_s"),
    recorded("live_", *FAULTS_OF_A_STRETCH, lost=NONE),
)


async def run(stage: Stage) -> Result:
    """Simulate the seeds and the table of shares, then play it on a deployment."""
    count = _FEW if stage.short else SEEDS
    seeds = range(stage.seed, stage.seed + count)
    ways = await asyncio.to_thread(_ways, seeds)
    rows = await asyncio.to_thread(lambda: list(_evidence(seeds, GAPS)))
    live = await _live(stage)
    return Result(
        NAME,
        figures={**ways, **_figures(rows), **live},
        parameters={
            "form": stage.form,
            "seeds": count,
            "error": BASE,
            "error_better": BETTER,
            "error_worse": WORSE,
            "rate": _RATE,
            "feedback_after_s": _DELAY_US / 1e6,
            "steps": " ".join(f"{share:g}" for share in STEPS),
            "budget": BUDGET,
            "seconds": stage.seconds,
        },
        series={"evidence": rows},
        notes=(
            "costs are wrong answers of the candidate beyond those that the incumbent would have given",
            f"worse_rolled_back: share of the seeds in which it went back before it had cost {MOST_COST:g} errors",
            f"virtual: {_RATE:g} queries a second; live: {_LIVE_RATE:g}, and real models",
        ),
    )


def _ways(seeds: Sequence[int]) -> dict[str, float]:
    """Let a better and a worse version walk, once a seed."""
    plan = Candidate("version", "model", "2", "1", 0, STEPS, dwell_us=30_000_000, budget=BUDGET)
    better, worse = (
        [walk(plan, Errors(error, BASE), _RATE, _DELAY_US, _LIMIT_US, seed) for seed in seeds]
        for error in (BETTER, WORSE)
    )
    ends = Counter([("better", way.action) for way in better] + [("worse", way.action) for way in worse])
    return {
        "better_promoted": ends["better", "promote"] / len(seeds),
        "better_rolled_back": ends["better", "back"] / len(seeds),
        "worse_rolled_back": sum(way.action == "back" and way.cost <= MOST_COST for way in worse) / len(seeds),
        "worse_promoted": float(ends["worse", "promote"]),
        "worse_cost_max": max(way.cost for way in worse),
        "worse_cost_median": median(way.cost for way in worse),
        "better_queries_median": median(way.queries for way in better),
        "worse_queries_median": median(way.queries for way in worse),
        "better_s_median": median(way.seconds for way in better),
        "better_s_max": max(way.seconds for way in better),
        "worse_s_median": median(way.seconds for way in worse),
        "worse_s_max": max(way.seconds for way in worse),
    }


def _evidence(seeds: Sequence[int], gaps: Sequence[float]) -> Iterator[dict[str, float]]:
    """Yield, by gap and share, how many queries tell a better version, and what a version as much worse costs."""
    for gap in gaps:
        for share in SHARES:
            found = [queries_to_tell(share, Errors(BASE - gap, BASE), _ALPHA, _LIMIT, seed) for seed in seeds]
            worse = [queries_to_tell(share, Errors(BASE + gap, BASE), _ALPHA, _LIMIT, seed) for seed in seeds]
            yield {
                "gap": gap,
                "share": share,
                "queries": median(queries for queries, _ in found),
                "most": max(queries for queries, _ in found),
                "told": sum(is_better for _, is_better in found) / len(seeds),
                "worse_queries": median(queries for queries, _ in worse),
                "cost": median(queries for queries, _ in worse) * share * gap,
                "wrong": sum(is_better for _, is_better in worse),
            }


def _figures(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the table's rows as figures."""
    named = {f"{100 * row['share']:g}_percent_gap_{row['gap']:g}".replace(".", "_"): row for row in rows}
    return {
        f"{figure}_at_{name}": row[key]
        for name, row in named.items()
        for figure, key in (("queries", "queries"), ("cost", "cost"), ("told", "told"))
    }


def tables(result: Result) -> list[Table]:
    """Return the time and the cost of evidence at each share."""
    heads = ("better by", "share", "queries, median", "queries, most", "told", "worse by as much: queries", "errors")
    rows = tuple(
        (
            f"{row['gap']:g}",
            f"{100 * row['share']:g} %" if row["share"] else "shadow",
            f"{row['queries']:,.0f}",
            f"{row['most']:,.0f}",
            f"{100 * row['told']:.0f} %",
            f"{row['worse_queries']:,.0f}",
            f"{row['cost']:.0f}",
        )
        for row in result.series["evidence"]
    )
    return [Table(f"Time and cost of evidence at a fixed share, the incumbent wrong in {BASE:g}", heads, rows)]


@dataclass(slots=True)
class Watch:
    """Watches which version answers, and what that costs.

    Attributes:
        labels: the true label of each query, by its id.
        answers: right and wrong ones by version.
        last: the versions of the last answers.
        alone_us: when each version first gave all of the last answers.
    """

    labels: Mapping[str, int]
    answers: Counter[tuple[str, bool]] = field(default_factory=Counter)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LATELY))
    alone_us: dict[str, int] = field(default_factory=dict)
    seen_us: dict[str, int] = field(default_factory=dict)  # when each answered last

    def take(self, predictions: Sequence[Prediction]) -> None:
        """Take a poll's predictions."""
        for prediction in predictions:
            for output in prediction.outputs:
                if output.outcome is not Outcome.OK:
                    continue
                now_us, version = SystemClock().now_us(), output.version
                self.answers[version, prediction.answer == self.labels[prediction.query_id]] += 1
                self.last.append(version)
                self.seen_us[version] = now_us
                if len(self.last) == _LATELY and set(self.last) == {version}:
                    self.alone_us.setdefault(version, now_us)

    def error(self, version: str) -> float:
        """Return how often a version was wrong."""
        right, wrong = self.answers[version, True], self.answers[version, False]
        return wrong / (right + wrong) if right + wrong else 0.0


async def _live(stage: Stage) -> dict[str, float]:
    """Let a better version come, then a worse one."""
    data = digits()
    _package(stage, data)
    deployment = Deployment(
        topics.new_prefix(NAME),
        (Application("digits", (MODEL,), "single", slo_ms=_SLO_MS),),
        {MODEL: stage.folder / "1"},
        roles=("selection", "worker", "joiner", "control"),
        settings={"log_level": "warning"},
    )
    async with deployed(stage, deployment, data.inputs[0]) as driver:
        better, better_us, faults = await _turn(stage, driver, data, "2", "1", 2 * stage.seed)
        worse, worse_us, more = await _turn(stage, driver, data, "3", "2", 2 * stage.seed + 1)
    promoted_us, back_us = better.alone_us.get("2"), worse.seen_us.get("3")
    is_back = back_us is not None and set(worse.last) == {"2"}
    extra = worse.answers["3", False] - worse.error("2") * sum(worse.answers["3", right] for right in (True, False))
    return {
        "live_better_promoted": float(promoted_us is not None),
        "live_worse_rolled_back": float(is_back),
        "live_better_s": -1.0 if promoted_us is None else (promoted_us - better_us) / 1e6,
        "live_worse_s": -1.0 if back_us is None or not is_back else (back_us - worse_us) / 1e6,
        "live_worse_errors": extra,
        **{f"live_{name}": faults[name] + more[name] for name in FAULTS_OF_A_STRETCH},
    }


def _package(stage: Stage, data: Digits) -> None:
    """Package three versions: one that knows few rows, one that knows all, one that knows hardly any."""
    for version, rows in (("1", 80), ("2", len(data.train_x)), ("3", 25)):
        estimator = RandomForestClassifier(10, random_state=stage.seed).fit(data.train_x[:rows], data.train_y[:rows])
        package_sklearn(estimator, stage.folder / version, MODEL, version, data.test_x[:5])


async def _turn(
    stage: Stage, driver: Driver, data: Digits, candidate: str, incumbent: str, seed: int
) -> tuple[Watch, int, Mapping[str, float]]:
    """Let one version come, and watch; returns also when it was wished for (us), and the faults of the stretch."""
    count, rows = round(_LIVE_RATE * stage.seconds), len(data.inputs)
    watch = Watch({query_id(seed, number): data.labels[number % rows] for number in range(count)})
    workload = Rows("digits", data.inputs, data.labels, seed=seed)
    offsets_us = [int(number * 1e6 / _LIVE_RATE) for number in range(count)]
    wishing = asyncio.create_task(_wish(stage, driver, candidate, incumbent))
    stretch = await driver.drive(offsets_us, workload, int(_SLO_MS * 1e3), watch.take)
    return watch, await wishing, stretch.faults


async def _wish(stage: Stage, driver: Driver, candidate: str, incumbent: str) -> int:
    """Make a version known and a candidate; returns when (us)."""
    await asyncio.sleep(2.0)  # some answers of the incumbent alone
    await driver.system.add_model(stage.folder / candidate, 0.0)
    now_us = SystemClock().now_us()
    plan = Candidate(
        "version", MODEL, candidate, incumbent, now_us, _LIVE_STEPS, least=_LEAST, dwell_us=_DWELL_US, budget=BUDGET
    )
    await driver.system.promote(plan)
    return now_us
