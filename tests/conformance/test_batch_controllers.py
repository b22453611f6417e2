"""The laws that every registered batch controller obeys, by itself and where only some sizes are allowed."""

from __future__ import annotations

from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from policies.allowed_sizes import AllowedSizes
from policies.batching import CONTROLLERS, BatchController, create_controller
from workers.kernel.model.batcher import Batcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OBJECTIVE_US = 20_000
MAX_ROWS = 4096
# A model of 5 ms a batch and 0.1 ms a row: 150 rows fill the objective.
BASE_US, ROW_US = 5_000, 100
BEST_ROWS = (OBJECTIVE_US - BASE_US) // ROW_US
# A tenth below the objective, where growing stops: 130 rows. In rows this is 87 % of the best, in throughput 96 %.
SAFE_ROWS = (OBJECTIVE_US * 9 // 10 - BASE_US) // ROW_US

NOT_ADAPTIVE = {"fixed": "its cap is what was configured, whatever is measured"}


LINGERING = {"linger_ms": 8.0}


# Steps of one percent, so that the best of them is next to the best of all.
SIZES = tuple(sorted({int(1.01**power) for power in range(836)}))


def built(
    name: str, parameters: Mapping[str, float] = MappingProxyType({}), *, is_padded: bool
) -> BatchController[Any]:
    """Return a controller, of which only some sizes may be allowed."""
    inner = create_controller(name, parameters)
    return AllowedSizes(inner, SIZES) if is_padded else inner


@pytest.fixture(params=[False, True], ids=["any size", "allowed sizes"])
def is_padded(request: pytest.FixtureRequest) -> bool:
    """Whether only some sizes are allowed."""
    return bool(request.param)


@pytest.fixture(
    params=[*((name, {}) for name in sorted(CONTROLLERS)), *((name, LINGERING) for name in sorted(CONTROLLERS))]
)
def controller(request: pytest.FixtureRequest, is_padded: bool) -> BatchController[Any]:
    """Each registered controller with its default parameters, and lingering."""
    return built(*request.param, is_padded=is_padded)


@pytest.fixture(params=sorted(set(CONTROLLERS) - set(NOT_ADAPTIVE)))
def adaptive(request: pytest.FixtureRequest, is_padded: bool) -> BatchController[Any]:
    """Each controller that adapts."""
    return built(request.param, is_padded=is_padded)


def model(rows: int, row_us: int = ROW_US) -> int:
    """Return how long a batch takes, in microseconds."""
    return BASE_US + row_us * rows


def lowered(controller: BatchController[Any], rows: float) -> float:
    """Return the largest allowed size that so many rows hold."""
    return max(size for size in SIZES if size <= rows) if isinstance(controller, AllowedSizes) else rows


def driven(
    controller: BatchController[Any],
    state: Any,
    batches: int,
    duration: Callable[[int], int] = model,
    offered: int = MAX_ROWS,
) -> Any:
    """Run full batches (or as many rows as are offered) of a model through the controller."""
    for _ in range(batches):
        rows = min(controller.cap(state), offered)
        state = controller.observe(state, rows, duration(rows), OBJECTIVE_US)
    return state


def throughput(rows: int) -> float:
    """Return rows a microsecond."""
    return rows / model(rows)


def test_cap_is_a_whole_number_within_its_bounds_whatever_is_measured(controller: BatchController[Any]) -> None:
    """Pauses, impossible durations and empty takes never push the cap below 1 or above its maximum."""
    random, state = Random(5), controller.init()
    for _ in range(20_000):
        cap = controller.cap(state)
        assert isinstance(cap, int)
        assert 1 <= cap <= MAX_ROWS
        duration_us = random.choice((0, 1, 17_999, 18_000, 20_000, 20_001, 10**12))
        state = controller.observe(state, random.choice((0, 1, cap)), duration_us, random.choice((0, OBJECTIVE_US)))


def test_observing_is_pure(controller: BatchController[Any]) -> None:
    """The same state and batch give the same next state."""
    state = driven(controller, controller.init(), 20)
    first = controller.observe(state, controller.cap(state), 1_000, OBJECTIVE_US)
    assert controller.observe(state, controller.cap(state), 1_000, OBJECTIVE_US) == first


def test_first_batch_is_safe(adaptive: BatchController[Any]) -> None:
    """Before anything is known one row is taken."""
    assert adaptive.cap(adaptive.init()) == 1


def test_settles_near_the_best_batch_within_200(adaptive: BatchController[Any]) -> None:
    """After 200 full batches throughput is at least 90 % of the best, and the objective is held."""
    rows = adaptive.cap(driven(adaptive, adaptive.init(), 200))
    assert rows >= 0.9 * SAFE_ROWS
    assert throughput(rows) >= 0.9 * throughput(BEST_ROWS)
    assert model(rows) <= OBJECTIVE_US


def test_beats_single_rows_twenty_times(adaptive: BatchController[Any]) -> None:
    """The settled batch is worth adapting for."""
    rows = adaptive.cap(driven(adaptive, adaptive.init(), 200))
    assert throughput(rows) >= 20 * throughput(1)


def test_backs_off_within_five_batches_when_rows_cost_double(adaptive: BatchController[Any]) -> None:
    """A model that slows down is back under its objective after five batches."""
    settled = driven(adaptive, adaptive.init(), 200)
    slower = driven(adaptive, settled, 5, lambda rows: model(rows, 2 * ROW_US))
    assert model(adaptive.cap(slower), 2 * ROW_US) <= OBJECTIVE_US


def test_backs_off_within_five_batches_when_the_model_turns_twice_as_slow(adaptive: BatchController[Any]) -> None:
    """Batch and rows alike."""
    settled = driven(adaptive, adaptive.init(), 200)
    slower = driven(adaptive, settled, 5, lambda rows: 2 * model(rows))
    assert 2 * model(adaptive.cap(slower)) <= OBJECTIVE_US


def test_one_pause_costs_little_and_is_made_good(adaptive: BatchController[Any]) -> None:
    """A half-second stall lowers the cap by no more than a fifth, and 20 batches later it is back within a step.

    Where only some sizes are allowed, to the next one below.
    """
    settled = driven(adaptive, adaptive.init(), 200)
    paused = adaptive.observe(settled, adaptive.cap(settled), 500_000, OBJECTIVE_US)
    assert adaptive.cap(paused) >= lowered(adaptive, 0.8 * adaptive.cap(settled))
    assert adaptive.cap(driven(adaptive, paused, 20)) >= lowered(adaptive, 0.98 * adaptive.cap(settled))


def test_light_load_neither_raises_nor_lowers_the_cap(adaptive: BatchController[Any]) -> None:
    """Takes that do not fill the cap say nothing about a full one, unless they are too slow."""
    settled = driven(adaptive, adaptive.init(), 200)
    assert adaptive.cap(driven(adaptive, settled, 100, offered=3)) == adaptive.cap(settled)


def test_a_model_that_never_meets_its_objective_gets_single_rows(adaptive: BatchController[Any]) -> None:
    """Where even one row is too slow the cap falls to 1 and stays."""
    assert adaptive.cap(driven(adaptive, driven(adaptive, adaptive.init(), 200), 100, lambda _: 50_000)) == 1


# A batch, and a row: calls take from a twentieth to three quarters of the objective.
COSTS_US = (
    (5_000, 100),
    (2_000, 500),
    (10_000, 1_000),
    (1_000, 10),
    (10_000, 100),
    (12_000, 200),
    (13_000, 1_000),
    (15_000, 1_000),
)


@pytest.mark.parametrize("cost", COSTS_US)
def test_reaches_the_best_fixed_size_on_models_of_any_slope(
    adaptive: BatchController[Any], cost: tuple[int, int]
) -> None:
    """After 200 full batches 95 % of what the best fixed size does, the objective held."""
    base_us, row_us = cost

    def duration(rows: int) -> int:
        return base_us + row_us * rows

    best = (OBJECTIVE_US - base_us) // row_us
    rows = adaptive.cap(driven(adaptive, adaptive.init(), 200, duration))
    assert rows / duration(rows) >= 0.95 * best / duration(best)
    assert duration(rows) <= OBJECTIVE_US


def test_waiting_is_pure_and_bounded(controller: BatchController[Any]) -> None:
    """The same question has the same answer, and no model is kept waiting for longer than a tenth of a second."""
    state = controller.arrived(driven(controller, controller.init(), 200), 5_000, 0)
    until_us = controller.wait_until(state, 1, 1_000_000, 0)
    assert isinstance(until_us, int)
    assert until_us == controller.wait_until(state, 1, 1_000_000, 0)
    assert 0 <= controller.linger_us <= 100_000


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_lingering_ends_with_a_full_batch_or_before_the_most_urgent_row_is_late(name: str) -> None:
    """A lone row waits as long as it is told to, for no longer than it can, and not at all in a full batch."""
    also = {"deferred": {"eager_below": 0.0}, "fixed": {"rows": 16.0}}
    controller = create_controller(name, LINGERING | also.get(name, {}))
    queue = Batcher[int](controller, objective_us=OBJECTIVE_US)
    while queue.cap < 16:
        queue.done(queue.cap, model(queue.cap), 0)
    queue.done(1, model(1), 0)
    for free_us, due_us, latest_us in ((0, 1_000_000, 8_000), (1_000_000, 1_010_000, 1_010_000 - model(1))):
        queue.offer([(due_us, 0)], free_us)
        until_us = queue.take(free_us).wait_until_us
        assert until_us is not None
        assert free_us < until_us <= latest_us
        assert len(queue.take(until_us).rows) == 1
    queue.offer([(3_000_000, 0)] * queue.cap, 2_000_000)
    assert queue.take(2_000_000).reason == "cap"


def test_takes_are_never_above_the_cap_and_say_why_they_started(controller: BatchController[Any]) -> None:
    """Through a batcher, whatever arrives: a take has rows and a reason, or neither."""
    random, queue, now = Random(7), Batcher[int](controller, objective_us=OBJECTIVE_US), 0
    for _ in range(2_000):
        queue.offer([(now + random.randrange(1, 200_000), 0)] * random.choice((0, 1, 3, 300)), now)
        cap, take = queue.cap, queue.take(now)
        assert len(take.rows) <= take.cap == cap
        assert bool(take.rows) == bool(take.reason)
        assert (take.wait_until_us is None) == (bool(take.rows) or not len(queue))
        now += model(len(take.rows)) if take.rows else 1_000
        queue.done(len(take.rows), model(len(take.rows)), now) if take.rows else None


def test_no_row_starves(controller: BatchController[Any]) -> None:
    """After a busy stretch a row that is alone, and due in an hour, starts within a tenth of a second."""
    queue, now = Batcher[int](controller, objective_us=OBJECTIVE_US), 0
    for _ in range(200):
        queue.offer([(now + 10 * OBJECTIVE_US, 0)] * queue.cap, now)
        rows = len(queue.take(now).rows)
        now += model(rows)
        queue.done(rows, model(rows), now)
    queue.offer([(now + 3_600_000_000, 1)], now)
    take, started = queue.take(now), now
    while take.wait_until_us is not None:
        assert take.wait_until_us > started
        started = take.wait_until_us
        take = queue.take(started)
    assert [row.item for row in take.rows] == [1]
    assert started - now <= 100_000


def test_a_row_that_is_due_late_is_answered_under_an_endless_stream_of_others(
    controller: BatchController[Any],
) -> None:
    """The model is never free: when the row's time comes it is among the most urgent, and is taken."""
    queue, now, done = Batcher[int](controller, objective_us=OBJECTIVE_US), 0, False
    queue.offer([(2_000_000, 1)], 0)
    while not done and now < 3_000_000:
        queue.offer([(now + 5 * OBJECTIVE_US, 0)] * queue.cap, now)
        take = queue.take(now)
        rows = len(take.rows)
        now += model(rows) if rows else 1_000
        queue.done(rows, model(rows), now) if rows else None
        done = any(row.item for row in take.rows)
    assert done


def test_two_pauses_in_a_row_do_not_undo_what_was_learnt(adaptive: BatchController[Any]) -> None:
    """Each stops the process for 30 ms: the cap keeps a quarter, and is back at nine tenths after fifteen batches."""
    settled = driven(adaptive, adaptive.init(), 200)
    paused = driven(adaptive, settled, 2, lambda rows: model(rows) + 30_000)
    assert adaptive.cap(paused) >= lowered(adaptive, adaptive.cap(settled) / 4)
    assert adaptive.cap(driven(adaptive, paused, 15)) >= lowered(adaptive, 0.9 * SAFE_ROWS)
