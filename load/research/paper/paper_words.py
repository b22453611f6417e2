"""What the page of the paper's figures shows: one HTML page that needs nothing beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from load.research.paper import run
from load.research.paper.parts import PARTS, SOURCES
from load.research.paper.run import scatter
from load.results.pages import sections
from load.results.targets import not_judged, verdicts
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.research.paper.parts import Part
    from load.results.results import Result
    from load.results.targets import Verdict

DIFFERENCES = sections(Path(__file__).with_name("differences.md"))


def words(result: Result) -> dict[str, Any]:
    """Return what the page shows: each part that was wanted."""
    results, became = scatter(result), {row["scenario"]: row for row in result.series["sources"]}
    wanted = str(result.parameters["parts"]).split()
    return {"parts": [_part(PARTS[name], results, became) for name in wanted]}


def _part(part: Part, results: Mapping[str, Result], became: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    mine = {name: results[name] for name in part.sources if name in results}
    return {
        "name": part.name,
        "title": part.title,
        "absent": [became[name] for name in part.sources if name not in mine],
        "plot": part.draw(mine) if mine else "",
        "rows": [*part.rows(mine)] if mine else [],
        "differences": DIFFERENCES[part.name],
        "runs": [_run(result, became[name]) for name, result in mine.items()],
    }


def _run(result: Result, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return how to run it alone, with what it ran, and which targets were reached."""
    figures = SOURCES[result.scenario].figures
    others = [target.figure for target in not_judged(result, figures)]
    judged = [_judged(verdict) for verdict in verdicts(result, figures)]
    return {
        "name": result.scenario,
        "given": result.given,
        "seconds": row["seconds"],
        "judged": judged,
        "others": others,
    }


def _judged(verdict: Verdict) -> dict[str, Any]:
    target, measured = verdict.target, verdict.measured
    found = "not measured" if measured is None else f"{measured:.4g}"
    said = f"{target.figure} {target.relation} {target.bound:g}: {found}"
    return {"is_reached": verdict.reached, "said": said}


SCENARIO = Scenario(
    run.NAME,
    run.FIGURES,
    run.run,
    "Clipper's figures 3 to 10 and its feedback rate, in short, as plots on one page beside the published ones",
    page="research/paper/paper.html.j2",
    words=words,
    html="run.html",
    parts=run.NAMES,
    short=True,
)
