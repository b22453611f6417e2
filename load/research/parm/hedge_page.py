"""Results of `hedge` as a table, as the figures of docs/hedging.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.research.parm import hedge
from load.research.parm.hedge import FIGURES, SHARE
from load.results.drawing import COLOURS, panels, svg
from load.results.pages import FIGURES_OF_A_GUIDE, missed
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = "hedging.svg"
_LANES: Final = {"plain": "asked once", "hedged": f"`hedge: {SHARE}`"}
_PERCENTILES: Final = {"p50": "p50_ms", "p99": "p99_ms", "p99.9": "p999_ms"}
_READING: Final = """\
- The same arrivals come to both applications, one after the other. The model sleeps 5 ms a batch and 1 ms a row.
- Objectives are long, so that waiting shows as latency and not as default outputs.
- Each lane ran once. The design was changed once before. A first short run had ten tokens and kept none, stops of a
  quarter of a second and 120 queries a second. It saved 1 % at the 99th percentile.
"""


def tables(result: Result) -> list[Table]:
    """Return the latencies of both applications."""
    found = result.figures
    rows = [
        (
            name,
            *(f"{found[key]:,.1f}" if (key := f"{lane}_{figure}") in found else "" for figure in _PERCENTILES.values()),
            f"{found[f'{lane}_defaults']:,.0f}",
        )
        for lane, name in _LANES.items()
    ]
    return [Table("Latencies", ("", *(f"{name} ms" for name in _PERCENTILES), "by default"), tuple(rows))]


def page(result: Result, environment: Environment) -> str:
    """Return the figures of the page docs/hedging.md."""
    found = result.figures
    how = (
        f"Measured by `skysail load run hedge --docs docs/hedging.md` ({result.given}), on"
        f" {environment['cores_usable']} cores of {environment['processor']}; {environment['broker']}. Load average at"
        f" the end: {environment['load_average'][0]:.1f}. A model has three replicas, of which one is stopped for"
        f" {result.parameters['still_s']} s every {result.parameters['every_s']} s."
        f" {found['plain_queries_sent']:,.0f} queries came to each application."
    )
    saved = (
        f"The worst latency of the table was {found['p999_saved']:.1%} lower for {found['extra']:.1%} more questions."
        f" While all three replicas stood still for {result.parameters['outage_s']} s, {found['outage_again']:.0f} of"
        f" {found['outage_asked']:.0f} questions were put twice."
    )
    shown = [table.markdown() for table in tables(result)]
    picture = f"![Latencies with hedging and without]({_PICTURE})\n"
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    return "\n".join([FIGURES_OF_A_GUIDE, _filled(how), *shown, picture, _filled(saved), _READING.rstrip(), *notes, ""])


def _filled(paragraph: str) -> str:
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def plots(result: Result) -> dict[str, str]:
    """Return the picture: percentiles of both applications."""
    figure, (axes,) = panels(1, (6.2, 2.9))
    for (lane, name), colour in zip(_LANES.items(), COLOURS, strict=False):
        points = [(at, result.figures.get(f"{lane}_{key}")) for at, key in _PERCENTILES.items()]
        known = [(at, value) for at, value in points if value is not None]
        axes.plot(*zip(*known, strict=True), marker="o", label=name.replace("`", ""), color=colour)
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    axes.legend()
    return {_PICTURE: svg(figure)}


SCENARIO = Scenario(
    hedge.NAME,
    hedge.FIGURES,
    hedge.run,
    "one replica of three stands still now and then: what a second question to another one saves",
    tables=tables,
    page=page,
    plots=plots,
    short=True,
    any_arrivals=True,
)
