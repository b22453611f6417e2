"""Select: query and policy state → which models to ask, one model query each; the combiner waits for their outputs.

    queries ────────────▶ decode ─▶ decide ─▶ models.<m>.queries
                                      │ pending
    model-predictions ─▶ combiner ◀──┘──────▶ predictions

A query is complete when its prediction is acknowledged. What is pending is rebuilt from the committed offset: a query
that is read again is decided by the same draw, asked again and answered again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from policies.contract import Situation, has_start, is_situated
from policies.draw import uniform
from schemas import topics
from schemas.codec import MAX_TEXT
from schemas.errors import DecodeError
from schemas.features import MAX_FEATURES
from schemas.records import ModelPredictions, Query
from streams.operators.admission import Admission
from streams.operators.applications import MAX_SLO_MS, Configuration, Deployed
from streams.operators.asking import Asking
from streams.operators.cache import PredictionCache
from streams.operators.combiner import UNKNOWN, Combiner, Pending, outputs_of
from streams.operators.contract import DeadLetter, FetchStates, Operator, Skip, StateKey
from streams.operators.counters import Counters, render
from streams.operators.figures import MAX_LABELS
from streams.operators.latencies import Latencies
from streams.operators.quantile import RunningQuantile
from streams.operators.recent import RecentIds
from streams.operators.views import Arms, StateView, arms_of
from streams.topology import state_name, state_partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.cache import Orphan
    from streams.operators.contract import Effects, Record

# A client's clock may be ahead; more than this is an error and would buy time that nobody has.
MAX_SKEW_US = 5_000_000
# How long a query of a never-seen context waits for its state: about ten Redis round trips (0.84 ms each, measured).
PARK_US = 10_000
# The share of the objective that the way back from a worker may claim, however slow it has been.
MAX_RETURN_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """What the selection kernel needs to know.

    Attributes:
        partitions: of the topics on the circle of data.
        model_partitions: of each model's topic.
        margin_us: how long before the deadline the answer leaves; the leg back to the client takes 1.2 ms at the median
            and 3.7 at the 99th percentile (measured, one broker).
        states: how many policy states are kept in the process.
        remembered: query ids kept per partition, to recognise duplicates.
        cache_bytes: of model outputs kept by input; 0 = every query is asked.
        admission: whether queries that a model cannot answer in time are answered with the default at once.
    """

    partitions: int = 4
    model_partitions: int = 4
    margin_us: int = 5_000
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
        self._counters = Counters()
        self._combiner = Combiner(codec, settings.margin_us, self._counters)
        self._configuration = Configuration(codec)
        self._asking = Asking(codec, self._refuse)
        self._cache = PredictionCache(settings.cache_bytes) if settings.cache_bytes else None
        self._admission = Admission() if settings.admission else None
        self._states = StateView(settings.states)
        self._parked: dict[StateKey, _Parked] = {}
        self._recent = RecentIds(settings.remembered)
        self._turn = 0
        self._asked: Counter[tuple[str, tuple[str, ...]]] = Counter()  # by application and models
        # From a worker's record timestamp to here, µs; starts at one measured leg.
        self._return_us = RunningQuantile(0.95, 2_000.0)
        self._back_us = 2_000
        self._margin_us = settings.margin_us

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take queries, worker batches and configuration."""
        effects: Effects = []
        wanted: list[StateKey] = []
        # One partition of each model's topic a poll: fuller batches than spreading, and replicas still share alike.
        self._turn = (self._turn + 1) % self._settings.model_partitions
        for record in records:
            try:
                if record.topic == topics.QUERIES:
                    self._on_query(record, now_us, effects, wanted)
                elif record.topic == topics.MODEL_PREDICTIONS:
                    self._on_outputs(record, now_us, effects)
                else:
                    self._configuration.on_record(record)
            except DecodeError as error:
                self._counters["undecodable_total", "topic", record.topic] += 1
                effects.append(DeadLetter(record, error.cause, str(error)))
        self._flush(now_us, effects)
        if wanted:
            effects.append(FetchStates(tuple(wanted)))
        return effects

    def on_timer(self, now_us: int) -> Effects:
        """Answer what is due, and decide for contexts whose state did not come in time."""
        effects: Effects = list(self._combiner.on_timer(now_us))
        for key in [key for key, parked in self._parked.items() if parked.until_us <= now_us]:
            self._counters["states_late_total",] += 1
            self._release(key, now_us, effects)
        self._flush(now_us, effects)
        return effects

    def next_deadline(self) -> int | None:
        """Return when the next answer or parked query is due (us)."""
        if self._cache is not None and self._cache.has_orphans:
            return 0
        due = self._combiner.next_deadline()
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
        self._flush(now_us, effects)
        return effects

    def on_assigned(self, starts: Mapping[int, int]) -> None:
        """Start with nothing pending; the queries follow from `starts`."""
        self.on_revoked(tuple(starts))

    def on_revoked(self, partitions: Sequence[int]) -> None:
        """Forget what is pending in these partitions: their new owner reads it again."""
        self._asking.clear()
        self._combiner.drop(partitions)
        if self._admission is not None:
            self._admission.clear()
        self._recent.drop(partitions)
        if self._cache is not None:
            self._cache.drop(partitions)
        for parked in self._parked.values():
            parked.queries = [waiting for waiting in parked.queries if waiting[1].record.partition not in partitions]

    def statistics(self) -> Mapping[str, float]:
        """Return counters by application, status and model, gauges of what is pending, and what the policies say."""
        return {
            **self._counters.rendered(),
            **self._described(),
            **self._combiner.statistics(),
            **(self._cache.statistics() if self._cache is not None else {}),
            "states_cached": float(len(self._states)),
            "return_us": self._return_us.value,
        }

    def _described(self) -> dict[str, float]:
        """Return who was asked how often, and of each application its policy and the weights of its global state."""
        asked: Counter[str] = Counter()
        for (application, models), count in self._asked.items():
            for model in models:
                asked[render(("asked_total", "application", application, "model", model))] += count
        found: dict[str, float] = {**asked}
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

    def _on_outputs(self, record: Record, now_us: int, effects: Effects) -> None:
        batch = self._codec.decode(ModelPredictions, record.value)
        if record.timestamp_us < now_us:  # an inline model's answers have no way back
            self._return_us.add(now_us - record.timestamp_us)
            self._back_us = int(self._return_us.value)
        if self._admission is not None:
            model = self._configuration.models.get(batch.model)
            is_beside = model is not None and batch.version in model.shares
            self._admission.report(batch, now_us, is_beside=is_beside)
        if self._cache is None:
            effects += self._combiner.on_outputs(record.partition, batch, outputs_of(batch), now_us)
        else:
            outputs = tuple(outputs_of(batch))
            effects += self._combiner.on_outputs(record.partition, batch, outputs, now_us)
            for query in self._cache.land(record.partition, batch, outputs):
                if len(query.outputs) == len(query.models):
                    effects.append(self._combiner.answer(query, now_us))
        effects.append(Skip((record.position,), ""))

    def _on_query(self, record: Record, now_us: int, effects: Effects, wanted: list[StateKey]) -> None:
        query = self._codec.decode(Query, record.value)
        texts = len(query.query_id) + len(query.application) + len(query.context or "") + len(query.version or "")
        if texts > MAX_TEXT:
            message = f"Query: id, application, context and version have more than {MAX_TEXT} characters"
            raise DecodeError("invalid", message)
        if query.features and len(query.features) > MAX_FEATURES:
            raise DecodeError("invalid", f"Query: more than {MAX_FEATURES} features")
        deployed = self._configuration.applications.get(query.application)
        self._counters["queries_total", "application", query.application if deployed else UNKNOWN] += 1
        if not self._recent.add(record.partition, query.query_id):
            effects.append(Skip((record.position,), "duplicate_query"))
            return
        pending = _pending(query, record, deployed, now_us)
        if deployed is None or pending.deadline_us - self._margin_us <= now_us:
            reason = "unknown_application" if deployed is None else "expired"
            effects.append(self._combiner.answer(pending, now_us, reason))
            return
        key = _state_key(
            query.application, query.context if deployed.application.per_context else None, self._settings.partitions
        )
        arms = self._states.arms(key, deployed.policy, deployed.application.models, query.application)
        if arms is not None:
            if self._states.is_stale(key, now_us):
                self._want(key, deployed, wanted)
            self._ask(pending, arms, now_us, effects)
        elif key in self._parked:
            self._parked[key].queries.append((deployed, pending))
        else:
            until_us = min(now_us + PARK_US, pending.deadline_us - self._margin_us)
            self._parked[key] = _Parked(until_us, [(deployed, pending)])
            self._want(key, deployed, wanted)

    def _want(self, key: StateKey, deployed: Deployed, wanted: list[StateKey]) -> None:
        """Have a state read; before it that of all contexts, if a new context starts from there."""
        if has_start(deployed.policy) and self._states.is_new(key):
            wanted.append(StateKey(key.partition, deployed.application.name))
        wanted.append(key)

    def _release(self, key: StateKey, now_us: int, effects: Effects) -> None:
        for deployed, pending in self._parked.pop(key).queries:
            models = deployed.application.models
            name = deployed.application.name
            arms = self._states.arms(key, deployed.policy, models, name) or arms_of(
                deployed.policy, models, key.name, None
            )
            self._ask(pending, arms, now_us, effects)

    def _ask(self, pending: Pending, arms: Arms, now_us: int, effects: Effects) -> None:
        """Draw the arms, wait for them, and ask their models."""
        if pending.features or arms.situated is not None:
            situation = self._situation(pending, arms, now_us)
            choice, pending.weights = arms.decide_in(situation, uniform(pending.query_id))
            pending.decision, models, model_topics = choice
        else:
            pending.weights = arms.votes
            pending.decision, models, model_topics = arms.decide(uniform(pending.query_id))
        deployed = self._configuration.models
        for model in models:
            if model not in deployed:
                effects.append(self._combiner.answer(pending, now_us, "unknown_model"))
                return
        pending.models = models
        self._asked[pending.application_name, models] += 1
        deadline_us = pending.deadline_us
        allowed_us = int((deadline_us - pending.sent_us) * MAX_RETURN_SHARE)
        back_us = self._back_us
        due_us = deadline_us - self._margin_us - (min(allowed_us, back_us))
        if self._admission is not None:
            admitted = self._admitted(self._admission, pending, due_us, now_us)
            if admitted is not models:
                if not admitted:
                    effects.append(self._combiner.answer(pending, now_us, "overloaded"))
                    return
                pending.models, pending.is_reduced = admitted, True
                models, model_topics = admitted, tuple(map(topics.model_queries, admitted))
        cache = self._cache
        if cache is not None and not (len(models) == 1 and cache.ask(deployed[models[0]], pending, due_us, now_us)):
            self._ask_rest(cache, pending, due_us, now_us, effects)
            return
        self._combiner.open(pending)
        if self._admission is not None:
            self._admission.ask(models, due_us, now_us)
        self._asking.add(model_topics, pending, due_us)

    def _situation(self, pending: Pending, arms: Arms, now_us: int) -> Situation:
        """Return what the arms' policy may go by; how long models take is watched from the first time it matters."""
        if not (is_situated(arms.policy) and arms.policy.uses == "latencies"):
            return Situation(pending.features)
        if self._combiner.latencies is None:
            self._combiner.latencies = Latencies()
        left_us = pending.deadline_us - self._margin_us - now_us
        return Situation(pending.features, left_us, self._combiner.latencies.expected_us(arms.names, now_us))

    def _admitted(self, admission: Admission, pending: Pending, due_us: int, now_us: int) -> tuple[str, ...]:
        """Return the models that would answer in time, or whose output the cache has or awaits; the same if all."""
        models, refused = pending.models, []
        for model in models:
            if not admission.admits(model, due_us, now_us, pending.priority) and not self._is_cached(model, pending):
                self._counters["overloaded_total", "model", model] += 1
                refused.append(model)
        return tuple(model for model in models if model not in refused) if refused else models

    def _is_cached(self, model: str, pending: Pending) -> bool:
        return self._cache is not None and self._cache.knows(self._configuration.models[model], pending)

    def _ask_rest(self, cache: PredictionCache, pending: Pending, due_us: int, now_us: int, effects: Effects) -> None:
        """Ask those of several models whose output is neither known nor awaited; answer at once if all are known.

        The only model of a query has been looked up, and need not be asked.
        """
        deployed, models = self._configuration.models, pending.models
        asked = [name for name in models if len(models) > 1 and cache.ask(deployed[name], pending, due_us, now_us)]
        if len(pending.outputs) == len(models):
            effects.append(self._combiner.answer(pending, now_us))
            return
        self._combiner.open(pending)
        if asked:
            if self._admission is not None:
                self._admission.ask(asked, due_us, now_us)
            self._asking.add(tuple(map(topics.model_queries, asked)), pending, due_us)
        pending.input = None

    def _flush(self, now_us: int, effects: Effects) -> None:
        """Ask what has been gathered, and for themselves those who waited for another's output in vain."""
        self._asking.flush(self._turn, effects)
        while self._cache is not None and (orphans := self._cache.orphans()):
            for orphan in orphans:
                self._ask_again(self._cache, orphan, now_us, effects)
            self._asking.flush(self._turn, effects)

    def _ask_again(self, cache: PredictionCache, orphan: Orphan, now_us: int, effects: Effects) -> None:
        pending = orphan.query
        model = self._configuration.models.get(orphan.model)
        if model is None or pending.answered:
            return
        pending.input = orphan.input
        if cache.ask(model, pending, orphan.due_us, now_us):
            if self._admission is not None:
                self._admission.ask((orphan.model,), orphan.due_us, now_us)
            self._asking.add((topics.model_queries(orphan.model),), pending, orphan.due_us)
        elif len(pending.outputs) == len(pending.models):
            effects.append(self._combiner.answer(pending, now_us))
        pending.input = None

    def _refuse(self, pending: Pending) -> Effects:
        """Answer a query whose input fits the query's record, but not the larger one to the model."""
        if self._cache is not None:
            self._cache.forget(pending)
        return [] if pending.answered else [self._combiner.answer(pending, pending.received_us, "invalid_input")]


# One entry a context seen lately: a third of what working it out costs.
@lru_cache(maxsize=65_536)
def _state_key(application: str, context: str | None, partitions: int) -> StateKey:
    name = state_name(application, context)
    return StateKey(state_partition(name, partitions), name)


def _pending(query: Query, record: Record, deployed: Deployed | None, now_us: int) -> Pending:
    """Make the pending entry; the deadline counts from when the client meant to send, at most `MAX_SKEW_US` ahead."""
    sent_us = query.sent_us or record.timestamp_us
    if sent_us > now_us + MAX_SKEW_US:
        sent_us = now_us
    application = deployed.application if deployed else None
    slo_us = deployed.slo_us if deployed else 0
    if query.slo_ms is not None:
        slo_us = int(min(max(query.slo_ms, 0.0), MAX_SLO_MS) * 1_000)
    # By position: names cost a quarter more.
    return Pending(
        query.query_id,
        application,
        query.application,
        query.context,
        record,
        query.input,
        sent_us,
        now_us,
        sent_us + slo_us,
        query.priority,
        query.features,
        query.version,
    )
