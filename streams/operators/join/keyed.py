"""Feedback that names a context and a time, and no query: it is about the last answer that the context had by then.

    prediction     ─▶ its id, by application and context: remembered for its window
    KeyedFeedback  ─▶ waits until all predictions of its time have been read ─▶ Feedback on the last one ─▶ feedback

Or it names an episode, such as a visit: then it is about all answers of that by then, and each gets the whole of it.

What is found is written to `feedback` as if the application had known the id. The joiner reads it there like any
other, and so do replay and evaluation. Which answer was the last one follows from timestamps alone, whatever was read
first; so feedback that is read again after a crash becomes the same record, and the joiner knows the duplicate.

    keyed feedback                               outcome
    on an answer that is young enough            one `Feedback`, or `MetricFeedback`, in the same partition
    on an episode                                one for each such answer
    on one of more than `MOST_OF_EPISODE`        dead letter, cause `long_episode`: none of them learns
    on none                                      skipped, counted as `no_answer`
    on an application that has no such feedback  dead letter, cause `not_keyed`
    without room to wait                         dead letter, cause `over_limit`

Only applications whose mapping says `within`, or that have episodes, are remembered. The memory is bounded in bytes:
beyond that the oldest answers are forgotten first, of all contexts, so that feedback finds the right answer or none.
"""

from __future__ import annotations

import heapq
import json
from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_texts
from schemas.records import Application, KeyedFeedback, Prediction
from schemas.told import by_id
from streams.operators.contract import DeadLetter, Emit, Skip
from streams.operators.join.buffer import feedback_bytes
from streams.operators.statistics import Counters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.codec import Codec
    from streams.operators.contract import Effects, Record
    from streams.operators.join.shared_buffer import SharedBuffer

# What an answer takes here beside its texts: a key, a place in a list, and one in the order of forgetting.
_ENTRY_BYTES: Final = 400
# A prediction may be written so much later than it is stamped.
_SETTLED_US: Final = 1_000_000
_AGAIN_US: Final = 500_000  # as often as roles tell how much is unread

MOST_OF_EPISODE: Final = 1_000  # answers: one record becomes as many, and holds up its partition so long
_EPISODE: Final = "\x1f"  # before the name of an episode, which is no context

_NO_ROOM: Final = "too much feedback waits for the predictions of its time; is `predictions` read?"
_LONG_EPISODE: Final = f"the episode has {{}} answers, more than {MOST_OF_EPISODE}: name a new one for each visit"


class _LastAnswer(NamedTuple):
    at_us: int
    query_id: str


class _WaitingFeedback(NamedTuple):
    """Feedback by when it was told, then by its place."""

    at_us: int
    offset: int
    record: Record
    told: KeyedFeedback


class KeyedAnswers:
    """The last answers of contexts in one partition, and the feedback that waits for them."""

    __slots__ = ("answers", "bytes", "order", "waiting")

    def __init__(self) -> None:
        # By application and context, or episode, by time.
        self.answers: dict[tuple[str, str], list[_LastAnswer]] = {}
        self.order: deque[tuple[int, str, str, _LastAnswer]] = deque()  # when it may be forgotten, and which
        self.waiting: list[_WaitingFeedback] = []  # a heap
        self.bytes = 0

    def put(self, application: str, context: str, answer: _LastAnswer, until_us: int) -> None:
        """Remember an answer; one that is read again is known already."""
        known = self.answers.setdefault((application, context), [])
        place = bisect_right(known, answer)
        if place and known[place - 1] == answer:
            return
        known.insert(place, answer)
        self.order.append((until_us, application, context, answer))
        self.bytes += _size(application, context, answer.query_id)

    def last(self, told: KeyedFeedback, at_us: int) -> _LastAnswer | None:
        """Return the last answer by a time, if it is not too old."""
        known = self.answers.get((told.application, told.context), ())
        place = bisect_right(known, at_us, key=_time)
        found = known[place - 1] if place else None
        return None if found is None or found.at_us < at_us - told.within_us else found

    def of_episode(self, told: KeyedFeedback, at_us: int) -> list[_LastAnswer]:
        """Return all answers of an episode by a time that are not too old."""
        known = self.answers.get((told.application, _EPISODE + told.episode), ())
        first = bisect_left(known, at_us - told.within_us, key=_time)
        return list(known[first : bisect_right(known, at_us, key=_time)])

    def forget(self) -> None:
        """Forget the answer that was read first."""
        _, application, context, answer = self.order.popleft()
        known = self.answers[application, context]
        known.remove(answer)
        if not known:
            del self.answers[application, context]
        self.bytes -= _size(application, context, answer.query_id)


