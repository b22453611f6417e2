"""The page docs/many-models.md: results of `clockwork`, `pretzel` and `nexus` beside what was published.

What is written here was published by others; every figure of Skysail comes from a result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from load.results.pages import missed
from load.results.tables import Table
from load.scenarios import clockwork, clockwork_page, nexus, nexus_page, pretzel, pretzel_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.figures import Figures
    from load.harness.environment import Environment
    from load.results.results import Result

NAME: Final = "many-models"
_INTRODUCTION: Final = """\
# Many models: three systems as published, and here

[Hosts](hosts.md) take after three systems: Clockwork's schedule (OSDI 2020), PRETZEL's sharing (OSDI 2018) and Nexus's
plan (SOSP 2019). Each has a scenario, and this page puts its figures beside those that were published. Written by
`skysail load page --of many-models RESULT... > docs/many-models.md`, from the results that the scenarios left.

**There is no GPU here.** Where a model is called *sleeping* or *profiled*, nothing is computed: a batch takes the time
that Clockwork published for a V100. *Simulated* is without Kafka, in virtual time. So no row below is the same
experiment as the one beside it. It says how far the same idea goes on this machine, and what was measured instead.
"""


class _Row(NamedTuple):
    """One line of a table.

    Attributes:
        what: was measured.
        figure: its name.
        shown: how it is written.
        published: beside it; "" = nothing like it.
    """

    what: str
    figure: str
    shown: Callable[[float], str]
    published: str = ""


class _Part(NamedTuple):
    """What the page has of one scenario.

    Attributes:
        title: of it.
        figures: that the scenario declares.
        rows: of the table; those whose figures no result has are left out.
        plots: its pictures.
        picture: in words.
        differences: between what was published and this.
    """

    title: str
    figures: Figures
    rows: Sequence[_Row]
    plots: Callable[[Result], Mapping[str, str]]
    picture: str
    differences: str


def _share(value: float) -> str:
    return f"{value:.3%}"


def _times(value: float) -> str:
    return f"{value:,.1f} times"


def _ms(value: float) -> str:
    return f"{value:,.1f} ms"


def _count(value: float) -> str:
    return f"{value:,.0f}"


_WITHIN: Final = "99.99997 % within 100 ms: all but 58 of 208 million"
PARTS: Final[Mapping[str, _Part]] = {
    clockwork.NAME: _Part(
        "Clockwork: the latest feasible start first",
        clockwork.FIGURES,
        (
            _Row("in time, real models on Kafka", "live_clockwork_goodput", _share, _WITHIN),
            _Row("the same under `fifo`, `aimd`", "live_fifo_goodput", _share),
            _Row("the same, as many workers as fit", "live_apart_goodput", _share),
            _Row("in time, sleeping models on Kafka", "sleeping_clockwork_goodput", _share, _WITHIN),
            _Row("the same under `fifo`, `aimd`", "sleeping_fifo_goodput", _share),
            _Row("in time, profiled models, simulated", "profiled_clockwork_goodput", _share, _WITHIN),
            _Row("of those within the load", "profiled_clockwork_goodput_within", _share),
            _Row("in time, real models, simulated", "real_clockwork_goodput", _share, _WITHIN),
            _Row("cold queries in time, real models, simulated", "real_clockwork_cold_goodput", _share),
            _Row("batches that took longer than predicted, on Kafka", "live_clockwork_under_share", _share),
            _Row("within the load at 10 ms, simulated", "objective_10_clockwork_goodput_within", _share),
        ),
        clockwork_page.plots,
        "In time by objective, beside fifo",
        """\
