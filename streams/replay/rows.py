"""Outputs of predictions, held against the rows that workers wrote: each is one of them, bit for bit.

model-predictions ─▶ rows by query and model ─▶ an output of a prediction: one of them, or a difference

A row whose id another query has is asked under a longer id, `ID@OFFSET`. A model that runs inside selection writes its
rows behind (`BEHIND`): nobody waits for them, and a role that cannot write drops them. So a row is missing only where a
worker wrote others of its version within `_AROUND_S` before and after it.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from policies import registry
from policies.calibration import along
from policies.confidence import own_confidence
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Model, ModelPredictions, Outcome, is_ranked, outputs_of
from schemas.topics import model_version
from streams.operators.contract import BEHIND
from streams.operators.selection.coded.code import curve_of
from streams.replay.held_records import HeldRecords
from streams.replay.report import ANSWERS, OUTPUTS
from streams.replay.stages import outputs_with_ids
from streams.replay.sums import Sums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.codec import Codec
    from schemas.records import ModelOutput, Prediction
    from streams.operators.contract import Record
    from streams.replay.coverage import Coverage
    from streams.replay.report import ReplayReport

_BYTES: Final = 64 << 20
_SECOND_US: Final = 1_000_000
_AROUND_S: Final = 10
# Selection gives these itself.
_OWN: Final = (Outcome.MISSING, Outcome.OVERLOADED)


class _OpenOutput(NamedTuple):
    """An output whose row has not come yet, as clocks disagree or the cache had it."""

    ids: tuple[str, ...]  # under which its row may have been asked
    partition: int
    received_us: int
    answered_us: int
    output: ModelOutput
    is_read: bool  # its answer is the state's, and only its scores are the model's


class Rows:
    """Checks outputs.

    Args:
        codec: of the trace's records.
        models: records of `models`.
        is_cached: whether outputs may come from selection's cache.
        coverage: of the trace.
        report: that is told what differs.
    """

    def __init__(
        self, codec: Codec, models: Iterable[Record], coverage: Coverage, report: ReplayReport, *, is_cached: bool
    ) -> None:
        self._codec = codec
        self._is_cached = is_cached
        self._coverage = coverage
        self._report = report
        self._rows: HeldRecords[tuple[int, ModelOutput]] = HeldRecords(_BYTES)
        deployed = _deployed(codec, models)
        self._versions = {(model.name, model.version) for model in deployed}
        self._curves = _curves(deployed)
        self._sums = Sums()
        self._open: list[_OpenOutput] = []
        self._written: set[tuple[str, str, int]] = set()  # model, version, second

    def take(self, record: Record) -> None:
        """Take a batch that a worker wrote, or selection behind its answers."""
        batch = self._codec.decode(ModelPredictions, record.value)
        if (batch.model, batch.version) not in self._versions:
            self._report.unchecked["version_missing"] += len(batch.query_ids)
        if BEHIND not in record.headers:
            self._written.add((batch.model, batch.version, record.timestamp_us // _SECOND_US))
        self._sums.take(record.partition, batch.query_ids)
        for query_id, output, waited_us in zip(batch.query_ids, outputs_of(batch), batch.waited_us, strict=True):
            size = 0 if output.scores is None else len(output.scores.data)
            timed = output.timed(waited_us, batch.predict_us, batch.batch_rows)
            self._rows.add(query_id, (record.partition, timed), size)

    def check(self, partition: int, prediction: Prediction, query: Record | None) -> None:
        """Hold the outputs of a prediction against the rows."""
        query_id, decision = prediction.query_id, prediction.decision
        if is_ranked(prediction):
            return
        is_read = decision is not None and registry.answers(decision.policy)
        ids = (query_id,) if query is None else (query_id, f"{query_id}@{query.offset}")
        for row_ids, output in outputs_with_ids(prediction, "" if query is None else f"@{query.offset}"):
            one = _OpenOutput(row_ids, partition, prediction.received_us, prediction.answered_us, output, is_read=False)
            if not self._is_found(one):
                self._open.append(one)
        for output in () if prediction.stages else prediction.outputs:
            if output.reconstructed:
                self._check_confidence(prediction, output)
            if output.outcome not in _OWN or output.reconstructed:
                one = _OpenOutput(ids, partition, prediction.received_us, prediction.answered_us, output, is_read)
                if not self._is_found(one):
                    self._open.append(one)

    def _check_confidence(self, prediction: Prediction, output: ModelOutput) -> None:
        """Hold how sure a decoded answer is against what the parity models of then say, as far as they say it."""
        decision, own = prediction.decision, own_confidence(output)
        curves = self._curves.get(model_version(output.model, output.version), set())
        if decision is None or own is None or not curves or () in curves or not registry.asks_one(decision.policy):
            return
        known = [along(curve, own) for curve in sorted(curves)]
        self._report.checked[ANSWERS] += 1
        if prediction.confidence not in known:
            self._report.add(ANSWERS, prediction.query_id, prediction.confidence, known[-1])

    def again(self, until_us: float = inf) -> None:
        """Look again for what was not found; the rows of what was answered by `until_us` have come by now."""
        open_, self._open = self._open, []
        for one in open_:
            if not self._is_found(one):
                if one.answered_us + _AROUND_S * _SECOND_US <= until_us:
                    self._give_up(one)
                else:
                    self._open.append(one)

    def _found(self, one: _OpenOutput) -> list[ModelOutput]:
        rows = [found for query_id in one.ids for found in self._rows.get(query_id)]
        return [row for place, row in rows if place == one.partition and row.model == one.output.model]

    def _is_found(self, one: _OpenOutput) -> bool:
        if one.output.reconstructed:
            is_found = _bytes_of(one.output) in self._decoded(one)
        else:
            is_same = _has_scores if one.is_read else _is_same
            is_found = any(is_same(row, one.output) for row in self._found(one))
        self._report.checked[OUTPUTS] += is_found
        return is_found

    def _decoded(self, one: _OpenOutput) -> list[bytes]:
        return [*self._sums.decoded(one.ids, one.partition, one.output, self._rows.get)]

    def _give_up(self, one: _OpenOutput) -> None:
        """Tell of an output that is none of the rows, if it must be."""
        report, rows = self._report, self._found(one)
        if one.output.reconstructed and self._decoded(one):
            report.checked[OUTPUTS] += 1
            report.add(OUTPUTS, one.ids[0], one.output, "what its group tells")
        elif one.output.reconstructed:
            report.unchecked["sum_missing"] += 1
        elif self._is_cached:
            report.unchecked["cached_output"] += 1
        elif rows:
            report.checked[OUTPUTS] += 1
            report.add(OUTPUTS, one.ids[0], one.output, rows[-1])
        elif self._is_whole(one.received_us) and self._is_written(one):
            report.miss(OUTPUTS, one.ids[0], f"a row of {one.output.model} {one.output.version}")
        else:
            report.unchecked["row_missing"] += 1

    def _is_written(self, one: _OpenOutput) -> bool:
        """Tell whether a worker wrote rows of the same version shortly before and after."""
        model, version = one.output.model, one.output.version
        begin_s, end_s = one.received_us // _SECOND_US, one.answered_us // _SECOND_US
        before, after = range(begin_s - _AROUND_S, begin_s + 1), range(end_s, end_s + _AROUND_S + 1)
        return all(any((model, version, second) in self._written for second in part) for part in (before, after))

    def _is_whole(self, received_us: int) -> bool:
        """Tell whether the trace has all rows from a time on, and all of them were held."""
        topic, coverage = topics.MODEL_PREDICTIONS, self._coverage
        is_there = self._report.records[topic] and topic not in coverage.torn and not self._rows.let_go
        return bool(is_there) and received_us > coverage.from_us(topic)


def _is_same(row: ModelOutput, output: ModelOutput) -> bool:
    """Tell whether an output is a row; a running mean may stand in for the answer of one that failed.

    An output says its times or none: whether it does is the application's to say.
    """
    if output.outcome is not Outcome.OK:
        return row[:3] == output[:3]
    return row == output or (not any(output.times) and row.timed(0, 0, 0) == output)


def _bytes_of(output: ModelOutput) -> bytes:
    """Return the numbers of a decoded output."""
    if output.scores is not None:
        return output.scores.data
    return np.float64(output.answer).tobytes() if isinstance(output.answer, float) else b""


def _has_scores(row: ModelOutput, output: ModelOutput) -> bool:
    """Tell whether an output has a row's scores; one that the state could not read has none."""
    if output.outcome is Outcome.FAILED and row.outcome is Outcome.OK:
        return row[:2] == output[:2]
    return row[:3] == output[:3] and (row.scores == output.scores or output.outcome is not Outcome.OK)


def _deployed(codec: Codec, records: Iterable[Record]) -> list[Model]:
    found = []
    for record in records:
        with suppress(DecodeError):
            if record.value is not None:
                found.append(codec.decode(Model, record.value))
    return found


def _curves(models: Iterable[Model]) -> dict[str, set[tuple[float, ...]]]:
    """Return how often decoded answers are right, as parity models say it, by model and version that they are of."""
    found: dict[str, set[tuple[float, ...]]] = {}
    for model in models:
        if model.parity_of:
            found.setdefault(model.parity_of, set()).add(curve_of(model))
    return found
