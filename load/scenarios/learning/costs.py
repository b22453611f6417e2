"""`costs`: what a stream of payments costs when policies learn who is right, and when they learn what mistakes cost.

A missed fraud costs 40, a false alarm 1. Three models answer: two are right most often and miss most frauds, a wary one
raises many false alarms and misses few. The kernels of selection, joiner and learner run in virtual time: the same
queries, labels and draws for each policy, once with `zero_one` and once with a cost matrix. Labels come 0.2 s after the
answers. What counts is the cost of what was served, from the first query on.

Promotion is judged beside: the wary model is a candidate in the shadow of the plain one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import numpy as np

from load.figures import ERROR, NONE, SHOWN, WITHOUT_UNIT, Better, Figures, Kind, at_least, at_most
from load.models.fraud import FRAUD, OK, Payments, payments
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from load.scenarios.learning.payment_loop import served
from policies.loss_rules import rule, written
from schemas.records import Decision, JoinStatus, Observation, VersionLoss
from streams.promotion.versions import VersionEvidence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.system import Stage

NAME = "costs"
POLICIES: Final = ("exp3", "thompson", "exp4")
MISS, ALARM = 40.0, 1.0
LOSSES: Final = {
    "zero_one": "zero_one",
    "cost": written({"cost": {FRAUD: {OK: MISS}, OK: {FRAUD: ALARM}}, "unit": "EUR"}).text,
}
_QUERIES, _SHORT_QUERIES = 12_000, 2_500
_ALPHA: Final = 0.05
_COST = Kind("EUR", Better.LOWER, 0.15)  # of 1,000 queries

FIGURES = Figures(
    _COST(*(f"{policy}_cost_cost" for policy in POLICIES)),
    Kind("EUR")(*(f"{policy}_zero_one_cost" for policy in POLICIES), "*_alone_cost"),
    Kind(WITHOUT_UNIT, Better.LOWER, 0.2)(*(f"{policy}_share" for policy in POLICIES), must=at_most(0.75)),
    ERROR(*(f"{policy}_zero_one_error" for policy in POLICIES)),
    SHOWN(*(f"{policy}_cost_error" for policy in POLICIES), "*_alone_error"),
    Kind("EUR")("cost_promotion_gain", must=at_least(0.0)),
    Kind(WITHOUT_UNIT)("zero_one_promotion_gain", must=at_most(0.0)),
    Kind(WITHOUT_UNIT)("cost_promotion_comparisons"),
    Kind(WITHOUT_UNIT, Better.LOWER)("not_as_charged", must=NONE),
)


async def run(stage: Stage) -> Result:
    """Play each policy with both losses; then judge the wary model as a candidate by both."""
    count = _SHORT_QUERIES if stage.short else _QUERIES
    return await asyncio.to_thread(measured, count, stage.seed, stage.form)


def measured(count: int, seed: int, form: str = "short") -> Result:
    """Return the figures of so many payments."""
    data, figures = payments(count, seed), dict[str, float]()
    for name, answers in data.answers.items():
        figures[f"{name}_alone_cost"], figures[f"{name}_alone_error"] = _cost(data, answers), _error(data, answers)
    for policy in POLICIES:
        for name, text in LOSSES.items():
            found = served(data, policy, text, seed)
            figures[f"{policy}_{name}_cost"] = _cost(data, found.answers)
            figures[f"{policy}_{name}_error"] = _error(data, found.answers)
            if name == "cost":
                figures["not_as_charged"] = figures.get("not_as_charged", 0.0) + _differs(data, found.charged)
        figures[f"{policy}_share"] = figures[f"{policy}_cost_cost"] / figures[f"{policy}_zero_one_cost"]
    for name, text in LOSSES.items():
        figures |= _promoted(data, name, text)
    return Result(NAME, figures, {"form": form, "queries": count, "miss": MISS, "alarm": ALARM, "seed": seed})


def _cost(data: Payments, answers: Sequence[str]) -> float:
    """Return what answers cost per 1,000, by NumPy alone."""
    told, said = np.array(data.labels), np.array(answers)
    costs = np.where(told == said, 0.0, np.where(told == FRAUD, MISS, ALARM))
    return float(costs.mean()) * 1_000


def _error(data: Payments, answers: Sequence[str]) -> float:
    return float((np.array(data.labels) != np.array(answers)).mean())


def _differs(data: Payments, charged: dict[int, tuple[str, float]]) -> float:
    """Return how many observations say another cost than the matrix."""
    told = {number: (data.labels[number], answer, cost) for number, (answer, cost) in charged.items()}
    costs = {(FRAUD, OK): MISS, (OK, FRAUD): ALARM}
    return float(sum(abs(costs.get((label, answer), 0.0) - cost) > 1e-9 for label, answer, cost in told.values()))


def _promoted(data: Payments, name: str, text: str) -> dict[str, float]:
    """Return by how much the wary model is shown to be better than the plain one, and after how many comparisons.

    The gain is a bound that holds at all times: of the cost per 1,000, or of errors a query. Below 0 nothing is shown.
    """
    evidence, judge = VersionEvidence("screen", "wary", "plain"), rule(text)
    worth, shown = judge.worth(None) or 1.0, 0
    for number, label in enumerate(data.labels):
        losses = [VersionLoss("screen", each, judge.loss(data.answers[each][number], label)) for each in _RIVALS]
        evidence.take(_OBSERVED._replace(query_id=f"q{number}", versions=tuple(losses)))
        if not shown and number % 50 == 49 and evidence.evidence(_ALPHA).lower > 0.0:
            shown = number + 1
    lower = evidence.evidence(_ALPHA).lower * worth * (1_000 if name == "cost" else 1)
    return {f"{name}_promotion_gain": lower, **({"cost_promotion_comparisons": float(shown)} if name == "cost" else {})}


_RIVALS: Final = ("wary", "plain")
_DECISION = Decision((0,), 0, "payments", "single()", ("screen",), (1.0,))
_OBSERVED = Observation("", "payments", None, _DECISION, (0.0,), 0.0, None, JoinStatus.JOINED, 0, 0)


def tables(result: Result) -> Sequence[Table]:
    """Return costs and errors of policies by what they learn, and of models alone."""
    figures = result.figures
    heads = ("policy", "learning who is right", "errors", "learning what mistakes cost", "errors", "share of the cost")
    rows = [
        (
            policy,
            *(text for loss in LOSSES for text in _told(figures, f"{policy}_{loss}")),
            f"{figures[f'{policy}_share']:.2f}",
        )
        for policy in POLICIES
    ]
    names = [name.removesuffix("_alone_cost") for name in figures if name.endswith("_alone_cost")]
    alone = [(name, *_told(figures, f"{name}_alone")) for name in names]
    return (
        Table("Cost of 1,000 payments (EUR)", heads, tuple(rows)),
        Table("Models alone", ("model", "cost", "errors"), tuple(alone)),
    )


def _told(figures: Mapping[str, float], name: str) -> tuple[str, str]:
    return f"{figures[f'{name}_cost']:,.0f}", f"{figures[f'{name}_error']:.1%}"


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "payments where a missed fraud costs 40: policies that learn who is right, and what mistakes cost",
    tables=tables,
    page="scenarios/learning/costs.md.j2",
    short=True,
    offline=True,
)
