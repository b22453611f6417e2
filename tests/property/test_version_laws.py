"""Laws of versions: whatever is wanted one after the other, who names a version that stays wanted is answered by it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.records import Status
from tests.loops import CODEC, Loop, digits, version

if TYPE_CHECKING:
    from schemas.records import Model

KEPT = "1"
VERSIONS = ("1", "2", "3")
LOAD_US = 500_000


class Word(NamedTuple):
    """What an operator or a watched folder says, and how long it stands."""

    model: Model
    seconds: float


@st.composite
def words(draw: st.DrawFn) -> Word:
    """Draw a version that serves and others beside it; version 1 is always loaded, and never a shadow."""
    serving = draw(st.sampled_from(VERSIONS))
    places = {v: draw(st.sampled_from(["share", "standby", "label", "none"])) for v in VERSIONS if v != serving}
    if places.get(KEPT) == "none":
        places[KEPT] = "standby"
    shares = {v: 0.2 for v, place in places.items() if place == "share"}
    standby = tuple(v for v, place in places.items() if place == "standby")
    labels = {f"label-{v}": v for v, place in places.items() if place == "label"}
    model = replace(version("good", serving, shares), standby=standby, labels=labels)
    return Word(model, draw(st.sampled_from([0.05, 0.4, 0.9, 2.0])))


@settings(max_examples=40, deadline=None)
@given(st.lists(words(), min_size=1, max_size=6))
def test_a_version_that_stays_wanted_answers_all_who_name_it(said: list[Word]) -> None:
    """Whether it serves, stands by, has a share or a label, and however often that changes, while others are loaded."""
    loop = Loop({"good": lambda _: 7}, digits(models=("good",)), has_workers=True, load_us=LOAD_US)
    for name in VERSIONS:
        loop.driver.produce(topics.MODELS, 0, CODEC.encode(version("good", name)), f"good@{name}".encode())
    loop.driver.run(1)
    named, free = [], []
    for word in said:
        loop.driver.produce(topics.MODELS, 0, CODEC.encode(word.model), b"good")
        for _ in range(round(word.seconds * 25)):
            named.append(loop.query(version=KEPT))
            free.append(loop.query())
            loop.driver.run(0.04)
    loop.driver.run(1)
    answers = {prediction.query_id: prediction for prediction in loop.predictions()}
    assert len(loop.predictions()) == len(answers) == loop.sent
    assert {answers[query_id].outputs[0].version for query_id in named} <= {KEPT}
    assert {answers[query_id].status for query_id in (*named, *free)} <= {Status.COMPLETE}
