"""The paper's figures as one HTML page that needs nothing beside it."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from load.research.paper import run
from load.research.paper.parts import PARTS, SOURCES
from load.research.paper.run import scatter
from load.results.pages import sections
from load.results.targets import not_judged, verdicts
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from load.harness.environment import Environment
    from load.research.paper.parts import Part, Row
    from load.results.results import Result

DIFFERENCES = sections(Path(__file__).with_name("differences.md"))
TEMPLATE = Path(__file__).with_name("page.html")


def page(result: Result, environment: Environment) -> str:
    """Return the page; `environment` is what `load.harness.environment` says of the machine, and the broker."""
    results, became = scatter(result), {row["scenario"]: row for row in result.series["sources"]}
    wanted = str(result.parameters["parts"]).split()
    shown = "\n".join(_section(PARTS[name], results, became) for name in wanted)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        machine=escape(_machine(environment, float(result.parameters["load_before"]))), sections=shown
    )


def _machine(environment: Environment, load_before: float) -> str:
    cores = environment["cores_usable"]
    busy = (
        " It was busy with something else: rates are lower and latencies longer than its own."
        if load_before > cores / 2
        else ""
    )
    return (
        f"{cores} cores of {environment['processor']} for everything, broker and sender included;"
        f" {environment['broker']}, Python {environment['python']}."
        f" Load average of the machine before it began: {load_before:.1f}.{busy}"
    )


def _section(part: Part, results: Mapping[str, Result], became: Mapping[str, Mapping[str, Any]]) -> str:
    mine = {name: results[name] for name in part.sources if name in results}
    return "".join(
        [
            f'<section id="{part.name}"><h2>{escape(part.title)}</h2>',
            *(_absent(became[name]) for name in part.sources if name not in mine),
            part.draw(mine) if mine else "",
            _table(part.rows(mine)) if mine else "",
            f"<p>{escape(DIFFERENCES[part.name])}</p>",
            *(_run(result, became[name]) for name, result in mine.items()),
            "</section>",
        ]
    )


def _absent(row: Mapping[str, Any]) -> str:
    return f'<p class="missing"><code>{escape(row["scenario"])}</code> {row["state"]}: {escape(row["why"])}</p>'


def _table(rows: Iterable[Row]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    head = "<tr><th></th><th>Clipper, as published</th><th>measured here</th></tr>"
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _run(result: Result, row: Mapping[str, Any]) -> str:
    """Say how to run it alone, with what it ran, and which targets were reached."""
    judged = "; ".join(_judged(result))
    command = f"<code>skysail load run {escape(result.scenario)}</code>"
    return f'<p class="dim">{command} ({escape(result.given)}; {row["seconds"]:.0f} s). {judged}</p>'


def _judged(result: Result) -> Iterator[str]:
    figures = SOURCES[result.scenario].figures
    for verdict in verdicts(result, figures):
        target = verdict.target
        text = escape(f"{target.figure} {target.relation} {target.bound:g}")
        found = "not measured" if verdict.measured is None else f"{verdict.measured:.4g}"
        yield f"reached {text}: {found}" if verdict.reached else f'<b class="missed">missed {text}: {found}</b>'
    if others := not_judged(result, figures):
        yield f"not judged, as for other data or the full form alone: {', '.join(target.figure for target in others)}"


SCENARIO = Scenario(
    run.NAME,
    run.FIGURES,
    run.run,
    "Clipper's figures 3 to 10 and its feedback rate, in short, as plots on one page beside the published ones",
    page=page,
    html="run.html",
    parts=run.NAMES,
    short=True,
)
