"""Select: query and policy state → which models to ask; `serving` asks them and answers.

    queries ──▶ decode ─▶ its features ─▶ its policy's state ──▶ serving ─▶ models.<m>.queries, predictions
                            │   ▲            │ never seen          ▲   ▲
                            └───┘ waits      └─▶ parked ───────────┘   └─ model-predictions

A query is complete when its prediction is acknowledged. Pending queries are read again from the committed offset. One
that is read again is decided by the same draw, asked again and answered again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from policies.assignment import QUERY
from policies.contract import has_shared_prior
from schemas import topics
from schemas.codec import MAX_TEXT, over_text
from schemas.errors import DecodeError
from schemas.inputs import MAX_CANDIDATES, MAX_FEATURES, are_candidates
from schemas.records import Query
from streams.operators.configuration import MAX_SLO_MS, Configuration, Deployed
from streams.operators.contract import BEHIND, NONE_UNREAD, DeadLetter, FetchStates, Needs, Operator, Skip, StateKey
from streams.operators.selection.admission import Admission
from streams.operators.selection.answer import EXPIRED
from streams.operators.selection.cache import PredictionCache
from streams.operators.selection.combiner import UNKNOWN
from streams.operators.selection.features.fair_queue import FairQueue
from streams.operators.selection.features.lookup import QueryFeatures
from streams.operators.selection.pending import (
    ParkedQueries,
    ParkedQuery,
    Pending,
    PersonalPending,
    Quota,
    Quotas,
)
from streams.operators.selection.serving import Serving
from streams.operators.selection.state_view import StateView, arms_of, with_aim
from streams.operators.statistics import MAX_LABELS, Counters, render
from streams.operators.times import AHEAD_US, cut, of_sender
from streams.topology import MAX_CONTEXT_BYTES, state_name, state_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Application, PolicyState
    from streams.operators.contract import Effects, Record, Unread
    from streams.operators.selection.features.lookup import FeatureWait
    from streams.operators.selection.state_view import Arms

# A client's clock may be ahead. More than this is an error, and would extend deadlines.
MAX_SKEW_US = 5_000_000
# A query whose state has never been read waits for it, for at most this share of the time that it has.
PARK_SHARE = 0.5
# A store that is silent for this long counts as down. Then a query waits for about ten round trips (0.84 ms each,
# measured).
SILENT_US, PARK_US = 1_000_000, 10_000
# Time for the way back to the client, unless the settings say otherwise. Of 20 ms, 5 ms would be a quarter.
MARGIN_US, MARGIN_PART = 5_000, 10
_TOPIC = attrgetter("topic")


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """Settings of the selection kernel.

    Attributes:
        partitions: of the topics on the circle of data.
        margin_us: how long before the deadline the answer leaves; the leg back to the client takes 1.2 ms at the median
            and 3.7 at the 99th percentile (measured, one broker). None = 5 ms, of a short objective a tenth.
        states: how many policy states are kept in the process.
        remembered: query ids kept per application and partition, to recognise duplicates.
        cache_bytes: of model outputs kept by input; 0 = every query is asked.
        admission: whether queries that a model cannot answer in time are answered with the default at once.
        places: that queries in hand may take, see `quota`: what the role may have outstanding.
        state_bytes: that the policy states may take, as far as is known; the first of both bounds holds.
        inside: topics whose models run in this process: their answers need no time for the way back.
        feature_bytes: that features which are looked up may take, estimated.
    """

    partitions: int = 4
    margin_us: int | None = None
    states: int = 100_000
    remembered: int = 20_000
    cache_bytes: int = 0
    admission: bool = False
    places: int = 50_000
    state_bytes: int = 1 << 28
    inside: frozenset[str] = frozenset()
    feature_bytes: int = 1 << 26


class Selection(Operator):
    """The kernel of the `selection` role: selection and combiner, since it knows what is pending.

    Attributes:
        configuration: that it follows.
        quotas: of applications.
        serving: answers decided queries.
        counters: of the role.
    """

    def __init__(self, codec: Codec, settings: SelectionSettings) -> None:
        self._codec = codec
        self._settings = settings
        self._margin_us = settings.margin_us
        self.counters = Counters()
        self.configuration = Configuration(codec)
        self.serving = Serving(
            codec,
            self.configuration.models,
            PredictionCache(settings.cache_bytes) if settings.cache_bytes else None,
            Admission() if settings.admission else None,
            self.counters,
            settings.inside,
            self.configuration.classes,
        )
        self._states = StateView(settings.states, settings.state_bytes)
        self._parked = ParkedQueries(settings.places)
        self._features: QueryFeatures | None = None  # once an application or a record has some
        self._turns: FairQueue | None = None  # once a query has candidates
        self._asked_us: int | None = None  # since when the store has not answered
        self.quotas = Quotas(settings.places, settings.remembered)

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take queries, worker batches and configuration."""
        effects: Effects = []
        wanted: list[StateKey] = []
        if self._turns is not None:
            self._turns.begin()
        for topic, run in groupby(records, _TOPIC):
            if topic == topics.QUERIES:
                # One partition of each model's topic a poll: fuller batches than spreading, and replicas still share
                # alike. Polls without queries do not count, or where few come replicas would be asked at random.
                self.next_turn()
                self._on_queries(run, now_us, effects, wanted)
            else:
                self._on_others(topic, run, now_us, effects, wanted)
        if self._features is not None:
            self._go_on(self._features.take_ready(), now_us, effects, wanted)
        self._flush(now_us, effects, wanted)
        return effects

    def next_turn(self) -> None:
        """Ask models in their next partitions from now on."""
        self.serving.questions.turn += 1

    def needs(self) -> Needs:
        """Return when the next answer or parked query is due, and how much is in hand."""
        return Needs(self.next_deadline())

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Answer due queries, and decide those whose features or state did not come in time."""
        effects: Effects = self.serving.on_timer(now_us)
        wanted: list[StateKey] = []
        if self._turns is not None:
            self._turns.begin()
        if self._features is not None:
            self._go_on(self._features.take_ready(now_us), now_us, effects, wanted)
        if self._turns is not None:
            self._take_turn(self._turns, now_us, effects, wanted)
        for key, waiting in self._parked.due(now_us):
            self._release(key, waiting, now_us, effects)
        self._flush(now_us, effects, wanted)
        return effects

    def next_deadline(self) -> int | None:
        """Return when the next answer, parked query or wait for features is due (us); 0 if queries wait for a turn."""
        if self._turns:
            return 0
        due = [self.serving.next_deadline(), self._parked.next_due()]
        if self._features is not None:
            due.append(self._features.next_due())
        return min([time for time in due if time is not None], default=None)

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Take policy states as they are stored; queries that waited for them are decided."""
        effects: Effects = []
        self._asked_us = None
        for key, state in states.items():
            self._states.put(key, state, now_us)
        for key in states:
            if key in self._parked:
                self._release(key, self._parked.take(key), now_us, effects)
        self.serving.flush(now_us, effects)
        return effects

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Forget pending queries of these partitions: they are read again, here from `starts` or by their new owner."""
        partitions = tuple(starts)
        self.serving.drop(partitions)
        self.quotas.drop(partitions)
        waiting = [self._parked.drop(partitions)]
        waiting += [] if self._features is None else [self._features.drop(partitions)]
        waiting += [] if self._turns is None else [self._turns.drop(partitions)]
        for query in chain(*waiting):
            query.leave()

    def statistics(self) -> Mapping[str, float]:
        """Return counters by application, status and model, gauges of pending queries, and figures of the policies."""
        return {
            **self.counters.rendered(),
            **self._described(),
            **self.serving.statistics(),
            **self.quotas.statistics(),
            **({} if self._features is None else self._features.statistics()),
            "parked": float(len(self._parked)),
            "states_cached": float(len(self._states)),
            "states_bytes": float(self._states.size),
            "states_unread": float(sum(key not in self._states for key in self._common_states())),
        }

    def _common_states(self) -> list[StateKey]:
        """Return the states that decide for applications, or where those of their contexts start."""
        found: list[StateKey] = []
        for name, deployed in self.configuration.applications.items():
            application = deployed.application
            if application.per_context and application.spread and has_shared_prior(deployed.policy):
                found += [StateKey(number, name) for number in range(self._settings.partitions)]
            elif not application.per_context or has_shared_prior(deployed.policy):
                found.append(_state_key(name, None, self._settings.partitions))
        return found

    def _described(self) -> dict[str, float]:
        """Return how often each model was asked, and each application's policy and weights of its global state."""
        found = self.serving.questions.asked()
        for name, deployed in self.configuration.applications.items():
            if len(found) > MAX_LABELS:
                break
            found[render(("deployed", "application", name, "policy", deployed.application.policy))] = 1.0
            if deployed.application.coverage:
                found[render(("coverage_promised", "application", name))] = deployed.application.coverage
            for source in deployed.application.sources:
                found[render(("looked_up", "application", name, "source", source.name))] = 1.0
            models = deployed.application.models
            key = _state_key(name, None, self._settings.partitions)
            arms = self._states.arms(key, deployed)
            for place, model in enumerate(models[:MAX_LABELS]):
                labels = ("application", name, "model", model)
                found[render(("candidate", *labels))] = 1.0
                if arms is not None:
                    found[render(("policy_weight", *labels))] = arms.weights[place] / (sum(arms.weights) or 1.0)
        return found

    def _on_others(
        self, topic: str, records: Iterable[Record], now_us: int, effects: Effects, wanted: list[StateKey]
    ) -> None:
        for record in records:
            try:
                if topic == topics.MODEL_PREDICTIONS and BEHIND in record.headers:
                    effects.append(Skip((record.position,), ""))
                elif topic == topics.MODEL_PREDICTIONS:
                    self.serving.on_outputs(record, now_us, effects)
                elif topic == topics.FEATURES:
                    self._known_features().on_record(record, now_us)
                else:
                    self.configuration.on_record(record)
            except DecodeError as error:
                effects.append(self._dead(record, error))
        if topic == topics.APPLICATIONS:  # their states are there before their first queries
            deployed = self.configuration.applications
            self.quotas.follow(deployed)
            self.serving.combiner.aim({name: its.slo_us for name, its in deployed.items()})
            wanted += [key for key in self._common_states() if key not in self._states]

    def _on_queries(self, records: Iterable[Record], now_us: int, effects: Effects, wanted: list[StateKey]) -> None:
        """Serve queries; neighbours that are decided by the same state go together."""
        decided: list[tuple[Arms, list[Pending]]] = []
        common: dict[str, Arms] = {}  # of applications with one state for all contexts
        self.quotas.set_limits()
        for record in records:
            pending = self._taken(record, now_us, effects)
            if pending is None or pending.quota is None:
                continue
            name, deployed = pending.application_name, pending.quota.deployed
            arms = common.get(name)
            if arms is None:
                arms = self.known_arms(deployed, pending.context, now_us, now_us, wanted)
                if arms is not None and not deployed.application.per_context:
                    common[name] = arms
            if arms is None:
                arms = self._park(deployed, pending, now_us, wanted)
            if arms is None:
                continue
            if not decided or arms is not decided[-1][0]:
                decided.append((arms, []))
            decided[-1][1].append(pending)
        for arms, queries in decided:
            self.serving.serve(queries, arms, now_us, effects)

    def _taken(self, record: Record, now_us: int, effects: Effects) -> Pending | None:
        """Take a query in hand, with its features; None: it is done, or waits for a turn or for features."""
        try:
            query = self._query(record)
        except DecodeError as error:
            effects.append(self._dead(record, error))
            return None
        quota = self.quotas.by_name.get(query.application)
        label = UNKNOWN if quota is None else query.application  # labels must be bounded, names need not be
        self.counters["queries_total", "application", label] += 1
        if quota is None:
            pending = _pending(query, record, None, now_us, self._margin_us)
            effects.append(self.serving.combiner.answer(pending, now_us, "unknown_application"))
            return None
        if not quota.recent.add(record.partition, query.query_id, query.reply_token):
            effects.append(Skip((record.position,), "duplicate_query"))
            return None
        pending = _pending(query, record, quota.deployed, now_us, self._margin_us)
        if (reason := _refused(query, record, pending, quota, now_us)) is not None:
            effects.append(self.serving.combiner.answer(pending, now_us, reason))
            return None
        if quota.deployed.application.assign != QUERY and not pending.drawn:
            self.counters["drawn_by_query_total", "application", query.application] += 1
        pending.quota = quota
        quota.places += pending.places
        if pending.lookups is not None and not self._has_turn(pending, quota.deployed):
            return None
        return pending if self._has_features(pending, quota.deployed, now_us) else None

    def _has_turn(self, query: Pending, deployed: Deployed, wait: FeatureWait | None = None) -> bool:
        """Tell whether this turn has room for a query with candidates; else it waits for a later one."""
        if self._turns is None:
            self._turns = FairQueue()
            self._turns.begin()
        return self._turns.admits(query, deployed, wait)

    def _known_features(self) -> QueryFeatures:
        """Return what looks features up."""
        if self._features is None:
            settings = self._settings
            self._features = QueryFeatures(self._codec, self.counters, settings.feature_bytes, settings.places)
        return self._features

    def _has_features(self, pending: Pending, deployed: Deployed, now_us: int) -> bool:
        """Tell whether all features of a query are known that its application looks up; else it waits for them."""
        return not deployed.application.sources or self._known_features().gather(pending, deployed, now_us)

    def _go_on(self, waits: Iterable[FeatureWait], now_us: int, effects: Effects, wanted: list[StateKey]) -> None:
        """Serve queries that have waited for features; some may wait for a turn or for their state now."""
        for wait in waits:
            if wait.query.candidates is None or self._has_turn(wait.query, wait.deployed, wait):
                self._completed(wait, now_us, effects, wanted)

    def _completed(self, wait: FeatureWait, now_us: int, effects: Effects, wanted: list[StateKey]) -> None:
        self._known_features().complete(wait.query, wait.deployed)
        self._decide(wait.query, wait.deployed, now_us, effects, wanted)

    def _decide(
        self, query: Pending, deployed: Deployed, now_us: int, effects: Effects, wanted: list[StateKey]
    ) -> None:
        arms = self.known_arms(deployed, query.context, query.received_us, now_us, wanted)
        if arms is None:
            arms = self._park(deployed, query, now_us, wanted)
        if arms is not None:
            self.serving.serve([query], arms, now_us, effects)

    def _take_turn(self, turns: FairQueue, now_us: int, effects: Effects, wanted: list[StateKey]) -> None:
        """Go on with queries that have waited for a turn; those that have waited too long are answered by default."""
        for job in turns.take(now_us):
            if job.until_us <= now_us:
                effects.append(self.serving.combiner.answer(job.query, now_us, "over_limit"))
            elif job.wait is not None:
                self._completed(job.wait, now_us, effects, wanted)
            elif self._has_features(job.query, job.deployed, now_us):
                self._decide(job.query, job.deployed, now_us, effects, wanted)

    def _flush(self, now_us: int, effects: Effects, wanted: Sequence[StateKey]) -> None:
        """Ask models, stores and the learners' states for what was gathered."""
        self.serving.flush(now_us, effects)
        if self._features is not None:
            self._features.flush(effects)
        self.fetch(wanted, now_us, effects)

    def fetch(self, wanted: Sequence[StateKey], now_us: int, effects: Effects) -> None:
        """Ask the store for states, if there are any."""
        if wanted:
            effects.append(FetchStates(tuple(wanted)))
            if self._asked_us is None:
                self._asked_us = now_us

    def _query(self, record: Record) -> Query:
        query = self._codec.decode(Query, record.value)
        if len(record.value or b"") > MAX_TEXT and (fault := over_text(query)):
            raise DecodeError("invalid", fault)
        if query.features and len(query.features) > MAX_FEATURES:
            raise DecodeError("invalid", f"Query: more than {MAX_FEATURES} features")
        if query.candidates is not None and not (are_candidates(query.candidates) and query.top > 0):
            message = f"Query: candidates are not 1 to {MAX_CANDIDATES} rows or ids, or top is not positive"
            raise DecodeError("invalid", message)
        return query

    def _dead(self, record: Record, error: DecodeError) -> DeadLetter:
        self.counters["undecodable_total", "topic", record.topic] += 1
        return DeadLetter(record, error.cause, str(error))

    def _park(self, deployed: Deployed, pending: Pending, now_us: int, wanted: list[StateKey]) -> Arms | None:
        """Let a query wait for its state, and return None; if there is no room, the arms that decide without one."""
        key = self._key(deployed.application, pending.context)
        if key not in self._parked:
            self._want(key, deployed, now_us, wanted)
        if self._parked.is_full:
            return self._without_state(key, deployed)
        pending.keep_input()
        self._parked.add(key, ParkedQuery(self._patience(pending, now_us), deployed, pending))
        return None

    def _key(self, application: Application, context: str | None) -> StateKey:
        """Return the state that decides a query with this context."""
        context = context if application.per_context else None
        return _state_key(application.name, context, self._settings.partitions, is_spread=application.spread)

    def known_arms(
        self, deployed: Deployed, context: str | None, received_us: int, now_us: int, wanted: list[StateKey]
    ) -> Arms | None:
        """Return the arms in the state last read, and want it again if it is stale; None: it has never been read."""
        key = self._key(deployed.application, context)
        arms = self._states.arms(key, deployed, _forgotten_us(deployed, key, received_us))
        if arms is not None and self._states.is_stale(key, now_us):
            self._want(key, deployed, now_us, wanted)
        return arms

    def _patience(self, pending: Pending, now_us: int) -> int:
        """Return until when a query waits for its state (us): for a share of its time, if the store answers."""
        until_us = now_us + int(PARK_SHARE * (pending.until_us - now_us))
        is_silent = self._asked_us is not None and now_us - self._asked_us >= SILENT_US
        return min(until_us, now_us + PARK_US) if is_silent else until_us

    def _want(self, key: StateKey, deployed: Deployed, now_us: int, wanted: list[StateKey]) -> None:
        """Ask for a state, and first for the common one, if a new context starts from that and it is stale."""
        if has_shared_prior(deployed.policy) and self._states.is_new(key, deployed.policy):
            common = StateKey(key.partition, deployed.application.name)
            if common != key and self._states.is_due(common, now_us):
                wanted.append(common)
        wanted.append(key)

    def _release(self, key: StateKey, queries: Iterable[ParkedQuery], now_us: int, effects: Effects) -> None:
        """Serve queries that waited for a state: by the initial one if it has not come."""
        for _, deployed, pending in queries:
            arms = self._states.arms(key, deployed, _forgotten_us(deployed, key, pending.received_us))
            self.serving.serve([pending], arms or self._without_state(key, deployed), now_us, effects)

    def _without_state(self, key: StateKey, deployed: Deployed) -> Arms:
        """Return the arms that decide a query whose state has not come."""
        self.counters["decided_without_state_total", "application", deployed.application.name] += 1
        arms = arms_of(deployed.policy, deployed.application.models, key.name, None, deployed.apprentice)
        return with_aim(arms, deployed.application)


