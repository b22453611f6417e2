"""A host in simulated time: nothing is lost, one seed gives one run, and memory and time count as they should."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.clockworks import RESNET50, SIZES
from workers.simulation.host import EXPIRED, NO_MODEL, PREDICTED, REFUSED, HostModel, HostPlan, HostRun, simulate_host
from workers.simulation.service import Recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

MODEL = HostModel(
    Recorded.of({size: [float(us)] for size, us in zip(SIZES, RESNET50.p99_us, strict=True)}),
    RESNET50.load_us,
    RESNET50.bytes,
    RESNET50,
)


def plan(arrivals_us: Sequence[int], asked: Sequence[int], resident: int = 2, models: int = 4) -> HostPlan:
    """Return a plan of models of which some fit into memory, and 95 ms for an answer."""
    return HostPlan(np.array(arrivals_us), np.array(asked), (MODEL,) * models, 95_000, resident * MODEL.bytes)


def outcomes(run: HostRun) -> Counter[int]:
    """Return how many queries had each outcome."""
    return Counter(run.outcome)


def simulated(given: HostPlan) -> HostRun:
    """Return the outcome of a plan."""
    return simulate_host(given, np.random.default_rng(1))


def busy(queries: int = 2_000, every_us: int = 500) -> HostPlan:
    """Return a plan with more queries than can be answered, of more models than fit."""
    random = np.random.default_rng(5)
    return plan(
        np.cumsum(random.integers(0, 2 * every_us, queries)).tolist(), random.integers(4, size=queries).tolist()
    )


@pytest.mark.parametrize("schedule", ["clockwork", "fifo"])
def test_every_query_has_one_outcome_and_the_same_seed_gives_the_same_run(schedule: str) -> None:
    """Also where many are refused or expire, and models come and go."""
    given = replace(busy(), schedule=schedule)
    run = simulated(given)
    found = outcomes(run)
    lost = REFUSED if schedule == "clockwork" else EXPIRED
    assert set(found) == {PREDICTED, lost}
    assert found.total() == 2_000
    assert run == simulated(given)
    assert [done >= 0 for done in run.done_us] == [each == PREDICTED for each in run.outcome]


def test_what_clockwork_predicts_is_in_time_where_times_are_what_they_were_said_to_be() -> None:
    """The published times are kept to the microsecond here: then no answer is late."""
    given = busy()
    run = simulated(given)
    late = [
        done
        for done, came, outcome in zip(run.done_us, given.arrivals_us.tolist(), run.outcome, strict=True)
        if outcome == PREDICTED and done > came + given.due_us
    ]
    assert late == []


def test_a_cold_query_waits_for_loading_and_a_warm_one_does_not() -> None:
    """8.33 ms more."""
    run = simulated(plan([0, 50_000], [0, 0]))
    assert [*run.done_us] == [8_330 + 2_610, 50_000 + 2_610]
    assert run.is_cold == bytes([1, 0])
    assert run.loads == 1


def test_the_model_that_was_not_asked_for_longest_makes_room() -> None:
    """Three models, room for two: 0 goes for 2, and is loaded again when it is asked."""
    run = simulated(plan([0, 100_000, 200_000, 300_000, 400_000], [0, 1, 2, 1, 0]))
    assert run.is_cold == bytes([1, 1, 1, 0, 1])
    assert run.loads == 4


def test_where_one_process_does_both_a_model_that_loads_keeps_another_waiting() -> None:
    """The third query's model is there, and has to wait for the loading that the second asks for, and for its batch."""
    given = plan([0, 50_000, 50_001], [0, 1, 0])
    beside, instead = simulated(given), simulated(replace(given, loads_beside=False))
    assert beside.done_us[2] == 50_001 + 2_610
    assert instead.done_us[2] == 50_000 + 8_330 + 2 * 2_610


def test_models_apart_are_always_there_and_the_others_never() -> None:
    """As many workers as fit."""
    given = replace(plan([0, 10_000, 20_000], [0, 1, 3]), schedule="fifo", apart=frozenset({0, 3}))
    run = simulated(given)
    assert [*run.outcome] == [PREDICTED, NO_MODEL, PREDICTED]
    assert run.loads == 0
