"""Queries in hand: from when they are read until they are answered.

    Pending          one query that waits for its models
    FollowUp         what is asked about it after its first question, as whoever asks keeps it
    Quota, Quotas    how much each application holds, and how much it may hold
    ParkedQueries    queries that wait for a policy state that has never been read

    held by all:  0 ──────────── half of the bound ──────────── the bound: the role reads no more
                   anybody may take more │ an application over its share is refused

So one application leaves room for the others, however much is asked of it. A refused query is answered with the default
at once, which delays nobody; to stop reading would delay everybody. If all applications hold equally much, or there is
only one, nobody is refused, and the role stops reading.
"""

from __future__ import annotations

import heapq
from itertools import count
from sys import maxsize
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from policies import assignment
from policies.draw import version
from schemas.records import DENSE, Outcome, Tensor
from streams.operators.ids import RecentIds
from streams.operators.statistics import MOST_EXPIRED, SENT_AGO, render

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from policies.contract import OwnAnswer, Read, VoteWeights
    from schemas.records import Application, Decision, Input, ModelOutput, Prediction, Query, Step
    from streams.operators.configuration import Deployed
    from streams.operators.contract import Effects, Position, Record, StateKey
    from streams.operators.selection.state_view import Arms

# A share is somewhat more than an equal part, and no less than a sixteenth of the bound: applications that are asked
# alike are never refused, by chance either, before the role stops reading.
_SURPLUS, _LEAST = 1.25, 1 / 16
# Queries of an application by which it is told that nearly all of its queries expire before they come.
_LAST = 16
_NEGLIGIBLE = 1e-6  # a mean that only halves never comes to nothing

# A query and what belongs to it take about 1 KiB (CPython 3.11): a place. More of them for what a client made larger.
PLACE_BYTES = 1_024
# Of an id of a candidate, beside what it has in its record: short ones take 58 bytes (CPython 3.11).
_ID_BYTES = 56


class Quota:
    """One application.

    Attributes:
        deployed: as it is now.
        recent: ids of its queries.
        places: that its queries in hand take.
        limit: of places; from there on its queries are refused.
        expired: share of its last queries that had expired when they came, as a running mean.
        sent_ago_us: how long before the last of these had been sent, by its sender's clock.
    """

    __slots__ = ("deployed", "expired", "limit", "places", "recent", "sent_ago_us")

    def __init__(self, deployed: Deployed, remembered: int) -> None:
        self.deployed = deployed
        self.recent = RecentIds(remembered)
        self.places = 0
        self.limit = maxsize
        self.expired, self.sent_ago_us = 0.0, 0

    def note_arrival(self, sent_ago_us: int, *, is_expired: bool) -> None:
        """Note whether a query had expired when it came."""
        if is_expired:
            self.expired += (1.0 - self.expired) / _LAST
            self.sent_ago_us = sent_ago_us
        elif self.expired:
            kept = self.expired * (1.0 - 1.0 / _LAST)
            self.expired = kept if kept > _NEGLIGIBLE else 0.0


class Quotas:
    """All applications that are deployed.

    Args:
        bound: places that all of them hold when the role stops reading.
        remembered: ids kept for each application and partition.

    Attributes:
        by_name: one for each.
    """

    __slots__ = ("_bound", "_remembered", "by_name")

    def __init__(self, bound: int, remembered: int) -> None:
        self._bound = bound
        self._remembered = remembered
        self.by_name: dict[str, Quota] = {}

    def __iter__(self) -> Iterator[Quota]:
        return iter(self.by_name.values())

    def follow(self, applications: Mapping[str, Deployed]) -> None:
        """Take the applications as they are deployed now."""
        self.by_name = {name: self._of(name, deployed) for name, deployed in applications.items()}

    def _of(self, name: str, deployed: Deployed) -> Quota:
        quota = self.by_name.get(name) or Quota(deployed, self._remembered)
        quota.deployed = deployed
        return quota

    def set_limits(self) -> None:
        """Work out how much each may hold now."""
        count = len(self.by_name)
        if count < 2:
            for quota in self:
                quota.limit = maxsize
            return
        room = self._bound // 2 - sum([quota.places for quota in self])
        share = int(self._bound * max(_SURPLUS / count, _LEAST))
        for quota in self:
            quota.limit = max(share, quota.places + room)

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the ids of these partitions."""
        for quota in self:
            quota.recent.drop(partitions)

    def statistics(self) -> dict[str, float]:
        """Return by application the places that its queries in hand take, and may take."""
        found: dict[str, float] = {}
        self.set_limits()
        for name, quota in self.by_name.items():
            label = ("application", name)
            found[render(("held", *label))] = float(quota.places)
            found[render(("held_limit", *label))] = float(min(quota.limit, self._bound))
            if quota.expired > MOST_EXPIRED:
                found[render((SENT_AGO, *label))] = float(quota.sent_ago_us)
        return found


class FollowsUp(Protocol):
    """Who goes on with queries after their first question, see `questions.Asker`."""

    def on_output(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Go on with a query whose outputs are there, or answer it."""
        ...

    def answer(self, query: Pending, now_us: int, reason: str | None) -> Prediction | None:
        """Return its answer; None = it is made of the query's outputs, as others are."""
        ...