def _forgotten_us(deployed: Deployed, key: StateKey, received_us: int) -> int:
    """Return since when a context must have been taught not to be forgotten; 0 for what never is.

    By when the query came, not by when its state did: its prediction tells that time to whoever checks the decision.
    """
    forget_us = deployed.forget_us
    return received_us - forget_us if forget_us and key.name != deployed.application.name else 0


def _state_key(application: str, context: str | None, partitions: int, *, is_spread: bool = False) -> StateKey:
    """Name the state that decides; names of long contexts are not kept: a client may send any number of them."""
    is_long = context is not None and len(context) > MAX_CONTEXT_BYTES
    return (_named if is_long else _known)(application, context, partitions, is_spread)


def _named(application: str, context: str | None, partitions: int, is_spread: bool) -> StateKey:
    name = state_name(application, context, is_spread=is_spread)
    return StateKey(state_partition(name, partitions), name)


_known = lru_cache(maxsize=65_536)(_named)  # one entry a context seen lately: a third of what working it out costs


def _refused(query: Query, record: Record, pending: Pending, quota: Quota, now_us: int) -> str | None:
    """Return why a query is answered at once by default: its time is over, or its application has its share."""
    is_expired = pending.until_us <= now_us
    quota.note_arrival(now_us - pending.sent_us, is_expired=is_expired)
    if not is_expired:
        return "over_limit" if quota.places >= quota.limit else None
    sent = of_sender(query, record.timestamp_us, now_us)
    pending.message = "; ".join(dict.fromkeys(filter(None, (sent, pending.message))))
    return EXPIRED


