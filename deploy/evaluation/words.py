"""An evaluation in words and numbers: what the command prints, and what the page repeats."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from policies.estimators.errors import EstimateError, TooFewError
from policies.estimators.estimate import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streams.evaluation.evaluation import Evaluation, Interval
    from streams.evaluation.measured import MetricJudgement

HEADS = ("estimator", "loss", "error", "interval", "samples", "largest", "note")
METRIC_HEADS = ("metric", "served", "candidate", "candidate - served", "decisions", "guardrail")
_SHARES = (0.5, 0.9, 0.99)


def rows(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """Return the table of estimators, a row each; those that refused are told by `refused`."""
    found: list[tuple[str, ...]] = []
    for name, each in evaluation.estimates.items():
        if isinstance(each, Estimate):
            figures = (f"{each.value:.4f}", f"{each.error:.4f}", f"{each.low:.4f} to {each.high:.4f}")
            weights = (f"{each.effective:,.0f}", f"{each.largest:.3g}", each.note)
            found.append((name, *figures, *weights))
    return found


def weighed(evaluation: Evaluation) -> str:
    """Say what the table's columns of weights mean, and what is the same in all rows."""
    return f"samples: effective ones; largest: weight; without support: {evaluation.unsupported:.1%} of all decisions"


def refused(estimates: Mapping[str, Estimate | EstimateError]) -> Iterator[str]:
    """Yield why estimators refused: once for all that have too few effective samples, with how many each has."""
    refusals = {name: each for name, each in estimates.items() if isinstance(each, EstimateError)}
    few = {name: each for name, each in refusals.items() if isinstance(each, TooFewError)}
    if few:
        needed = next(iter(few.values())).needed
        counts = ", ".join(f"{name} {each.effective:,.0f}" for name, each in few.items())
        yield f"refused, with fewer than {needed:g} effective samples: {counts}"
    yield from (f"{name} refused: {each}" for name, each in refusals.items() if name not in few)


def story(evaluation: Evaluation) -> Iterator[str]:
    """Yield what was judged, what it has cost, how late feedback is."""
    by = " and ".join(evaluation.served_by)
    decisions = "decision" if evaluation.decisions == 1 else "decisions"
    yield (
        f"{evaluation.application}: {evaluation.decisions:,} {decisions} by {by}, {_time(evaluation.from_us)} to"
        f" {_time(evaluation.until_us)}; what if {evaluation.policy}?"
    )
    left = [f"{count:,} ({reason})" for reason, count in evaluation.left_out.items() if count]
    if left:
        yield f"not judged: {', '.join(left)}"
    if evaluation.matched is not None:
        yield f"the log has the outputs for {evaluation.matched:.1%} of what it would have asked"
    if evaluation.draws is not None:
        yield (
            f"those who ask have drawn: {evaluation.draws:,} draws, each of which is one value in the bounds, and one"
            " part of errors and samples"
        )
    if evaluation.imputed:
        shares = [f"{source} in {count / evaluation.decisions:.1%}" for source, count in evaluation.imputed.items()]
        yield f"features imputed: {', '.join(shares)} of the decisions; --known-features leaves these out"
    yield feedback(evaluation)


def feedback(evaluation: Evaluation) -> str:
    """Say how late feedback comes, and how much is still open."""
    found = evaluation.delays
    late = [(share, found.quantile(share)) for share in _SHARES]
    known = [f"{share:.0%} of all within {time_s:,.3g} s" for share, time_s in late if time_s is not None]
    waiting = f"{found.waiting:,} wait, of which about {found.expected:,.0f} will have some"
    return f"feedback: {', '.join(known) or 'hardly any'}; {waiting} (window {evaluation.window_s:g} s)"


def judgement(evaluation: Evaluation) -> str:
    """Say what the candidate would have cost, doubly robust, where a loss is a wrong answer; or why nobody knows."""
    policy, *served = (name.partition("(")[0] for name in (evaluation.policy, *evaluation.served_by))
    found, decisions = evaluation.estimates["dr"], f"{evaluation.decisions:,} decisions"
    if not isinstance(found, Estimate):
        return (
            f"What {policy} would have cost instead of {' and '.join(served)}: not to be said of {decisions}; {found}."
        )
    return (
        f"Had {policy} decided instead of {' and '.join(served)}, {found.value:.1%} would have been wrong"
        f" [{found.low:.1%}, {found.high:.1%}], not {evaluation.served.mean:.1%} (doubly robust, {decisions})."
    )


def bounds(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield what holds at all times, however often one looks: by its name."""
    named = {"served": evaluation.served, "candidate": evaluation.candidate}
    named["candidate - served, paired"] = evaluation.difference
    for name, interval in named.items():
        yield name, _bounded(interval)
    if evaluation.worth is not None:
        for name, interval in named.items():
            mean, low, high = [1_000 * evaluation.worth * loss for loss in interval]
            priced = f"{mean:,.2f}, {low:,.2f} to {high:,.2f} {evaluation.unit}"
            yield f"{name}, cost per 1,000", priced.rstrip()


def metrics(judged: Iterable[MetricJudgement]) -> list[tuple[str, ...]]:
    """Return the table of metrics, a row each, in their units."""
    return [
        (
            each.metric,
            f"{each.served:.4g}",
            "" if each.candidate is None else f"{each.candidate:.4g}",
            _difference(each),
            f"{each.decisions:,}",
            "" if each.guardrail is None else f"{each.guardrail:g} worse: {each.verdict}",
        )
        for each in judged
    ]


def _difference(found: MetricJudgement) -> str:
    """Say how a candidate compares by a metric, or that nobody can know."""
    if found.difference is None:
        return f"not known: {found.unsupported:.0%} of what it would ask was never asked"
    return f"{found.difference:+.4g}, {found.low:+.4g} to {found.high:+.4g} {found.unit}".rstrip()


def _bounded(interval: Interval) -> str:
    return f"{interval.mean:.4f}, {interval.low:.4f} to {interval.high:.4f}"


def _time(moment_us: int) -> str:
    return f"{datetime.fromtimestamp(moment_us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"


def estimated(estimates: Mapping[str, Estimate | EstimateError]) -> dict[str, Any]:
    """Return estimates as JSON values; of those that were refused the reason."""
    return {
        name: asdict(each) if isinstance(each, Estimate) else {"refused": str(each)} for name, each in estimates.items()
    }


def as_json(evaluation: Evaluation) -> dict[str, Any]:
    """Return everything as JSON values; an estimator that refused has its reason."""
    found = asdict(replace(evaluation, estimates={}))
    found["estimates"] = estimated(evaluation.estimates)
    for name in ("served", "candidate", "difference"):
        found[name] = getattr(evaluation, name)._asdict()
    found["course"] = [{**moment._asdict(), "difference": moment.difference._asdict()} for moment in evaluation.course]
    delays = evaluation.delays
    found["delays"] = {
        "waiting": delays.waiting,
        "expected": delays.expected,
        "quantiles_s": {f"{share:g}": delays.quantile(share) for share in _SHARES},
    }
    return found
