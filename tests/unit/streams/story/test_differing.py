"""Which contexts differ most: judged by hand, and by what a policy's own weights say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import registry
from policies.lessons import Lesson
from schemas.records import PolicyState
from streams.story.differing import differing, document, lines

ARMS = ("forest", "linear")
POLICY = registry.parse("exp4")


def state(*losses: tuple[float, float], arms: tuple[str, ...] = ARMS) -> PolicyState:
    """Return a state that has learnt these losses."""
    values = POLICY.init(len(arms))
    for pair in losses:
        values = POLICY.observe(values, len(arms), Lesson(tuple(range(len(arms))), (1.0,) * len(arms), pair))
    return PolicyState(registry.spec(POLICY), arms, len(losses), values)


def test_the_one_who_is_right_with_another_model_stands_first() -> None:
    """Ann's forest errs and everybody else's linear model does."""
    states = {f"user-{number}": state(*[(0.0, 1.0)] * 30) for number in range(20)} | {"ann": state(*[(1.0, 0.0)] * 30)}
    found = differing("fraud", states, {"ann": "q7"})
    first = found.found[0]
    assert (first.context, first.lessons, first.query_id, found.among) == ("ann", 30, "q7", 21)
    others = POLICY.weights(states["user-0"].values, 2)
    mean = (20 * others[0] + first.weights[0]) / 21
    assert first.distance == pytest.approx(abs(first.weights[0] - mean))
    assert found.usual == pytest.approx((mean, 1.0 - mean))
    said = [*lines(found)]
    assert said[0].startswith("usually: forest ")
    assert "ann: linear " in said[1]
    assert document(found)["among"] == 21


def test_states_of_other_models_or_of_no_policy_do_not_count() -> None:
    """They came before the models were changed, or their policy is somebody's that is not here."""
    lost = state()._replace(policy="no_such.module:Policy()")
    older = state((0.0, 1.0), arms=("old", "linear"))
    found = differing("fraud", {"a": state(), "b": state(), "lost": lost, "older": older}, {})
    assert {one.context for one in found.found} == {"a", "b"}
    assert differing("fraud", {}, {}).found == differing("fraud", {"lost": lost}, {}).found == ()
    assert [*lines(differing("fraud", {"lost": lost}, {}))] == [
        "none of the contexts of fraud that asked last has a state whose weights are known here"
    ]


@given(st.lists(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=5), min_size=1, max_size=15))
def test_nobody_left_out_differs_more(taught: list[list[tuple[float, float]]]) -> None:
    """Distances fall, lie in [0, 1], and the cut is at the smallest."""
    states = {f"{number}": state(*losses) for number, losses in enumerate(taught)}
    everybody = differing("fraud", states, {}, most=len(states)).found
    distances = [one.distance for one in everybody]
    assert distances == sorted(distances, reverse=True)
    assert all(0.0 <= distance <= 1.0 for distance in distances)
    assert differing("fraud", states, {}, most=3).found == everybody[:3]
