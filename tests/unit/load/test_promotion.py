"""How the scenario `promotion` watches a candidate come to its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from load.research.operation import promotion
from load.research.operation.promotion import Watch
from schemas.records import ModelOutput, Outcome, Prediction, Status

if TYPE_CHECKING:
    from collections.abc import Callable

LATELY = 50
SECOND_US = 1_000_000


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return what sets the time (us)."""
    now = SimpleNamespace(us=0)
    monkeypatch.setattr(promotion, "SystemClock", lambda: SimpleNamespace(now_us=lambda: now.us))
    return lambda us: setattr(now, "us", us)


def answered(version: str, answer: int = 1) -> Prediction:
    """Return an answer that one version gave to query `q`, whose label is 1."""
    output = ModelOutput("digits", version, Outcome.OK, answer)
    return Prediction("q", "digits", None, None, Status.COMPLETE, None, answer, 1.0, (output,), 0, 0, 0, 0)


def watch() -> Watch:
    """Watch a candidate `new`."""
    return Watch("new", {"q": 1})


def test_a_candidate_that_gives_all_late_answers_is_promoted(at: Callable[[int], None]) -> None:
    """A version that gives the last 50 answers has taken over."""
    seen = watch()
    at(7)
    seen.take([answered("old"), *[answered("new")] * (LATELY - 1)])
    assert not seen.is_promoted()
    at(9)
    seen.take([answered("new")])
    assert seen.is_promoted()
    assert seen.alone_us == 9


def test_a_candidate_is_back_when_others_answer_for_a_second_after_it(at: Callable[[int], None]) -> None:
    """Its last answer is when it went."""
    seen = watch()
    seen.take([answered("new"), answered("old")])
    at(SECOND_US)
    seen.take([answered("old")])
    assert not seen.is_back()
    at(SECOND_US + 1)
    seen.take([answered("old")])
    assert seen.is_back()
    assert seen.seen_us == 0


def test_a_candidate_is_not_back_because_nobody_asks_any_more(at: Callable[[int], None]) -> None:
    """An end of the traffic is no end of a candidate."""
    seen = watch()
    seen.take([answered("new")])
    at(10 * SECOND_US)
    assert not seen.is_back()


def test_a_candidate_that_was_never_seen_is_neither(at: Callable[[int], None]) -> None:
    """What was never there cannot go."""
    seen = watch()
    at(10 * SECOND_US)
    seen.take([answered("old")] * LATELY)
    assert not seen.is_back()
    assert not seen.is_promoted()


def test_a_candidate_costs_its_errors_beyond_those_of_the_incumbent(at: Callable[[int], None]) -> None:
    """Errors that the incumbent would have made, too, are not its cost."""
    seen = watch()
    at(1)
    seen.take([answered("old"), answered("old", 2), *[answered("new", 2)] * 4])
    assert seen.cost("old") == 4 - 0.5 * 4
