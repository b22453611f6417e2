"""Everything that a run writes and commits, recorded while it happens."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from load.research.seeds.plan import TOLERANCE_US, Configure
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Feedback, ModelPredictions, ModelQueries, Observations, Prediction, Query
from streams.operators.contract import Position
from streams.testing.virtual import START_US, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.research.seeds.plan import Plan
    from schemas.codec import Codec
    from schemas.records import Observation
    from streams.operators.contract import Record
    from streams.runtime.ports import TopicPartition
    from streams.testing.broker import FakeBroker
    from streams.testing.stores import SharedStore


class Answer(NamedTuple):
    """The first answer to a query, and when it was written (us, by its producer's clock)."""

    prediction: Prediction
    stamp_us: int
    position: Position


class Told(NamedTuple):
    """One record of feedback that can be read."""

    feedback: Feedback
    record: Record


class Ledger:
    """Follows every record and every commit.

    Attributes:
        asked: where each query stands first.
        answers: the first answer to each query.
        decided: the first with a decision, which is what may be learnt from: a process that stood still may give it
            after another has said that the query had expired.
        told: feedback by query.
        observed: observations by query, in order.
        log: observations by partition, with their timestamps.
        dead: causes of dead letters, by the position of what is dead; of several the first: a start may add to them.
        early: commits that passed a record without an outcome.
        again: queries that were answered once more under the same token, although nothing had gone wrong before.
        late: queries that were answered after their deadlines, although nothing had gone wrong until then.
        turned_away: queries whose predictions were committed although nothing had become of them: there was no room.
    """

    def __init__(self, plan: Plan, broker: FakeBroker, store: SharedStore, codec: Codec, tolerance_us: int) -> None:
        self.asked: dict[str, Position] = {}
        self.answers: dict[str, Answer] = {}
        self.decided: dict[str, Answer] = {}
        self.told: dict[str, list[Told]] = {}
        self.observed: dict[str, list[Observation]] = {}
        self.log: dict[int, list[tuple[int, Observation]]] = {}
        self.dead: dict[Position, str] = {}
        self.early: list[str] = []
        self.again: list[str] = []
        self.late: list[str] = []
        self.turned_away: set[str] = set()
        self._replied: dict[str, str] = {}
        self._due_us: dict[str, int] = {}
        self._undecided: set[str] = set()  # queries, one of whose answers has no decision
        self._wrong_us = START_US + int(1e6 * min((fault.at_s for fault in plan.faults), default=plan.length_s))
        self._plan = plan
        self._broker = broker
        self._store = store
        self._store_forgets = any(fault.kind == "store_forgets" for fault in plan.faults)
        self._codec = codec
        self._tolerance_us = tolerance_us
        self._applications = {each.name: each for each in plan.applications}
        self._modelled: set[tuple[str, int, str]] = set()
        self._looked: dict[tuple[str, TopicPartition], int] = {}
        broker.appended.append(self.on_record)

    def on_record(self, record: Record) -> None:
        """Note a record that was written."""
        headers = dict(record.headers)
        if record.topic.endswith(topics.dead_letters("")):
            place = headers["skysail.error.topic"], headers["skysail.error.partition"], headers["skysail.error.offset"]
            position = Position(place[0].decode(), int(place[1]), int(place[2]))
            self.dead.setdefault(position, headers["skysail.error.cause"].decode())
            return
        try:
            self._note(record)
        except DecodeError:
            return

    def on_commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Look whether everything before a commit has its outcome."""
        for place, offset in offsets.items():
            begin = self._looked.get((group, place), 0)
            for record in self._broker.readable(place, begin, offset):
                if record.position not in self.dead and not self._is_complete(record):
                    self.early.append(f"{group} committed {place[0]}-{place[1]} past {record.offset}")
            self._looked[group, place] = max(begin, offset)
            if place[0] == topics.OBSERVATIONS and not self._store_forgets:
                stored = self._store.inner.offsets.get(place[1], 0)
                if offset > stored:
                    self.early.append(f"{group} committed {place[0]}-{place[1]} up to {offset}, stored is {stored}")

    def window_us(self, application: str) -> int:
        """Return how long an application waits for feedback."""
        known = self._applications.get(application)
        return int(known.window_s * 1e6) if known else self._plan.joiner.window_us

    def default_loss(self, application: str) -> float | None:
        """Return what the end of a window costs."""
        known = self._applications.get(application)
        return known.default_loss if known else None

    def _note(self, record: Record) -> None:
        match record.topic:
            case topics.QUERIES:
                query = self._codec.decode(Query, record.value)
                if query.query_id not in self.asked:
                    self._due_us[query.query_id] = record.timestamp_us + self._patience_us(query)
                self.asked.setdefault(query.query_id, record.position)
            case topics.PREDICTIONS:
                prediction = self._codec.decode(Prediction, record.value)
                answer = Answer(prediction, record.timestamp_us, record.position)
                if prediction.query_id not in self.answers:
                    self._note_lateness(prediction.query_id)
                self.answers.setdefault(prediction.query_id, answer)
                self._note_reply(prediction)
                if prediction.decision is None:
                    self._undecided.add(prediction.query_id)
                else:
                    self.decided.setdefault(prediction.query_id, answer)
            case topics.FEEDBACK:
                feedback = self._codec.decode(Feedback, record.value)
                self.told.setdefault(feedback.query_id, []).append(Told(feedback, record))
            case topics.OBSERVATIONS:
                for seen in self._codec.decode(Observations, record.value).items:
                    self.observed.setdefault(seen.query_id, []).append(seen)
                    self.log.setdefault(record.partition, []).append((record.timestamp_us, seen))
            case topics.MODEL_PREDICTIONS:
                batch = self._codec.decode(ModelPredictions, record.value)
                self._modelled |= {(batch.model, record.partition, query_id) for query_id in batch.query_ids}

    def _patience_us(self, query: Query) -> int:
        """Return how long after it was written a query must be answered: its objective, and what messages take."""
        name = query.application
        changed = [each.application for each in self._plan.changes if isinstance(each, Configure)]
        of_it = [each for each in (*self._plan.applications, *changed) if each.name == name]
        slos_ms = [query.slo_ms or 0.0, *(each.slo_ms for each in of_it)]
        return int(max(slos_ms) * 1e3) + TOLERANCE_US

    def _note_lateness(self, query_id: str) -> None:
        """Note a query that is answered after its deadline, where selection has not ended with a model inside it."""
        plan, due_us = self._plan, self._due_us.get(query_id, self._wrong_us)
        is_calm = not plan.flipped and not (plan.faulty and plan.inside) and due_us < self._wrong_us
        if is_calm and self._now_us() > due_us:
            self.late.append(f"{query_id} was answered {(self._now_us() - due_us) / 1e6:.3f} s after its deadline")

    def _note_reply(self, prediction: Prediction) -> None:
        query_id, token = prediction.query_id, prediction.reply_token
        is_calm = not self._plan.faulty and not self._plan.flipped and self._now_us() < self._wrong_us
        if is_calm and self._replied.get(query_id) == token:
            self.again.append(query_id)
        self._replied[query_id] = token  # the last one: a copy under a token before it is another query

    def _is_complete(self, record: Record) -> bool:
        """Tell whether a record that is no dead letter has its outcome by now."""
        match record.topic:
            case topics.QUERIES:
                return self._codec.decode(Query, record.value).query_id in self.answers
            case topics.PREDICTIONS:
                return self._is_joined(record)
            case topics.FEEDBACK:
                return self.has_outcome(record)
            case topics.MODEL_PREDICTIONS | topics.SHADOWS | topics.OBSERVATIONS:
                return True
        queries = self._codec.decode(ModelQueries, record.value)
        model = record.topic.split(".")[1]
        return all((model, queries.reply_partition, query_id) in self._modelled for query_id in queries.query_ids)

    def _is_joined(self, record: Record) -> bool:
        prediction = self._codec.decode(Prediction, record.value)
        first = self.answers[prediction.query_id]
        if prediction.query_id in self.observed or first.position != record.position:
            return True
        if prediction.decision is None or self._is_expired(prediction, record.timestamp_us):
            return True
        if self._plan.is_bounded:
            self.turned_away.add(prediction.query_id)
        return self._plan.is_bounded

    def _is_expired(self, prediction: Prediction, timestamp_us: int) -> bool:
        """Tell whether a window has ended by now, with nothing to learn from that."""
        application, late_us = prediction.application, self._now_us() + self._tolerance_us
        return late_us >= timestamp_us + self.window_us(application) and (
            self.default_loss(application) is None
            # By when it was answered, not written: after a long outage that may be far apart.
            or late_us > prediction.answered_us + self._plan.joiner.memory_us
        )

    def has_outcome(self, record: Record) -> bool:
        """Tell whether feedback is joined, a copy of what came before it, or says nothing that can be learnt."""
        query_id = self._codec.decode(Feedback, record.value).query_id
        answer = self.answers.get(query_id)
        before = takewhile(lambda told: told.record.position != record.position, self.told[query_id])
        is_copy = any(told.record.value == record.value or told.record.position not in self.dead for told in before)
        is_nothing = answer is not None and (
            answer.prediction.decision is None or self._is_answered_anew(query_id, answer, record.timestamp_us)
        )
        # A joiner that has not read them itself skips feedback on predictions that were turned away.
        return query_id in self.observed or is_copy or is_nothing or query_id in self.turned_away

    def _is_answered_anew(self, query_id: str, first: Answer, told_us: int) -> bool:
        """Tell whether a query was answered once more without a decision, and was told of after its first window."""
        window_us = self.window_us(first.prediction.application)
        return query_id in self._undecided and told_us + self._tolerance_us >= first.stamp_us + window_us

    def _now_us(self) -> int:
        return VirtualClock().now_us()
