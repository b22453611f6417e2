"""Graphs that anybody may have written are refused, however large they are."""

from __future__ import annotations

from policies.graph import MOST_PARTS, MOST_STAGES, faults
from schemas.records import Stage


def test_of_too_many_stages_nothing_else_is_looked_at() -> None:
    """For each name that there is not, the nearest of all names would be sought: minutes for some thousand stages."""
    stages = tuple([Stage(f"stage{number}", "net", input=f"other{number}") for number in range(9_000)])
    assert faults(stages) == [f"there are 9000 stages; {MOST_STAGES} are the most"]


def test_a_model_is_given_so_many_parts_at_most() -> None:
    """Each may be as large as an answer is."""
    one, parts = Stage("one", "net"), ["one.box"] * MOST_PARTS
    assert faults((one, Stage("both", "", input=", ".join(parts)))) == []
    (fault,) = faults((one, Stage("both", "", input=", ".join([*parts, "one"]))))
    assert fault == f"stage both: `input` names more than {MOST_PARTS} parts"
