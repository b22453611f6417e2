"""Labels and versions that stand by, through the whole loop: queries and applications name them, and logs replay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from schemas import topics
from schemas.records import Model, ModelQueries, Status
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.replay.what_if.comparison import WhatIf
from tests.loops import CODEC, Loop, digits, row, version
from tests.traces import trace_of

if TYPE_CHECKING:
    from schemas.records import Application

OWN = RecordedDeployment(SelectionSettings(1), JoinerSettings(1, 60_000_000, 5_000_000))
NIGHTLY = replace(version("good"), labels={"nightly": "2"}, standby=("3",))


def running(application: Application, good: Model = NIGHTLY) -> Loop:
    """Start a loop whose model `good` serves version 1, with 2 labelled `nightly` and 3 standing by."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, application, has_workers=True)
    for name in ("2", "3"):
        loop.driver.produce(topics.MODELS, 0, CODEC.encode(version("good", name)), f"good@{name}".encode())
    loop.driver.produce(topics.MODELS, 0, CODEC.encode(good), b"good")
    loop.driver.run(2)
    return loop


def asked(loop: Loop, count: int = 1, **query: object) -> set[tuple[str, str]]:
    """Ask, and return the models and versions that answered."""
    ids = []
    for number in range(count):
        ids.append(loop.query(input=row(float(loop.sent + number)), **query))
        loop.driver.run(0.05)
        loop.feedback(ids[-1], label=7)
        loop.driver.run(0.1)
    outputs = [output for query_id in ids for output in loop.answer(query_id).outputs]
    return {(output.model, output.version) for output in outputs}


@pytest.mark.parametrize(
    ("name", "found"),
    [("nightly", "2"), ("good@nightly", "2"), ("good@2", "2"), ("3", "3"), ("good@stable", "1")],
)
def test_a_query_may_name_a_label_or_a_version_that_stands_by(name: str, found: str) -> None:
    """The policy would have asked the other model, which runs no such version."""
    loop = running(digits(models=("bad", "good"), policy="single"))
    assert asked(loop, version=name) == {("good", found)}


def test_a_label_that_nobody_has_gets_no_answer() -> None:
    """The reason says so."""
    loop = running(digits(models=("good",)))
    query_id = loop.query(version="weekly")
    loop.driver.run(1)
    assert (loop.answer(query_id).status, loop.answer(query_id).reason) == (Status.DEFAULT, "unknown_version")


def test_an_application_names_the_version_that_answers_for_a_model() -> None:
    """Its policy decides and learns as always; a query may name another version, and then teaches nothing."""
    loop = running(digits(policy="exp4", versions={"good": "nightly"}))
    assert asked(loop) == {("good", "2"), ("bad", "1")}
    assert asked(loop, version="good@3") == {("good", "3"), ("bad", "1")}
    assert asked(loop, version="bad@1") == {("good", "2"), ("bad", "1")}
    assert [prediction.decision is not None for prediction in loop.predictions()] == [True, False, False]
    assert len(loop.observations()) == 1
    records = [CODEC.decode(ModelQueries, record.value) for record in loop.driver.read(topics.model_queries("bad"))]
    assert [record.version for record in records] == ["", "good@3", "bad@1"]


def test_a_label_that_moves_takes_its_queries_along() -> None:
    """At once, where the other version is loaded; of an application, too."""
    loop = running(digits(models=("good",), versions={"good": "nightly"}))
    first = asked(loop)
    moved = replace(NIGHTLY, labels={"nightly": "3"}, standby=("2",))
    loop.driver.produce(topics.MODELS, 0, CODEC.encode(moved), b"good")
    loop.driver.run(0)
    assert (first, asked(loop)) == ({("good", "2")}, {("good", "3")})


def test_a_loop_with_labels_replays_as_it_was() -> None:
    """Decisions, answers and states are the same bytes, though versions are named by query and application."""
    loop = running(digits(models=("good", "bad"), versions={"good": "nightly"}, window_s=20.0))
    asked(loop, 20)
    asked(loop, 2, version="3")
    report = replay(trace_of(loop.driver), OWN, CODEC)
    report.compare_states(loop.driver.store.states, CODEC)
    assert report.differences == []
    assert report.checked["predictions"] == loop.sent
    assert report.checked["states"] >= len(loop.driver.store.states)


def test_what_if_asks_the_models_of_an_application_that_names_a_version() -> None:
    """What they answer is known by their input; which version it was is not asked again."""
    loop = running(digits(models=("good", "bad"), policy="exp4", versions={"good": "nightly"}, window_s=20.0))
    asked(loop, 20)
    found = WhatIf(trace_of(loop.driver), None, OWN, CODEC).compare({"policy": "single"})
    assert found.left_out == 0
    assert len(found.order) == 20
    assert not any(found.changed.defaults)
    assert {found.changed.models_of(number) for number in found.order} == {("good",)}


def test_versions_are_compared_on_queries_that_were_drawn_for_one_or_the_other() -> None:
    """An application that names one says nothing about which is better."""
    canary = replace(version("good", shares={"2": 0.5}), labels={"nightly": "2"})
    loop = running(digits(models=("good",), versions={"good": "nightly"}), canary)
    asked(loop, 10)
    assert [seen.versions for _, seen in loop.observations()] == [()] * 10
    free = running(digits(models=("good",)), canary)
    asked(free, 10)
    assert all(seen.versions for _, seen in free.observations())


@pytest.mark.parametrize("named", ["2", "good@2", "canary", "stable", "good@1"])
@pytest.mark.parametrize("policy", ["exp3", "exp4"])
def test_feedback_on_a_version_that_a_query_names_judges_no_version_and_teaches_no_model(
    named: str, policy: str
) -> None:
    """Whoever tries a canary sends it what they choose, such as hard cases: that compares queries, not versions."""
    loop = running(digits(models=("good",), policy=policy), version("good", shares={"2": 0.5}))
    (answer,) = asked(loop, version=named)
    assert answer[0] == "good"
    assert loop.observations() == []
    asked(loop)
    assert len(loop.observations()) == 1
