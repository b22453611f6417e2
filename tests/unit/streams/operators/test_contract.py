"""The contract of operators stays small enough to be known by heart."""

from __future__ import annotations

from streams.operators.contract import Needs, Operator


def test_an_operator_has_nine_members_at_most() -> None:
    """Whoever writes a kernel reads them all."""
    members = {name for name in vars(Operator) if not name.startswith("_")}
    assert len(members) <= 9, sorted(members)


def test_the_needs_of_an_operator_are_six_at_most() -> None:
    """What belongs together, or is seldom needed, stands in a value of its own."""
    assert len(Needs._fields) <= 6
