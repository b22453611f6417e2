"""An application with `timings` is told how long its rows waited, and about their batches."""

from __future__ import annotations

import pytest

from schemas.records import Outcome
from tests.loops import Loop, digits


def loop_of(*, timings: bool, has_workers: bool = True, **more: object) -> Loop:
    """Return a loop of two models that has answered some queries, several at a time."""
    application = digits(timings=timings, policy="exp4", **more)
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, application, has_workers=has_workers)
    for _ in range(5):
        for _ in range(4):
            loop.query()
        loop.driver.run(seconds=0.2)
    return loop


def test_outputs_say_what_their_batch_has_said() -> None:
    """Row by row as the workers wrote it to `model-predictions`."""
    loop = loop_of(timings=True)
    expected = {}
    for batch in loop.outputs():
        for query_id, waited_us in zip(batch.query_ids, batch.waited_us, strict=True):
            expected[query_id, batch.model] = (waited_us, batch.predict_us, batch.batch_rows)
    found = {
        (prediction.query_id, output.model): (output.waited_us, output.predict_us, output.batch_rows)
        for prediction in loop.predictions()
        for output in prediction.outputs
        if output.outcome is Outcome.OK
    }
    assert found == expected
    assert len(found) == 40
    assert any(rows > 1 for _, _, rows in found.values())


@pytest.mark.parametrize("has_workers", [True, False])
def test_other_applications_are_told_nothing(*, has_workers: bool) -> None:
    """Their predictions have a byte for each figure, and columns decide them."""
    loop = loop_of(timings=False, has_workers=has_workers)
    outputs = [output for prediction in loop.predictions() for output in prediction.outputs]
    assert {(output.waited_us, output.predict_us, output.batch_rows) for output in outputs} == {(0, 0, 0)}
