"""What becomes of queries whose roles' own kernels are simulated, by what is written to the log."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from schemas.records import ModelPredictions, Outcome, Prediction, Status
from streams.testing import START_US
from workers.simulation.run import NEVER, Run, column
from workers.simulation.worker import Journal

if TYPE_CHECKING:
    from schemas.codec import Codec
    from streams.operators.contract import Record
    from workers.simulation.plan import SimulationPlan


class KernelOutcome:
    """Takes what is written about the queries of a plan; query number n has the id qn."""

    def __init__(self, plan: SimulationPlan, codec: Codec) -> None:
        self._plan, self._codec = plan, codec
        count = len(plan.arrivals_us)
        self._received_us, self._answered_us, self._outputs, self._asked = (array("q", [0]) * count for _ in range(4))
        self._latency_us = array("q", [NEVER]) * count
        self._places = {model.name: place for place, model in enumerate(plan.models)}
        self._journals = [Journal(count) for _ in plan.models]
        self._expired = [bytearray(count) for _ in plan.models]

    def run(self, ended_us: int) -> Run:
        """Return all of it."""
        return Run(
            plan=self._plan,
            ended_us=ended_us,
            received_us=column(self._received_us),
            drawn=None,
            answered_us=column(self._answered_us),
            latency_us=column(self._latency_us),
            outputs=column(self._outputs),
            asked=column(self._asked),
            expired=tuple(np.frombuffer(its, np.uint8).astype(bool) for its in self._expired),
            journals=tuple(self._journals),
        )

    def on_answer(self, record: Record, now_us: int) -> None:
        """Take an answer that its client has now."""
        prediction = self._codec.decode(Prediction, record.value)
        number = int(prediction.query_id[1:])
        self._received_us[number] = prediction.received_us - START_US
        self._answered_us[number] = prediction.answered_us - START_US
        self._latency_us[number] = now_us - prediction.sent_us
        usable = sum(output.outcome is Outcome.OK for output in prediction.outputs)
        usable += sum(output.outcome is Outcome.OK for output in prediction.stages)
        self._outputs[number] = 0 if prediction.status is Status.DEFAULT else max(1, usable)
        self._asked[number] = self._outputs[number] + (prediction.status is not Status.COMPLETE)

    def on_batch(self, record: Record) -> None:
        """Take what a batch came to."""
        batch = self._codec.decode(ModelPredictions, record.value)
        place = self._places[batch.model]
        journal, expired = self._journals[place], self._expired[place]
        if batch.predict_us and Outcome.OK in batch.outcomes:
            journal.started_us.append(record.timestamp_us - START_US - batch.predict_us)
            journal.took_us.append(batch.predict_us)
            journal.rows.append(batch.batch_rows)
            journal.cap.append(batch.batch_cap)
            journal.queued.append(batch.queue_rows)
        for row, outcome, waited_us in zip(batch.query_ids, batch.outcomes, batch.waited_us, strict=True):
            number = int(row[1:].partition("/")[0])
            if outcome is Outcome.OK:
                journal.waited_us[number] = waited_us
            else:
                expired[number] = 1
