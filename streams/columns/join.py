"""The joiner over columns: common predictions and feedback in C, everything else by its kernel, in order.

run of a partition ─▶ joining.pyx ─┬─▶ rows that are joined ─▶ `EmitBatch`
                                   └─▶ records ─▶ `Joiner.take_predictions`, `take_feedback`
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from policies import registry
from policies.losses import LOSSES
from schemas import topics
from streams.columns.batches import records as records_of
from streams.columns.batches import written
from streams.columns.behind import Behind, unpacked
from streams.columns.figures import figures
from streams.columns.join_forms import ENDED_US, EXAMPLES, are_cut, join_forms, tails_of, written_labels
from streams.columns.joining import KINDS, TEACHES, Joining, Owner
from streams.operators.contract import NONE_UNREAD, Batch, EmitBatch
from streams.operators.ids import seconds
from streams.operators.join.kernel import SOURCE, Joiner, JoinerSettings
from streams.operators.join.observation import learns_from_answers
from streams.operators.join.outcomes import Match

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from streams.columns.behind import Unpack
    from streams.columns.join_forms import Example
    from streams.operators.contract import Effects, Record, Unread
    from streams.operators.join.buffer import JoinBuffer

# Columns leave later ones to the kernel.
_LATEST_US: Final = 1 << 62
_TOPICS = (topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS)


def columns_for_joiner(kernel: Joiner, codec: Codec, unpack: Unpack) -> ColumnJoiner | None:
    """Return the joiner that takes batches of predictions and feedback, too.

    Args:
        kernel: that takes what is not common; it has had no records yet.
        codec: of the deployment.
        unpack: returns the wanted records of a batch.

    Returns:
        None where the records are not what columns read and write.
    """
    is_common = are_cut(codec) and all(_is_written(codec, one) for one in EXAMPLES)
    return ColumnJoiner(kernel, codec, unpack) if is_common else None


def _is_written(codec: Codec, one: Example) -> bool:
    """Tell whether columns make of an example what the codec says."""
    columns = ColumnJoiner(Joiner(codec, JoinerSettings(1)), codec, lambda _: [])
    columns.on_partitions({0: 0})
    for topic, record in ((topics.PREDICTIONS, one.prediction), (topics.FEEDBACK, one.feedback)):
        data = written([(None, codec.encode(record))], ENDED_US // 1000)
        effects = columns.on_records([Batch(topic, 0, 0, 1, data)], ENDED_US)
    return [records_of(made.data)[0][3] for made in effects if isinstance(made, EmitBatch)] == [
        codec.encode(one.observation)
    ]


class ColumnJoiner(Behind):
    """The joiner over columns.

    Args:
        kernel: that takes what is not common.
        codec: of the deployment.
        unpack: returns the wanted records of a batch.
    """

    def __init__(self, kernel: Joiner, codec: Codec, unpack: Unpack) -> None:
        super().__init__(kernel)
        self._joiner = kernel
        self._codec = codec
        self._unpack = unpack
        settings, outcomes = kernel.settings, kernel.outcomes
        self._columns = Joining(
            join_forms(codec),
            _TOPICS,
            codec.max_bytes,
            settings.memory_us,
            self._owner,
            _teaches,
            outcomes.route,
            outcomes.count,
            outcomes.spans,
            unpack,
        )

    def on_records(self, records: Sequence[Record | Batch], now_us: int) -> Effects:
        """Take a poll's records and batches, in order."""
        effects: Effects = []
        for (topic, number), found in groupby(records, SOURCE):
            run = [*found]
            if topic == topics.PREDICTIONS:
                if self._joiner.keyed.is_used:
                    self._joiner.keyed.note(unpacked(run, self._unpack), now_us)
                partition = self._joiner.partition(number)
                if self._joiner.measured.is_used:
                    self._joiner.measured.note(partition, unpacked(run, self._unpack), now_us, effects)
                self._wait(partition, run, now_us, effects)
            elif topic == topics.FEEDBACK:
                self._join(self._joiner.partition(number), run, now_us, effects)
            else:
                self._joiner.take_run(unpacked(run, self._unpack), now_us, effects)
                self._columns.forget()
        self._joiner.note_pause(now_us)
        return effects

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """End windows; what is known of removed applications may end, too."""
        self._columns.forget()
        return super().on_timer(now_us, unread)

    def statistics(self) -> Mapping[str, float]:
        """Return the kernel's, and how many records went by columns, and how many feedbacks did not, and why."""
        known = self._joiner.configuration.applications
        return {**super().statistics(), **figures(self._columns.taken, self._columns.left, known)}

    def _wait(self, partition: JoinBuffer, run: Sequence[Record | Batch], now_us: int, effects: Effects) -> None:
        joiner = self._joiner

        def take(record: Record, begun: list[str]) -> None:
            joiner.take_predictions(partition, [record], now_us, effects, begun)

        observed_us = min(joiner.observed_us, _LATEST_US)
        begun = self._columns.wait(
            run,
            partition,
            joiner.room,
            now_us,
            joiner.observed,
            observed_us,
            joiner.settings.early_us,
            seconds(now_us),
            take,
        )
        matched = joiner.end_predictions(partition, begun, now_us)
        if any(len(early) > 1 for _, early in matched):
            joiner.outcomes.match(matched, partition, now_us, effects)
        elif matched:
            self._join(partition, [early[0] for _, early in matched], now_us, effects, was_read=True)

    def _join(
        self,
        partition: JoinBuffer,
        run: Sequence[Record | Batch],
        now_us: int,
        effects: Effects,
        *,
        was_read: bool = False,
    ) -> None:
        """Join feedback; that which was read before its predictions comes as records, and is common all the same."""
        joiner, matches, lag = self._joiner, dict[str, Match](), partition.feedback_lag

        def take(records: list[Record]) -> bool:
            position = lag.position
            joiner.take_feedback(partition, records, now_us, effects, matches)
            if was_read:
                lag.position = position
            return bool(matches)

        def take_alone(record: Record, query_id: str) -> None:
            joiner.take_other_feedback(record, query_id, partition, now_us, effects)

        finish = partial(joiner.outcomes.join, matches, partition, now_us, effects)
        is_plain = not joiner.configuration.has_shares and not partition.shadows
        self._columns.join(
            run,
            partition,
            joiner.room,
            now_us,
            seconds(now_us),
            effects,
            is_plain,
            was_read,
            joiner.observed,
            min(joiner.observed_us, _LATEST_US),
            joiner.settings.early_us,
            take,
            take_alone,
            finish,
        )

    def _owner(self, name: str, text: bytes) -> Owner:
        terms = self._joiner.terms.of(name)
        is_plain = terms.loss in LOSSES and terms.max_weight == 1.0
        kind = KINDS.get(terms.loss, 0) if is_plain else KINDS[""]
        labels = written_labels(self._joiner.terms.labels_of(name))
        teachers = frozenset([teacher.encode() for teacher in terms.teachers])
        tails = tails_of(self._codec, terms.forget_us, terms.most, terms.most_context)
        return Owner(name, text, terms.window_us, kind, terms.span or 0.0, labels, teachers, *tails)


def _teaches(policy: str, asked: int) -> int:
    """Return what observations of so many arms that were asked hold."""
    if registry.answers(policy):
        return TEACHES[""]
    return TEACHES["answers" if learns_from_answers(policy, asked) else "losses"]
