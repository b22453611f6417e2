"""The page docs/many-models.md: figures of `clockwork`, `pretzel` and `nexus` beside what was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from load.research.clockwork import clockwork_tables as clockwork
from load.research.collected import Collection, Part, Row, share
from load.research.nexus import nexus
from load.research.pretzel import pretzel
from load.results.pages import count, ms, times

if TYPE_CHECKING:
    from collections.abc import Sequence

_WITHIN: Final = "99.99997 % within 100 ms: all but 58 of 208 million"
PARTS: Final[Sequence[Part]] = (
    Part(
        clockwork.SCENARIO,
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
    ),
    Part(
        pretzel.SCENARIO,
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
    ),
    Part(
        nexus.SCENARIO,
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
    ),
)
PAGE: Final = Collection("many-models", "research/many_models.md.j2", PARTS)
