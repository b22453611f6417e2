"""What is known of a context: which state decides for it, and what a person reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from schemas import topics
from schemas.records import PolicyState, Prediction
from streams.story.contexts import ContextStory, document, lines, names, which
from streams.story.values import Told
from tests.loops import CODEC, Loop, digits

if TYPE_CHECKING:
    from collections.abc import Sequence

STATE = PolicyState("exp3(gamma=0.1)", ("good", "bad"), 3, (0.0, -1.0))


def answers(*, per_context: bool) -> Sequence[Told[Prediction]]:
    """Return the answers of a context."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(per_context=per_context))
    loop.query("first", context="ann")
    loop.driver.run(0.2)
    read = loop.driver.read(topics.PREDICTIONS)
    return [Told(one.position, one.timestamp_us, CODEC.decode(Prediction, one.value)) for one in read]


def test_the_last_answer_says_which_state_decides() -> None:
    """The context's own, or the application's where contexts have none."""
    found = [(name, STATE) for name in names("digits", "ann")]
    assert [name for name, _ in found] == ["digits/ann", "digits:ann", "digits"]
    assert which(found, answers(per_context=True)) == "digits/ann"
    assert which(found, answers(per_context=False)) == "digits"


def test_without_an_answer_the_first_that_is_stored_decides() -> None:
    """A spread context's, say; and the context's own name where nothing is stored."""
    own, spread, common = names("digits", "ann")
    assert which([(own, None), (spread, STATE), (common, STATE)], ()) == spread
    assert which([(own, None), (spread, None), (common, None)], ()) == own
    assert names("digits", None) == ("digits",)


def test_a_person_reads_the_state_and_what_to_type_for_each_answer() -> None:
    """And a script the same."""
    known = ContextStory("digits", "ann", "digits/ann", STATE, tuple(answers(per_context=True)))
    said = [*lines(known)]
    assert "version 3" in said[1]
    assert said[-1].endswith("skysail story first")
    assert json.loads(json.dumps(document(known)))["stored"]["version"] == 3
    assert not known.is_empty
    assert known._replace(state=None, answers=()).is_empty
