"""The groups of the tree of contexts are said with what they were split on."""

from __future__ import annotations

import pytest

from policies.context_tree import ContextTree
from policies.errors import PolicyError
from policies.lessons import Lesson
from policies.registry import spec
from schemas.records import PolicyState
from streams.story.groups import document, groups_of, lines


def state(lessons: int) -> PolicyState:
    """Return a state whose feature 1 tells which of two models is always right."""
    policy = ContextTree(features=2)
    values = policy.init(2)
    for number in range(lessons):
        arm, is_on = number % 2, number % 4 < 2
        losses = [float(is_on == (arm == 0)) if each == arm else None for each in range(2)]
        values = policy.observe(values, 2, Lesson((arm,), (0.5, 0.5), losses, (1.0, 1.0 if is_on else 0.0)))
    return PolicyState(spec(policy), ("plain", "clever"), lessons, values)


def test_groups_are_said_best_model_first() -> None:
    """Two groups of a hundred lessons each."""
    said = lines(groups_of(state(200)))
    assert said == [
        "feature 1 not",
        "  plain: mean loss 0.000, 50 lessons",
        "  clever: mean loss 1.000, 50 lessons",
        "feature 1 above 0",
        "  clever: mean loss 0.000, 50 lessons",
        "  plain: mean loss 1.000, 50 lessons",
    ]
    found = document(groups_of(state(200)))["groups"]
    assert isinstance(found, list)
    assert [each["path"] for each in found] == [[[1, False]], [[1, True]]]  # type: ignore[index, call-overload]


def test_with_little_evidence_all_are_one_group() -> None:
    """And a model that was never asked is named."""
    assert lines(groups_of(state(1))) == ["everybody", "  plain: mean loss 1.000, 1 lessons", "  clever: never asked"]


def test_other_policies_have_none() -> None:
    """Which is said."""
    with pytest.raises(PolicyError, match="context_tree"):
        groups_of(PolicyState("thompson(gamma=0.01)", ("plain",), 0, (1.0, 1.0)))
