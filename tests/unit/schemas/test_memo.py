"""Decisions that come again are recognised, and never taken for others."""

from __future__ import annotations

import pytest

from schemas import memo as recall
from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.records import Observation, Prediction
from tests.samples import DECISION, FULL

CODEC = Codec()
SEEN = next(record for record in FULL if isinstance(record, Observation))


def test_equal_bytes_give_the_same_decision() -> None:
    """A decision that was read once is not built again, whichever query it belongs to."""
    first, second = (CODEC.decode(Observation, CODEC.encode(SEEN._replace(query_id=name))) for name in ("a", "b"))
    assert first.decision is second.decision
    assert (first.query_id, second.query_id) == ("a", "b")


@pytest.mark.parametrize(
    "other",
    [
        DECISION._replace(propensities=(0.5, 0.5)),
        DECISION._replace(arms=("good", "worse")),
        DECISION._replace(arms=("good", "bad", "new")),
        DECISION._replace(state_version=71),
        DECISION._replace(state="digits/" + "x" * 100),
    ],
    ids=str,
)
def test_decisions_that_begin_alike_are_told_apart(other: object) -> None:
    """What differs only behind the bytes that are looked up is read, in turns, as what it is."""
    for decision in (DECISION, other, DECISION, other):
        seen = SEEN._replace(decision=decision)  # type: ignore[arg-type]
        assert CODEC.decode(Observation, CODEC.encode(seen)) == seen


def test_a_truncated_decision_is_not_remembered() -> None:
    """A record that ends inside its decision is refused each time, also once the whole one is known."""
    value = CODEC.encode(SEEN)
    cut = value.index(b"exp3") + 10
    for _ in range(2):
        with pytest.raises(DecodeError, match="end"):
            CODEC.decode(Observation, value[:cut])
        assert CODEC.decode(Observation, value) == SEEN


def test_memory_is_bounded() -> None:
    """More decisions than are remembered still come out right."""
    for version in range(recall.CAPACITY + 10):
        seen = SEEN._replace(decision=DECISION._replace(state_version=version))
        assert CODEC.decode(Observation, CODEC.encode(seen)).decision.state_version == version


def test_a_prediction_without_a_decision_is_read() -> None:
    """Nothing decided is nothing to recognise."""
    prediction = next(record for record in FULL if isinstance(record, Prediction))._replace(decision=None)
    assert CODEC.decode(Prediction, CODEC.encode(prediction)) == prediction