Clockwork has twelve GPUs, in whose memory hundreds of models fit, and a trace of Azure's functions. Here one host holds
a tenth of 200 models, and is asked as companies were named on Twitter. Those bursts ask for more than the host can do
in any order. The share *within the load* leaves them out. On two cores the broker, the sender and selection take what
the host would need. With one objective for all queries, first come first served is nearly the same order. The page of
the scenario: [clockwork.md](clockwork.md).""",
    ),
    pretzel.NAME: _Part(
        "PRETZEL: equal steps once",
        pretzel.FIGURES,
        (
            _Row("memory less than a process a pipeline", "memory_gain_over_processes", _times, "25 times"),
            _Row("the same, processes with stages", "memory_gain_over_staged", _times),
            _Row("memory less than scikit-learn in one process", "memory_gain_over_sklearn", _times),
            _Row("memory less than one process that shares nothing", "memory_gain_over_alone", _times),
            _Row("one row less than scikit-learn, sentiment", "sentiment_hot_gain", _times, "5.5 times, p99"),
            _Row("one row less than scikit-learn, attendees", "attendees_hot_gain", _times, "5.5 times, p99"),
            _Row("first query of a cold pipeline, p99, all shared", "cold_100_p99_ms", _ms),
            _Row("the same, nothing shared", "cold_0_p99_ms", _ms),
            _Row("rows a second kept from the fewest pipelines to all", "shared_work_kept", _share),
            _Row("answers that differ from scikit-learn's in any bit", "different_answers", _count),
        ),
        pretzel_page.plots,
        "Memory and rows a second by the number of pipelines",
        """\
PRETZEL's pipelines are of ML.NET, and neither their data nor the code is public; its 4.7 times the throughput, on 16
cores, have nothing beside them here. Its dictionaries have a million terms, these some ten thousand, of words made from
seeds. A process here imports scikit-learn, which is most of its memory: the fair comparisons are those with one
process. The page of the scenario: [pretzel.md](pretzel.md).""",
    ),
    nexus.NAME: _Part(
        "Nexus: hosts by plan",
        nexus.FIGURES,
        (
            _Row("hosts for 99 % in time, planned, simulated", "planned_hosts", _count),
            _Row("the same, spread evenly", "spread_hosts", _count),
            _Row("the same, a worker a model", "workers_hosts", _count),
            _Row("a worker a model takes more hosts", "workers_ratio", _times, "1.8 to 12.7 times the rate"),
            _Row("rows in time, planned, simulated", "planned_in_time", _share, "99 %"),
            _Row("in time, two hosts by plan on Kafka, from nothing", "measured_planned_goodput", _share, "99 %"),
            _Row("the same, spread evenly", "measured_spread_goodput", _share),
            _Row("models that moved meanwhile", "measured_moves", _count),
        ),
        nexus_page.plots,
        "Hosts that were used, and rows that were asked, over the day",
        """\
Nexus compares the rate of 16 GPUs with Clipper's and TensorFlow Serving's; here the load is given, and hosts are
counted. More hosts than two are simulated. The models sleep, on Kafka longer than on a V100, so that two hosts on two
cores hardly disturb each other. The day was chosen, as its page says: [nexus.md](nexus.md). Models with a common trunk
run in one batch, which has a page of its own: [prefix.md](prefix.md).""",
    ),
}
SCENARIOS: Final = (*PARTS,)


def page(results: Sequence[tuple[Result, Environment]]) -> str:
    """Return the page.

    Args:
        results: of the three scenarios, each with its machine; of parts that were run one by one there are several.

    Raises:
        LookupError: a scenario has no result, or a result is of another one.
    """
    given = {result.scenario for result, _ in results}
    if given != {*SCENARIOS}:
        raise LookupError(
            f"{NAME} is made of results of {', '.join(SCENARIOS)}; these are of {', '.join(sorted(given))}"
        )
    return "\n".join(
        [_INTRODUCTION, *(_section(name, [each for each in results if each[0].scenario == name]) for name in SCENARIOS)]
    )


def _section(name: str, results: Sequence[tuple[Result, Environment]]) -> str:
    part = PARTS[name]
    figures = {figure: value for result, _ in results for figure, value in result.figures.items()}
    rows = tuple(
        (row.what, row.shown(figures[row.figure]), row.published) for row in part.rows if row.figure in figures
    )
    table = Table(part.title, ("", "here", "published"), rows)
    said = dict.fromkeys(_machine(result, environment) for result, environment in results)
    pictures = dict.fromkeys(picture for result, _ in results for picture in part.plots(result))
    whole = replace(results[0][0], figures=figures)
    notes = [f"- {sentence}" for sentence in missed(whole, part.figures, with_unknown=False)]
    return "\n".join(
        [
            f"## {part.title}\n",
            *(f"{line}\n" for line in said),
            table.markdown(),
            *(f"![{part.picture}]({picture})\n" for picture in pictures),
            part.differences,
            "",
            *notes,
            *[""] * bool(notes),
        ]
    )


def _machine(result: Result, environment: Environment) -> str:
    return f"{environment['cores_usable']} cores of {environment['processor']}; {result.given}."
