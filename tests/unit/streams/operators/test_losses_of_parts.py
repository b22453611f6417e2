"""Losses of answers of several parts in the loop: every model is judged, whatever it writes."""

from __future__ import annotations

import json

from policies.loss_rules import written
from schemas import topics
from tests.loops import Loop, digits

RIGHT, NEAR = {"total": 12.5, "who": "Ann"}, {"total": 12.5, "who": "Bob"}
FIELDS = written("fields").text
OUTPUTS = written({"outputs": {"each": {"total": "relative", "who": "zero_one"}, "weights": {"who": 3}}}).text


def taught(loss: str, bad: str, label: str) -> Loop:
    """Return a loop of two models, both of which are asked; the good one answers what is right."""
    loop = Loop({"good": lambda _: json.dumps(RIGHT), "bad": lambda _: bad}, digits(policy="exp4", loss=loss))
    query_id = loop.query()
    loop.driver.run(0.1)
    loop.feedback(query_id, label)
    loop.driver.run(0.1)
    return loop


def test_every_model_is_judged_by_the_parts_of_its_answer() -> None:
    """The one that has one of two fields wrong by its share, or its weight."""
    label = json.dumps(RIGHT, sort_keys=True, indent=1)
    for loss, lost in ((FIELDS, 0.5), (OUTPUTS, 0.75)):
        (_, seen) = taught(loss, json.dumps(NEAR), label).observations()[0]
        assert dict(zip(seen.decision.arms, seen.losses, strict=True)) == {"good": 0.0, "bad": lost}


def test_a_model_that_writes_no_json_pays_for_it() -> None:
    """Its answer does not spoil the lesson of the other."""
    for loss in (FIELDS, OUTPUTS):
        loop = taught(loss, "I do not know", json.dumps(RIGHT))
        assert not loop.dead(topics.FEEDBACK)
        (_, seen) = loop.observations()[0]
        assert dict(zip(seen.decision.arms, seen.losses, strict=True)) == {"good": 0.0, "bad": 1.0}


def test_a_label_that_is_no_json_is_a_dead_letter() -> None:
    """It teaches nothing."""
    loop = taught(FIELDS, json.dumps(NEAR), "Ann")
    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["invalid_feedback"]
    assert not loop.observations()
