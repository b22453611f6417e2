"""Models that are at hand run again on the inputs that were recorded: what they answer now is held against then.

An answer should be the same, bit for bit. Some runtimes add in another order in a batch of another size, or on another
processor: numbers that differ by very little are counted apart, and the report says by how much.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from policies import registry
from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_id
from schemas.inputs import asked_about
from schemas.records import ModelOutput, Outcome, Prediction, Query, Tensor, dense_of, is_ranked, values_of
from streams.replay.report import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Input, Value
    from streams.operators.contract import Predicted, Record
    from streams.replay.recording import Recording
    from streams.replay.report import ReplayReport

    # By name and version: what answers rows.
    Running: TypeAlias = Mapping[tuple[str, str], Callable[[Sequence[Input]], Predicted]]

_ROWS: Final = 256
_QUERIES: Final = 100_000  # that wait for their answers; the oldest are let go of
_TELLING: Final = (Outcome.OK, Outcome.FAILED, Outcome.INVALID)
# Of the larger number: some units in the last place of a float32.
_CLOSE: Final = 1e-5


class _AgainRow(NamedTuple):
    query_id: str
    given: Input
    output: ModelOutput


def run_again(trace: Recording, codec: Codec, running: Running, report: ReplayReport) -> None:
    """Run models on all inputs that a trace holds."""
    held = [topic for topic in (topics.QUERIES, topics.PREDICTIONS) if topic in trace.topics()]
    if not running or len(held) < 2:
        return
    again = RunAgain(codec, running, report)
    queries: dict[str, Record] = {}
    for record in trace.merged(held):
        with suppress(DecodeError):
            if record.topic == topics.QUERIES:
                queries[peek_id(record.value)] = record
                if len(queries) > _QUERIES:
                    del queries[next(iter(queries))]
            else:
                prediction = codec.decode(Prediction, record.value)
                again.take(prediction, queries.get(prediction.query_id))
    again.flush()


class RunAgain:
    """Runs models on recorded inputs.

    Args:
        codec: of the trace's records.
        running: the models at hand.
        report: that is told what differs.
    """

    def __init__(self, codec: Codec, running: Running, report: ReplayReport) -> None:
        self._codec = codec
        self._running = running
        self._report = report
        self._rows: defaultdict[tuple[str, str], list[_AgainRow]] = defaultdict(list)

    def take(self, prediction: Prediction, query: Record | None) -> None:
        """Take the outputs of a prediction to a query."""
        asked = [one for one in prediction.outputs if one[:2] in self._running and one.outcome in _TELLING]
        if not asked or query is None or is_ranked(prediction) or prediction.stages:
            return  # candidates are ranked without a model; of a stage's inputs only the first are recorded
        if prediction.decision is not None and registry.answers(prediction.decision.policy):
            asked = [output._replace(answer=None) for output in asked]  # which was the state's
        try:
            given = self._codec.decode(Query, query.value).input
        except DecodeError:
            return
        if prediction.decision is not None:
            given = asked_about(given, prediction.decision.features)
        for output in asked:
            rows = self._rows[output.model, output.version]
            rows.append(_AgainRow(prediction.query_id, given, output))
            if len(rows) >= _ROWS:
                self.flush()

    def flush(self) -> None:
        """Run what waits."""
        for (model, version), rows in self._rows.items():
            predicted = self._running[model, version]([row.given for row in rows])
            for row, made in zip(rows, outputs_of_run(model, version, predicted), strict=True):
                self._compare(row, made)
        self._rows.clear()

    def _compare(self, row: _AgainRow, made: ModelOutput) -> None:
        report = self._report
        report.checked[MODELS] += 1
        if row.output.answer is None and row.output.scores is not None:
            made = made._replace(answer=None)
        made = made.timed(*row.output.times)  # which are another run's
        if made == row.output:
            return
        gap = _gap(row.output, made)
        if gap is None or gap > _CLOSE:
            report.add(MODELS, row.query_id, row.output, made)
        else:
            report.inferred["near"] += 1
            report.gap = max(report.gap, gap)


def outputs_of_run(model: str, version: str, predicted: Predicted) -> Iterator[ModelOutput]:
    """Yield the output of each row that a model has answered."""
    column = predicted.answers if isinstance(predicted.answers, tuple) else dense_of(predicted.answers)
    answers = values_of(column)
    for row, (outcome, answer) in enumerate(zip(predicted.outcomes, answers, strict=True)):
        is_ok = outcome is Outcome.OK
        scores = Tensor.of(predicted.scores[row]) if is_ok and predicted.scores is not None else None
        yield ModelOutput(model, version, outcome, answer if is_ok else None, scores)


def _gap(recorded: ModelOutput, made: ModelOutput) -> float | None:
    """Return by which share of the larger number two outputs differ; None if they are not both numbers."""
    if recorded.outcome is not made.outcome:
        return None
    gaps = [_of(recorded.answer, made.answer), _of(recorded.scores, made.scores)]
    return None if None in gaps else max(gap for gap in gaps if gap is not None)


def _of(one: Value | None, other: Value | None) -> float | None:
    if one == other:
        return 0.0
    if not isinstance(one, float | Tensor) or not isinstance(other, float | Tensor):
        return None
    first, second = (
        np.asarray(each.numpy() if isinstance(each, Tensor) else each, np.float64) for each in (one, other)
    )
    if first.shape != second.shape or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return None
    scale = np.maximum(np.maximum(np.abs(first), np.abs(second)), np.finfo(np.float32).tiny)
    return float(np.max(np.abs(first - second) / scale, initial=0.0))
