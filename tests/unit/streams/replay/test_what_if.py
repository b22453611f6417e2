"""A trace's queries with one thing changed: what the loop would have answered, asked and learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from schemas import topics
from schemas.records import Outcome, Source
from streams.operators.contract import Predicted
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment
from streams.replay.what_if.changes import ChangeError, changed
from streams.replay.what_if.comparison import AtHand, ChangeComparison, WhatIf
from tests.loops import CODEC, Loop, digits, row, version
from tests.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input

OWN = RecordedDeployment(SelectionSettings(1), JoinerSettings(1, 60_000_000, 5_000_000))


def loop(policy: str, count: int = 60) -> Loop:
    """Ask, each query with an input of its own; the good model is right."""
    there = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy=policy, window_s=20.0), has_workers=True)
    for number in range(count):
        query_id = there.query(input=row(float(number)))
        there.driver.run(0.05)
        there.feedback(query_id, label=7)
        there.driver.run(0.05)
    return there


def what_if(there: Loop) -> WhatIf:
    """Return a trace ready to be played."""
    return WhatIf(trace_of(there.driver), None, OWN, CODEC)


def models(found: ChangeComparison, column: str) -> list[tuple[str, ...]]:
    """Return which models each query that counts has asked."""
    return [found.columns[column].models_of(number) for number in found.order]


def figures(found: ChangeComparison, column: str) -> dict[str, Any]:
    """Return the figures of a column."""
    return found.columns[column].figures(found.order)


def test_costs_are_told_of_both_columns() -> None:
    """Per 1,000 queries, in the unit of the loss: what was served was wrong half the time, at 5 each."""
    there = Loop(
        {"good": lambda _: 7, "bad": lambda _: 3},
        digits(policy="single", window_s=20.0, loss='{"zero_one":5,"unit":"EUR"}'),
        has_workers=True,
    )
    for number in range(20):
        query_id = there.query(input=row(float(number)))
        there.driver.run(0.05)
        there.feedback(query_id, label=(7, 3)[number % 2])
        there.driver.run(0.05)
    found = what_if(there).compare({})
    assert [figures(found, column)["cost"] for column in ("recorded", "unchanged", "changed")] == [2_500.0] * 3
    assert figures(what_if(loop("exp4")).compare({}), "changed")["cost"] is None


def test_nothing_changed_comes_out_as_it_was() -> None:
    """The same losses, the same models asked."""
    found = what_if(loop("exp4")).compare({})

    assert found.left_out == 0
    assert found.unchanged.losses == found.recorded.losses == found.changed.losses
    assert models(found, "unchanged") == models(found, "recorded")


def test_another_policy_asks_other_models() -> None:
    """An ensemble's outputs are all recorded: a bandit on them finds the good model."""
    found = what_if(loop("exp4")).compare({"policy": "thompson"})

    assert found.left_out == 0
    assert len(found.order) == 60
    assert figures(found, "changed")["shares"]["good"] > 0.8
    assert figures(found, "recorded")["shares"] == {"bad": 1.0, "good": 1.0}


def test_a_model_less_is_asked_no_more() -> None:
    """Alone, the bad model is wrong each time."""
    found = what_if(loop("exp4")).compare({"models": "bad"})

    assert figures(found, "changed")["error"] == 1.0
    assert figures(found, "changed")["shares"] == {"bad": 1.0}


def test_an_objective_too_short_gives_defaults() -> None:
    """Batches take 1.1 ms, as recorded; nothing is answered within one."""
    found = what_if(loop("exp4")).compare({"slo_ms": "1"})

    assert figures(found, "changed")["defaults"] == 1.0
    assert figures(found, "unchanged")["defaults"] == 0.0


def test_what_no_model_was_asked_is_left_out_and_counted() -> None:
    """A bandit's trace holds the outputs of the models that it chose; the rest is in no figure."""
    there = loop("exp3")
    found = what_if(there).compare({"policy": "epsilon_greedy"})

    assert 0 < found.left_out < 60
    assert len(found.order) == 60 - found.left_out
    assert all(outcome.answered()[found.order].all() for outcome in found.columns.values())
    assert found.queries == len(there.driver.read(topics.QUERIES))


