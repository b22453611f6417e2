"""A lane whose model is taken out and comes back."""

from __future__ import annotations

import numpy as np

from schemas.codec import Codec
from schemas.records import Tensor
from streams.operators.contract import Position
from tests.samples import model_query
from workers.kernel.model.lane import Lane, lane_of
from workers.kernel.model.results import Identity, asked_of
from workers.settings import WorkerSettings

DUE_US = 1_000_000


def waiting() -> Lane:
    """Return a lane whose model is taken out, and which waits for a full batch of rows to fail."""
    settings = WorkerSettings(1, controller="fixed", parameters={"rows": 8, "linger_ms": 500})
    lane = lane_of(Codec(), Identity("m", "1", "one"), settings)
    lane.fault = "it is taken out"
    query = model_query("q", 0, DUE_US, Tensor.of(np.zeros(2, np.float32)))
    lane.offer(asked_of(query, Position("models.m.queries", 0, 0)), 0, {})
    lane.start(0, lambda: 0, is_vital=False)
    assert lane.next_start() is not None
    return lane


def test_a_lane_whose_model_is_back_waits_no_longer_as_it_did_without() -> None:
    """Otherwise a host's timer would be due for ever: there the schedule starts batches, not the lane."""
    lane = waiting()
    lane.recover()
    assert lane.next_start() is None


def test_a_lane_whose_model_has_a_successor_waits_no_longer_as_it_did_without() -> None:
    """Another version has taken over."""
    lane = waiting()
    lane.succeed("2", 1)
    assert lane.next_start() is None
