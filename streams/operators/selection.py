"""Select: query and policy state → which models to ask; `serving` asks them and answers.

    queries ──▶ decode ─▶ its policy's state ──▶ serving ─▶ models.<m>.queries, predictions
                               │ never seen        ▲   ▲
                               └─▶ parked ─────────┘   └─ model-predictions

A query is complete when its prediction is acknowledged. What is pending is rebuilt from the committed offset: a query
that is read again is decided by the same draw, asked again and answered again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from policies.contract import has_start
from schemas import topics
from schemas.codec import MAX_TEXT
from schemas.errors import DecodeError
from schemas.features import MAX_FEATURES
from schemas.records import ModelPredictions, Query
from streams.operators.admission import Admission
from streams.operators.applications import MAX_SLO_MS, Configuration, Deployed
from streams.operators.cache import PredictionCache
from streams.operators.combiner import UNKNOWN
from streams.operators.contract import DeadLetter, FetchStates, Operator, Skip, StateKey
from streams.operators.counters import Counters, render
from streams.operators.figures import MAX_LABELS
from streams.operators.pending import Pending
from streams.operators.recent import RecentIds
from streams.operators.serving import Serving
from streams.operators.views import StateView, arms_of
from streams.topology import state_name, state_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.contract import Effects, HandOver, Record
    from streams.operators.views import Arms

# A client's clock may be ahead; more than this is an error and would buy time that nobody has.
MAX_SKEW_US = 5_000_000
# How long a query of a never-seen context waits for its state: about ten Redis round trips (0.84 ms each, measured).
PARK_US = 10_000
# What is left for the way back to the client, where nothing else is said. Of 20 ms five would be a quarter.
_MARGIN_US, _MARGIN_PART = 5_000, 10
_TOPIC = attrgetter("topic")


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """What the selection kernel needs to know.

    Attributes:
        partitions: of the topics on the circle of data.
        model_partitions: of each model's topic.
        margin_us: how long before the deadline the answer leaves; the leg back to the client takes 1.2 ms at the median
            and 3.7 at the 99th percentile (measured, one broker). None = 5 ms, of a short objective a tenth.
        states: how many policy states are kept in the process.
        remembered: query ids kept per partition, to recognise duplicates.
        cache_bytes: of model outputs kept by input; 0 = every query is asked.
        admission: whether queries that a model cannot answer in time are answered with the default at once.
    """

    partitions: int = 4
    model_partitions: int = 4
    margin_us: int | None = None
    states: int = 100_000
    remembered: int = 20_000
    cache_bytes: int = 0
    admission: bool = False


@dataclass(slots=True)
class _Parked:
    """Queries of a context whose state is being read for the first time."""

    until_us: int
    queries: list[tuple[Deployed, Pending]]


class Selection(Operator):
    """The kernel of the `selection` role: selection and combiner, since it knows what is pending."""

    def __init__(self, codec: Codec, settings: SelectionSettings) -> None:
        self._codec = codec
        self._settings = settings
        self._margin_us = settings.margin_us
        self._counters = Counters()
        self._configuration = Configuration(codec)
        self._serving = Serving(
            codec,
            self._configuration.models,
            PredictionCache(settings.cache_bytes) if settings.cache_bytes else None,
            Admission() if settings.admission else None,
            self._counters,
        )
        self._states = StateView(settings.states)
        self._parked: dict[StateKey, _Parked] = {}
        self._recent = RecentIds(settings.remembered)
        self._turn = 0

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take queries, worker batches and configuration."""
        effects: Effects = []
        wanted: list[StateKey] = []
        # One partition of each model's topic a poll: fuller batches than spreading, and replicas still share alike.
        self._turn = (self._turn + 1) % self._settings.model_partitions
        for topic, run in groupby(records, _TOPIC):
            if topic == topics.QUERIES:
                self._on_queries(run, now_us, effects, wanted)
            else:
                self._on_others(topic, run, now_us, effects)
        self._serving.flush(self._turn, now_us, effects)
        if wanted:
            effects.append(FetchStates(tuple(wanted)))
        return effects

    def on_handed(self, handed: Sequence[HandOver], now_us: int) -> Effects:
        """Take what models in this process answered."""
        effects: Effects = []
        for _, partition, batch in handed:
            assert isinstance(batch, ModelPredictions)
            self._serving.on_batch(partition, batch, now_us, effects)
        self._serving.flush(self._turn, now_us, effects)
        return effects

    def hand_over(self, topics: frozenset[str]) -> None:
        """Hand over what is asked of the models behind these topics."""
        self._serving.hand_over(topics)

    def on_timer(self, now_us: int) -> Effects:
        """Answer what is due, and decide for contexts whose state did not come in time."""
        effects: Effects = self._serving.on_timer(now_us)
        for key in [key for key, parked in self._parked.items() if parked.until_us <= now_us]:
            self._counters["states_late_total",] += 1
            self._release(key, now_us, effects)
        self._serving.flush(self._turn, now_us, effects)
        return effects

    def next_deadline(self) -> int | None:
        """Return when the next answer or parked query is due (us)."""
        due = self._serving.next_deadline()
        parked = min((waiting.until_us for waiting in self._parked.values()), default=None)
        return min((time for time in (due, parked) if time is not None), default=None)

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Take policy states as they are stored; queries that waited for them are decided."""
        effects: Effects = []
        for key, state in states.items():
            self._states.put(key, state, now_us)
        for key in states:
            if key in self._parked:
                self._release(key, now_us, effects)
        self._serving.flush(self._turn, now_us, effects)
        return effects

    def on_assigned(self, starts: Mapping[int, int]) -> None:
        """Start with nothing pending; the queries follow from `starts`."""
        self.on_revoked(tuple(starts))

    def on_revoked(self, partitions: Sequence[int]) -> None:
        """Forget what is pending in these partitions: their new owner reads it again."""
        self._serving.drop(partitions)
        self._recent.drop(partitions)
        for parked in self._parked.values():
            parked.queries = [waiting for waiting in parked.queries if waiting[1].partition not in partitions]

    def statistics(self) -> Mapping[str, float]:
        """Return counters by application, status and model, gauges of what is pending, and what the policies say."""
        return {
            **self._counters.rendered(),
            **self._described(),
            **self._serving.statistics(),
            "states_cached": float(len(self._states)),
        }

    def _described(self) -> dict[str, float]:
        """Return who was asked how often, and of each application its policy and the weights of its global state."""
        found = self._serving.asked()
        for name, deployed in self._configuration.applications.items():
            if len(found) > MAX_LABELS:
                break
            found[render(("deployed", "application", name, "policy", deployed.application.policy))] = 1.0
            models = deployed.application.models
            key = _state_key(name, None, self._settings.partitions)
            arms = self._states.arms(key, deployed.policy, models, name)
            for place, model in enumerate(models[:MAX_LABELS]):
                labels = ("application", name, "model", model)
                found[render(("candidate", *labels))] = 1.0
                if arms is not None:
                    found[render(("policy_weight", *labels))] = arms.weights[place] / (sum(arms.weights) or 1.0)
        return found

    def _on_others(self, topic: str, records: Iterable[Record], now_us: int, effects: Effects) -> None:
        for record in records:
            try:
                if topic == topics.MODEL_PREDICTIONS:
                    self._serving.on_outputs(record, now_us, effects)
                else:
                    self._configuration.on_record(record)
            except DecodeError as error:
                effects.append(self._dead(record, error))

    def _on_queries(self, records: Iterable[Record], now_us: int, effects: Effects, wanted: list[StateKey]) -> None:
        """Have queries served; those that follow each other and are decided by the same state, at once."""
        common: dict[str, Arms] = {}  # of applications with one state for all contexts: looked up once
        counts: Counter[str] = Counter()
        decided: list[tuple[Arms, list[Pending]]] = []
        arms: Arms | None = None
        configured, is_new, margin_us = self._configuration.applications.get, self._recent.add, self._margin_us
        for record in records:
            try:
                query = self._query(record)
            except DecodeError as error:
                effects.append(self._dead(record, error))
                continue
            deployed = configured(query.application)
            counts[query.application if deployed else UNKNOWN] += 1
            if not is_new(record.partition, query.query_id):
                effects.append(Skip((record.position,), "duplicate_query"))
                continue
            pending = _pending(query, record, deployed, now_us, margin_us)
            if deployed is None or pending.until_us <= now_us:
                reason = "unknown_application" if deployed is None else "expired"
                effects.append(self._serving.combiner.answer(pending, now_us, reason))
                continue
            its = common.get(query.application) or self._arms(deployed, pending, now_us, common, wanted)
            if its is None:
                continue
            if its is not arms:
                arms = its
                decided.append((arms, []))
            decided[-1][1].append(pending)
        for arms, queries in decided:
            self._serving.ask(queries, arms, now_us, effects)
        for name, count in counts.items():
            self._counters["queries_total", "application", name] += count

    def _query(self, record: Record) -> Query:
        query = self._codec.decode(Query, record.value)
        if len(record.value or b"") > MAX_TEXT:
            texts = (query.query_id, query.application, query.context, query.version, query.reply_token)
            if sum(len(text.encode()) for text in texts if text) > MAX_TEXT:
                message = f"Query: id, application, context, version and token have more than {MAX_TEXT} bytes"
                raise DecodeError("invalid", message)
        if query.features and len(query.features) > MAX_FEATURES:
            raise DecodeError("invalid", f"Query: more than {MAX_FEATURES} features")
        return query

    def _dead(self, record: Record, error: DecodeError) -> DeadLetter:
        self._counters["undecodable_total", "topic", record.topic] += 1
        return DeadLetter(record, error.cause, str(error))

    def _arms(
        self, deployed: Deployed, pending: Pending, now_us: int, common: dict[str, Arms], wanted: list[StateKey]
    ) -> Arms | None:
        """Return what decides a query, noted in `common` if it decides all; None: it waits for that to be read."""
        application = deployed.application
        context = pending.context if application.per_context else None
        key = _state_key(application.name, context, self._settings.partitions)
        arms = self._states.arms(key, deployed.policy, application.models, application.name)
        if arms is not None:
            if self._states.is_stale(key, now_us):
                self._want(key, deployed, now_us, wanted)
            if not application.per_context:
                common[application.name] = arms
        elif key in self._parked:
            self._parked[key].queries.append((deployed, pending))
        else:
            until_us = min(now_us + PARK_US, pending.until_us)
            self._parked[key] = _Parked(until_us, [(deployed, pending)])
            self._want(key, deployed, now_us, wanted)
        return arms

    def _want(self, key: StateKey, deployed: Deployed, now_us: int, wanted: list[StateKey]) -> None:
        """Have a state read; before it that of all contexts, if a new context starts from there and it is not fresh."""
        if has_start(deployed.policy) and self._states.is_new(key):
            common = StateKey(key.partition, deployed.application.name)
            if common != key and self._states.is_due(common, now_us):
                wanted.append(common)
        wanted.append(key)

    def _release(self, key: StateKey, now_us: int, effects: Effects) -> None:
        for deployed, pending in self._parked.pop(key).queries:
            models = deployed.application.models
            name = deployed.application.name
            arms = self._states.arms(key, deployed.policy, models, name) or arms_of(
                deployed.policy, models, key.name, None
            )
            self._serving.ask([pending], arms, now_us, effects)


# One entry a context seen lately: a third of what working it out costs.
@lru_cache(maxsize=65_536)
def _state_key(application: str, context: str | None, partitions: int) -> StateKey:
    name = state_name(application, context)
    return StateKey(state_partition(name, partitions), name)


def _pending(query: Query, record: Record, deployed: Deployed | None, now_us: int, margin_us: int | None) -> Pending:
    """Make the pending entry; the deadline counts from when the client meant to send, at most `MAX_SKEW_US` ahead."""
    sent_us = query.sent_us or record.timestamp_us
    if sent_us > now_us + MAX_SKEW_US:
        sent_us = now_us
    slo_us = deployed.slo_us if deployed else 0
    if query.slo_ms is not None:
        slo_us = int(min(max(query.slo_ms, 0.0), MAX_SLO_MS) * 1_000)
    if margin_us is None:
        margin_us = min(slo_us // _MARGIN_PART, _MARGIN_US)
    application, deadline_us = deployed.application if deployed else None, sent_us + slo_us
    return Pending(query, record, application, sent_us, now_us, deadline_us, deadline_us - margin_us)
