"""`promotion`: a better version takes over, a worse one goes back before it has cost much; how long that takes.

In virtual time the promotion kernel sees scripted losses, 20 seeds each, with late feedback. Then a better and a worse
version of a real model come in turn to a live deployment, and the control role carries them on: for 20 seeds in the
full form, for one in the short form. Each seed draws the rows that its versions are trained on.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from load.figures import FAULTS, NONE, RIGHT, SHOWN, SHOWN_S, Figures, at_least
from load.harness import topics
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows, query_id
from load.models.training import digits
from load.research.operation.scripted_versions import Errors, queries_to_tell, walk
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from schemas.records import Application, Candidate, Outcome
from streams.runtime.clock import SystemClock
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from load.harness.driving import Driver
    from load.harness.system import Stage
    from load.models.training import Digits
    from schemas.records import Prediction

NAME = "promotion"
PARTS = ("virtual", "live")
MODEL = "digits"
SECONDS = 60.0  # a live turn takes at most; it ends when its candidate serves, or is back
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
_GONE_US = 1_000_000  # without an answer of the candidate: at a share of 0.1 chance does so once in 7,000,000 times
_LAST_S = 2.0  # a turn goes on so long after its end, so that feedback under way is seen

FIGURES = Figures(
    RIGHT("better_promoted", "worse_rolled_back", must=at_least(0.95)),
    FAULTS("worse_promoted", must=NONE),
    SHOWN("better_rolled_back", "worse_cost_max", "worse_cost_median", "better_queries_median", "worse_queries_median"),
    SHOWN_S("better_s_median", "better_s_max", "worse_s_median", "worse_s_max"),
    SHOWN("queries_at_*", "cost_at_*", "told_at_*"),
    RIGHT("live_better_promoted", "live_worse_rolled_back", must=at_least(0.95)),
    SHOWN("live_seeds", "live_worse_errors_median", "live_worse_errors_max"),
    SHOWN_S("live_better_s_median", "live_better_s_max", "live_worse_s_median", "live_worse_s_max"),
    recorded("live_", *FAULTS_OF_A_STRETCH, lost=NONE),
)


async def run(stage: Stage) -> Result:
    """Simulate the seeds and the table of shares, then play it on a deployment."""
    count = _FEW if stage.short else SEEDS
    seeds = range(stage.seed, stage.seed + count)
    parts = stage.only or PARTS
    ways = await asyncio.to_thread(_ways, seeds) if "virtual" in parts else {}
    rows = await asyncio.to_thread(lambda: list(_evidence(seeds, GAPS))) if "virtual" in parts else []
    live = await _live(stage, seeds[:1] if stage.short else seeds) if "live" in parts else {}
    return Result(
        NAME,
        figures={**ways, **_figures(rows), **live},
        parameters={
            "form": stage.form if not stage.only else ",".join(stage.only),
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
        candidate: the version that comes.
        labels: the true label of each query, by its id.
        answers: right and wrong ones by version.
        last: the versions of the last answers.
        wished_us: when the candidate was wished for; None = not yet.
        alone_us: when the candidate first gave all of the last answers.
        seen_us: when it answered last.
        now_us: when anything was answered last.
    """

    candidate: str
    labels: Mapping[str, int]
    answers: Counter[tuple[str, bool]] = field(default_factory=Counter)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LATELY))
    wished_us: int | None = None
    alone_us: int | None = None
    seen_us: int | None = None
    now_us: int = 0

    def take(self, predictions: Sequence[Prediction]) -> None:
        """Take a poll's predictions."""
        self.now_us = SystemClock().now_us()
        for prediction in predictions:
            for output in prediction.outputs:
                if output.outcome is Outcome.OK:
                    self._take(output.version, prediction.answer == self.labels[prediction.query_id])

    def _take(self, version: str, is_right: bool) -> None:
        self.answers[version, is_right] += 1
        self.last.append(version)
        if version != self.candidate:
            return
        self.seen_us = self.now_us
        if self.alone_us is None and len(self.last) == _LATELY and set(self.last) == {version}:
            self.alone_us = self.now_us

    def is_promoted(self) -> bool:
        """Tell whether the candidate answers everything."""
        return self.alone_us is not None

    def is_back(self) -> bool:
        """Tell whether the candidate has answered and does so no more."""
        return not self.is_promoted() and self.seen_us is not None and self.now_us - self.seen_us > _GONE_US

    def error(self, version: str) -> float:
        """Return how often a version was wrong."""
        right, wrong = self.answers[version, True], self.answers[version, False]
        return wrong / (right + wrong) if right + wrong else 0.0

    def cost(self, incumbent: str) -> float:
        """Return how many errors the candidate has cost beyond those that the incumbent would have made."""
        asked = self.answers[self.candidate, True] + self.answers[self.candidate, False]
        return self.answers[self.candidate, False] - self.error(incumbent) * asked


class _Seed(NamedTuple):
    """One seed's two turns: s from the wish to its end, None = it did not end as it should; and what was lost."""

    better_s: float | None
    worse_s: float | None
    worse_errors: float
    faults: Mapping[str, float]


