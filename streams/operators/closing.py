"""How waiting ends: with an observation, at the end of a window, or as a dead letter."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from policies.errors import LossError
from schemas import topics
from schemas.errors import DecodeError, SchemaError
from schemas.records import Feedback, Prediction
from streams.operators.contract import DeadLetter, Emit, Position, Record, Skip
from streams.operators.counters import Counters
from streams.operators.observing import default_observation, observation
from streams.operators.shadows import VersionLosses
from streams.operators.waiting import unpacked
from streams.topology import state_partition

if TYPE_CHECKING:
    from schemas.codec import Codec
    from schemas.records import Observation
    from streams.operators.applications import Configuration
    from streams.operators.contract import Effects
    from streams.operators.waiting import Waiting
    from streams.operators.windows import Windows

_new = tuple.__new__  # half the cost of a named tuple's constructor


class Closing:
    """Ends the waiting of predictions and feedback, and counts how it ended.

    Args:
        codec: of predictions, feedback and observations.
        configuration: the classes of models, and which run in several versions.
        windows: on which terms predictions wait.
        partitions: of `observations`.
        memory_us: how long the learner remembers ids.
    """

    __slots__ = (
        "_codec",
        "_configuration",
        "_counters",
        "_joined",
        "_memory_us",
        "_partitions",
        "_versions",
        "_windows",
    )

    def __init__(
        self, codec: Codec, configuration: Configuration, windows: Windows, partitions: int, memory_us: int
    ) -> None:
        self._codec = codec
        self._configuration = configuration
        self._windows = windows
        self._partitions = partitions
        self._memory_us = memory_us
        self._counters = Counters()
        self._joined: Counter[str] = Counter()  # by application
        self._versions = VersionLosses(configuration)

    def rendered(self) -> dict[str, float]:
        """Return how many were joined, expired and refused."""
        joined = {("joined_total", "application", name): count for name, count in self._joined.items()}
        return {**Counters(joined).rendered(), **self._counters.rendered(), **self._versions.rendered()}

    def join(self, told: Record, partition: Waiting, query_id: str, stored: bytes, effects: Effects) -> None:
        """Make the observation of a waiting prediction; wrong feedback leaves it waiting."""
        position, value = unpacked(stored, told.partition)
        codec, configuration = self._codec, self._configuration
        completes = (position, _new(Position, told[:3]))
        try:
            feedback = codec.decode(Feedback, told.value)
            prediction = codec.decode(Prediction, value)
            application = prediction.application
            kind = self._windows.of(application).loss
            seen = observation(prediction, feedback, kind, configuration.classes, told.timestamp_us)
            effect = self._emit(seen, completes) if seen else Skip(completes, "nothing_to_learn")
        except (LossError, DecodeError, SchemaError) as error:
            self.refuse(told, "invalid_feedback", str(error), effects)
            return
        del partition.predictions[query_id]
        partition.closed[query_id] = True
        if configuration.has_shares:
            self._versions.add(prediction, feedback, kind, partition.shadows.pop(query_id, ()))
        if seen is not None:
            self._joined[application] += 1
        effects.append(effect)

    def expire(self, number: int, partition: Waiting, query_id: str, now_us: int, effects: Effects) -> None:
        """End what ran out for this id: a window, or the memory of a closed query."""
        stored = partition.predictions.pop(query_id, None)
        partition.shadows.pop(query_id, None)
        if stored is None:
            partition.closed.pop(query_id, None)
            return
        partition.closed[query_id] = False
        position, value = unpacked(stored, number)
        try:
            effects.append(self._unjoined(partition, position, value, now_us))
        except (DecodeError, SchemaError) as error:  # seen only here: until now its first fields were enough
            self._counters["undecodable_total", "topic", topics.PREDICTIONS] += 1
            record = Record(*position, timestamp_us=0, key=None, value=value)
            effects.append(DeadLetter(record, error.cause if isinstance(error, DecodeError) else "invalid", str(error)))

    def _unjoined(self, partition: Waiting, position: Position, value: bytes, now_us: int) -> Emit | Skip:
        """Say what the end of a window teaches."""
        prediction = self._codec.decode(Prediction, value)
        window_us, _, default_loss = self._windows.of(prediction.application)
        # Late feedback is told from unknown for one more window.
        partition.wheel.add(max(prediction.answered_us + 2 * window_us, now_us + window_us), prediction.query_id)
        seen = default_observation(prediction, default_loss, prediction.answered_us + window_us)
        if prediction.decision is not None:
            self._counters["unjoined_total", "application", prediction.application] += 1
        if seen is None:
            return Skip((position,), "no_feedback")
        if prediction.answered_us + self._memory_us < now_us:
            return Skip((position,), "window_long_over")  # the learner may have applied and forgotten its feedback
        return self._emit(seen, (position,))

    def refuse(self, record: Record, cause: str, message: str, effects: Effects) -> None:
        """End feedback as a dead letter."""
        self._counters["refused_feedback_total", "cause", cause] += 1
        effects.append(DeadLetter(record, cause, message))

    def undecodable(self, record: Record, error: DecodeError, effects: Effects) -> None:
        """End what is no record as a dead letter."""
        self._counters["undecodable_total", "topic", record.topic] += 1
        effects.append(DeadLetter(record, error.cause, str(error)))

    def _emit(self, seen: Observation, completes: tuple[Position, ...]) -> Emit:
        partition, key = _route(seen.decision.state, self._partitions)
        return _new(Emit, (topics.OBSERVATIONS, partition, key, self._codec.encode(seen), completes, ()))


@lru_cache(maxsize=65_536)
def _route(state: str, partitions: int) -> tuple[int, bytes]:
    """Return partition and key of a state's observations."""
    return state_partition(state, partitions), state.encode()
