"""`skysail evaluate`: what another policy would have cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.cli.common import Verb, json_option, print_json, print_table, with_settings
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.evaluation import slates, words
from deploy.evaluation.reading import live, recorded
from deploy.terminal import echo
from policies.estimators.estimate import LEAST_EFFECTIVE
from streams.evaluation.candidate import asks_several, candidate
from streams.evaluation.evaluation import evaluate as judged
from streams.evaluation.judgeable import judgeable
from streams.evaluation.measured import metrics_of
from streams.evaluation.slates import evaluate_slates, ranking_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.config.settings import Settings
    from streams.evaluation.evaluation import Evaluation
    from streams.evaluation.history import KnownApplication
    from streams.evaluation.measured import MetricJudgement
    from streams.evaluation.slates import SlateEvaluation

EXAMPLES = """\
skysail evaluate traces/monday --policy thompson
skysail evaluate traces/monday --policy exp3:eta=0.1,gamma=0.1 --html exp3.html
skysail evaluate --live digits --policy always:forest --json
skysail evaluate traces/monday --policy cascade:budget=0.3
skysail evaluate traces/monday --which
skysail evaluate --live films --policy ridge:features=8,alpha=1,low=0,high=1
skysail evaluate --live ads --policy two_speed:features=4,items=20,spread=0.5 --known-features
"""


@click.command(cls=Verb, epilog=EXAMPLES)
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--live", "of_live", metavar="APP", help="Read the running deployment's observations instead.")
@click.option("--app", "application", help="Which application, where a trace has several.")
@click.option(
    "--policy",
    "wanted",
    default="thompson",
    show_default=True,
    help="POLICY[:name=value,...], always:MODEL, always:ITEM.",
)
@click.option(
    "--window", "window_s", type=click.FloatRange(min=0), help="Seconds feedback is waited for [the application's]."
)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="What intervals may miss.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the bootstrap.")
@click.option("--which", is_flag=True, help="Say which policies this log can judge, how, and why others not.")
@click.option("--known-features", is_flag=True, help="Leave decisions out for which features were imputed.")
@click.option("--force", is_flag=True, help="Estimate from however few samples.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with plots.")
@json_option
@with_settings
def evaluate(
    settings: Settings,
    *,
    folder: Path | None,
    of_live: str | None,
    application: str | None,
    wanted: str,
    window_s: float | None,
    alpha: float,
    seed: int,
    which: bool,
    known_features: bool,
    force: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Say what another policy would have cost, from the decisions and propensities in a trace (FOLDER).

    The policy is fed with the same observations, as they became known. All estimators are shown, with 95 % intervals.
    Only decisions whose window for feedback has ended are judged. Where a policy chose among items (`two_speed`), items
    are judged instead of models: by the logged probability that each was the answer. Where rows were ranked (`ridge`),
    the rankings that `shuffle` has drawn are judged, place by place and as a whole.
    """
    if which:
        _print_which(_history(settings, folder, of_live, application, with_outputs=True), as_json=as_json)
        return
    ranking = ranking_policy(wanted)
    policy = None if ranking is not None else candidate(wanted)
    asks = policy is not None and asks_several(policy)
    past = _history(settings, folder, of_live, application, with_outputs=asks)
    window = next(s for s in (window_s, past.window_s, settings.joiner.window_s) if s is not None)
    least = 0.0 if force else LEAST_EFFECTIVE
    if policy is None:
        assert ranking is not None
        _show(evaluate_slates(past, ranking, window, alpha=alpha, seed=seed, least=least), alpha, as_json=as_json)
        return
    found = judged(past, policy, window, alpha=alpha, seed=seed, least=least, is_known_alone=known_features)
    beside = metrics_of(past, policy, window, alpha)
    if html is not None:
        from deploy.evaluation.page import page  # its plots need matplotlib, which the figures do without

        html.write_text(page(found), encoding="utf-8")
    if as_json:
        print_json(words.as_json(found) | {"metrics": [one._asdict() for one in beside]})
    else:
        _print(found, beside)
        if html is not None:
            echo(f"page: {html}")


def _history(
    settings: Settings, folder: Path | None, of_live: str | None, application: str | None, *, with_outputs: bool
) -> KnownApplication:
    if (folder is None) == (of_live is None):
        raise UsageError("name either the folder of a trace or --live APP (`skysail evaluate --help`)")
    if of_live is not None:
        return live(settings, codec_for(settings), of_live, with_outputs=with_outputs)
    assert folder is not None
    return recorded(folder, codec_for(settings), application, with_outputs=with_outputs)


def _print_which(past: KnownApplication, *, as_json: bool) -> None:
    lines = [*judgeable(past)]
    if as_json:
        print_json([line._asdict() for line in lines])
    else:
        print_table(("policies", "judged", "why"), lines)


def _show(found: SlateEvaluation, alpha: float, *, as_json: bool) -> None:
    if as_json:
        print_json(slates.as_json(found))
        return
    for line in slates.story(found):
        echo(line)
    echo()
    if rows := [*slates.rows(found)]:
        print_table(slates.heads(alpha), rows)
    for line in slates.refused(found):
        echo(line)


def _print(found: Evaluation, beside: Sequence[MetricJudgement]) -> None:
    for line in words.story(found):
        echo(line)
    echo()
    if rows := words.rows(found):
        print_table(words.HEADS, rows)
        echo(words.weighed(found))
    for line in words.refused(found.estimates):
        echo(line)
    echo("", f"at all times at once, {1 - found.alpha:.0%}:")
    print_table(("", "loss and bounds"), words.bounds(found))
    if beside:
        echo("", "metrics, bounds at all times at once:")
        print_table(words.METRIC_HEADS, words.metrics(beside))
    echo("", found.recommendation)
