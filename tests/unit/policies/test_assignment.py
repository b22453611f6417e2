"""Draws by who asks: they stand for a period, and are those of nobody else."""

from __future__ import annotations

from statistics import mean

import pytest

from policies import assignment, draw
from policies.assignment import draw_id, drawn, is_held_out, period
from schemas.records import Application

DAY_US = 86_400_000_000
PEOPLE = [f"user-{number}" for number in range(2_000)]


def shop(**changes: object) -> Application:
    """Make an application whose contexts draw for a week."""
    fields: dict[str, object] = {"assign": "context", "sticky_s": 7 * 86_400.0}
    return Application("shop", ("plain", "clever"), **(fields | changes))  # type: ignore[arg-type]


def number(application: Application, person: str, at_us: int) -> float:
    """Return what a person's draw is at a time."""
    return draw.uniform(draw_id(application, person, "", drawn(application, person, "", at_us)))


def test_a_draw_stands_for_its_period_and_then_is_another() -> None:
    """Each of the days of two weeks is in one of at most three periods, which follow each other."""
    for person in PEOPLE[:50]:
        periods = [period(shop(), person, day * DAY_US) for day in range(14)]
        assert periods == sorted(periods)
        assert all(periods.count(each) == 7 for each in periods[7:8])
        numbers = {period(shop(), person, day * DAY_US): number(shop(), person, day * DAY_US) for day in range(14)}
        assert len(set(numbers.values())) == len(numbers)


def test_the_periods_of_all_do_not_change_at_once() -> None:
    """On each day of a week about a seventh of the people begin another period."""
    for day in range(7):
        changed = [period(shop(), who, day * DAY_US) != period(shop(), who, (day + 1) * DAY_US) for who in PEOPLE]
        assert mean(changed) == pytest.approx(1 / 7, abs=0.04)


def test_without_a_period_a_draw_stands_for_ever() -> None:
    """The number is the same in a hundred years."""
    for_ever = shop(sticky_s=0.0)
    assert number(for_ever, "ann", 0) == number(for_ever, "ann", 36_500 * DAY_US)


def test_draws_are_uniform_and_another_salt_gives_others() -> None:
    """Of both salts half of those below a half are below it with the other, too."""
    below = [[number(shop(salt=salt), who, 0) < 0.5 for who in PEOPLE] for salt in ("", "autumn")]
    assert [mean(each) for each in below] == pytest.approx([0.5, 0.5], abs=0.05)
    assert mean(one == other for one, other in zip(*below, strict=True)) == pytest.approx(0.5, abs=0.05)


def test_a_holdout_is_for_ever_and_no_draw_has_to_do_with_it() -> None:
    """Neither a salt nor a period changes who is held out; the arms of those who are, are drawn like all others'."""
    held_out = [who for who in PEOPLE if is_held_out(shop(holdout=0.1), who)]
    assert len(held_out) / len(PEOPLE) == pytest.approx(0.1, abs=0.03)
    assert held_out == [who for who in PEOPLE if is_held_out(shop(holdout=0.1, salt="autumn", sticky_s=1.0), who)]
    assert set(held_out) < {who for who in PEOPLE if is_held_out(shop(holdout=0.2), who)}
    assert mean(number(shop(), who, 0) < 0.5 for who in held_out) == pytest.approx(0.5, abs=0.12)
    assert not is_held_out(shop(holdout=0.1), None)


def test_who_is_not_named_does_not_draw() -> None:
    """Nor does anybody where the query draws."""
    assert not drawn(shop(), None, "visit", 0)
    assert not drawn(shop(assign="episode", sticky_s=0.0), "ann", "", 0)
    assert not drawn(shop(assign="query", sticky_s=0.0), "ann", "visit", 0)
    assert drawn(shop(assign="episode", sticky_s=0.0, salt="autumn"), "ann", "visit", 0) == "autumn/episode"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"assign": "user", "sticky_s": 0.0}, "none of query, context, episode"),
        ({"sticky_s": -1.0}, "make it positive"),
        ({"sticky_s": float("nan")}, "make it positive"),
        ({"assign": "query"}, "set assign to context"),
        ({"salt": "s" * 65}, "64 characters"),
        ({"holdout": 0.6}, "make it 0 (none) to 0.5"),
    ],
)
def test_what_is_impossible_is_said(changes: dict[str, object], word: str) -> None:
    """One fault each."""
    (found,) = assignment.faults(shop(**changes))
    assert word in found