class FollowUp:
    """What follows a query's first question: here nothing but its answer.

    Attributes:
        asker: who goes on with the query; None = nobody, it is answered when all is there that was asked for.
        right: how often what was decoded for it is right, by its confidence; empty = not known, or nothing was.
        is_part: its answer is a part of another query's.
        taken: what has been decided after the first question.
        copies: of models that were asked the same twice, which of both answers has come and was none.
        has_failed: a policy of somebody's own could not say what it asks next.
    """

    __slots__ = ("asker", "right")

    is_part = False
    has_failed = False
    taken: tuple[Step, ...] = ()
    copies: Mapping[str, set[bool]] = MappingProxyType({})

    def __init__(self, asker: FollowsUp | None = None) -> None:
        self.asker = asker
        self.right: tuple[float, ...] = ()

    @property
    def is_stepwise(self) -> bool:
        """Whether its policy may ask other models after the first."""
        return False

    def is_due(self, outputs: Mapping[str, ModelOutput]) -> bool:
        """Tell whether it goes on although not all outputs are there."""
        return False

    def waits_for_copy(self, output: ModelOutput, *, is_again: bool) -> bool:
        """Tell whether the same question to a model is still on its way, as its other answer is none."""
        return False

    def confidence(self, outputs: Mapping[int, ModelOutput], otherwise: float) -> float:
        """Return how sure the models are of the answer made of these outputs."""
        return otherwise

    def clear(self) -> None:
        """Let go of what was asked: the query is answered."""


class Lookups:
    """What was looked up for a query, and what is to be ranked for it.

    Attributes:
        candidates: rows of features; ids, until their features are known; None = it has none.
        ids: of its candidates, where they are ids.
        top: so many of them are answered.
        unknown: those of the ids of whose features some are means.
        imputed: sources of features whose means it goes by.
    """

    __slots__ = ("candidates", "ids", "imputed", "top", "unknown")

    def __init__(self, candidates: Tensor | tuple[str, ...] | None = None, top: int = 0) -> None:
        self.candidates = candidates
        self.ids = candidates if isinstance(candidates, tuple) else ()
        self.top = top
        self.imputed: tuple[str, ...] = ()
        self.unknown: tuple[str, ...] = ()


