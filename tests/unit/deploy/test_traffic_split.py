"""What runs beside the version that serves, as the commands change it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from deploy.errors import UsageError
from deploy.state.traffic_split import canaries, check_successor, ended, given, instead, without_canaries
from schemas.records import Model, TensorForm

if TYPE_CHECKING:
    from collections.abc import Mapping


def version(name: str, shares: Mapping[str, float] | None = None, dtype: str = "float32") -> Model:
    """Make a version of the model, with others beside it."""
    return Model("digits", name, "function", "", name, "label", dtype, (1,), shares=shares or {})


def test_canaries_stand_beside_each_other_with_their_shares() -> None:
    """One more changes nothing about those there are, shadows included."""
    one = given(given(given(version("1"), version("2"), 0.1), version("3"), 0.0), version("4"), 0.3)
    assert one.shares == {"2": 0.1, "3": 0.0, "4": 0.3}
    assert canaries(one) == {"2": 0.1, "4": 0.3}


def test_a_version_takes_another_share_or_becomes_a_shadow() -> None:
    """It is named once."""
    one = version("1", {"2": 0.9, "3": 0.05})
    assert given(one, version("2"), 0.2).shares == {"2": 0.2, "3": 0.05}
    assert given(one, version("2"), 0.0).shares == {"2": 0.0, "3": 0.05}


@pytest.mark.parametrize("share", [0.2, 0.1, 0.10000000001])
def test_canaries_cannot_leave_the_version_that_serves_without_queries(share: float) -> None:
    """Whoever wants that means another version to serve; the message names each share and both ways on."""
    with pytest.raises(UsageError, match=r"2 0\.7, 3 0\.2, 4 .*another share first, or: skysail model use digits 4"):
        given(version("1", {"2": 0.7, "3": 0.2}), version("4"), share)


def test_one_canary_ends_and_the_others_go_on() -> None:
    """What does not run beside it cannot end."""
    one = version("1", {"2": 0.1, "3": 0.2, "4": 0.0})
    assert ended(one, "2").shares == {"3": 0.2, "4": 0.0}
    with pytest.raises(UsageError, match="does not run beside 1"):
        ended(one, "5")


def test_shadows_outlive_the_canaries() -> None:
    """A rollback ends all canaries; a version that comes to serve takes the shadows over, itself left out."""
    one = version("1", {"2": 0.1, "3": 0.2, "4": 0.0, "5": 0.0})
    assert without_canaries(one).shares == {"4": 0.0, "5": 0.0}
    assert instead(version("4"), one, shadows_only=True).shares == {"5": 0.0}


def test_what_gives_another_kind_of_answer_cannot_share_queries() -> None:
    """Nor what takes other rows, nor the version that serves already."""
    with pytest.raises(UsageError, match="dtype"):
        given(version("1"), version("2", dtype="int64"), 0.1)
    with pytest.raises(UsageError, match="serves already"):
        given(version("1"), version("1"), 0.1)


@pytest.mark.parametrize(
    "other",
    [
        {"shape": (2,)},
        {"dtype": "int64"},
        {"dtype": None},
        {"output": "scores"},
        {"dtype": None, "inputs": (TensorForm("a", "float32", (64,)),)},
        {"output": "tensors", "outputs": (TensorForm("a", "float32"),)},
    ],
)
def test_what_takes_or_gives_something_else_does_not_succeed_unless_forced(other: dict[str, Any]) -> None:
    """What is asked now would be answered by default: the message says both, and what to do."""
    with pytest.raises(UsageError, match=r"digits.* 2 .*1, which serves.*another --name, or .* with --force"):
        check_successor(replace(version("2"), **other), version("1"))


def test_what_takes_the_same_numbers_in_another_form_succeeds() -> None:
    """They are cast without loss."""
    check_successor(replace(version("2"), dtype="float64", shape=(1, 1)), version("1"))
    check_successor(version("2"), version("1", dtype="int64"))
