"""`paper`: Clipper's figures (NSDI 2017) through the whole system, one after the other, each by its own scenario.

It runs the short form of each; for the full form, run a scenario by itself. If a part lacks its data or fails, the page
gives the reason, and the other figures are not affected.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from load.errors import MissingDataError
from load.figures import FAULTS, NONE, SHOWN, Figures
from load.harness.progress import say
from load.research.paper.parts import PARTS, SOURCES
from load.results.results import Result

if TYPE_CHECKING:
    from load.harness.system import Stage

NAME = "paper"
NAMES = tuple(PARTS)


FIGURES = Figures(
    FAULTS("parts_failed", must=NONE),
    SHOWN("parts_measured", "parts_skipped"),
    *(source.figures.after(f"{name}_") for name, source in SOURCES.items()),
)


async def run(stage: Stage) -> Result:
    """Run what the wanted parts need, once each."""
    load_before = os.getloadavg()[0]
    wanted = [part for part in PARTS.values() if part.name in (stage.only or NAMES)]
    sources = dict.fromkeys(source for part in wanted for source in part.sources)
    results: dict[str, Result] = {}
    rows: list[dict[str, Any]] = []
    for source in sources:
        started_s = time.monotonic()
        state, why = "measured", ""
        try:
            results[source] = await _source(stage, source)
        except MissingDataError as error:
            state, why = "skipped", str(error)
        except Exception as error:  # noqa: BLE001  # whatever it is, the other parts have their figures
            state, why = "failed", f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - started_s
        rows.append({"scenario": source, "state": state, "why": why, "seconds": seconds})
        say(NAME, f"{source} {state} after {seconds:.0f} s {why}")
    return gather(results, rows, {"parts": " ".join(part.name for part in wanted), "load_before": load_before})


async def _source(stage: Stage, source: str) -> Result:
    folder = stage.folder / source
    folder.mkdir()
    return await SOURCES[source].run(replace(stage, folder=folder, only=(), short=True))


def gather(results: dict[str, Result], rows: list[dict[str, Any]], parameters: dict[str, float | str]) -> Result:
    """Make one result of many: figures and series get the scenario's name before them.

    Args:
        results: by scenario.
        rows: one a scenario: what became of it.
        parameters: `parts` that were wanted, and the machine's load average before they began.
    """
    counted = {state: sum(row["state"] == state for row in rows) for state in ("measured", "skipped", "failed")}
    given = [{"scenario": name, "parameters": json.dumps(dict(of.parameters))} for name, of in results.items()]
    return Result(
        NAME,
        figures={
            **{f"parts_{state}": count for state, count in counted.items()},
            **{f"{name}_{figure}": value for name, of in results.items() for figure, value in of.figures.items()},
        },
        parameters=parameters,
        series={
            "sources": rows,
            "parameters": given,
            **{f"{name}_{series}": found for name, of in results.items() for series, found in of.series.items()},
        },
        notes=tuple(f"{row['scenario']} {row['state']}: {row['why']}" for row in rows if row["why"]),
    )


def scatter(result: Result) -> dict[str, Result]:
    """Return the results that `gather` was given."""
    return {
        row["scenario"]: Result(
            row["scenario"],
            _of(row["scenario"], result.figures),
            json.loads(row["parameters"]),
            _of(row["scenario"], result.series),
        )
        for row in result.series["parameters"]
    }


def _of(source: str, found: Any) -> dict[str, Any]:
    start = f"{source}_"
    return {name.removeprefix(start): value for name, value in found.items() if name.startswith(start)}
