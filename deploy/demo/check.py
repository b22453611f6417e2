"""Checks the newest demo report: `python -m deploy.demo.check`. Every field is there, and the loop worked.

The bounds are for a small, busy machine: they catch a loop that does not learn or does not answer, not a slow day.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

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
    "within_slo",
)
MODEL = ("share_before", "share_during", "share_after", "batch_cap_max", "batches", "rows")


def faults(report: dict[str, Any]) -> list[str]:
    """Return what is wrong with a report, one sentence each."""
    found = [f"{name} is missing" for name in NUMBERS if not isinstance(report.get(name), int | float)]
    found += [f"{name} is missing" for name in ("broker", "redis") if not report.get(name)]
    found += [f"latency_ms.{name} is missing" for name in ("p50", "p95", "p99") if name not in report["latency_ms"]]
    found += [
        f"models.{m}.{name} is missing" for m, row in report["models"].items() for name in MODEL if name not in row
    ]
    return found or _wrong(report)


def _wrong(report: dict[str, Any]) -> list[str]:
    broken = report["models"][report["broken_model"]]
    claims = {
        "five models competed": len(report["models"]) == len(report["error_by_model"]) == 5,
        "the broker was Apache Kafka": "Apache Kafka" in report["broker"],
        "queries were sent": report["queries_sent"] > 500,
        "every query was answered": report["lost"] == 0 and report["predictions_distinct"] == report["queries_sent"],
        "all feedback was sent": report["feedback_sent"] == report["predictions_distinct"],
        "feedback was joined": report["observations_joined"] > 0.8 * report["feedback_sent"],
        "everything joined was learnt": report["observations_applied"] == report["observations_joined"],
        "nothing was a dead letter": report["dead_letters"] == 0,
        "the policy left the broken model": broken["share_during"] < broken["share_before"],
        "every model was asked": all(model["batches"] > 0 and model["rows"] > 0 for model in report["models"].values()),
        "the best single model is the best": report["error_best_single"] == min(report["error_by_model"].values()),
    }
    return [f"not true: {claim}" for claim, holds in claims.items() if not holds]


def main() -> None:
    """Check the newest report under `reports`; exit code 1 and one line for each fault."""
    newest = max(Path("reports").glob("*/report.json"), key=lambda path: path.stat().st_mtime)
    found = faults(json.loads(newest.read_text(encoding="utf-8")))
    if not newest.with_name("report.html").is_file():
        found.append("report.html is missing")
    print("\n".join(found) or f"{newest}: every figure is there and in bounds")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