class KeyedFeedbackIndex:
    """Finds the queries that keyed feedback is about; empty where no application has such feedback.

    Args:
        codec: of the deployment.
        most_bytes: that all remembered answers take at most.
        early_us: how long answers that were read late are remembered at least, if their window is not shorter.
        room: of feedback that waits, by partition.

    Attributes:
        is_used: whether any application has such feedback: only then predictions are shown to it.
    """

    def __init__(self, codec: Codec, most_bytes: int, early_us: int, room: SharedBuffer) -> None:
        self._codec = codec
        self._early_us = early_us
        self._most_bytes = most_bytes
        self._room = room
        self._windows_us: dict[str, int] = {}  # of the applications that have it
        self._with_episodes: frozenset[str] = frozenset()  # those of them that have episodes
        self._partitions: dict[int, KeyedAnswers] = {}
        self._counters = Counters()
        self._forgotten = 0
        self.is_used = False

    @property
    def remembers(self) -> bool:
        """Whether anything is remembered, or waits."""
        return bool(self._partitions)

    def follow(self, applications: Iterable[tuple[Application, int]]) -> None:
        """Take the applications, and their windows (us), as they are deployed now."""
        known = [*applications]
        self._with_episodes = frozenset(each.name for each, _ in known if each.episodes)
        keyed = [(each.name, window_us) for each, window_us in known if each.episodes or has_keyed_feedback(each)]
        self._windows_us = dict(keyed)
        self.is_used = bool(self._windows_us)

    def forget_partitions(self, numbers: Iterable[int]) -> None:
        """Drop all of partitions that are another's now."""
        for number in numbers:
            gone = self._partitions.pop(number, None)
            for waiting in () if gone is None else gone.waiting:
                self._room.give_back(number, feedback_bytes(waiting.record))

    def note(self, records: Iterable[Record], now_us: int) -> None:
        """Remember the answers to contexts, before they are joined; what is no prediction is the joiner's to refuse."""
        for record in records:
            try:
                _, application = peek_texts(record.value, 2)
                window_us = self._windows_us.get(application)
                if window_us is None:
                    continue
                prediction = self._codec.decode(Prediction, record.value)
            except DecodeError:
                continue
            until_us = max(record.timestamp_us + window_us, now_us + min(window_us, self._early_us))
            answer = _LastAnswer(record.timestamp_us, prediction.query_id)
            if prediction.context is not None:
                self._of(record.partition).put(application, prediction.context, answer, until_us)
            if prediction.episode and application in self._with_episodes:
                self._of(record.partition).put(application, _EPISODE + prediction.episode, answer, until_us)
        self._bound()

    def take(self, record: Record, told: KeyedFeedback, effects: Effects) -> None:
        """Let keyed feedback wait."""
        if told.application not in self._windows_us:
            name = f"{told.application!r:.80}"
            message = f"application {name} is not deployed with feedback by key: `within` in `feedback`, or `episodes`"
            effects.append(DeadLetter(record, "not_keyed", message))
        elif not self._room.take(record.partition, feedback_bytes(record)):
            self._counters["over_limit_total", "of", "keyed"] += 1
            effects.append(DeadLetter(record, "over_limit", _NO_ROOM))
        else:
            at_us = min(told.sent_us or record.timestamp_us, record.timestamp_us)
            heapq.heappush(self._of(record.partition).waiting, _WaitingFeedback(at_us, record.offset, record, told))

    def settle(self, read: Mapping[int, tuple[int, int]], effects: Effects) -> None:
        """Find the answers of feedback, and forget those whose windows have ended.

        Args:
            read: by partition: all predictions that were written until then have been read (us); windows that were over
                by then have ended (us).
            effects: what comes of it is added here.
        """
        for number, its in self._partitions.items():
            complete_us, ended_us = read.get(number, (0, 0))
            read_us = complete_us - _SETTLED_US
            while its.waiting and its.waiting[0].at_us <= read_us:
                waiting = heapq.heappop(its.waiting)
                self._room.give_back(number, feedback_bytes(waiting.record))
                effects += self._found(waiting, its)
            while its.order and its.order[0][0] < ended_us and not its.waiting:
                its.forget()

    def next_due(self, now_us: int) -> int | None:
        """Return when to look again; None where nothing waits."""
        return now_us + _AGAIN_US if any(its.waiting for its in self._partitions.values()) else None

    def statistics(self) -> Mapping[str, float]:
        """Return how much is remembered, found and not found; nothing where nobody uses it."""
        if not self.is_used:
            return {}
        its = self._partitions.values()
        return {
            **self._counters.rendered(),
            "keyed_answers": float(sum(len(each.order) for each in its)),
            "keyed_bytes": float(sum(each.bytes for each in its)),
            "keyed_waiting": float(sum(len(each.waiting) for each in its)),
            "keyed_forgotten_total": float(self._forgotten),
        }

    def _found(self, waiting: _WaitingFeedback, its: KeyedAnswers) -> list[Emit | Skip | DeadLetter]:
        record, told = waiting.record, waiting.told
        last = None if told.episode else its.last(told, waiting.at_us)
        found = its.of_episode(told, waiting.at_us) if told.episode else [] if last is None else [last]
        if not found:
            self._counters["keyed_total", "outcome", "no_answer"] += 1
            return [Skip((record.position,), "no_answer")]
        if len(found) > MOST_OF_EPISODE:
            self._counters["keyed_total", "outcome", "long_episode"] += 1
            return [DeadLetter(record, "long_episode", _LONG_EPISODE.format(len(found)))]
        self._counters["keyed_total", "outcome", "found"] += 1
        made = [self._about(answer, waiting) for answer in found]
        return [*[each._replace(is_part=True) for each in made[:-1]], made[-1]._replace(completes=(record.position,))]

    def _about(self, answer: _LastAnswer, waiting: _WaitingFeedback) -> Emit:
        """Return feedback on an answer, as if its id had been known."""
        record, told = waiting.record, waiting.told
        key = (told.context or told.episode).encode(errors="surrogatepass")
        made = self._codec.encode(by_id(told, answer.query_id, waiting.at_us))
        return Emit(topics.FEEDBACK, record.partition, key, made)

    def _of(self, number: int) -> KeyedAnswers:
        found = self._partitions.get(number)
        if found is None:
            found = self._partitions[number] = KeyedAnswers()
        return found

    def _bound(self) -> None:
        """Forget the oldest answers of the partition that has most, while there are too many."""
        while sum(its.bytes for its in self._partitions.values()) > self._most_bytes:
            max(self._partitions.values(), key=lambda its: its.bytes).forget()
            self._forgotten += 1


def has_keyed_feedback(application: Application) -> bool:
    """Tell whether an application has feedback by key and time."""
    try:
        told = json.loads(application.mapping).get("feedback", ()) if application.mapping else ()
    except (ValueError, AttributeError):
        return False
    return any("within" in each for each in (told if isinstance(told, list) else [told]) if isinstance(each, dict))


def _time(answer: _LastAnswer) -> int:
    return answer.at_us


def _size(*texts: str) -> int:
    return _ENTRY_BYTES + sum(map(len, texts))
