"""The bounded view of policy states."""

from __future__ import annotations

import pytest

from policies import registry
from schemas.records import PolicyState
from streams.operators.contract import StateKey
from streams.operators.selection.state_view import ENTRY_BYTES, StateView

POLICY = registry.create("single", {})
NOW = 10**15


def state(numbers: int) -> PolicyState:
    """Return a state of so many numbers."""
    return PolicyState("single(arm=0)", ("a",), 1, (0.0,) * numbers)


def known(view: StateView, application: str, contexts: range) -> list[int]:
    """Return which contexts of an application are in the view."""
    return [n for n in contexts if StateKey(0, f"{application}/{n}") in view]


def test_many_contexts_of_one_application_drive_out_its_own() -> None:
    """Another one's states stay, whoever was here first."""
    view = StateView(capacity=20)
    for n in range(5):
        view.put(StateKey(0, f"quiet/{n}"), state(1), NOW)
    for n in range(100):
        view.put(StateKey(0, f"loud/{n}"), state(1), NOW)
    assert known(view, "quiet", range(5)) == [*range(5)]
    assert known(view, "loud", range(100)) == [*range(85, 100)]
    assert len(view) == 20


def test_large_states_are_bounded_by_what_they_take() -> None:
    """However few they are."""
    view = StateView(capacity=1_000, capacity_bytes=10_000_000)
    for n in range(100):
        view.put(StateKey(0, f"app/{n}"), state(20_000), NOW)
    assert 0 < view.size <= 10_000_000
    assert 5 < len(view) < 20


@pytest.mark.parametrize("numbers", [0, 100])
def test_what_is_stored_again_is_counted_once(numbers: int) -> None:
    """A state that has grown counts as it is now."""
    view = StateView(capacity=10)
    key = StateKey(0, "app")
    view.put(key, None, NOW)
    before = view.size
    view.put(key, state(numbers), NOW)
    view.put(key, state(numbers), NOW)
    assert before < ENTRY_BYTES + 100
    assert view.size - before == 48 * numbers
