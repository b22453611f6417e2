"""Checks the newest demo report: every figure is there, and the loop worked. Run by `python -m tests.demo_report`.

Counts are exact. Shares and errors leave room for a machine of two cores with other work to do; what they must tell
apart is a loop that learns and answers from one that does not: asking models at random would be wrong 20 % of the time
on this data, and would go on asking the broken model as often as before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NUMBERS = (
    "queries_sent",
    "predictions_distinct",
    "lost",
    "duplicates",
    "defaults",
    "late",
    "feedback_sent",
    "observations_joined",
    "observations_applied",
    "dead_letters",
    "error",
    "error_best_single",
    "error_voting",
    "within_slo",
    "cache_hit_ratio",
    "first_prediction_s",
)
MODEL = ("share_before", "share_during", "share_after", "batch_cap_max", "batches", "rows", "cached")
MOST_JUDGED = 0.9  # of what was joined: the loss of the rest is not known
FEWEST_EFFECTIVE = 200  # samples: of fewer nothing is estimated
CANARY = ("share", "answered", "answered_beside", "answered_since")
PEN = ("answered", "error", "late_error", "late_share", "error_best")
QUANTILES = ("p50", "p95", "p99")

RATE_MARGIN = 0.15  # of a Poisson count of 2,000: more than six standard deviations
LEAST_WITHIN_SLO = 0.7
MOST_DEFAULTS = 0.25  # of the answers; so of the late ones
ERROR_MARGIN = 0.12  # over the best single model, for what exploring and finding out cost
WALKED_AWAY = 0.6  # of the broken model's share before, on average over the whole phase
LEAST_CACHED = 0.03  # of the outputs: a third of the queries repeat an image of shortly before, often to another model
FEW = 10  # queries: so many may all have come while the canary was loaded
FIRST_PREDICTION_S = 180.0

# What must be true, and whether it is.
Claim: TypeAlias = tuple[str, bool]


def faults(report: dict[str, Any]) -> list[str]:
    """Return what is wrong with a report, one sentence each."""
    return list(_missing(report)) or [f"not true: {claim}" for claim, holds in _claims(report) if not holds]


def _missing(report: dict[str, Any]) -> Iterator[str]:
    for name in NUMBERS:
        if not isinstance(report.get(name), int | float):
            yield f"{name} is missing"
    for name in ("broker", "redis"):
        if not report.get(name):
            yield f"{name} is missing"
    for name in QUANTILES:
        if name not in report.get("latency_ms", {}):
            yield f"latency_ms.{name} is missing"
    parts: list[tuple[str, Sequence[str], dict[str, Any]]] = [("canary", CANARY, report.get("canary", {}))]
    parts.append(("what_if", ("decisions", "effective", "served"), report.get("what_if", {})))
    contexts = report.get("contexts") or {}
    parts.append(("contexts", ("queries_sent", "lost", "defaults", "late_error"), contexts))
    parts += [(f"contexts.pens.{pen}", PEN, row) for pen, row in contexts.get("pens", {}).items()]
    parts += [(f"models.{model}", MODEL, row) for model, row in report.get("models", {}).items()]
    for part, names, row in parts:
        yield from (f"{part}.{name} is missing" for name in names if not isinstance(row.get(name), int | float))


def _claims(report: dict[str, Any]) -> Iterator[Claim]:
    yield from _ran(report)
    yield from _answered(report)
    yield from _learnt(report)
    yield from _models(report)
    yield from _remembered_and_tried(report)
    yield from _by_context(report["contexts"])
    yield from _judged(report["what_if"], report["observations_joined"])


def _ran(report: dict[str, Any]) -> Iterator[Claim]:
    planned = report["rate"] * report["seconds"]
    yield "the broker was Apache Kafka", "Apache Kafka" in report["broker"]
    yield "the run was not ended early", not report["interrupted"]
    yield "no role ended by itself", not report["roles_restarted"]
    yield "queries were sent at the planned rate", abs(report["queries_sent"] - planned) <= RATE_MARGIN * planned
    yield (
        f"the first prediction came within {FIRST_PREDICTION_S:g} s",
        0 < report["first_prediction_s"] <= FIRST_PREDICTION_S,
    )


def _answered(report: dict[str, Any]) -> Iterator[Claim]:
    sent, latency = report["queries_sent"], report["latency_ms"]
    yield "every query was answered", report["lost"] == 0 and report["predictions_distinct"] == sent
    yield "no query was answered twice", report["duplicates"] == 0
    yield f"at most {MOST_DEFAULTS:.0%} of the answers were defaults", report["defaults"] <= MOST_DEFAULTS * sent
    yield f"at most {MOST_DEFAULTS:.0%} of the answers were late", report["late"] <= MOST_DEFAULTS * sent
    yield f"at least {LEAST_WITHIN_SLO:.0%} were within the objective", report["within_slo"] >= LEAST_WITHIN_SLO
    yield "latency quantiles rise", 0 < latency["p50"] <= latency["p95"] <= latency["p99"]


def _learnt(report: dict[str, Any]) -> Iterator[Claim]:
    answered, defaults, joined = (report[name] for name in ("predictions_distinct", "defaults", "observations_joined"))
    # A default is wrong for want of time, not for want of learning, and is bounded for itself.
    chosen_wrong = report["error"] - defaults / max(1, answered)
    best = report["error_best_single"]
    yield "all feedback was sent", report["feedback_sent"] == answered
    yield "feedback on all but defaults was joined", answered - defaults <= joined <= answered
    yield "everything joined was learnt, once", report["observations_applied"] == joined
    yield "nothing was a dead letter", report["dead_letters"] == 0
    yield f"the error is at most {ERROR_MARGIN:g} over the best single model's", chosen_wrong <= best + ERROR_MARGIN
    yield (
        "the error is below that of always asking the broken model",
        chosen_wrong < report["error_by_model"][report["broken_model"]],
    )


def _models(report: dict[str, Any]) -> Iterator[Claim]:
    models, errors = report["models"], report["error_by_model"]
    broken = models[report["broken_model"]]
    predicted = sum(model["rows"] + model["cached"] for model in models.values())
    yield "five models competed", len(models) == 5 and errors.keys() == models.keys()
    yield "the best single model is the best", report["error_best_single"] == min(errors.values())
    yield (
        f"the broken model's share fell below {WALKED_AWAY:g} of what it was",
        broken["share_during"] < WALKED_AWAY * broken["share_before"],
    )
    for phase in ("before", "during", "after"):
        total = sum(model[f"share_{phase}"] for model in models.values())
        yield f"the shares {phase} the break add up to 1", abs(total - 1) < 0.001
    yield "every model was asked", all(model["batches"] > 0 and model["batch_cap_max"] > 0 for model in models.values())
    yield "no batch was empty", all(model["batches"] <= model["rows"] for model in models.values())
    yield (
        "every answer but defaults was predicted, for its query or for one before",
        predicted >= report["predictions_distinct"] - report["defaults"],
    )


def _remembered_and_tried(report: dict[str, Any]) -> Iterator[Claim]:
    canary = report["canary"]
    yield f"at least {LEAST_CACHED:.0%} of the outputs came from the cache", report["cache_hit_ratio"] >= LEAST_CACHED
    expected = canary["share"] * (canary["answered"] + canary["answered_beside"])
    yield "the canary answered some queries, if it was to answer a few", canary["answered"] > 0 or expected < FEW
    yield "and fewer than the version beside it", canary["answered"] < canary["answered_beside"]
    yield "then it served", canary["answered_since"] > 0


def _by_context(contexts: dict[str, Any]) -> Iterator[Claim]:
    pens = contexts["pens"].values()
    best = sum(pen["error_best"] for pen in pens) / len(pens)
    defaults = contexts["defaults"] / max(1, contexts["queries_sent"])
    yield "two pens asked", len(pens) == 2 and all(pen["answered"] > 0 for pen in pens)
    yield "every query of theirs was answered", contexts["lost"] == 0
    yield "each pen has another best model", len({pen["best_model"] for pen in pens}) == len(pens)
    yield (
        f"their error is at most {ERROR_MARGIN:g} over that of each pen's best model",
        contexts["late_error"] - 2 * defaults <= best + ERROR_MARGIN,  # all defaults may have come in the second half
    )


def _judged(found: dict[str, Any], joined: int) -> Iterator[Claim]:
    yield "another policy was judged by what was joined", MOST_JUDGED * joined <= found["decisions"] <= joined
    if found["effective"] < FEWEST_EFFECTIVE:
        said = found["value"] is None and "needed" in found["sentence"]
        yield "few samples give no number, and the sentence says so", said
    else:
        yield "its interval is around its error", found["low"] <= found["value"] <= found["high"]


def main() -> None:
    """Check the newest report under `reports`; exit code 1 and one line for each fault."""
    reports = sorted(Path("reports").glob("*/report.json"), key=lambda path: path.stat().st_mtime)
    if not reports:
        sys.exit("there is no report; run `make demo`")
    newest = reports[-1]
    found = faults(json.loads(newest.read_text(encoding="utf-8")))
    if not newest.with_name("report.html").is_file():
        found.append("report.html is missing")
    if found:
        sys.exit("\n".join(found))
    sys.stdout.write(f"{newest}: every figure is there and in bounds\n")


if __name__ == "__main__":
    main()
