"""How often the models of a host were asked: of a bounded number, those that were asked last."""

from __future__ import annotations

from workers.kernel.host.figures import LATELY_US, MOST, AskedLately

S = 1_000_000


def test_rows_are_counted_by_model() -> None:
    """Over all records."""
    asked = AskedLately()
    for model, rows in (("a", 3), ("b", 1), ("a", 2)):
        asked.add(model, rows, S)
    assert asked.figures() == {"host_asked_total{model=a}": 5.0, "host_asked_total{model=b}": 1.0}


def test_who_was_not_asked_for_long_is_named_no_more_and_counts_anew() -> None:
    """A count that comes back is less than it was: then it rises from 0, as after a restart."""
    asked = AskedLately()
    asked.add("a", 3, 0)
    asked.add("b", 1, LATELY_US + 1)
    assert asked.figures() == {"host_asked_total{model=b}": 1.0}
    asked.add("a", 2, LATELY_US + 2)
    assert asked.figures()["host_asked_total{model=a}"] == 2.0


def test_of_too_many_those_are_named_that_were_asked_last() -> None:
    """However many models there are."""
    asked = AskedLately()
    for number in range(MOST + 10):
        asked.add(f"m{number}", 1, number)
    assert len(asked.figures()) == MOST
    assert "host_asked_total{model=m9}" not in asked.figures()
    assert "host_asked_total{model=m10}" in asked.figures()
