"""The scenario `laser`: its tables and its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from load.research.recommend import laser
from load.research.recommend.laser import APPLICATIONS, HURRIES, KNOWS, WAITS
from load.research.recommend.two_speeds import BOTH, CAMPAIGNS, COLD, LANES, WARM
from load.results.tables import Table
from load.scenario import Scenario
from streams.evaluation.drawing import COLOURS, panels, png

if TYPE_CHECKING:
    from load.results.results import Result


_PICTURE: Final = "features.png"
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


def plots(result: Result) -> dict[str, bytes]:
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
    return {_PICTURE: png(figure)}


SCENARIO = Scenario(
    laser.NAME,
    laser.FIGURES,
    laser.run,
    "features looked up by the deadline although their source is slower, then closed; two speeds beside one",
    tables=tables,
    page="research/recommend/laser.md.j2",
    plots=plots,
    short=True,
)
