"""Where states answer, a replay comes out as it was: features, answers, rankings, observations, states."""

from __future__ import annotations

import numpy as np
import pytest

from policies import registry
from schemas import topics
from schemas.records import Tensor
from streams.testing import Crash
from tests.loops import CODEC, Loop
from tests.property.test_replay_laws import replayed
from tests.traces import trace_of
from tests.unit.streams.operators.test_answering import ITEMS, asked, computed, rated


@pytest.mark.parametrize("is_wide", [True, False])
def test_a_loop_whose_states_answer_replays_bit_equal(is_wide: bool) -> None:
    """With crashes, new users, a model that computes too much, and rankings among the queries."""
    crashes = [Crash(at_us=3_000_000, role="learner"), Crash(at_us=6_000_000, role="selection")]
    models = {"items": computed, "wide": (lambda _: Tensor.of(np.zeros(3))) if is_wide else computed}
    loop = Loop(models, rated(models=tuple(models)), crashes)
    for number in range(24):
        asked(loop, f"user-{number % 5}", number % 5 - 2.0, float(1 + number % 5))
        if number % 4 == 0:
            loop.feedback(loop.query(context=f"user-{number % 5}", candidates=ITEMS, top=2), 4.0)
            loop.driver.run(seconds=0.3)
    loop.driver.run(seconds=5)
    report = replayed(trace_of(loop.driver))
    report.compare_states(loop.driver.store.states, CODEC)
    assert report.is_equal, report.differences
    assert report.checked[topics.PREDICTIONS] > 24


def test_texts_of_policies_tell_whether_states_answer() -> None:
    """Of one that does not exist, they do not."""
    assert registry.answers("ridge")
    assert not registry.answers("exp3")
    assert not registry.answers("nothing(of=1)")
