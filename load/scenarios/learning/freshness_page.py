"""Results of `freshness` as a table, as the page docs/freshness.md, and as its picture."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table
from load.scenario import Scenario
from load.scenarios.learning import freshness
from load.scenarios.learning.freshness import FIGURES, RATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = "freshness.svg"
_INTRODUCTION: Final = """\
How long it takes until feedback decides. Written by `skysail load run freshness --docs docs/freshness.md`.

Everything is seen from outside. A decision in a prediction says how many observations its state has folded, and the log
of observations says in which order. So the n-th observation of the log is in force in the first answer whose state has
folded n.

- **The clock starts** when feedback was meant to be written, whatever held up the sender. It stops when the client
  reads the answer to the first query that is decided by a state with that feedback in it. So the answer's way back
  counts, and so does waiting for somebody to ask.
- **In between** the joiner finds the prediction and writes an observation ("in the log"), the learner folds it and
  writes the state to Redis, and selection reads states again that are older than 0.1 s. Joiner and learner pause for
  0.1 s after each poll (`kafka.linger_ms`), so that requests are few. These three waits are most of it. With shorter
  pauses decisions are fresher, for more requests.
- **Load:** as many queries a second as feedback, at random times (Poisson), each query told its label 50 ms later.
  Queries go on for two seconds after the last feedback. What was never seen to decide counts as infinitely old.
- **System:** the whole loop in one process, models inside: Exp3 over two linear models, one state for all queries.
"""


def tables(result: Result) -> Sequence[Table]:
    """Return a line for each rate: medians, with the least and the most of the rounds."""
    heads = ("feedback/s", "p50 ms", "p99 ms", "in the log, p50 ms", "never seen", "defaults", "sender late ms")
    lines = []
    for rate in RATES:
        mine = [row for row in result.series["rounds"] if row["rate_per_s"] == rate]
        times = (_spread([row[name] for row in mine]) for name in ("p50_ms", "p99_ms", "logged_p50_ms"))
        counts = (f"{sum(row[name] for row in mine):,.0f}" for name in ("unseen", "defaults"))
        late = f"{max(row['sender_late_ms'] for row in mine):.1f}"
        lines.append((f"{rate:,}", *times, *counts, late))
    return (Table("From feedback written to the first decision by what it has taught", heads, tuple(lines)),)


def page(result: Result, environment: Environment) -> str:
    """Return the page in Markdown."""
    machine = (
        f"{environment['cores_usable']} cores of {environment['processor']}, shared by broker, Redis, sender, system;"
        f" {environment['broker']}; {result.given}. Load average at the end: {environment['load_average'][0]:.1f}."
    )
    shown = [f"## {table.title}\n\n{table.markdown()}" for table in tables(result)]
    picture = f"![Share of feedback that decides by its age]({_PICTURE})\n"
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    return "\n".join(["# Freshness\n", _INTRODUCTION, f"{machine}\n", *shown, picture, *notes, ""])


def plots(result: Result) -> dict[str, str]:
    """Return the picture: the share of feedback that decides, by its age, of all rounds together."""
    figure, (axes,) = panels(1, (6.2, 2.9))
    for rate, colour in zip(RATES, COLOURS, strict=False):
        points = [(row["age_ms"], row["share"]) for row in result.series["ages"] if row["rate_per_s"] == rate]
        if points:
            axes.plot(*zip(*points, strict=True), label=f"{rate:,} a second", color=colour)
    axes.set_xlim(left=0)
    axes.set_xlabel("ms since feedback was written")
    axes.set_ylabel("share that decides")
    axes.legend()
    return {_PICTURE: svg(figure)}


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


SCENARIO = Scenario(
    freshness.NAME,
    freshness.FIGURES,
    freshness.run,
    "feedback written until the first decision by what it has taught, at 100, 1,000 and 5,000/s, seen from outside",
    tables=tables,
    page=page,
    plots=plots,
    seconds=freshness.SECONDS,
    short=True,
)
