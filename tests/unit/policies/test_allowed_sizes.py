"""Batches of allowed sizes: what the cap becomes, and what the controller inside is told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from policies.aimd import Aimd, Cap
from policies.allowed_sizes import AllowedSizes, Sized, padded
from policies.batching import BatchController, create_controller
from policies.errors import PolicyError
from policies.fixed import Fixed

if TYPE_CHECKING:
    from collections.abc import Callable

OBJECTIVE_US = 20_000
SIZES = (1, 4, 16, 64)


def driven(
    controller: BatchController[Any], batches: int, duration: Callable[[int], int], state: Any = None
) -> tuple[Any, Counter[int]]:
    """Run full batches; the model takes the time of the padded size. Returns the state and how often which cap was."""
    state = controller.init() if state is None else state
    caps: Counter[int] = Counter()
    for _ in range(batches):
        cap = controller.cap(state)
        caps[cap] += 1
        state = controller.observe(state, cap, duration(padded(cap, SIZES)), OBJECTIVE_US)
    return state, caps


@pytest.mark.parametrize("name", ["aimd", "quantile", "deferred"])
def test_the_largest_size_that_keeps_the_objective_is_found_and_kept(name: str) -> None:
    """Of 5 ms and 0.5 ms a row, 16 rows fit into 20 ms; 64, which take 37 ms, are tried at most a few times."""
    _, caps = driven(AllowedSizes(create_controller(name), SIZES), 400, lambda rows: 5_000 + 500 * rows)
    assert set(caps) <= set(SIZES)
    assert caps[16] >= 350
    assert caps[64] <= 4


@pytest.mark.parametrize("name", ["aimd", "quantile"])
def test_a_model_that_becomes_faster_is_given_larger_batches(name: str) -> None:
    """What was too slow once is tried again when the size below says that it should fit."""
    controller = AllowedSizes(create_controller(name), SIZES)
    state, _ = driven(controller, 200, lambda rows: 5_000 + 500 * rows)
    _, caps = driven(controller, 400, lambda rows: 500 + 50 * rows, state)
    assert caps[64] >= 200


def test_a_model_that_becomes_slower_is_given_smaller_batches() -> None:
    """As without fixed sizes."""
    controller = AllowedSizes(Aimd(), SIZES)
    state, _ = driven(controller, 200, lambda rows: 5_000 + 500 * rows)
    _, caps = driven(controller, 100, lambda rows: 5_000 + 2_000 * rows, state)
    assert caps[4] >= 80


def test_the_smallest_size_is_the_least() -> None:
    """A controller that begins with one row is not what the model can be given."""
    controller = AllowedSizes(Aimd(), (8, 32))
    assert controller.cap(controller.init()) == 8


def test_a_fixed_cap_is_lowered_to_an_allowed_size() -> None:
    """Padding it up would make it larger than was configured."""
    controller = AllowedSizes(Fixed(rows=40), SIZES)
    assert controller.cap(controller.init()) == 16


def test_a_batch_that_does_not_fill_its_cap_does_not_raise_it() -> None:
    """As without fixed sizes: under light load nothing is known of larger ones."""
    controller = AllowedSizes(Aimd(), SIZES)
    state = Sized(Cap(20), ())
    for _ in range(50):
        state = controller.observe(state, 3, 6_000, OBJECTIVE_US)
    assert controller.inner.cap(state.inner) == 20


@pytest.mark.parametrize("sizes", [(), (0, 4), (4, 4), (8, 4)])
def test_sizes_that_are_none_are_refused(sizes: tuple[int, ...]) -> None:
    """They rise, and hold at least a row."""
    with pytest.raises(PolicyError, match="sizes"):
        AllowedSizes(Aimd(), sizes)


@pytest.mark.parametrize(("rows", "expected"), [(1, 1), (2, 4), (16, 16), (17, 64), (99, 64)])
def test_rows_are_padded_up_to_the_next_size(rows: int, expected: int) -> None:
    """The largest holds what it can."""
    assert padded(rows, SIZES) == expected
