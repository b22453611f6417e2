"""Reads one query's story from the topics: Kafka's indexes say where, by key and time; no store but the log.

id ──▶ its time, if it tells ──▶ prediction ──▶ its times ──▶ all that lies around them
id ──▶ predictions, newest first ──┘                └─▶ observation ──▶ its state's log, folded
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from deploy.config.addresses import connection
from deploy.connect.clients import answering
from deploy.state.topics import partition_counts
from schemas import topics
from schemas.errors import DecodeError
from schemas.ids import drawn_us
from schemas.records import JoinStatus, Observations
from streams.operators.contract import Span
from streams.operators.join.kernel import JoinerSettings
from streams.runtime.kafka.log_search import KafkaSearch
from streams.story.building import story
from streams.story.gathering import Gathering
from streams.story.learning import StateFold, is_shared, teaches
from streams.story.words import moment
from streams.topology import application_of, partition_of, state_partition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import Observation, Prediction
    from streams.operators.contract import Record
    from streams.runtime.kafka.log_search import SearchResult
    from streams.runtime.ports import TopicPartition
    from streams.story.values import StateChange, Story, Told

    Progress = Callable[[str], None]
    Windows = dict[TopicPartition, tuple[int, int]]

_S: Final = 1_000_000
# Clocks of a client and of the roles may differ by so much, and records may stand out of order.
SLACK_US: Final = 2 * _S
# Around the time that an id tells, or that a person gives: a query that took long; then clocks that are wrong.
SOON_US: Final = 60 * _S
AROUND_US: Final = 900 * _S
LATE_US: Final = 30 * _S  # after the answer a late output is looked for
MOST_BYTES: Final = 256 << 20  # of each search but the one for an id without a time
WHOLE: Final = 1 << 62
# Observations that are read, and folded, without being asked to: about a second.
MOST_READ: Final = 200_000
MOST_FOLDED: Final = 50_000
FOLDED_AT_ONCE: Final = 200_000  # offsets
_CIRCLE: Final = (
    topics.QUERIES,
    topics.PREDICTIONS,
    topics.MODEL_PREDICTIONS,
    topics.SHADOWS,
    topics.FEEDBACK,
    topics.OBSERVATIONS,
)


_LETTERS: Final = "all dead letters"


class StoryWish(NamedTuple):
    """Which query, and what is known of it.

    Attributes:
        query_id: its id.
        context: its context; None = it has none, or that is not known.
        at_us: when it was asked, about; None = the id tells, or nobody.
        folds_all: whether its state is folded however long that takes.
    """

    query_id: str
    context: str | None = None
    at_us: int | None = None
    folds_all: bool = False

    @property
    def time_us(self) -> int | None:
        """When it was asked, as far as that is known."""
        return drawn_us(self.query_id) if self.at_us is None else self.at_us


async def read_story(settings: Settings, codec: Codec, asked: StoryWish, told: Progress) -> Story:
    """Return the story of a query; an empty one has notes on where it was looked for.

    Args:
        settings: of the deployment.
        codec: of its records.
        asked: which query.
        told: hears how far a long search is.

    Raises:
        Unreachable: no broker answers.
    """
    async with _searching(settings) as (search, counts):
        return await StoryReader(settings, codec, asked, search, counts, told).read()


@asynccontextmanager
async def _searching(settings: Settings) -> AsyncIterator[tuple[KafkaSearch, Mapping[str, int]]]:
    """Connect to all topics that may name a query."""
    found = partition_counts(settings)
    counts = {name: count for name, count in found.items() if _may_name(name)}
    search = KafkaSearch(connection(settings), counts)
    with answering(settings):
        await search.start()
        try:
            yield search, counts
        finally:
            await search.stop()


def _may_name(topic: str) -> bool:
    return topic in _CIRCLE or topic.endswith(topics.dead_letters("")) or topic == _asked_of(topic)


def _asked_of(topic: str) -> str:
    return topics.model_queries(topics.asked_model(topic))


class StoryReader:
    """Reads one story."""

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        asked: StoryWish,
        search: KafkaSearch,
        counts: Mapping[str, int],
        told: Progress,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._wish = asked
        self._search = search
        self._counts = counts
        self._told = told
        self._found = Gathering(codec, asked.query_id)
        self._needle = (asked.query_id.encode(),)
        self._notes: list[str] = []
        self._looked: dict[str, tuple[int, int]] = {}  # topics, and over which time (us)
        given = settings.joiner
        joiner = JoinerSettings(window_us=int(given.window_s * 1e6), early_us=int(given.early_s * 1e6))
        self._window_us, self._memory_us = joiner.window_us, joiner.memory_us

    async def read(self) -> Story:
        """Find the answer, then what lies around it, then what it taught."""
        answer = await self._answer()
        if answer is None:
            begin_us = await self._begin_us()
            if begin_us is not None:
                await self._around(begin_us, None)
            await self._dead_letters(begin_us)
            found = story(self._found, None, self._notes)
            return story(self._found, None, [*self._notes, *self._looked_in()]) if found.is_empty else found
        begin_us = min(answer.said.sent_us or answer.said.received_us, answer.said.received_us)
        await self._around(begin_us, answer)
        await self._dead_letters(begin_us)
        await self._feedback(answer.said, answer.place.partition)
        return story(self._found, await self._change(), self._notes)

    async def _answer(self) -> Told[Prediction] | None:
        at_us = self._wish.time_us
        if at_us is not None:
            for before_us, after_us in ((SLACK_US, SOON_US), (AROUND_US, AROUND_US)):
                windows = dict.fromkeys(self._places(topics.PREDICTIONS), (at_us - before_us, at_us + after_us))
                await self._look(windows, self._is_answer)
                if self._found.answers:
                    return self._found.answers[0]
            return None
        return await self._newest(topics.PREDICTIONS, self._is_answer)

    def _places(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic on the circle in which the query may be."""
        count = self._counts.get(topic, 0)
        if self._wish.context is not None and count:
            return [(topic, partition_of(self._wish.context.encode(), count))]
        return [(topic, number) for number in range(count)]

    async def _newest(self, topic: str, enough: Callable[[Record], bool]) -> Told[Prediction] | None:
        """Search a topic from its end back: first where the query is without a context."""
        places = self._places(topic)
        if len(places) > 1:
            own = (topic, partition_of(self._needle[0], len(places)))
            groups = [[own], [place for place in places if place != own]]
        else:
            groups = [places]
        for group in groups:
            what = f"{topic} {', '.join(str(number) for _, number in group)}"

            def heard(found: SearchResult, what: str = what) -> None:
                self._told(f"{what}: {found.bytes / 1e6:,.0f} MB, back to {moment(found.oldest_us or 0)}")

            await self._search.find_newest(group, self._needle, WHOLE, lambda all_: any(map(enough, all_)), heard)
            if self._found.answers:
                return self._found.answers[0]
        return None

    def _looked_in(self) -> Iterator[str]:
        """Yield where nothing was found, and what to type next."""
        by_time: dict[tuple[int, int], list[str]] = {}
        for topic, window in sorted(self._looked.items()):
            is_dead = topic.endswith(topics.dead_letters(""))
            names = by_time.setdefault(window, [])
            names += [name for name in (_LETTERS if is_dead else topic,) if name not in names]
        for (since_us, until_us), names in by_time.items():
            since = f"from {moment(since_us)} " if since_us else ""
            yield f"not {since}to {moment(until_us)} in {', '.join(names)}"
        if self._wish.time_us is None:
            yield "nor in all of predictions and queries. Is the prefix right, and the id whole?"
        elif self._wish.at_us is None:
            yield "its id tells the time of whoever drew it; `--at TIME` names another one"
        else:
            yield "`--at TIME` names another time; without it all of predictions is searched"

    def _is_answer(self, record: Record) -> bool:
        return self._found.take(record) and record.topic == topics.PREDICTIONS

    async def _look(self, windows: Windows, enough: Callable[[Record], bool] | None = None) -> list[Record]:
        """Search between times; whoever gives no `enough` takes the records."""
        there = {place: window for place, window in windows.items() if place[0] in self._counts}
        for (topic, _), (since_us, until_us) in there.items():
            before = self._looked.get(topic, (since_us, until_us))
            self._looked[topic] = min(before[0], since_us), max(before[1], until_us)
        found = await self._search.find(await self._search.spans(there), self._needle, MOST_BYTES, enough)
        if enough is None and not found.is_all:
            self._notes.append(f"{', '.join(sorted({place[0] for place in there}))}: only {MOST_BYTES >> 20} MiB read")
        return list(found.records)

    async def _begin_us(self) -> int | None:
        """Return when a query without an answer was asked; where nobody knows, its own record is looked for.

        None = it is not there.
        """
        at_us = self._wish.time_us
        if at_us is None:
            await self._newest(topics.QUERIES, self._found.take)
            times = [one.time_us for one in self._found.queries]
            self._found.queries.clear()
            at_us = min(times, default=None)
        return at_us

    async def _around(self, begin_us: int, answer: Told[Prediction] | None) -> None:
        """Read what lies around the query, but for feedback and observations."""
        self._found.answers.clear()  # read again, with those of the same id beside it
        end_us = begin_us + SOON_US if answer is None else max(answer.said.answered_us, begin_us)
        since_us, until_us = begin_us - SLACK_US, end_us + SLACK_US
        windows: Windows = {}
        for topic in (topics.QUERIES, topics.PREDICTIONS):
            windows |= dict.fromkeys(self._home(topic, answer), (since_us, until_us))
        for topic in (topics.MODEL_PREDICTIONS, topics.SHADOWS):
            windows |= dict.fromkeys(self._home(topic, answer), (since_us, end_us + LATE_US))
        for topic in self._asked_topics(answer):
            windows |= {(topic, number): (since_us, until_us) for number in range(self._counts.get(topic, 0))}
        if answer is None:
            windows |= dict.fromkeys(self._home(topics.FEEDBACK, answer), (since_us, until_us + self._window_us))
        for record in await self._look(windows):
            self._found.take(record)
        if answer is not None and not self._found.answers:
            self._found.answers.append(answer)  # its record has another time than it says

    async def _dead_letters(self, begin_us: int | None) -> None:
        """Read what refused it, or its feedback, until now; apart, since there may be a flood of them."""
        since_us = 0 if begin_us is None else begin_us - SLACK_US - self._window_us
        letters = [(topic, 0) for topic in self._counts if topic.endswith(topics.dead_letters(""))]
        for record in await self._look(dict.fromkeys(letters, (since_us, time.time_ns() // 1000 + SLACK_US))):
            self._found.take(record)

    def _home(self, topic: str, answer: Told[Prediction] | None) -> list[TopicPartition]:
        """Return the partition of the answer, which is the query's on the whole circle; without one all that may be."""
        return self._places(topic) if answer is None else [(topic, answer.place.partition)]

    def _asked_topics(self, answer: Told[Prediction] | None) -> list[str]:
        if answer is None:
            return [topic for topic in self._counts if topic == _asked_of(topic)]
        said = answer.said
        models = {output.model for output in said.outputs} | {row.model for row in said.stages}
        if said.decision is not None:
            arms = said.decision.arms
            models |= {arms[arm] for arm in said.decision.chosen if arm < len(arms)}
        return [topics.model_queries(model) for model in sorted(models)]

    async def _feedback(self, said: Prediction, partition: int) -> None:
        """Read what became of it, and the feedback that did it."""
        if said.decision is not None:
            count = self._counts.get(topics.OBSERVATIONS, 1)
            home = topics.OBSERVATIONS, state_partition(said.decision.state, count)
            until_us = said.answered_us + 2 * self._window_us + LATE_US
            await self._look({home: (said.answered_us - SLACK_US, until_us)}, self._found.take)
        window = said.received_us - SOON_US - SLACK_US, said.answered_us + self._window_us + LATE_US
        joined = [one.said for one in self._found.observations if one.said.status is JoinStatus.JOINED]
        if joined:
            window = joined[0].observed_us - LATE_US, joined[0].observed_us + LATE_US
        for record in await self._look({(topics.FEEDBACK, partition): window}):
            self._found.take(record)

    async def _change(self) -> StateChange | None:
        """Fold the state's log up to the observation, where that is soon done."""
        if not self._found.observations:
            return None
        observed = self._found.observations[0]
        _, number, offset = observed.place
        place = topics.OBSERVATIONS, number
        begin = (await self._search.bounds([place]))[place].begin
        decision = observed.said.decision
        if not self._wish.folds_all and (offset - begin > MOST_READ or decision.state_version > MOST_FOLDED):
            self._notes.append(
                f"state {decision.state} before and after is not shown: it has learnt {decision.state_version:,} times,"
                f" and {offset - begin:,} records are before this one. `--fold` folds them all"
            )
            return None
        if begin:
            self._notes.append(f"observations begin with offset {begin:,}: what the state learnt before is not in it")
        span = Span(*place, begin, offset + 1)
        # How far a lesson teaches depends on others of its application, where there is a bound.
        shared = is_shared(observed.said) or observed.said.bound is not None
        found = await self._folded(span, observed.said, shared=shared)
        if found is None and not shared:  # an earlier policy let its contexts start from all
            found = await self._folded(span, observed.said, shared=True)
        return found

    async def _folded(self, span: Span, observed: Observation, *, shared: bool) -> StateChange | None:
        """Fold what a state learnt, or all of its application did, some offsets at a time; None = not enough was."""
        name = observed.decision.state
        application = application_of(name)
        learns = StateFold(observed, self._memory_us)
        needle = (application if shared else name).encode()
        for begin in range(span.begin, span.end, FOLDED_AT_ONCE):
            part = span._replace(begin=begin, end=min(begin + FOLDED_AT_ONCE, span.end))
            found = await self._search.find([part], (needle,), WHOLE)
            for time_us, seen in _observations(self._codec, found.records):
                if not teaches(seen, name, application, is_shared=shared):
                    continue
                if not shared and name != application and is_shared(seen):
                    return None
                learns.take(seen, time_us)
            if span.end - span.begin > FOLDED_AT_ONCE:
                self._told(f"{topics.OBSERVATIONS}: {part.end - span.begin:,} of {span.end - span.begin:,} records")
        return learns.change


def _observations(codec: Codec, records: Iterable[Record]) -> Iterator[tuple[int, Observation]]:
    for record in records:
        try:
            items: Sequence[Observation] = codec.decode(Observations, record.value or b"").items
        except DecodeError:
            continue  # a dead letter of the learner
        for seen in items:
            yield record.timestamp_us, seen
