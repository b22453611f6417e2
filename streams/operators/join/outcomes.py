"""How waiting ends: with an observation, with the end of a window, or with a dead letter."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from policies.errors import LossError, UnknownLabelError
from policies.loss_rules import rule
from schemas import topics
from schemas.errors import DecodeError, SchemaError
from schemas.framing import peek_texts
from schemas.records import Feedback, Observation, Observations, Prediction
from streams.operators.contract import DeadLetter, Emit, Position, Record, Skip
from streams.operators.ids import seconds
from streams.operators.join.buffer import MAX_ID_BYTES, Ending, is_long, position_of, value_of
from streams.operators.join.observation import ErrorSpans, default_observation, observation, output_loss
from streams.operators.join.shadows import VersionLosses
from streams.operators.late_outputs import completed
from streams.operators.statistics import Counters
from streams.topology import state_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from schemas.codec import Codec
    from schemas.records import VersionLoss
    from streams.operators.configuration import Configuration
    from streams.operators.contract import Effects
    from streams.operators.join.buffer import JoinBuffer
    from streams.operators.join.terms import ApplicationTerms, JoinTerms
    from streams.operators.late_outputs import SideOutput

# Message about feedback without room: its prediction was turned away, or it came first and was turned away itself.
NO_ROOM = "its application has its share of the room for waiting predictions (joiner.waiting_mib, or joiner.large_mib)"
NO_ROOM_EARLY = "no prediction with this query id was seen yet, and there is no room to wait for it (joiner.early_mib)"
TOO_LONG = f"its query id has more than {MAX_ID_BYTES} bytes, and such do not wait: ask with shorter ones"
LATE = "the window had ended before this feedback came"
AMBIGUOUS = "its query id was asked of two applications, and feedback names ids alone: ask with an id for each"
_OTHERS = "who told it may teach application {!r:.80}, and its query was asked of {!r:.80}"
_USUAL_NAME = 128
# So many are joined together, each step for all of them: short loops stay in the processor's cache. On a shared core a
# query costs 24 us with 64, 30 with one, and 27 with 250, for which decoded records leave the cache.
TOGETHER = 64


class Match(NamedTuple):
    """Feedback for a prediction that waits."""

    query_id: str
    record: Record
    feedback: Feedback
    stored: bytes  # the prediction, as it waits


class OtherApplicationError(ValueError):
    """Feedback of who may teach another application than the one whose query it names."""


class LateError(ValueError):
    """Feedback written after the learner had forgotten its query; if joined, it could count twice."""


class _Joined(NamedTuple):
    """What comes of a match."""

    prediction: Prediction
    versions: tuple[VersionLoss, ...]
    terms: JoinTerms
    seen: Observation | None


class JoinOutcomes:
    """Ends the waiting of predictions and feedback, and counts how it ended.

    Args:
        codec: of predictions, feedback and observations.
        configuration: the classes of models, and which run in several versions.
        terms: of waiting, by application.
        partitions: of `observations`.
        memory_us: how long the learner remembers ids.

    Attributes:
        spans: of errors, that are learnt.
    """

    __slots__ = (
        "_codec",
        "_configuration",
        "_counters",
        "_joined",
        "_memory_us",
        "_partitions",
        "_terms",
        "_versions",
        "spans",
    )

    def __init__(
        self, codec: Codec, configuration: Configuration, terms: ApplicationTerms, partitions: int, memory_us: int
    ) -> None:
        self._codec = codec
        self._configuration = configuration
        self._terms = terms
        self._partitions = partitions
        self._memory_us = memory_us
        self._counters = Counters()
        self._joined: Counter[str] = Counter()  # by application
        self._versions = VersionLosses(configuration)
        self.spans = ErrorSpans()

    def rendered(self) -> dict[str, float]:
        """Return how many were joined, expired and refused."""
        joined = {("joined_total", "application", name): count for name, count in self._joined.items()}
        more = self._versions.rendered() | self.spans.rendered()
        return {**Counters(joined).rendered(), **self._counters.rendered(), **more}

    def join(self, matches: dict[str, Match], partition: JoinBuffer, now_us: int, effects: Effects) -> None:
        """Make the observations of predictions, by query, and empty `matches`; wrong feedback leaves its own waiting.

        They are at most `TOGETHER`.
        """
        if matches:
            self._join([*matches.values()], partition, now_us, effects)
            matches.clear()

    def match(
        self, matched: Sequence[tuple[str, tuple[Record, ...]]], partition: JoinBuffer, now_us: int, effects: Effects
    ) -> None:
        """Join predictions with the first of the feedback that has waited for each, and fits."""
        waiting, decode = partition.predictions, self._codec.decode
        matches: dict[str, Match] = {}
        for query_id, (first, *others) in matched:
            matches[query_id] = Match(query_id, first, decode(Feedback, first.value), waiting[query_id])
            if others or len(matches) == TOGETHER:  # others come before the next prediction's, as without waiting
                self.join(matches, partition, now_us, effects)
            for record in others:
                stored = waiting.get(query_id)
                if stored is None:
                    effects.append(Skip((record.position,), "duplicate_feedback"))
                else:
                    one = Match(query_id, record, decode(Feedback, record.value), stored)
                    self.join({query_id: one}, partition, now_us, effects)
        self.join(matches, partition, now_us, effects)

    def _join(self, matches: Sequence[Match], partition: JoinBuffer, now_us: int, effects: Effects) -> None:
        snapshot = self.spans.snapshot()
        try:
            made = [self._joined_with(one, partition, now_us) for one in matches]
            written = self._written([one.seen for one in made])
        except (LossError, LateError, OtherApplicationError, DecodeError, SchemaError) as error:
            self.spans.restore(snapshot)
            if len(matches) == 1:
                self.refuse(matches[0].record, _cause(error), str(error), effects)
                return
            middle = len(matches) // 2  # nothing was done for any of them yet
            self._join(matches[:middle], partition, now_us, effects)
            self._join(matches[middle:], partition, now_us, effects)
            return
        oldest_s = seconds(now_us)
        positions: dict[str, list[Position]] = {state: [] for state in written}
        joined: list[tuple[str, str, int]] = []
        for match, one in zip(matches, made, strict=True):
            completes = position_of(match.stored, match.record.partition), match.record.position
            application, begun_us = one.prediction.application, max(now_us, one.prediction.answered_us)
            joined.append((match.query_id, application, begun_us + one.terms.window_us))
            self._versions.add(application, one.versions, one.seen and one.seen.weight)
            if one.seen is None:
                effects.append(Skip(completes, "nothing_to_learn"))
            else:
                self._joined[application] += 1
                positions[one.seen.decision.state] += completes
        partition.join(joined, oldest_s)
        effects += [self._emitted(state, value, tuple(positions[state])) for state, value in written.items()]

    def count(self, application: str, joined: int) -> None:
        """Count joins that somebody else has made."""
        self._joined[application] += joined

    def route(self, state: str) -> tuple[int, bytes]:
        """Return partition and key of a state's observations."""
        return _route(state, self._partitions)

    def _joined_with(self, match: Match, partition: JoinBuffer, now_us: int) -> _Joined:
        """Return what a prediction and its feedback teach.

        Raises:
            LateError: the feedback was written long after the window. Only after an outage such predictions still wait,
                and earlier joins of them are forgotten.
            OtherApplicationError: the feedback may teach another application alone.
            LossError, DecodeError: the feedback does not fit, or the prediction is none.
        """
        answered, feedback = self._codec.decode(Prediction, value_of(match.stored)), match.feedback
        if feedback.application and feedback.application != answered.application:
            raise OtherApplicationError(_OTHERS.format(feedback.application, answered.application))
        if min(match.record.timestamp_us, now_us) > answered.answered_us + self._memory_us:
            raise LateError(LATE)
        beside = partition.shadows.get(match.query_id)
        prediction = completed(answered, beside)
        terms, classes = self._terms.of(prediction.application), self._configuration.classes
        span = self._span(prediction, feedback, terms) if rule(terms.loss).has_span else None
        seen = observation(prediction, feedback, terms.loss, classes, match.record.timestamp_us, span)
        if seen is not None:
            seen = self._with_terms(seen, feedback, terms, span)
        if not self._configuration.has_shares:
            return _Joined(prediction, (), terms, seen)
        return self._with_versions(answered, feedback, beside, terms, seen)

    def _with_terms(self, seen: Observation, feedback: Feedback, terms: JoinTerms, span: float | None) -> Observation:
        """Return an observation with what its application's terms make of it.

        Raises:
            UnknownLabelError: nobody was right, and the label is no class of any of the application's models.
            LossError: the weight is not one that the application takes.
        """
        self._terms.check_label(seen)
        worth, weight = rule(terms.loss).worth(span or terms.span), terms.part_of(feedback.weight)
        if worth is not None or weight is not None:
            seen = seen._replace(worth=worth, weight=weight)
        return terms.taught_by(seen, feedback.teacher)

    def _with_versions(
        self,
        prediction: Prediction,
        feedback: Feedback,
        beside: tuple[SideOutput, ...],
        terms: JoinTerms,
        seen: Observation | None,
    ) -> _Joined:
        classes, span = self._configuration.classes, seen.span if seen else terms.span
        versions = self._versions.of(
            prediction, beside, lambda output: output_loss(output, prediction, feedback, terms.loss, classes, span)
        )
        return _Joined(prediction, versions, terms, seen and seen._replace(versions=versions))

    def _span(self, prediction: Prediction, feedback: Feedback, terms: JoinTerms) -> float | None:
        """Return the error that costs 1; None if the feedback gives the loss itself."""
        if feedback.loss is not None:
            return None
        return self.spans.learn(prediction, feedback) if terms.span is None else terms.span

    def _written(self, seen: Iterable[Observation | None]) -> dict[str, bytes]:
        """Return the records to write; observations that teach one state go into one record."""
        by_state: dict[str, list[Observation]] = {}
        for one in seen:
            if one is not None:
                by_state.setdefault(one.decision.state, []).append(one)
        encode = self._codec.encode
        return {state: encode(Observations(tuple(its)) if len(its) > 1 else its[0]) for state, its in by_state.items()}

    def expire(self, partition: JoinBuffer, query_id: str, now_us: int, effects: Effects) -> None:
        """End the window of a query, unless feedback has."""
        stored, side_outputs = partition.predictions.get(query_id), partition.shadows.pop(query_id)
        if stored is None:
            return
        position, value = position_of(stored, partition.number), value_of(stored)
        application = peek_texts(value, 2)[1]
        partition.pop(query_id, application)
        try:
            effects.append(self._unjoined(partition, position, value, side_outputs, now_us))
        except (DecodeError, SchemaError) as error:  # seen only here: until now its first fields were enough
            self._counters["undecodable_total", "topic", topics.PREDICTIONS] += 1
            window_us = self._terms.of(application).window_us  # known for as long as one that could be read
            partition.ended.put(Ending.OVER, query_id, now_us + window_us, seconds(now_us))
            record = Record(*position, timestamp_us=0, key=None, value=value)
            effects.append(DeadLetter(record, error.cause if isinstance(error, DecodeError) else "invalid", str(error)))

    def _unjoined(
        self, partition: JoinBuffer, position: Position, value: bytes, side_outputs: Sequence[SideOutput], now_us: int
    ) -> Emit | Skip:
        """Return the effects of a window's end without feedback."""
        answered = self._codec.decode(Prediction, value)
        prediction = completed(answered, side_outputs)
        terms = self._terms.of(prediction.application)
        window_us, default_loss = terms.window_us, terms.default_loss
        # For one more window, late feedback is distinguished from unknown.
        until_us = max(prediction.answered_us + 2 * window_us, now_us + window_us)
        partition.ended.put(Ending.OVER, prediction.query_id, until_us, seconds(now_us))
        seen = default_observation(prediction, default_loss, prediction.answered_us + window_us)
        if seen is not None:
            worth, weight = rule(terms.loss).worth(terms.span), terms.part_of(None)
            seen = terms.taught_by(seen._replace(worth=worth, weight=weight), None)
        self._counters["unjoined_total", "application", prediction.application] += 1
        if seen is None:
            return Skip((position,), "no_feedback")
        if prediction.answered_us + self._memory_us < now_us:
            return Skip((position,), "window_long_over")  # the learner may have applied and forgotten its feedback
        if self._configuration.has_shares:
            versions = self._versions.of(answered, side_outputs, lambda _: default_loss)
            self._versions.add(prediction.application, versions, seen.weight)
            seen = seen._replace(versions=versions)
        return self._emitted(seen.decision.state, self._codec.encode(seen), (position,))

    def dropped(self, record: Record, query_id: str, partition: JoinBuffer, effects: Effects) -> bool:
        """End a prediction without a decision, and the feedback that has waited for it: there is nothing to learn.

        Returns:
            False for one with a decision.

        Raises:
            DecodeError: it is no prediction.
        """
        if self._codec.decode(Prediction, record.value).decision is not None:
            return False
        effects.append(Skip((record.position,), "no_decision"))
        effects += [Skip((early.position,), "nothing_to_learn") for early in partition.pop_early(query_id)]
        return True

    def disown(self, record: Record, query_id: str, application: str, partition: JoinBuffer, effects: Effects) -> bool:
        """End the wait of a prediction whose id another application has been asked with, too, as `record` shows.

        Nobody can tell whose the feedback is: it teaches neither.

        Returns:
            False where no other application's prediction waits.
        """
        stored = partition.predictions.get(query_id)
        if stored is None or (first := peek_texts(value_of(stored), 2)[1]) == application:
            return False
        partition.pop(query_id, first)
        effects.append(Skip((position_of(stored, partition.number), record.position), "ambiguous_id"))
        for early in partition.pop_early(query_id):
            self.refuse(early, "ambiguous_id", AMBIGUOUS, effects)
        return True

    def turn_away(
        self, record: Record, query_id: str, application: str, partition: JoinBuffer, effects: Effects
    ) -> None:
        """End a prediction for which there is no room, and the feedback that has waited for it."""
        named = application if application in self._configuration.applications else "unknown"
        self._counters["over_limit_total", "of", "predictions", "application", named] += 1
        effects.append(Skip((record.position,), "over_limit"))
        for early in partition.pop_early(query_id):
            self.refuse(early, "over_limit", NO_ROOM, effects)

    def turn_feedback_away(self, record: Record, query_id: str, effects: Effects) -> None:
        """End feedback that came before its prediction and may not wait, as a dead letter."""
        self._counters["over_limit_total", "of", "feedback", "partition", str(record.partition)] += 1
        self.refuse(record, "over_limit", TOO_LONG if is_long(query_id) else NO_ROOM_EARLY, effects)

    def refuse_unkept(self, record: Record, query_id: str, effects: Effects) -> None:
        """End feedback on a prediction that was turned away, as a dead letter."""
        self.refuse(record, "over_limit", TOO_LONG if is_long(query_id) else NO_ROOM, effects)

    def refuse(self, record: Record, cause: str, message: str, effects: Effects) -> None:
        """End feedback as a dead letter."""
        self._counters["refused_feedback_total", "cause", cause] += 1
        effects.append(DeadLetter(record, cause, message))

    def undecodable(self, record: Record, error: DecodeError, effects: Effects) -> None:
        """Write undecodable bytes as a dead letter."""
        self._counters["undecodable_total", "topic", record.topic] += 1
        effects.append(DeadLetter(record, error.cause, str(error)))

    def _emitted(self, state: str, value: bytes, completes: tuple[Position, ...]) -> Emit:
        partition, key = _route(state, self._partitions)
        return Emit(topics.OBSERVATIONS, partition, key, value, completes)


def _cause(error: Exception) -> str:
    """Return why feedback is a dead letter."""
    if isinstance(error, LateError):
        return "late"
    if isinstance(error, OtherApplicationError):
        return "other_application"
    return "unknown_label" if isinstance(error, UnknownLabelError) else "invalid_feedback"


@lru_cache(maxsize=65_536)
def _known_route(state: str, partitions: int) -> tuple[int, bytes]:
    return state_partition(state, partitions), state.encode()


def _route(state: str, partitions: int) -> tuple[int, bytes]:
    """Return partition and key of a state's observations; long names, which come from contexts, are not remembered."""
    known = _known_route if len(state) <= _USUAL_NAME else _known_route.__wrapped__
    return known(state, partitions)