async def _live(stage: Stage, seeds: Sequence[int]) -> dict[str, float]:
    """Let a better version come, then a worse one, for each seed."""
    data = digits()
    deployment = Deployment(
        topics.new_prefix(NAME),
        (Application("digits", (MODEL,), "single", slo_ms=_SLO_MS),),
        {MODEL: _package(stage, data, "base", seeds[0])},
        roles=("selection", "worker", "joiner", "control"),
        settings={"log_level": "warning"},
    )
    async with deployed(stage, deployment, data.inputs[0]) as driver:
        found = [await _both(stage, driver, data, seed) for seed in seeds]
    better_s = [each.better_s for each in found if each.better_s is not None]
    rolled_back = [each for each in found if each.worse_s is not None]
    return {
        "live_seeds": len(seeds),
        "live_better_promoted": len(better_s) / len(seeds),
        "live_worse_rolled_back": sum(each.worse_errors <= MOST_COST for each in rolled_back) / len(seeds),
        **_spread("live_better_s", better_s),
        **_spread("live_worse_s", [each.worse_s for each in rolled_back if each.worse_s is not None]),
        **_spread("live_worse_errors", [each.worse_errors for each in found]),
        **{f"live_{name}": sum(each.faults[name] for each in found) for name in FAULTS_OF_A_STRETCH},
    }


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{name}_median": median(values), f"{name}_max": max(values)} if values else {}


def _package(stage: Stage, data: Digits, kind: str, seed: int) -> Path:
    """Package a version that knows few rows (base), all (better), or hardly any (worse), unless it is there."""
    few = {"base": 80, "better": len(data.train_x), "worse": 25}[kind]
    version = f"{kind}-{seed}"
    if (stage.folder / version).exists():
        return stage.folder / version
    rows = np.random.default_rng(seed).permutation(len(data.train_x))[:few]
    estimator = RandomForestClassifier(10, random_state=seed).fit(data.train_x[rows], data.train_y[rows])
    package_sklearn(estimator, stage.folder / version, MODEL, version, data.test_x[:5], output="label")
    return stage.folder / version


async def _both(stage: Stage, driver: Driver, data: Digits, seed: int) -> _Seed:
    """Let one seed's better version come, then its worse one."""
    base, better, worse = (_package(stage, data, kind, seed) for kind in ("base", "better", "worse"))
    await driver.system.add_model(base)
    rise, more = await _turn(stage, driver, data, better, base.name, 2 * seed)
    serving = better.name if rise.is_promoted() else base.name
    fall, faults = await _turn(stage, driver, data, worse, serving, 2 * seed + 1)
    return _Seed(
        _seconds(rise.wished_us, rise.alone_us),
        _seconds(fall.wished_us, fall.seen_us) if fall.is_back() else None,
        fall.cost(serving),
        {name: more[name] + faults[name] for name in FAULTS_OF_A_STRETCH},
    )


def _seconds(from_us: int | None, until_us: int | None) -> float | None:
    return None if from_us is None or until_us is None else (until_us - from_us) / 1e6


async def _turn(
    stage: Stage, driver: Driver, data: Digits, candidate: Path, incumbent: str, seed: int
) -> tuple[Watch, Mapping[str, float]]:
    """Let one version come, and watch until its end is known; returns also the faults of the stretch."""
    count, rows = round(_LIVE_RATE * stage.seconds), len(data.inputs)
    watch = Watch(candidate.name, {query_id(seed, number): data.labels[number % rows] for number in range(count)})
    workload = Rows("digits", data.inputs, data.labels, seed=seed)
    wishing = asyncio.create_task(_wish(driver, candidate, incumbent, watch))
    stretch = await driver.drive(_until_over(watch, count), workload, int(_SLO_MS * 1e3), watch.take)
    await wishing
    return watch, stretch.faults


def _until_over(watch: Watch, count: int) -> Iterator[int]:
    """Yield when queries are sent (us), until a while after the candidate's end."""
    last = count
    for number in range(count):
        if last == count and (watch.is_promoted() or watch.is_back()):
            last = number + round(_LAST_S * _LIVE_RATE)
        if number >= last:
            return
        yield int(number * 1e6 / _LIVE_RATE)


async def _wish(driver: Driver, package: Path, incumbent: str, watch: Watch) -> None:
    """Make a version known and a candidate."""
    await asyncio.sleep(2.0)  # some answers of the incumbent alone
    await driver.system.add_model(package, 0.0)
    watch.wished_us = SystemClock().now_us()
    plan = Candidate(
        "version",
        MODEL,
        package.name,
        incumbent,
        watch.wished_us,
        _LIVE_STEPS,
        least=_LEAST,
        dwell_us=_DWELL_US,
        budget=BUDGET,
    )
    await driver.system.promote(plan)


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a better version takes over on evidence, a worse one goes back: 20 seeds in virtual time, 20 live",
    seconds=SECONDS,
    parts=PARTS,
    tables=tables,
    short=True,
)