class Origin(NamedTuple):
    """Where a query came from.

    Attributes:
        completes: where it stands in its topic.
        key: of its record, and of its answer.
        headers: of both.
    """

    completes: tuple[Position, ...]
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Pending:
    """A query that waits for its models. Made for every one of them, so by hand: half of what a dataclass costs.

    The record it came in is not kept. Thousands wait, so a record would have left the processor's cache by then.

    Attributes:
        partition: that it was read from.
        origin: where it stands there, and what its answer has of it.
        application: None if it is not deployed.
        input: until the models have been asked, or the last ones that are.
        models: that were asked.
        arms: that have decided; None = they have not, or do not combine its outputs.
        weights: of the arms, for combining.
        outputs: by model.
        until_us: how long its models are waited for: until its answer must leave to be there by the deadline.
        answered: it is no longer pending.
        row_id: under which models are asked: its id, unless another query in hand has that one.
        drawn: which draw of who asks that is; empty = its own.
        is_held_out: the policy does not decide it.
        episode: that it belongs to; empty = none.
        quota: of its application, while it is in hand there.
        places: that it takes there, of `PLACE_BYTES`.
        keeps_input: its places count its input, too.
        message: for people, beside the reason in its answer.
        lookups: what was looked up for it, or is to be ranked; None = nothing.
        follow_up: what is asked after its first question; None = nothing.
    """

    __slots__ = (
        "answered",
        "application",
        "application_name",
        "arms",
        "context",
        "deadline_us",
        "decision",
        "features",
        "follow_up",
        "input",
        "keeps_input",
        "lookups",
        "message",
        "models",
        "origin",
        "outputs",
        "partition",
        "places",
        "priority",
        "query_id",
        "quota",
        "received_us",
        "reply_token",
        "row_id",
        "sent_us",
        "until_us",
        "version",
        "weights",
    )  # fmt: skip

    drawn = episode = ""
    is_held_out = False
    input: Input | None
    decision: Decision | None
    weights: Sequence[float] | VoteWeights | OwnAnswer

    def __init__(
        self,
        query: Query,
        record: Record,
        application: Application | None,
        sent_us: int,
        received_us: int,
        deadline_us: int,
        until_us: int,
    ) -> None:
        self.query_id = self.row_id = query.query_id
        self.application_name = query.application
        self.input = query.input
        self.context = query.context
        self.priority = query.priority
        self.features = query.features
        self.version = query.version
        self.reply_token = query.reply_token
        self.lookups = None if query.candidates is None else Lookups(query.candidates, query.top)
        self.partition = record.partition
        self.origin = Origin((record.position,), record.key, record.headers)
        self.application = application
        self.sent_us = sent_us
        self.received_us = received_us
        self.deadline_us = deadline_us
        self.until_us = until_us
        self.decision = None
        self.models: tuple[str, ...] = ()
        self.arms: Arms | None = None
        self.weights = ()
        self.outputs: dict[str, ModelOutput] = {}
        self.answered = False
        self.keeps_input = False
        self.quota: Quota | None = None
        self.places = self._places(record.value or b"")
        self.message = ""
        self.follow_up: FollowUp | None = None

    @property
    def is_alone(self) -> bool:
        """Whether one model was to be asked, and no other."""
        return self.decision is not None and len(self.decision.chosen) == 1

    @property
    def is_stepwise(self) -> bool:
        """Whether its policy may ask other models after the first."""
        return self.follow_up is not None and self.follow_up.is_stepwise

    @property
    def is_due(self) -> bool:
        """Whether all outputs are there that were asked for; or those asked for last, where that is enough."""
        return len(self.outputs) == len(self.models) or (
            self.follow_up is not None and self.follow_up.is_due(self.outputs)
        )

    @property
    def read(self) -> Read | None:
        """What the state answers, where it does: not in place of a version that the client has named."""
        return None if self.arms is None or self.decision is None else self.arms.read

    @property
    def candidates(self) -> Tensor | tuple[str, ...] | None:
        """What is to be ranked; None = nothing."""
        return None if self.lookups is None else self.lookups.candidates

    @property
    def ids(self) -> tuple[str, ...]:
        """Of its candidates, where they are ids."""
        return () if self.lookups is None else self.lookups.ids

    def take(self, output: ModelOutput, *, is_again: bool = False) -> bool:
        """Keep a model's output, if it is the first good one; False where it is not kept.

        Of a model that was asked twice an output that is no answer counts only when both have come.
        """
        known, follow_up = self.outputs.get(output.model), self.follow_up
        if known is not None and known.outcome is Outcome.OK:
            return False
        if follow_up is not None and follow_up.waits_for_copy(output, is_again=is_again):
            return False
        self.outputs[output.model] = output
        return True

    def asked_us(self, model: str) -> int:
        """Return when a model was asked: when the query was read, or by a later step."""
        if self.follow_up is not None and self.decision is not None:
            for step in self.follow_up.taken:
                if any(self.decision.arms[arm] == model for arm in step.arms):
                    return step.at_us
        return self.received_us

    @property
    def draw_id(self) -> str:
        """What draws its versions, and by itself its arm: its id."""
        return self.query_id

    arm_id = draw_id

    def beside(self, shares: Mapping[str, float]) -> str:
        """Return the version that it draws of those that have a share of a model; "" = the one that serves."""
        if self.is_held_out:
            return ""
        return version(self.draw_id if self.drawn else self.row_id, shares)

    def rename(self) -> None:
        """Ask its models under another id."""
        self.row_id += f"@{self.origin.completes[0].offset}"

    def _places(self, value: bytes) -> int:
        """Return how many places it takes once its models are asked: its input is not kept."""
        own = 1 if self.lookups is None else 1 + _ID_BYTES * len(self.lookups.ids) // PLACE_BYTES
        _, key, headers = self.origin
        if len(value) <= PLACE_BYTES and not headers:
            return own
        more = sum([len(name) + len(content or b"") for name, content in headers])
        return own + (len(value) - size(self.input) + len(key or b"") + more) // PLACE_BYTES

    def keep_input(self) -> None:
        """Count it for its input, too, as its models are not asked yet, or not all."""
        if self.quota is not None and not self.keeps_input:
            self.keeps_input = True
            self.grow(size(self.input))

    def grow(self, more_bytes: int) -> None:
        """Count it for what was added to it."""
        places = more_bytes // PLACE_BYTES
        self.places += places
        if self.quota is not None:
            self.quota.places += places

    def leave(self) -> None:
        """Count it no more."""
        if self.quota is not None:
            self.quota.places -= self.places
            self.quota = None


