"""Results of `laser` as tables, as the figures of docs/features.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.research.recommend import laser
from load.research.recommend.laser import APPLICATIONS, FIGURES, HURRIES, KNOWS, NAME, WAITS
from load.research.recommend.two_speeds import BOTH, CAMPAIGNS, COLD, LANES, WARM
from load.results.drawing import COLOURS, panels, svg
from load.results.pages import FIGURES_OF_A_GUIDE, missed
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = "features.svg"
_SAID: Final = {
    KNOWS: "the client sends all features",
    WAITS: "looked up, waited for up to half of the time",
    HURRIES: "looked up, never waited for",
}
_SPEEDS: Final = {
    "logged": "uniform, as logged",
    COLD: "one speed: the model alone",
    WARM: "one speed: feedback alone",
    BOTH: "`two_speed`",
}
_FEW: Final = "too few tell"
_READING: Final = """\
- *AUC* is how often an impression that was clicked on has a higher score than one that was not. The clicks are made up
  (`load/research/models/clicks.py`). *Means* is the AUC of whoever never looks up.
- *In time*: the answer left by its deadline. In virtual time all do, whatever a store does
  (`tests/property/test_feature_laws.py`). Where a busy machine lets selection wait, queries that look up nothing are
  late, too: compare the rows.
- Open Bandit has some 40 clicks in 10,000 impressions. The intervals say what that tells: not which is better. Where
  the truth is known, the difference is as the table says.
- *Too few tell*: the model alone answers one item nearly always, and the log has few impressions of it.
- On Open Bandit each policy is taught by the impressions of the uniform policy in their order, and judged by each
  before it is taught. The cold log-odds are the items' click rates under another policy, drawn to the mean.
- LASER's paper gives no figures to compare with.
"""


def tables(result: Result) -> list[Table]:
    """Return what waiting is worth, and what two speeds are."""
    found = result.figures
    lookups = tuple(
        (
            _SAID[name],
            f"{found[f'{name}_auc']:.3f}",
            f"{found[f'{name}_imputed']:.1%}" if f"{name}_imputed" in found else "",
            f"{found[f'{name}_in_time']:.2%}",
            f"{found[f'{name}_p50_ms']:.1f}",
            f"{found[f'{name}_p99_ms']:.1f}",
        )
        for name in APPLICATIONS
    )
    means = ("never looked up", f"{found['means_auc']:.3f}", "100.0%", "", "", "")
    market = tuple(
        (_SPEEDS[lane], f"{found[f'market_{lane}']:.4f} ± {found[f'market_{lane}_error']:.4f}") for lane in LANES
    )
    best = ("whoever knows the truth", f"{found['market_best']:.4f}")
    made = [
        Table("Features", ("features", "AUC", "imputed", "in time", "p50, ms", "p99, ms"), (*lookups, means)),
        Table("Known truth", ("policy", "clicks a query"), (*market, best)),
    ]
    if any(name.startswith("obd_") for name in found):
        heads = ("Open Bandit, clicks an impression (SNIPW, 95 %)", *CAMPAIGNS)
        made.append(
            Table("Open Bandit", heads, tuple((said, *_bandit(result, lane)) for lane, said in _SPEEDS.items()))
        )
    return made


def _bandit(result: Result, lane: str) -> list[str]:
    found, shown = result.figures, []
    for name in (f"obd_{campaign}_{lane}_snipw" for campaign in CAMPAIGNS):
        known = name in found
        shown.append(
            f"{found[name]:.4f} ({found[name + '_low']:.4f} to {found[name + '_high']:.4f})" if known else _FEW
        )
    return shown


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    found = result.figures
    lookups, *speeds = [table.markdown() for table in tables(result)]
    measured = (
        f"Measured by `skysail load run laser --docs docs/features.md`, {result.given}, on {environment['processor']}."
        f" Features that decide most of a click lie in a Redis whose answers take {found['source_p50_ms']:.0f} ms at"
        f" the median and {found['source_p99_ms']:.0f} ms at the 99th percentile; the objective is 200 ms."
    )
    down = (
        f"Answered in time: {found['in_time']:.2%}; by default: {found['defaults']:.0f}. Looking up with waiting costs"
        f" {found['waits_auc_lost']:.3f} of AUC, without waiting {found['hurries_auc_lost']:.3f}. Then the Redis was"
        f" closed. From two seconds on answers took {found['waits_down_p50_ms']:.1f} ms at the median and"
        f" {found['waits_down_p99_ms']:.1f} at the 99th percentile; {found['waits_imputed_down']:.0%} of them were"
        f" imputed, the others had a user whom selection knew. Lost: {found['lost']:.0f}; answered twice:"
        f" {found['duplicates']:.0f}."
    )
    learnt = (
        "Twenty items, whose log-odds have changed since the model was trained: clicks a query, mean of three markets"
        f" with its standard error. In the same markets both speeds earn {found['market_over_cold']:.3f} ±"
        f" {found['market_over_cold_error']:.3f} more than the model alone, and {found['market_over_warm']:.3f} ±"
        f" {found['market_over_warm_error']:.3f} more than feedback alone."
    )
    said = [
        textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"
        for text in (measured, down, learnt)
    ]
    if result.parameters.get("form") == "short":
        said[0] += "\n**This is the short form.**\n"
    picture = f"![What answers take, and clicks a query]({_PICTURE})\n"
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    parts = [FIGURES_OF_A_GUIDE, said[0], lookups, said[1], picture, said[2], *speeds]
    return "\n".join([*parts, "## How to read this\n", _READING.rstrip(), *notes, ""])


def plots(result: Result) -> dict[str, str]:
    """Return the picture: how long answers took that waited, clicks where the truth is known, and on Open Bandit."""
    figure, (left, middle, right) = panels(3, (9.6, 2.9))
    found, course = result.figures, result.series["waits"]
    left.plot([row["ms"] for row in course], [row["share"] for row in course], color="black")
    left.axvline(200.0, color="grey", linewidth=0.7, linestyle=":")
    left.set_xlabel("ms that an answer took at most")
    left.set_ylabel("share of the answers, waiting")
    left.set_ylim(0.0, 1.02)
    colours = dict(zip(LANES, (COLOURS[0], COLOURS[1], "black"), strict=True))
    for place, lane in enumerate(LANES):
        middle.bar(place, found[f"market_{lane}"], yerr=found[f"market_{lane}_error"], color=colours[lane], width=0.6)
    middle.axhline(found["market_best"], color="grey", linewidth=0.7, linestyle=":")
    middle.set_xticks(range(len(LANES)), LANES)
    middle.set_ylabel("clicks a query; dotted: the most")
    for place, campaign in enumerate(CAMPAIGNS):
        for shift, lane in zip((-0.2, 0.0, 0.2), LANES, strict=True):
            name = f"obd_{campaign}_{lane}_snipw"
            if name in found:
                value = found[name]
                ends = [[value - found[f"{name}_low"]], [found[f"{name}_high"] - value]]
                right.errorbar(place + shift, value, ends, fmt="o", color=colours[lane], capsize=3)
    right.set_xticks(range(len(CAMPAIGNS)), CAMPAIGNS)
    right.set_ylabel("clicks an impression, Open Bandit")
    return {_PICTURE: svg(figure)}


__all__ = ["NAME", "page", "plots", "tables"]


SCENARIO = Scenario(
    laser.NAME,
    laser.FIGURES,
    laser.run,
    "features looked up by the deadline although their source is slower, then closed; two speeds beside one",
    tables=tables,
    page=page,
    plots=plots,
    short=True,
)
