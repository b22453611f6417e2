"""The page docs/many-models.md: results of `clockwork`, `pretzel` and `nexus` beside what was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from load.research.beside import Collection, Part, Row, count, ms, share, times
from load.research.clockwork import clockwork, clockwork_page
from load.research.nexus import nexus, nexus_page
from load.research.pretzel import pretzel, pretzel_page

if TYPE_CHECKING:
    from collections.abc import Mapping

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


_WITHIN: Final = "99.99997 % within 100 ms: all but 58 of 208 million"
PARTS: Final[Mapping[str, Part]] = {
    clockwork.NAME: Part(
        "Clockwork: the latest feasible start first",
        clockwork.FIGURES,
        (
            Row("in time, real models on Kafka", "live_clockwork_goodput", share, _WITHIN),
            Row("the same under `fifo`, `aimd`", "live_fifo_goodput", share),
            Row("the same, as many workers as fit", "live_apart_goodput", share),
            Row("in time, sleeping models on Kafka", "sleeping_clockwork_goodput", share, _WITHIN),
            Row("the same under `fifo`, `aimd`", "sleeping_fifo_goodput", share),
            Row("in time, profiled models, simulated", "profiled_clockwork_goodput", share, _WITHIN),
            Row("of those within the load", "profiled_clockwork_goodput_within", share),
            Row("in time, real models, simulated", "real_clockwork_goodput", share, _WITHIN),
            Row("cold queries in time, real models, simulated", "real_clockwork_cold_goodput", share),
            Row("batches that took longer than predicted, on Kafka", "live_clockwork_under_share", share),
            Row("within the load at 10 ms, simulated", "objective_10_clockwork_goodput_within", share),
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
    pretzel.NAME: Part(
        "PRETZEL: equal steps once",
        pretzel.FIGURES,
        (
            Row("memory less than a process a pipeline", "memory_gain_over_processes", times, "25 times"),
            Row("the same, processes with stages", "memory_gain_over_staged", times),
            Row("memory less than scikit-learn in one process", "memory_gain_over_sklearn", times),
            Row("memory less than one process that shares nothing", "memory_gain_over_alone", times),
            Row("one row less than scikit-learn, sentiment", "sentiment_hot_gain", times, "5.5 times, p99"),
            Row("one row less than scikit-learn, attendees", "attendees_hot_gain", times, "5.5 times, p99"),
            Row("first query of a cold pipeline, p99, all shared", "cold_100_p99_ms", ms),
            Row("the same, nothing shared", "cold_0_p99_ms", ms),
            Row("rows a second kept from the fewest pipelines to all", "shared_work_kept", share),
            Row("answers that differ from scikit-learn's in any bit", "different_answers", count),
        ),
        pretzel_page.plots,
        "Memory and rows a second by the number of pipelines",
        """\
PRETZEL's pipelines are of ML.NET, and neither their data nor the code is public; its 4.7 times the throughput, on 16
cores, have nothing beside them here. Its dictionaries have a million terms, these some ten thousand, of words made from
seeds. A process here imports scikit-learn, which is most of its memory: the fair comparisons are those with one
process. The page of the scenario: [pretzel.md](pretzel.md).""",
    ),
    nexus.NAME: Part(
        "Nexus: hosts by plan",
        nexus.FIGURES,
        (
            Row("hosts for 99 % in time, planned, simulated", "planned_hosts", count),
            Row("the same, spread evenly", "spread_hosts", count),
            Row("the same, a worker a model", "workers_hosts", count),
            Row("a worker a model takes more hosts", "workers_ratio", times, "1.8 to 12.7 times the rate"),
            Row("rows in time, planned, simulated", "planned_in_time", share, "99 %"),
            Row("in time, two hosts by plan on Kafka, from nothing", "measured_planned_goodput", share, "99 %"),
            Row("the same, spread evenly", "measured_spread_goodput", share),
            Row("models that moved meanwhile", "measured_moves", count),
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
PAGE: Final = Collection(NAME, _INTRODUCTION, PARTS)