class PersonalPending(Pending):
    """A query of an application whose contexts or episodes draw, or of an episode; see `policies.assignment`."""

    __slots__ = ("_arm_id", "_draw_id", "drawn", "episode", "is_held_out")

    def __init__(
        self,
        query: Query,
        record: Record,
        application: Application | None,
        sent_us: int,
        received_us: int,
        deadline_us: int,
        until_us: int,
    ) -> None:
        super().__init__(query, record, application, sent_us, received_us, deadline_us, until_us)
        self._draw_id = self._arm_id = query.query_id
        self.drawn, self.episode, self.is_held_out = "", query.episode, False
        if application is None:
            return
        self.drawn = assignment.drawn(application, query.context, query.episode, sent_us)
        if self.drawn:
            self._draw_id = assignment.draw_id(application, query.context, query.episode, self.drawn)
            self._arm_id = query.query_id if application.per_context else self._draw_id
        self.is_held_out = assignment.is_held_out(application, query.context)

    @property
    def draw_id(self) -> str:
        """What draws its versions: its id, or who asks."""
        return self._draw_id

    @property
    def arm_id(self) -> str:
        """What draws its arm, likewise; a state of its context's own learns from draws of its own."""
        return self._arm_id

    def draws_as(self, other: Pending) -> None:
        """Draw as another query does, of which it is a part."""
        self.drawn, self._draw_id, self.is_held_out = other.drawn, other.draw_id, other.is_held_out


def size(given: Input | tuple[str | bytes, ...] | None) -> int:
    """Return how large an input, or a column of them, is."""
    if isinstance(given, DENSE):
        return len(given.data)
    return sum(map(len, given)) if isinstance(given, tuple) else len(given or b"")


class ParkedQuery(NamedTuple):
    """A query, its application, and how long it waits for its state."""

    until_us: int
    deployed: Deployed
    query: Pending


class ParkedQueries:
    """By state, in order of arrival.

    Args:
        bound: places that they may take, see `quota`.
    """

    __slots__ = ("_bound", "_due", "_places", "_serial", "_waiting")

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._places = 0
        self._waiting: dict[StateKey, list[ParkedQuery]] = {}
        self._due: list[tuple[int, int, StateKey]] = []  # a heap; some of it has been decided meanwhile
        self._serial = count()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __contains__(self, key: StateKey) -> bool:
        return key in self._waiting

    @property
    def is_full(self) -> bool:
        """Whether no other query may wait."""
        return self._places >= self._bound

    def add(self, key: StateKey, waiting: ParkedQuery) -> None:
        """Let a query wait."""
        self._places += waiting.query.places
        queue = self._waiting.setdefault(key, [])
        if not queue or queue[-1].until_us != waiting.until_us:
            heapq.heappush(self._due, (waiting.until_us, next(self._serial), key))
        queue.append(waiting)

    def take(self, key: StateKey) -> list[ParkedQuery]:
        """Remove and return all that wait for a state."""
        return self._left(self._waiting.pop(key, []))

    def due(self, now_us: int) -> Iterator[tuple[StateKey, list[ParkedQuery]]]:
        """Remove and yield queries whose wait is over, by state."""
        while self._due and self._due[0][0] <= now_us:
            key = heapq.heappop(self._due)[2]
            queue = self._waiting.pop(key, [])
            later = [waiting for waiting in queue if waiting.until_us > now_us]
            if later:
                self._waiting[key] = later
            if len(later) < len(queue):
                yield key, self._left([waiting for waiting in queue if waiting.until_us <= now_us])

    def next_due(self) -> int | None:
        """Return when the first wait is over (us)."""
        while self._due:
            until_us, _, key = self._due[0]
            if any(waiting.until_us <= until_us for waiting in self._waiting.get(key, ())):
                return until_us
            heapq.heappop(self._due)
        return None

    def drop(self, partitions: Collection[int]) -> list[Pending]:
        """Remove and return the queries of these partitions."""
        dropped: list[ParkedQuery] = []
        for key, queue in [*self._waiting.items()]:
            dropped += [waiting for waiting in queue if waiting.query.partition in partitions]
            kept = [waiting for waiting in queue if waiting.query.partition not in partitions]
            if kept:
                self._waiting[key] = kept
            else:
                del self._waiting[key]
        return [waiting.query for waiting in self._left(dropped)]

    def _left(self, gone: list[ParkedQuery]) -> list[ParkedQuery]:
        self._places -= sum([waiting.query.places for waiting in gone])
        return gone