def _pending(query: Query, record: Record, deployed: Deployed | None, now_us: int, margin_us: int | None) -> Pending:
    """Make the pending entry; the deadline counts from when the client meant to send, at most `MAX_SKEW_US` ahead.

    A time that cannot be right, and an objective that is cut, are told in the answer's message.
    """
    sent_us, said = query.sent_us or record.timestamp_us, ""
    if sent_us > now_us + AHEAD_US:
        said = of_sender(query, record.timestamp_us, now_us)
        sent_us = now_us if sent_us > now_us + MAX_SKEW_US else sent_us
    slo_us = deployed.slo_us if deployed else 0
    if query.slo_ms is not None and deployed is not None:
        slo_us = int(min(max(query.slo_ms, 0.0), MAX_SLO_MS) * 1_000)
        if slo_us > deployed.longest_us:
            said = "; ".join(filter(None, (said, cut(query.slo_ms, deployed.longest_us))))
            slo_us = deployed.longest_us
    if margin_us is None:
        margin_us = min(slo_us // MARGIN_PART, MARGIN_US)
    application, deadline_us = deployed.application if deployed else None, sent_us + slo_us
    is_personal = query.episode or (application and (application.assign != QUERY or application.holdout))
    made = PersonalPending if is_personal else Pending
    pending = made(query, record, application, sent_us, now_us, deadline_us, deadline_us - margin_us)
    pending.message = said
    return pending
