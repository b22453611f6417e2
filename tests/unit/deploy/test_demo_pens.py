"""The demo's second act: two pens ask by turns, each is counted for itself, and what came of it is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deploy.demo import contexts, page
from deploy.demo.contexts import PARTS, PENS, PenCount, Pens
from deploy.demo.models import Digits
from deploy.demo.traffic import Link
from load.harness.wire import Arrival
from schemas import topics
from schemas.codec import Codec
from schemas.records import Feedback, ModelOutput, Outcome, Prediction, Query, Status, Tensor
from tests.wires import VirtualWire

CODEC = Codec()
ROWS = np.full((3, 64), 10, dtype=np.float32)
DATA = Digits(ROWS, np.ones(3, np.int64), ROWS, np.ones(3, np.int64))
ERRORS = {"ink": {"svc": 0.01, "linear": 0.1}, "pencil": {"svc": 0.3, "linear": 0.12}}


class Loop(VirtualWire):
    """Asks `svc` about ink and `linear` about pencil; what is faint, `svc` would not have read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Query] = []
        self.fed_back: list[Feedback] = []

    def produce(self, topic: str, key: bytes, value: bytes, *, patient: bool = False) -> None:
        """Answer a query, keep feedback."""
        if topic == topics.FEEDBACK:
            self.fed_back.append(CODEC.decode(Feedback, value))
            return
        query = CODEC.decode(Query, value)
        self.asked.append(query)
        model, answer = ("svc", 1) if query.context == "ink" else ("linear", 2)
        output = ModelOutput(model, "1", Outcome.OK, answer)
        record = Prediction(
            query.query_id, "pens", query.context, None, Status.COMPLETE, None, answer, 1.0, (output,), 0, 0, 0, 0
        )
        self.arrive(Arrival(topics.PREDICTIONS, 0, self.time_us, b"", CODEC.encode(record)), 5_000)


def acted(count: int = 40) -> tuple[Pens, Loop]:
    """Perform the act with so many queries."""
    loop = Loop()
    pens = Pens(Link(loop, CODEC, loop.now_us), DATA, np.arange(3), count)  # type: ignore[arg-type]  # it is the wire
    pens.run(range(0, count * 10_000, 10_000))
    return pens, loop


def test_the_pens_ask_by_turns_each_as_a_context_and_pencil_is_faint() -> None:
    """The same rows, three tenths as dark; every answer gets its feedback."""
    _, loop = acted()
    assert [query.context for query in loop.asked[:4]] == ["ink", "pencil", "ink", "pencil"]
    ink, pencil = (query.input for query in loop.asked[:2])
    assert isinstance(ink, Tensor)
    assert isinstance(pencil, Tensor)
    darkest = [np.frombuffer(drawn.data, drawn.dtype).max() for drawn in (ink, pencil)]
    assert darkest == pytest.approx([10.0, PENS["pencil"] * 10.0])
    assert len(loop.fed_back) == 40
    assert {feedback.label for feedback in loop.fed_back} == {1}


def test_each_pen_is_counted_for_itself() -> None:
    """By the part of the act in which it was asked."""
    pens, _ = acted()
    assert pens.count["ink"].answered.total() == pens.count["pencil"].answered.total() == 20
    assert set(pens.count["ink"].answered) == set(range(PARTS))
    found = contexts.content(pens, ERRORS)
    assert (found["queries_sent"], found["lost"], found["defaults"]) == (40, 0, 0)
    ink, pencil = found["pens"]["ink"], found["pens"]["pencil"]
    assert (ink["late_most_asked"], ink["late_share"], ink["late_error"]) == ("svc", 1.0, 0.0)
    assert (pencil["late_most_asked"], pencil["best_model"], pencil["late_error"]) == ("linear", "linear", 1.0)
    assert found["late_error"] == 0.5
    assert (found["best_for_all"], found["error_best_for_all"]) == ("linear", 0.11)


def test_what_nobody_asked_has_no_figures() -> None:
    """An act that was ended at once."""
    none = contexts.figures(PenCount(), ERRORS["ink"])
    assert (none.answered, none.error, none.late_most_asked, none.late_share) == (0, None, None, None)
    pens, _ = acted(0)
    assert contexts.sentence(contexts.content(pens, ERRORS)) == contexts.sentence(None)


def test_it_is_said_which_model_each_pen_came_to() -> None:
    """And what one model for both would have meant."""
    pens, _ = acted()
    said = contexts.sentence(contexts.content(pens, ERRORS))
    assert "of what was written in ink svc was asked 100% of the time (0.0% wrong)" in said
    assert "in pencil linear was asked 100%" in said
    assert said.endswith("one model for both would mean 11.0% at best (linear).")


def test_shares_are_drawn_for_each_pen() -> None:
    """They add up to 1 wherever anything was asked."""
    pens, _ = acted()
    shares: dict[str, Any] = {pen: contexts.shares(count, ("svc", "linear")) for pen, count in pens.count.items()}
    assert np.allclose(sum(shares["ink"].values()), 1.0)
    drawn = page.pen_shares(shares)
    assert drawn.startswith("<svg")
    assert ">pencil<" in drawn
