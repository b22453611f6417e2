"""The check of the demo's report: a good run passes, and each thing that matters can fail."""

from __future__ import annotations

from typing import Any

import pytest

from tests import demo_report

MODELS = ("svc", "neighbours", "logistic", "bayes", "tree")
EACH = {
    "share_before": 0.15,
    "share_during": 0.24,
    "share_after": 0.22,
    "batch_cap_max": 5,
    "batches": 300,
    "rows": 400,
    "cached": 60,
}
INK = {"answered": 250, "error": 0.05, "late_error": 0.02, "late_share": 0.6, "error_best": 0.01, "best_model": "svc"}
PENCIL = {**INK, "late_error": 0.12, "error_best": 0.09, "best_model": "logistic"}
CONTEXTS = {"queries_sent": 500, "lost": 0, "defaults": 5, "late_error": 0.07, "pens": {"ink": INK, "pencil": PENCIL}}
WHAT_IF = {
    "decisions": 1990, "effective": 800.0, "served": 0.12, "value": 0.08, "low": 0.06, "high": 0.1,
    "sentence": "Had thompson decided",
}  # fmt: skip
GOOD: dict[str, Any] = {
    "broker": "Apache Kafka 4.3.1 (KRaft, one node)",
    "redis": "redis-server",
    "seconds": 20.0,
    "interrupted": False,
    "rate": 100.0,
    "first_prediction_s": 12.5,
    "roles_restarted": {},
    "broken_model": "svc",
    "queries_sent": 2000,
    "predictions_distinct": 2000,
    "lost": 0,
    "duplicates": 0,
    "defaults": 40,
    "late": 30,
    "feedback_sent": 2000,
    "observations_joined": 1990,
    "observations_applied": 1990,
    "dead_letters": 0,
    "error": 0.12,
    "error_by_model": {"svc": 0.34, "neighbours": 0.06, "logistic": 0.08, "bayes": 0.19, "tree": 0.33},
    "error_best_single": 0.06,
    "error_voting": 0.05,
    "latency_ms": {"p50": 12.0, "p95": 30.0, "p99": 60.0},
    "within_slo": 0.97,
    "cache_hit_ratio": 0.15,
    "canary": {"share": 0.2, "answered": 60, "answered_beside": 240, "answered_since": 120},
    "contexts": CONTEXTS,
    "what_if": {**WHAT_IF},
    "models": dict.fromkeys(MODELS, EACH)
    | {"svc": {**EACH, "share_before": 0.4, "share_during": 0.04, "share_after": 0.12}},
}
PREDICTED = "every answer but defaults was predicted, for its query or for one before"
PENS_LEARN = "their error is at most 0.12 over that of each pen's best model"
WALKED = "the broken model's share fell below 0.6 of what it was"


def models(**svc: float | None) -> dict[str, Any]:
    """Return the models with another svc."""
    return GOOD["models"] | {"svc": {**GOOD["models"]["svc"], **svc}}


def test_a_good_run_passes() -> None:
    """As a quiet machine of two cores reports it."""
    assert demo_report.faults(GOOD) == []


def test_a_busy_machine_passes() -> None:
    """A fifth answered late or by default; those are wrong for want of time, which is no fault of the policy."""
    busy = {"defaults": 400, "late": 380, "within_slo": 0.75, "error": 0.33, "observations_joined": 1700}
    judged = {"what_if": {**WHAT_IF, "decisions": 1650}}
    assert demo_report.faults({**GOOD, **busy, **judged, "observations_applied": 1700}) == []