def test_a_model_at_hand_answers_what_is_not_recorded() -> None:
    """Also one that the trace does not know."""

    def always_right(rows: Sequence[Input]) -> tuple[Predicted, int]:
        return Predicted((Outcome.OK,) * len(rows), np.full(len(rows), 7)), 2_000

    played = WhatIf(trace_of(loop("single").driver), None, OWN, CODEC, [AtHand(version("new"), always_right)])
    found = played.compare({"models": "bad,new", "policy": "single(arm=1)"})

    assert found.left_out == 0
    assert figures(found, "changed")["error"] == 0.0
    assert figures(found, "changed")["shares"] == {"new": 1.0}
    assert figures(found, "changed")["p50_ms"] >= 2.0


def test_polls_change_when_answers_come_and_not_which() -> None:
    """Polled as often as records come, all is as it was recorded, latencies included; else only these are others."""
    played = what_if(loop("exp4"))
    at_once, polled = played.compare({"policy": "thompson"}, poll_us=0), played.compare({"policy": "thompson"})

    assert at_once.unchanged.took_us == played.recorded.took_us
    assert polled.changed.losses == at_once.changed.losses
    assert models(polled, "changed") == models(at_once, "changed")
    assert (np.array(polled.unchanged.took_us) >= np.array(at_once.unchanged.took_us)).all()


def test_a_play_comes_out_the_same_in_a_copy_of_the_process_and_here() -> None:
    """One play runs beside the other."""
    played = what_if(loop("exp4"))
    found, alone = played.compare({"slo_ms": "50"}), played.play(changed(played.application, {"slo_ms": "50"}), 2_500)

    assert found.changed == alone.outcome


def test_the_difference_has_an_interval_that_holds_it() -> None:
    """A model that is wrong each time costs 1 more than an ensemble that is right."""
    worse = what_if(loop("exp4")).compare({"models": "bad"})
    moment = worse.difference[-1]

    assert moment.queries == len(worse.order)
    assert moment.mean == pytest.approx(figures(worse, "changed")["error"] - figures(worse, "unchanged")["error"])
    assert 0.0 < moment.low < moment.mean <= moment.high <= 1.0


def test_the_difference_of_nothing_changed_is_nothing() -> None:
    """The queries are compared one by one: what they share cancels."""
    moment = what_if(loop("exp3")).compare({}).difference[-1]

    assert moment.mean == 0.0
    assert moment.low < 0.0 < moment.high


def test_a_trace_without_feedback_has_no_difference() -> None:
    """Nothing is known of it."""
    there = Loop({"good": lambda _: 7}, digits(models=("good",), policy="single"), has_workers=True)
    there.query()
    there.driver.run(1.0)

    assert what_if(there).compare({}).difference == ()


def test_a_parameter_is_changed_alone() -> None:
    """The policy stays."""
    application = changed(digits(policy="exp3"), {"policy.eta": "0.5"})

    assert (application.policy, application.parameters) == ("exp3", {"eta": 0.5})
    assert changed(digits(), {"policy": "thompson"}).parameters == {}
    assert changed(digits(), {"policy": "exp3(eta=0.2)"}).parameters == {"eta": 0.2}


@pytest.mark.parametrize("changes", [{"speed": "3"}, {"slo_ms": "fast"}, {"policy.eta": "much"}, {"policy": "best"}])
def test_what_cannot_be_changed_is_said(changes: dict[str, str]) -> None:
    """With what can."""
    with pytest.raises(ChangeError):
        changed(digits(), changes)


def test_models_that_the_trace_does_not_know_are_said() -> None:
    """With those that it knows."""
    with pytest.raises(ChangeError, match="it knows bad, good"):
        what_if(loop("exp4", 5)).compare({"models": "best"})


@pytest.mark.parametrize("name", [None, "digits"])
def test_an_application_that_looks_features_up_is_refused_with_what_to_do(name: str | None) -> None:
    """Its queries do not have what they were decided by."""
    there = Loop({"good": lambda _: 7}, digits(models=("good",), policy="single", sources=(Source("users", 1),)))
    with pytest.raises(ChangeError, match="skysail evaluate FOLDER --app digits --policy POLICY"):
        WhatIf(trace_of(there.driver), name, OWN, CODEC)
