"""Which models are in memory: within the budget, by demand, and the least recently used makes room."""

from __future__ import annotations

from collections import Counter

from workers.kernel.schedule.residency import LOOK_US, Residency


def loaded(residency: Residency, *units: str, size_bytes: int = 10) -> None:
    """Load these one after the other."""
    for now_us, unit in enumerate(units):
        residency.want(unit, size_bytes)
        assert [change.load for change in residency.changes(now_us)] == [unit]
        residency.loaded(unit, 0, now_us)


def test_the_least_recently_used_makes_room() -> None:
    """One that runs does not."""
    residency = Residency(30)
    loaded(residency, "a", "b", "c")
    residency.use("a", 5, is_busy=True)
    residency.want("d", 15)
    (change,) = residency.changes(10)
    assert [(each.unit, each.idle_us) for each in change.evictions] == [("b", 9), ("c", 8)]
    assert residency.used_bytes == 25
    assert [*residency] == ["a"]


def test_the_largest_demand_is_loaded_first() -> None:
    """One at a time."""
    demand = Counter({"b": 5, "c": 7})
    residency = Residency(30, demand=lambda unit, _: demand[unit])
    for unit in ("a", "b", "c"):
        residency.want(unit, 10)
    order = []
    for now_us in range(3):
        order += [change.load for change in residency.changes(now_us)]
        assert not [*residency.changes(now_us)]
        residency.loaded(order[-1], 0, now_us)
    assert order == ["c", "b", "a"]


def test_a_model_with_work_makes_room_only_for_more_work() -> None:
    """The one with the least goes, after all that have none."""
    demand = Counter({"a": 5, "b": 3, "d": 4})
    residency = Residency(30, demand=lambda unit, _: demand[unit])
    loaded(residency, "a", "b", "c")
    residency.want("d", 20)
    (change,) = residency.changes(10)
    assert [each.unit for each in change.evictions] == ["c", "b"]
    residency.loaded("d", 0, 11)
    residency.want("e", 10)
    assert not [*residency.changes(12)]


def test_units_that_nobody_asks_make_room_first() -> None:
    """Where none has demand; one that is asked goes after all others, in their order."""
    residency = Residency(30)
    loaded(residency, "a", "b", "c")
    residency.ask("a", is_asked=True)
    residency.want("d", 30)
    (change,) = residency.changes(10)
    assert [each.unit for each in change.evictions] == ["b", "c", "a"]


def test_a_unit_that_is_put_aside_lets_others_be_loaded_and_three_may_be() -> None:
    """Until it is there, which gives its place to another one."""
    residency = Residency(100)
    for unit in "abcdef":
        residency.want(unit, 10)
    for now_us, unit in enumerate("abc"):
        assert [change.load for change in residency.changes(now_us)] == [unit]
        assert residency.put_aside(unit)
    assert [change.load for change in residency.changes(3)] == ["d"]
    assert not residency.put_aside("d")
    assert not [*residency.changes(4)]
    residency.loaded("b", 0, 5)
    assert residency.put_aside("d")
    assert [change.load for change in residency.changes(6)] == ["e"]
    assert len(residency) == 1


def test_where_nothing_can_be_loaded_that_is_not_looked_at_again_at_once() -> None:
    """Between two looks nobody's demand is reckoned; whoever asks meanwhile has the next look made."""
    reckoned: Counter[str] = Counter()
    worth = {f"r{number}": 10 for number in range(100)}

    def demand(unit: str, _now_us: int) -> int:
        reckoned[unit] += 1
        return worth.get(unit, 1)

    residency = Residency(1_000, demand=demand)
    loaded(residency, *worth)
    for number in range(300):
        residency.want(f"w{number}", 10)
    reckoned.clear()
    assert not [*residency.changes(1_000)]
    assert residency.due_us is None
    looked = reckoned.total()
    assert not [*residency.changes(1_100)]
    assert reckoned.total() == looked <= 400 + 100
    assert residency.due_us == 1_000 + 400 * LOOK_US
    worth["w7"] = 11
    assert [change.load for change in residency.changes(residency.due_us)] == ["w7"]


def test_what_is_larger_than_the_budget_is_told_once() -> None:
    """And is not loaded."""
    residency = Residency(30)
    residency.want("a", 31)
    assert not [*residency.changes(0)]
    assert residency.too_large() == ["a"]
    assert residency.too_large() == []


def test_units_that_take_more_than_was_reckoned_make_room_again() -> None:
    """The least recently used goes first."""
    residency = Residency(30)
    loaded(residency, "a", "b")
    residency.want("c", 10)
    assert len([*residency.changes(3)]) == 1
    residency.loaded("c", 18, 4)
    assert [each.unit for each in residency.excess(5)] == ["a"]
    assert residency.used_bytes == 28


def test_units_of_equal_demand_are_loaded_in_the_order_that_is_given() -> None:
    """Whoever was wished for first; without an order that counts."""
    residency = Residency(100, loading=3)
    for unit in "abc":
        residency.want(unit, 10)
    assert [change.load for change in residency.changes(0, {"a": 3, "b": 1, "c": 2}.__getitem__)] == ["b", "c", "a"]
