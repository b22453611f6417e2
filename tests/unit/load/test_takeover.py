"""The fault in the middle of a stretch: it happens before its query, and the outage ends with the last default."""

from __future__ import annotations

import numpy as np
import pytest

from load.harness.workload import Rows
from load.scenarios.operation.takeover import Faulty
from schemas.records import Prediction, Status, Tensor

ROWS = Rows("takeover", [Tensor.of(np.zeros(1, np.float32))])


def given(status: Status, answered_us: int) -> Prediction:
    """Make an answer."""
    return Prediction("q", "takeover", None, None, status, None, 0, 1.0, (), 0, 0, 0, answered_us)


def test_it_breaks_once_before_its_query_and_the_outage_lasts_until_the_last_query_without_a_worker() -> None:
    """A default is given at its query's deadline, half a second after it was sent."""
    caused: list[int] = []
    workload = Faulty(ROWS, at=2, cause=lambda: caused.append(1))
    for index in range(4):
        assert workload(index, 1_000_000 * index).query.sent_us == 1_000_000 * index
    assert (caused, workload.fault_us) == ([1], 2_000_000)
    workload.take([given(Status.DEFAULT, 3_600_000), given(Status.COMPLETE, 9_000_000)])
    assert workload.outage_s == pytest.approx(1.1)


def test_a_fault_that_nobody_noticed_is_no_outage() -> None:
    """And neither is a default from before."""
    workload = Faulty(ROWS, at=0, cause=lambda: None)
    workload(0, 5_000_000)
    assert workload.outage_s == 0
    workload.take([given(Status.DEFAULT, 5_400_000)])
    assert workload.outage_s == 0
