"""The demo's report: `report.json` with the figures, `report.html` with the plots, `logs/`, and what is printed."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.table import Table

from deploy.demo import contexts, models
from deploy.demo.contexts import PENS, sentence
from deploy.demo.models import ENSEMBLE, INNER, Says, alone, best, broken, voting_error
from deploy.demo.page import PlottedSeries, page, story, trial
from deploy.demo.stage import POLICY
from deploy.demo.tally import tried
from deploy.evaluation.words import judgement
from policies.estimators.estimate import Estimate
from policies.registry import create, parse, spec
from streams.evaluation.candidate import candidate
from streams.evaluation.errors import EvaluationError
from streams.evaluation.evaluation import evaluate
from streams.evaluation.history import KnownApplication

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from rich.console import Console

    from deploy.demo.contexts import Pens
    from deploy.demo.models import Alone
    from deploy.demo.stage import DemoPlan, DemoStage
    from deploy.demo.tally import Phase, Tally
    from load.harness.recorder import Recorder

OTHER_POLICY = "thompson"  # what the run is asked: had this one decided?
PHASES: tuple[Phase, ...] = ("before", "during", "after")
# The source of each figure, for readers of the report.
NOTES = {
    "broker": "as it was started",
    "redis": "as it was started",
    "seconds_run": "less than `seconds` if the run was ended early",
    "interrupted": "ended early, by Ctrl-C or SIGTERM",
    "steps_s": "when each step was done, from the start of the process",
    "first_prediction_s": "from the start of the process to the first prediction that was read, in the warm-up",
    "roles_restarted": "by the supervisor, how often; empty = all roles lived",
    "queries_sent": "handed to the broker by the client, after the warm-up",
    "predictions_distinct": "query ids with an answer in `predictions`",
    "lost": "query ids without one, after everything was read",
    "duplicates": "further answers in `predictions` to a query id that had one",
    "defaults": "answers with status `default`",
    "late": "answers read later than the objective after the query was meant to be sent",
    "feedback_sent": "handed to the broker by the client, one for each answer",
    "observations_joined": "query ids with status `joined` in `observations`; feedback on an answer that none of the"
    " asked models gave teaches nothing and is not among them",
    "observations_applied": "`state_version` of the last decision in `predictions`: how many observations are in the"
    " policy state that decided it; closing queries, which count nowhere, are asked until all are in it",
    "dead_letters": "records in all `<topic>.dlq`",
    "error": "share of wrong answers in `predictions`, a default output counting as the answer that it is",
    "error_by_model": "each packaged model run offline on the same queries, a new version in place of the one before"
    " from the time on that it serves",
    "error_best_single": "the least of `error_by_model`",
    "error_voting": f"all packaged models run offline on the same queries, voting by policy `{ENSEMBLE}`, which is told"
    " the truth after each",
    "latency_ms": "from when a query was meant to be sent to when its answer was read",
    "within_slo": "share of the queries with an answer within the objective that is no default",
    "share_*": "in `predictions`, share of the asked models; before, while and after one is broken, by when the query"
    " was meant to be sent; null = no query",
    "cache_hit_ratio": "share of the models' outputs that stand under `cached`",
    "cached": "in `predictions`, outputs whose query has no row in `model-predictions`, and whose image the same"
    " version predicted for another query",
    "canary": "a new version of one model, which answers a share of its queries from `begin_s` to `end_s` and then all:"
    " in `predictions`, outputs by version and by the second in which the query was meant to be sent",
    "contexts": "a second act, in which two pens ask application `pens` by turns, each with a policy state of its own:"
    " in `predictions`, answers by context; `late_*` is of its second half; `error_by_model` each packaged model run"
    " offline on all held-out rows as that pen writes them",
    "what_if": f"what `skysail evaluate --policy {OTHER_POLICY}` says of this run's `observations`: doubly robust,"
    " with an interval of 95 %; null = too few effective samples",
    "rows": "in `model-predictions`, rows with another outcome than `expired`",
    "batches": "in `model-predictions`, a row counts as one part of the `batch_rows` that it was predicted with",
    "batch_cap_max": "in `model-predictions`, the largest `batch_cap`",
}


class DemoCounts(NamedTuple):
    """The counts of one run."""

    tally: Tally
    recorder: Recorder
    feedback_sent: int
    reached_s: Mapping[str, float]  # from the start of the process, by step
    interrupted: bool = False
    restarts: Mapping[str, int] = {}  # of roles that ended by themselves
    pens: Pens | None = None  # of the second act, if there was one


def write(plan: DemoPlan, stage: DemoStage, ran: DemoCounts, folder: Path) -> dict[str, Any]:
    """Write the folder; returns the content of `report.json`."""
    says, questions = _says(stage, ran.tally), ran.tally.questions.values()
    judged = {name: alone(questions, model) for name, model in says.items()}
    reached = dict(ran.reached_s)
    content = {
        "stamp": time.strftime("%Y-%m-%d %H:%M:%S"),
        "broker": stage.broker.description,
        "redis": stage.store,
        "seconds": plan.seconds,
        "seconds_run": min(plan.seconds, 1.0 + max(question.second for question in ran.tally.questions.values())),
        "interrupted": ran.interrupted,
        "rate": plan.rate,
        "seed": plan.seed,
        "slo_ms": ran.recorder.slo_us / 1000,
        "policy": spec(parse(POLICY)),
        "first_prediction_s": reached.pop("first_prediction", None),
        "steps_s": reached,
        "roles_restarted": dict(ran.restarts),
        "broken_model": models.BREAKING,
        "best_model": best(judged),
        **figures(ran, {name: model.error for name, model in judged.items()}),
        "error_voting": round(voting_error(questions, [*says.values()], create(ENSEMBLE)), 5),
        "contexts": None if ran.pens is None else contexts.content(ran.pens, _errors_by_pen(stage)),
        "what_if": what_if(ran.tally),
        "notes": NOTES,
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = {} if ran.pens is None else {pen: contexts.shares(c, [*says]) for pen, c in ran.pens.count.items()}
    html = page(content, series(ran.tally, ran.recorder, judged, models.BREAKING), written)
    (folder / "report.html").write_text(html, encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def figures(ran: DemoCounts, error_by_model: Mapping[str, float]) -> dict[str, Any]:
    """Return what the client counted, rates and shares rounded to five digits."""
    tally, counted = ran.tally, ran.recorder.figures()
    return {
        **{
            name: int(counted[name])
            for name in ("queries_sent", "predictions_distinct", "lost", "duplicates", "defaults", "late")
        },
        "feedback_sent": ran.feedback_sent,
        "observations_joined": tally.joined,
        "observations_applied": tally.applied,
        "dead_letters": tally.dead_letters,
        "error": round(tally.error, 5),
        "error_by_model": {name: round(error, 5) for name, error in error_by_model.items()},
        "error_best_single": round(min(error_by_model.values()), 5),
        "latency_ms": {name: round(value, 2) for name, value in ran.recorder.latency_ms().items()},
        "within_slo": round(counted["within_slo"], 5),
        "cache_hit_ratio": round(_hit_ratio(tally), 5),
        "canary": _canary(tally),
        "models": {name: _model(tally, name) for name in tally.models},
    }


def _model(tally: Tally, name: str) -> dict[str, float | None]:
    model = tally.models[name]
    shares = {phase: tally.share(name, phase) for phase in PHASES}
    return {
        **{f"share_{phase}": None if share is None else round(share, 4) for phase, share in shares.items()},
        "batch_cap_max": model.cap_max,
        "batches": model.batches,
        "rows": model.rows,
        "cached": tally.cached(name),
    }


def _hit_ratio(tally: Tally) -> float:
    judged = sum(model.judged_by_second.total() for model in tally.models.values())
    return sum(map(tally.cached, tally.models)) / max(1, judged)


def _canary(tally: Tally) -> dict[str, Any]:
    trial = tally.trial
    done = tried(tally.models[trial.model].versions, trial)
    errors = (None if error is None else round(error, 5) for error in (done.error, done.error_beside))
    return {
        **trial._asdict(),
        "answered": done.answered,
        "answered_beside": done.beside,
        **dict(zip(("error", "error_beside"), errors, strict=True)),
        "answered_since": done.since,
    }


def what_if(tally: Tally) -> dict[str, Any]:
    """Judge another policy by the run's own log, as `skysail evaluate` does.

    No window is waited for: every answer had its feedback at once, and the run has waited until all was joined.
    """
    try:
        found = evaluate(history(tally), candidate(OTHER_POLICY), window_s=0.0)
    except EvaluationError as error:
        nothing = f"What {OTHER_POLICY} would have cost cannot be said: {error}."
        return {"policy": OTHER_POLICY, "decisions": 0, "sentence": nothing}
    robust = found.estimates["dr"]
    is_known = isinstance(robust, Estimate)
    return {
        "policy": found.policy,
        "decisions": found.decisions,
        "effective": round(found.effective, 1),
        "served": round(found.served.mean, 5),
        **{name: round(getattr(robust, name), 5) if is_known else None for name in ("value", "low", "high")},
        "sentence": judgement(found),
    }


def history(tally: Tally) -> KnownApplication:
    """Return what was observed; all of it is old enough to be judged.

    Raises:
        EvaluationError: there is nothing.
    """
    if not tally.log:
        raise EvaluationError("no feedback was joined")
    until_us = max(seen.observed_us for seen in tally.log)
    return KnownApplication(tally.application, tally.log, predicted_us=None, until_us=until_us, window_s=None)


def keep_logs(scratch: Path, folder: Path) -> Path | None:
    """Copy the logs of broker and Redis beside those of the roles; returns where they are, None if there are none."""
    logs = folder / "logs"
    for log in scratch.glob("*/*.log"):
        logs.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, logs)
    return logs if logs.is_dir() else None


def _says(stage: DemoStage, tally: Tally) -> dict[str, Says]:
    """Run every package offline on the held-out rows."""
    says = {}
    for name, package in stage.packages.items():
        breaks = name == models.BREAKING
        answers = models.answers(stage.scratch / INNER if breaks else package, stage.data.asked_rows)
        says[name] = Says(answers, broken(answers) if breaks else None)
    trial = tally.trial
    later = models.answers(stage.candidate, stage.data.asked_rows)
    says[trial.model] = Says(says[trial.model].answers, later, lambda asked: asked.second >= trial.end_s)
    return says


def _errors_by_pen(stage: DemoStage) -> dict[str, dict[str, float]]:
    """Run every package offline on the held-out rows as each pen writes them: what serves in the second act."""
    packages = {**stage.packages, models.BREAKING: stage.scratch / INNER, models.RETRAINED: stage.candidate}
    rows, labels = stage.data.asked_rows, stage.data.asked_labels
    return {
        pen: {
            name: float(np.mean(models.answers(package, rows * np.float32(dark)) != labels))
            for name, package in packages.items()
        }
        for pen, dark in PENS.items()
    }


def series(tally: Tally, recorder: Recorder, judged: Mapping[str, Alone], breaking: str) -> PlottedSeries:
    """Return what is plotted, one value a second."""
    seconds = 1 + max(tally.judged_by_second, default=0)
    quantiles = [recorder.recent_ms(second, second + 1) for second in range(seconds)]
    return PlottedSeries(
        broken_s=tally.broken_s,
        broken_model=breaking,
        best_model=best(judged),
        asked=_counts(tally.judged_by_second, seconds),
        wrong=_counts(tally.wrong_by_second, seconds),
        asked_by_model={name: _counts(model.asked_by_second, seconds) for name, model in tally.models.items()},
        wrong_by_model={name: _counts(model.wrong_by_second, seconds) for name, model in judged.items()},
        cap_by_model={name: _filled(model.cap_by_second, seconds) for name, model in tally.models.items()},
        latency_ms={name: np.array([row.get(name, np.nan) for row in quantiles]) for name in ("p50", "p95", "p99")},
        slo_ms=recorder.slo_us / 1000,
        trial=tally.trial,
        answered_by_version=_by_version(tally, seconds),
    )


def _by_version(tally: Tally, seconds: int) -> dict[str, NDArray[np.float64]]:
    versions = tally.models[tally.trial.model].versions
    names = (tally.trial.before, tally.trial.version)
    return {name: _counts(versions[name].answered if name in versions else {}, seconds) for name in names}


def _counts(counts: Mapping[int, int], seconds: int) -> NDArray[np.float64]:
    return np.array([counts.get(second, 0) for second in range(seconds)], dtype=np.float64)


def _filled(values: Mapping[int, float], seconds: int) -> NDArray[np.float64]:
    """Carry the last value on: a model that is not asked takes no batch, and its cap stays."""
    filled, last = np.full(seconds, np.nan), np.nan
    for second in range(seconds):
        last = values.get(second, last)
        filled[second] = last
    return filled


def say(report: Mapping[str, Any], folder: Path, console: Console) -> None:
    """Print the summary of a report as `report.json` holds it."""
    console.print()
    console.print(story(report), highlight=False, soft_wrap=not console.is_terminal)
    console.print()
    console.print(_model_table(report))
    console.print()
    for name, words in _lines(report):
        console.print(f"{name:<12}{words}", highlight=False, soft_wrap=True)
    console.print()
    for name in ("report.json", "report.html"):
        console.print(f"{name:<12}{folder / name}", highlight=False, soft_wrap=True)
    if report["roles_restarted"]:
        roles = ", ".join(f"{name} {times} times" for name, times in report["roles_restarted"].items())
        words = f"restarted   {roles}; why is in {folder / 'logs'}"
        console.print(words, style="yellow", highlight=False, soft_wrap=True)


def _lines(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    latency = report["latency_ms"]
    yield (
        "answers",
        (
            f"{report['predictions_distinct']} of {report['queries_sent']} queries; lost {report['lost']}, twice"
            f" {report['duplicates']}, default {report['defaults']}, late {report['late']}"
        ),
    )
    yield (
        "latency",
        (
            f"p50 {latency['p50']:.1f} ms, p95 {latency['p95']:.1f}, p99 {latency['p99']:.1f};"
            f" {report['within_slo']:.2%} within {report['slo_ms']:g} ms"
        ),
    )
    yield (
        "feedback",
        (
            f"{report['feedback_sent']} sent, {report['observations_joined']} joined, {report['observations_applied']}"
            f" learnt; dead letters {report['dead_letters']}"
        ),
    )
    yield (
        "cache",
        f"{report['cache_hit_ratio']:.1%} of the models' outputs were remembered from the same image a moment before",
    )
    yield "new version", trial(report)
    yield "two pens", sentence(report["contexts"])
    first_s = report["first_prediction_s"]
    if first_s is not None:
        steps = ", ".join(f"{name} {report['steps_s'][name]:.1f}" for name in ("broker", "models", "roles"))
        yield "start", f"first prediction after {first_s:.1f} s ({steps})"
    yield "what if", report["what_if"]["sentence"]


def _model_table(report: Mapping[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for place, head in enumerate(("model", "error alone", "share before", "during", "after", "batches", "rows", "cap")):
        table.add_column(head, justify="right" if place else "left", no_wrap=True)
    for name, model in report["models"].items():
        shares = (model[f"share_{phase}"] for phase in ("before", "during", "after"))
        table.add_row(
            name,
            f"{report['error_by_model'][name]:.1%}",
            *("" if share is None else f"{share:.0%}" for share in shares),
            *(f"{model[figure]}" for figure in ("batches", "rows", "batch_cap_max")),
        )
    table.add_row("the answers", f"{report['error']:.1%}", style="bold")
    return table
