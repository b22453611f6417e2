"""Observations again: the joiner, given the prediction and the feedback that an observation names.

observation ─▶ its prediction (`predicted_us`), its feedback (`observed_us`), outputs beside ─▶ Joiner
                                                          ─▶ an observation: the same bytes, or a difference
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, groupby
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas import topics
from schemas.records import Application, JoinStatus, Observation, Observations, Outcome, Prediction
from streams.operators.contract import Emit
from streams.operators.join.kernel import Joiner
from streams.operators.join.observation import KINDS
from streams.replay.configurations import Configured
from streams.replay.report import OBSERVATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Effects, Record
    from streams.operators.join.kernel import JoinerSettings
    from streams.replay.configurations import Timeline
    from streams.replay.report import ReplayReport

# Joined in one go; the joiner ends as many windows in one call.
AT_ONCE: Final = 1_024
_SECOND_US: Final = 1_000_000
_BESIDE: Final = 6  # outputs of one query beside its answer of which all subsets are tried


class RecordedObservation(NamedTuple):
    """An observation as it was recorded, and what it was made from.

    Attributes:
        observation: that was recorded.
        partition: of the log.
        prediction: its record.
        feedback: its record; None = its window ended.
        beside: records of outputs that came after the answer, or of shadows.
        written_us: when it was written.
    """

    observation: Observation
    partition: int
    prediction: Record
    feedback: Record | None
    beside: tuple[Record, ...]
    written_us: int

    @property
    def time_us(self) -> int:
        """When it was made, about."""
        return self.observation.observed_us


class Joins:
    """Checks observations, some at a time.

    Args:
        codec: of the trace's records.
        settings: of the joiner.
        timeline: of applications and models.
        report: that is told what differs.
        side_outputs: looks up all records of outputs beside a query's answer, and whether the trace has all there were.
    """

    def __init__(
        self,
        codec: Codec,
        settings: JoinerSettings,
        timeline: Timeline,
        report: ReplayReport,
        side_outputs: Callable[[RecordedObservation], tuple[tuple[Record, ...], bool]],
    ) -> None:
        self._codec = codec
        self._side_outputs = side_outputs
        self._open: list[RecordedObservation] = []  # what does not fit yet: outputs beside the answer may still be read
        self._settings = settings
        self._timeline = timeline
        self._report = report
        self._kernel = Configured(timeline, lambda: Joiner(codec, settings))
        self._waiting: list[RecordedObservation] = []
        self._ids: set[str] = set()

    def take(self, seen: RecordedObservation) -> None:
        """Take an observation to check."""
        query_id = seen.observation.query_id
        if query_id in self._ids:
            self.flush()
        self._ids.add(query_id)
        self._waiting.append(seen)
        if len(self._waiting) >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Check what waits."""
        waiting, self._waiting = self._waiting, []
        self._ids.clear()
        key: Callable[[RecordedObservation], tuple[int, bool]] = lambda one: (  # noqa: E731
            self._timeline.at(one.time_us),
            one.feedback is None,
        )
        for (epoch, is_over), several in groupby(sorted(waiting, key=key), key=key):
            for its in self._spanned([*several]) if is_over else [[*several]]:
                made = self._made(its, epoch)
                for one in its:
                    self._judge(one, epoch, made.get(one.observation.query_id))

    def _spanned(self, ended: list[RecordedObservation]) -> Iterator[list[RecordedObservation]]:
        """Yield windows that end about together: the joiner teaches nothing of one that was over long ago."""
        ended.sort(key=lambda one: one.observation.predicted_us)
        part: list[RecordedObservation] = []
        for one in ended:
            first_us = part[0].observation.predicted_us if part else one.observation.predicted_us
            if one.observation.predicted_us - first_us > self._settings.window_us // 2:
                yield part
                part = []
            part.append(one)
        if part:
            yield part

    def again(self, until_us: float = inf) -> None:
        """Look again at what did not fit and was written by then: what it was made from has been read by now."""
        open_, self._open = self._open, []
        for one in open_:
            if one.written_us > until_us:
                self._open.append(one)
            else:
                self._judge_again(one)

    def _judge(self, one: RecordedObservation, epoch: int, made: Observation | None) -> None:
        self._report.checked[OBSERVATIONS] += 1
        if self._is_same(one, made):
            return
        if one.observation.span is not None and self._is_same(one, self._with_span(one, epoch)):
            self._report.inferred["learnt_span"] += 1
            return
        self._open.append(one)

    def _judge_again(self, one: RecordedObservation) -> None:
        """Try configurations of about then, and which outputs beside the answer may have come before the feedback."""
        report, now = self._report, self._timeline.at(one.time_us)
        found, is_whole = self._side_outputs(one)
        timeline = self._timeline
        written = timeline.at(one.written_us), *timeline.near(one.written_us)  # long after, if the joiner was away
        for epoch in dict.fromkeys((now, *timeline.near(one.time_us), *written)):
            if any(self._fits(one, beside, epoch) for beside in _subsets(found)):
                report.inferred.update(["configuration_near"] if epoch != now else [])
                return
        made = self._made([one._replace(beside=found)], now).get(one.observation.query_id)
        if not self._timeline.knows(one.observation.application, now):
            why = "configuration_missing"
        elif not is_whole and made is not None and self._lacks_side_outputs(one, made):
            why = "side_output_missing"
        else:
            report.add(OBSERVATIONS, one.observation.query_id, one.observation, made)
            return
        report.checked[OBSERVATIONS] -= 1
        report.unchecked[why] += 1

    def _fits(self, one: RecordedObservation, beside: tuple[Record, ...], epoch: int) -> bool:
        its = one._replace(beside=beside)
        if self._is_same(one, self._made([its], epoch).get(one.observation.query_id)):
            return True
        if one.observation.span is None or not self._is_same(one, self._with_span(its, epoch)):
            return False
        self._report.inferred["learnt_span"] += 1
        return True

    def _lacks_side_outputs(self, one: RecordedObservation, made: Observation) -> bool:
        """Tell whether outputs beside the answer, which are not at hand, would make the observation as it was."""
        seen = one.observation
        if not {*made.versions} <= {*seen.versions}:
            return False
        made = made._replace(versions=seen.versions)
        outputs = self._codec.decode(Prediction, one.prediction.value).outputs
        if len(outputs) > 1 and any(
            output.outcome is Outcome.MISSING for output in outputs
        ):  # a late one may have come
            made = made._replace(losses=seen.losses, answers=seen.answers, scores=seen.scores)
        return self._is_same(one, made)

    def _is_same(self, one: RecordedObservation, made: Observation | None) -> bool:
        encode = self._codec.encode
        return made is not None and (made is one.observation or encode(made) == encode(one.observation))

    def _made(self, seen: Sequence[RecordedObservation], epoch: int) -> dict[str, Observation]:
        """Return what the joiner makes of them, by query: all of different ids, all joined or all over."""
        kernel = self._kernel.at(epoch)
        partitions = sorted({one.prediction.partition for one in seen})
        kernel.on_partitions(dict.fromkeys(partitions, 0))
        first_us = min(one.prediction.timestamp_us for one in seen)
        kernel.on_records(_by_partition(one.prediction for one in seen), first_us)
        beside = {record.position: record for one in seen for record in one.beside}
        if beside:
            kernel.on_records([beside[place] for place in sorted(beside)], first_us)
        told = [one.feedback for one in seen if one.feedback is not None]
        if told:
            effects = kernel.on_records(_by_partition(told), max(record.timestamp_us for record in told))
        else:
            effects = self._ended(kernel, max(map(_end_us, seen)) + _SECOND_US)
        kernel.on_partitions(dict.fromkeys(partitions))
        return {made.query_id: made for made in self._emitted(effects)}

    def _ended(self, kernel: Joiner, now_us: int) -> Effects:
        effects: Effects = []
        while more := kernel.on_timer(now_us):
            effects += more
        return effects

    def _emitted(self, effects: Effects) -> Iterator[Observation]:
        for effect in effects:
            if effect.__class__ is Emit and effect.topic == topics.OBSERVATIONS:
                yield from self._codec.decode(Observations, effect.value).items

    def _with_span(self, one: RecordedObservation, epoch: int) -> Observation | None:
        """Join with the span that was in force, where the joiner learns it; None where the application says it."""
        record = self._timeline.application(one.observation.application, epoch)
        if record is None or record.value is None:
            return None
        application = self._codec.decode(Application, record.value)
        if application.loss not in KINDS or application.span is not None:
            return None
        kernel, spanned = self._kernel.at(epoch), replace(application, span=one.observation.span)
        kernel.on_records([record._replace(value=self._codec.encode(spanned))], record.timestamp_us)
        made = self._made([one], epoch)
        kernel.on_records([record], record.timestamp_us)
        return made.get(one.observation.query_id)


def joined_by(observation: Observation, feedback: Iterable[Record]) -> Record | None:
    """Return the feedback that an observation was joined with; None if it is not among these."""
    if observation.status is not JoinStatus.JOINED:
        return None
    return next((record for record in feedback if record.timestamp_us == observation.observed_us), None)


def _end_us(one: RecordedObservation) -> int:
    """Return when a window has ended for sure: it begins with the record, or with what stands in it."""
    observation = one.observation
    begun_us = max(one.prediction.timestamp_us, observation.predicted_us)
    return begun_us + observation.observed_us - observation.predicted_us


def _by_partition(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.partition)


def _subsets(beside: tuple[Record, ...]) -> Iterator[tuple[Record, ...]]:
    """Yield which outputs may have come before the feedback: the first ones, or any of them where there was no room."""
    for count in range(len(beside), -1, -1):
        yield beside[:count]
    for count in range(min(len(beside), _BESIDE) - 1, 0, -1):
        yield from combinations(beside[:_BESIDE], count)
