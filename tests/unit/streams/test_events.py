"""The one queue of virtual time."""

from __future__ import annotations

from itertools import count

from streams.testing.events import Events


def test_events_come_by_time_and_then_as_they_were_added_and_arrivals_before_them() -> None:
    """What follows from an event comes, too."""
    events, seen = Events(), list[tuple[int, object]]()

    def happen(now_us: int, about: object) -> None:
        seen.append((now_us, about))
        if about == "first":
            events.add(now_us, happen, "more")

    events.add(5, happen, "first")
    events.add(5, happen, "second")
    events.add(3, happen, "early")
    assert events.run((5, 9), happen) == 9
    assert seen == [(3, "early"), (5, 0), (5, "first"), (5, "second"), (5, "more"), (9, 1)]


def test_arrivals_without_an_end_end_when_somebody_says_so() -> None:
    """The rest is left undone."""
    events, seen = Events(), list[int]()

    def come(now_us: int, number: int) -> None:
        seen.append(number)
        if number == 3:
            events.stop()

    assert events.run(count(10), come) == 13
    assert seen == [0, 1, 2, 3]


def test_an_event_is_taken_by_whom_it_is_for_once_its_time_has_come() -> None:
    """The first one keeps those behind it waiting."""
    events = Events()

    def one(_now_us: int, _about: object) -> None: ...

    def other(_now_us: int, _about: object) -> None: ...

    events.add(2, one, "a")
    events.add(2, other, "b")
    assert (events.take(1, one), events.take(2, other), events.take(2, one), events.take(2, other)) == (
        None, None, "a", "b"
    )  # fmt: skip
    assert events.next_us is None