def test_a_log_that_says_too_little_passes_if_it_says_so() -> None:
    """A short demo has few effective samples."""
    few = {**WHAT_IF, "effective": 90.0, "value": None, "sentence": "90 effective samples, 200 are needed"}
    assert demo_report.faults({**GOOD, "what_if": few}) == []


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        ({"broker": "a mock"}, "the broker was Apache Kafka"),
        ({"interrupted": True}, "the run was not ended early"),
        ({"roles_restarted": {"joiner": 1}}, "no role ended by itself"),
        ({"rate": 200.0}, "queries were sent at the planned rate"),
        ({"first_prediction_s": 200.0}, "the first prediction came within 180 s"),
        ({"lost": 1}, "every query was answered"),
        ({"duplicates": 1}, "no query was answered twice"),
        ({"late": 600}, "at most 25% of the answers were late"),
        ({"within_slo": 0.6}, "at least 70% were within the objective"),
        ({"latency_ms": {"p50": 9.0, "p95": 5.0, "p99": 60.0}}, "latency quantiles rise"),
        ({"feedback_sent": 1999}, "all feedback was sent"),
        ({"observations_applied": 1989}, "everything joined was learnt, once"),
        ({"observations_applied": 1991}, "everything joined was learnt, once"),
        ({"observations_joined": 1900, "observations_applied": 1900}, "feedback on all but defaults was joined"),
        ({"dead_letters": 1}, "nothing was a dead letter"),
        ({"error": 0.21}, "the error is at most 0.12 over the best single model's"),
        ({"error_best_single": 0.05}, "the best single model is the best"),
        ({"models": models(share_before=0.2, share_during=0.2)}, WALKED),
        ({"models": models(share_after=0.5)}, "the shares after the break add up to 1"),
        ({"models": models(batches=0)}, "every model was asked"),
        ({"models": models(batches=500)}, "no batch was empty"),
        ({"models": models(rows=0, cached=0)}, PREDICTED),
        ({"cache_hit_ratio": 0.01}, "at least 3% of the outputs came from the cache"),
        ({"canary": {**GOOD["canary"], "answered": 0}}, "the canary answered some queries, if it was to answer a few"),
        ({"canary": {**GOOD["canary"], "answered": 240}}, "and fewer than the version beside it"),
        ({"canary": {**GOOD["canary"], "answered_since": 0}}, "then it served"),
        ({"what_if": {**WHAT_IF, "decisions": 1500}}, "another policy was judged by what was joined"),
        ({"what_if": {**WHAT_IF, "high": 0.07}}, "its interval is around its error"),
        ({"what_if": {**WHAT_IF, "effective": 90.0}}, "few samples give no number, and the sentence says so"),
        ({"contexts": {**CONTEXTS, "lost": 1}}, "every query of theirs was answered"),
        ({"contexts": {**CONTEXTS, "late_error": 0.27}}, PENS_LEARN),
        ({"contexts": {**CONTEXTS, "pens": {"ink": INK, "pencil": {**INK, "answered": 0}}}}, "two pens asked"),
        ({"contexts": {**CONTEXTS, "pens": {"ink": INK, "pencil": INK}}}, "each pen has another best model"),
    ],
)  # fmt: skip
def test_each_fault_is_found(change: dict[str, Any], claim: str) -> None:
    """One sentence a fault."""
    assert f"not true: {claim}" in demo_report.faults({**GOOD, **change})


def test_a_policy_that_does_not_learn_is_found() -> None:
    """Models asked at random: the mean of their errors, and the broken one as often as before."""
    errors = GOOD["error_by_model"].values()
    shares = {"share_before": 0.2, "share_during": 0.2, "share_after": 0.2}
    found = demo_report.faults({
        **GOOD,
        "defaults": 0,
        "observations_joined": 2000,
        "observations_applied": 2000,
        "error": sum(errors) / len(errors),
        "models": {name: {**EACH, **shares} for name in MODELS},
    })  # fmt: skip
    assert found == [
        "not true: the error is at most 0.12 over the best single model's",
        f"not true: {WALKED}",
    ]


def test_answers_that_are_worse_than_the_broken_model_are_found() -> None:
    """It would have been better to learn nothing and ask it always."""
    found = demo_report.faults({**GOOD, "error": 0.4})
    assert "not true: the error is below that of always asking the broken model" in found


def test_a_run_that_answers_by_default_is_found() -> None:
    """Defaults in time are no answers."""
    found = demo_report.faults({**GOOD, "defaults": 900, "within_slo": 0.55, "observations_joined": 1100})
    assert "not true: at most 25% of the answers were defaults" in found
    assert "not true: at least 70% were within the objective" in found


def test_what_is_missing_is_named() -> None:
    """A share that is null is missing: the run ended before its phase."""
    assert demo_report.faults({name: value for name, value in GOOD.items() if name != "late"}) == ["late is missing"]
    assert demo_report.faults({**GOOD, "latency_ms": {"p50": 1.0, "p95": 2.0}}) == ["latency_ms.p99 is missing"]
    assert demo_report.faults({**GOOD, "models": models(share_after=None)}) == ["models.svc.share_after is missing"]
    assert demo_report.faults({**GOOD, "canary": {**GOOD["canary"], "answered": None}}) == [
        "canary.answered is missing"
    ]
    assert "contexts.lost is missing" in demo_report.faults({**GOOD, "contexts": None})
