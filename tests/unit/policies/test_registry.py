"""Policies and controllers by name and as text."""

from __future__ import annotations

import pytest

from policies.batching import create_controller
from policies.errors import PolicyError
from policies.exp3 import Exp3
from policies.registry import create, parse, spec
from policies.single import Single


def test_spec_is_canonical() -> None:
    """Parameters are sorted and written with the shortest digits."""
    assert spec(Exp3()) == "exp3(eta=0.05,gamma=0.05,share=0.0001)"
    assert spec(create("single", {"arm": 2.0})) == "single(arm=2)"


def test_a_bare_name_and_some_parameters_are_enough() -> None:
    """What is left out has its default; blanks do not matter."""
    assert parse("exp3") == parse("exp3()") == Exp3()
    assert parse(" exp3( eta = 0.1 , gamma=0.05)") == Exp3(eta=0.1)


def test_parsing_is_remembered() -> None:
    """The learner parses the text of every observation, so the same text is the same object."""
    assert parse("thompson(gamma=0.02)") is parse("thompson(gamma=0.02)")


def test_whole_numbers_may_come_as_floats() -> None:
    """Avro and YAML write whole numbers either way."""
    assert create("single", {"arm": 1.0}) == Single(1)
    assert isinstance(parse("single(arm=1)").init(2), tuple)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("exp33", "did you mean 'exp3'"),
        ("exp3(etta=1)", "did you mean 'eta'"),
        ("nothing like it", "is not a policy"),
        ("exp3(eta)", "is not parameter=number"),
        ("exp3(eta=fast)", "is not parameter=number"),
        ("exp3(eta=0)", "must be positive"),
        ("exp3(eta=nan)", "must be positive"),
        ("exp3(eta=inf)", "must be positive"),
        ("exp3(gamma=0)", "must lie in"),
        ("exp3(share=1.5)", "must be 0 or lie in"),
        ("exp4(eta=-1)", "must be positive"),
        ("exp4(share=2)", "must be 0 or lie in"),
        ("class_vote(prior=0)", "must be positive"),
        ("class_vote(discount=0)", "must lie in"),
        ("class_vote(classes=1)", "must lie in"),
        ("class_vote(classes=257)", "must lie in"),
        ("single(arm=0.5)", "whole number"),
        ("single(arm=inf)", "whole number"),
        ("single(arm=-1)", "index of a model"),
        ("epsilon_greedy(epsilon=1.1)", "must lie in"),
        ("thompson(gamma=-0.1)", "must lie in"),
        ("ucb1(exploration=-1)", "must not be negative"),
        ("", "is not a policy"),
    ],
)
def test_bad_text_is_refused_with_a_hint(text: str, says: str) -> None:
    """Every wrong text raises the one error and says what to do."""
    with pytest.raises(PolicyError, match=says):
        parse(text)


@pytest.mark.parametrize("value", [True, "0.1", None])
def test_parameters_that_are_not_numbers_are_refused(value: object) -> None:
    """YAML may give anything."""
    with pytest.raises(PolicyError, match="must be a number"):
        create("exp3", {"eta": value})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("amid", {}, "did you mean 'aimd'"),
        ("aimd", {"ad": 1}, "did you mean 'add'"),
        ("aimd", {"add": 0}, "at least 1"),
        ("aimd", {"backoff": 1.0}, "between 0 and 1"),
        ("aimd", {"dead_band": 1.0}, "must lie in"),
        ("aimd", {"max_rows": 0}, "at least 1"),
        ("fixed", {"rows": 0}, "at least 1"),
    ],
)
def test_bad_controllers_are_refused_with_a_hint(name: str, parameters: dict[str, float], says: str) -> None:
    """Controllers are named and checked as policies are."""
    with pytest.raises(PolicyError, match=says):
        create_controller(name, parameters)


def test_single_refuses_an_arm_that_is_not_there() -> None:
    """An application with two models has no third one."""
    with pytest.raises(PolicyError, match="arm 2 of 2"):
        Single(arm=2).init(2)
