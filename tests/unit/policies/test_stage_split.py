"""The time to answer is split so that the fewest workers are needed: as found by trying everything."""

from __future__ import annotations

from itertools import product
from math import inf, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.stage_split import Split, StageLoad, evenly, split

STEPS, OBJECTIVE_US = 12, 120_000


def line(first_us: int, row_us: int, sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)) -> tuple[tuple[int, int], ...]:
    """Return a profile: so long for a batch, and for each row of it."""
    return tuple([(rows, first_us + rows * row_us) for rows in sizes])


@st.composite
def graphs(draw: st.DrawFn) -> list[StageLoad]:
    """Return up to four stages, each behind some of those before it, or behind the query."""
    loads: list[StageLoad] = []
    for number in range(draw(st.integers(1, 4))):
        before = tuple(draw(st.lists(st.sampled_from([load.name for load in loads]), unique=True)) if loads else ())
        profile = line(draw(st.integers(100, 30_000)), draw(st.integers(10, 5_000)))
        loads.append(
            StageLoad(f"s{number}", before, draw(st.floats(1.0, 2_000.0)), profile, draw(st.integers(0, 3_000)))
        )
    return loads


def tried(loads: list[StageLoad]) -> float:
    """Return the fewest workers over all splits in whole steps."""
    fewest, step_us = inf, OBJECTIVE_US / STEPS
    for steps in product(range(1, STEPS + 1), repeat=len(loads)):
        ends: dict[str, int] = {}
        for load, k in zip(loads, steps, strict=True):
            ends[load.name] = max((ends[name] for name in load.before), default=0) + k
        if max(ends.values()) <= STEPS:
            needed = [load.workers(int(k * step_us)) for load, k in zip(loads, steps, strict=True)]
            fewest = min(fewest, sum(needed))
    return fewest


@given(graphs())
def test_no_other_split_needs_fewer_workers(loads: list[StageLoad]) -> None:
    """Dynamic programming finds what trying all splits finds."""
    found, best = split(loads, OBJECTIVE_US, STEPS), tried(loads)
    assert found.workers == best == inf or isclose(found.workers, best)


@given(graphs())
def test_budgets_fit_on_every_path(loads: list[StageLoad]) -> None:
    """From the query to each last stage they sum to the objective at most, and to all of it where it is used up."""
    for found in (split(loads, OBJECTIVE_US, STEPS), evenly(loads, OBJECTIVE_US)):
        ends = found.until_us(loads)
        last = [load.name for load in loads if all(load.name not in other.before for other in loads)]
        assert all(0.99 * OBJECTIVE_US <= ends[name] <= OBJECTIVE_US for name in last)
        assert all(budget > 0 for budget in found.budgets_us.values())


@given(graphs())
def test_it_never_needs_more_workers_than_an_even_split_in_steps_of_its_own(loads: list[StageLoad]) -> None:
    """An even split is one of those that are tried, up to the rounding to steps."""
    depths = {1, 2, 3, 4}
    steps = STEPS * max(depths)  # a multiple of every depth but 3 and of 3, so that even parts are whole steps
    even = evenly(loads, OBJECTIVE_US)
    assert split(loads, OBJECTIVE_US, steps).workers <= even.workers * (1 + 1e-9)


def test_the_stage_that_is_asked_more_often_has_more_of_the_time() -> None:
    """One query, ten rows of the second stage: the larger batches are worth more there."""
    profile = line(5_000, 500, tuple(range(1, 65)))
    loads = [StageLoad("detect", (), 100.0, profile), StageLoad("cars", ("detect",), 1_000.0, profile)]
    found = split(loads, 60_000)
    assert found.budgets_us["cars"] > found.budgets_us["detect"]
    assert found.workers < evenly(loads, 60_000).workers


def test_a_batch_waits_for_its_rows_where_few_come() -> None:
    """Ten rows a second: a batch of two waits 100 ms for the second."""
    load = StageLoad("detect", (), 10.0, line(1_000, 100))
    assert load.batch(50_000) == (1, 1_100)
    assert load.batch(150_000)[0] == 2


def test_a_stage_that_cannot_be_in_time_makes_the_split_impossible() -> None:
    """It says so, and has budgets all the same."""
    found = split(
        [StageLoad("detect", (), 1.0, ((1, 90_000),)), StageLoad("cars", ("detect",), 1.0, ((1, 1_000),))], 100_000
    )
    assert found.workers == inf
    assert sum(found.budgets_us.values()) <= 100_000


def test_the_published_example_is_found_again() -> None:
    """Nexus's table: X at 40, 50, 60 ms with 200, 250, 300 rows a second; Y likewise with 300, 400, 500; 100 ms in all.

    A row of X makes gamma of Y. The best split for gamma = 0.1 is 60/40, for 1 it is 50/50 and for 10 it is 40/60.
    """
    x = ((8, 20_000), (12, 25_000), (18, 30_000))  # twice these are 40, 50, 60 ms; 400, 480, 600 rows a second
    y = ((12, 20_000), (20, 25_000), (30, 30_000))
    best = {}
    for gamma in (0.1, 1.0, 10.0):
        loads = [StageLoad("x", (), 100_000.0, x), StageLoad("y", ("x",), 100_000.0 * gamma, y)]
        best[gamma] = split(loads, 100_000, 10).budgets_us["x"]
    assert best[0.1] == 60_000
    assert best[10.0] == 40_000


def test_an_even_split_gives_each_stage_of_a_path_the_same() -> None:
    """The longest path counts: a short branch has what is left."""
    loads = [
        StageLoad(name, before, 1.0, ((1, 1_000),))
        for name, before in (("a", ()), ("b", ("a",)), ("c", ("b",)), ("d", ("a",)))
    ]
    assert evenly(loads, 90_000) == Split({"a": 30_000, "b": 30_000, "c": 30_000, "d": 60_000}, 0.004)


def test_an_even_split_waits_for_the_longest_of_several_stages() -> None:
    """The short way to a join may take as long as the long one."""
    befores = {"a": (), "b": ("a",), "scene": (), "both": ("b", "scene")}
    loads = [StageLoad(name, before, 1.0, ((1, 1_000),)) for name, before in befores.items()]
    found = evenly(loads, 90_000)
    assert found.budgets_us == {"a": 30_000, "b": 30_000, "scene": 60_000, "both": 30_000}
    assert found.until_us(loads)["both"] == 90_000


@pytest.mark.parametrize("missing", [0, 1])
def test_however_many_stages_wait_for_each_other_it_is_no_worse_than_an_even_split(missing: int) -> None:
    """Each of six stages waits for all of six others, or all but one: then there are too many ways for fine steps."""
    first = [StageLoad(f"a{n}", (), 100.0 * 3**n, line(1_000, 100)) for n in range(6)]
    names = [load.name for load in first]
    befores = [tuple(name for name in names if not missing or name != f"a{n}") for n in range(6)]
    second = [StageLoad(f"b{n}", before, 10.0, line(5_000, 100)) for n, before in enumerate(befores)]
    loads = [*first, *second]
    found = split(loads, OBJECTIVE_US)
    assert found.workers <= evenly(loads, OBJECTIVE_US).workers
    assert max(found.until_us(loads).values()) <= OBJECTIVE_US
