"""Serve: a decided query → the models that can answer it in time → its answer.

    decided ─▶ admission ─▶ cache ─▶ combiner waits ─▶ dispatch ─▶ models.<m>.queries
                   │ overloaded │ known      ▲
                   └────────────┴──▶ answer ◀┴─ on_outputs ◀─ model-predictions

Admission and the cache are optional; the settings turn them on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from policies.contract import Situation, is_contextual
from policies.draw import uniform
from schemas import topics
from schemas.records import ModelPredictions, outputs_of
from streams.operators.contract import Skip
from streams.operators.selection.combiner import Combiner
from streams.operators.selection.dispatch import Dispatcher, named
from streams.operators.selection.latencies import Latencies, RunningQuantile
from streams.operators.statistics import Counters, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Decision, Model
    from streams.operators.contract import Effects, Record
    from streams.operators.selection.admission import Admission
    from streams.operators.selection.cache import Orphan, PredictionCache
    from streams.operators.selection.dispatch import Row
    from streams.operators.selection.pending import Pending
    from streams.operators.selection.state_view import ArmChoice, Arms

# The largest share of the objective for the way back from a worker, however slow that has been.
MAX_RETURN_SHARE = 0.25


class Serving:
    """Answers decided queries.

    Attributes:
        combiner: holds those that wait, and answers.
    """

    def __init__(
        self,
        codec: Codec,
        models: Mapping[str, Model],
        cache: PredictionCache | None,
        admission: Admission | None,
        counters: Counters,
        inside: frozenset[str] = frozenset(),
    ) -> None:
        """Start with nothing pending.

        Args:
            codec: of all records.
            models: that are deployed, by name, as they change.
            cache: of outputs by input; None = every query is asked.
            admission: refuses queries that a model cannot answer in time; None = every query is asked.
            counters: of the role.
            inside: topics whose models run in this process.
        """
        self.combiner = Combiner(codec, counters)
        self._codec = codec
        self._models = models
        self._cache = cache
        self._admission = admission
        self._counters = counters
        self._inside = inside
        self._dispatcher = Dispatcher(codec, models, self._refuse, inside)
        self._asked: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)  # models by application
        # From a worker's record timestamp to here (us); starts at one measured leg.
        self._slow_return_us, self._return_us = RunningQuantile(0.95, 2_000.0), RunningQuantile(0.5, 2_000.0)
        self._back_us = self._usual_us = 2_000

    def serve(self, queries: Sequence[Pending], arms: Arms, now_us: int, effects: Effects) -> None:
        """Answer the queries with candidates, for which no model is asked; ask the models about the others."""
        if any(query.candidates is not None for query in queries):
            effects += [self.combiner.rank(query, arms, now_us) for query in queries if query.candidates is not None]
            queries = [query for query in queries if query.candidates is None]
        if queries:
            self.ask(queries, arms, now_us, effects)

    def ask(self, queries: Sequence[Pending], arms: Arms, now_us: int, effects: Effects) -> None:
        """Draw the arms of queries, which `arms` decide all; wait for these, and ask their models."""
        drawn = self._asked[queries[0].application_name]
        only = arms.choices[0] if len(arms.choices) == 1 else None  # nothing to draw
        in_situation, is_plain = arms.propensities_in is not None, self._cache is None and self._admission is None
        asked: dict[tuple[str, ...], list[Row]] = {}
        opened: list[Pending] = []
        slack_us = return_budget_us = -1
        inside = self._inside  # their answers need no way back
        for query in queries:
            query.weights, query.read = arms.votes, arms.read
            choice: tuple[Decision | None, tuple[str, ...], tuple[str, ...]]
            if query.features or in_situation or query.version is not None:
                choice = self._singled_out(query, arms, now_us)
            else:
                choice = only or arms.decide(uniform(query.query_id))
            left: tuple[str, ...] | None
            query.decision, query.models, left = choice
            if (query.features or left not in asked) and (reason := self._impossible(query, arms)) is not None:
                effects.append(self.combiner.answer(query, now_us, reason))
                continue
            if query.deadline_us - query.sent_us != slack_us:  # as a rule that of the query before
                slack_us = query.deadline_us - query.sent_us
                return_budget_us = min(int(slack_us * MAX_RETURN_SHARE), self._back_us)
            due_us = query.until_us - (0 if inside and inside.issuperset(left) else return_budget_us)
            if not is_plain:
                self._name(query)
                left = self._left(query, left, due_us, now_us, effects)
            drawn[query.models] += 1
            if left is None:
                continue
            opened.append(query)
            given, query.input = query.input, None
            if left:
                assert given is not None
                asked.setdefault(left, []).append((query, due_us, given))
        if return_budget_us >= 0:
            self._dispatcher.spare_us = max(0, return_budget_us - self._usual_us)
        self.combiner.open(opened)
        application = queries[0].application
        versions = {} if application is None else application.versions
        for model_topics, rows in asked.items():
            self._dispatcher.add(model_topics, rows, versions)

    def _name(self, query: Pending) -> None:
        """Choose a query's row id before the cache uses it."""
        cache = self._cache
        while cache is not None and cache.awaits(query):
            query.rename()
        self.combiner.name(query)

    def _singled_out(
        self, query: Pending, arms: Arms, now_us: int
    ) -> tuple[Decision | None, tuple[str, ...], tuple[str, ...]]:
        """Draw the models of a query with a situation or a named version of its own."""
        if query.features or arms.propensities_in is not None:
            choice = self._in_situation(query, arms, now_us)
        else:
            choice = arms.decide(uniform(query.query_id))
        if query.version is None or not choice.models:
            return choice
        models = named(query.version, query.query_id, choice.models, arms.names, self._models)
        if models is choice.models:
            return choice
        query.weights, query.read = (1.0,), None
        return None, models, tuple(map(topics.model_queries, models))  # the client has decided, not the policy

    def _impossible(self, query: Pending, arms: Arms) -> str | None:
        """Return why a query cannot be asked as it is: too many features for its policy, or no arm; None if it can be.

        A query that asks no model has no decision.
        """
        if len(query.features) > arms.most_features:
            reason = "too_many_features"
        elif not query.models:
            reason = "no_model_in_time" if query.decision is not None else "unknown_version"
        else:
            return None if self._models.keys() >= {*query.models} else "unknown_model"
        query.decision, query.models = None, ()
        return reason

    def _left(
        self, query: Pending, model_topics: tuple[str, ...], due_us: int, now_us: int, effects: Effects
    ) -> tuple[str, ...] | None:
        """Return the topics of the models that must be asked: that would be in time, and whose output is not known.

        None: the query has been answered.
        """
        if self._admission is not None:
            admitted = self._admitted(self._admission, query, due_us, now_us)
            if admitted is not query.models:
                if not admitted:
                    query.decision, query.models = None, ()  # a query that asks no model has no decision
                    effects.append(self.combiner.answer(query, now_us, "overloaded"))
                    return None
                query.models = admitted
                model_topics = tuple(map(topics.model_queries, admitted))
        models = query.models
        if self._cache is not None:
            cache, deployed = self._cache, self._models
            models = tuple([name for name in models if cache.ask(deployed[name], query, due_us, now_us)])
            if len(query.outputs) == len(query.models):
                effects.append(self.combiner.answer(query, now_us))
                return None
            if len(models) < len(query.models):
                model_topics = tuple(map(topics.model_queries, models))
        if self._admission is not None:
            self._admission.ask(models, due_us, now_us)
        return model_topics

    def flush(self, turn: int, now_us: int, effects: Effects) -> None:
        """Ask the gathered rows, and those of queries whose awaited output does not come.

        Args:
            turn: which of its topic's partitions each model is asked in: the number counts up.
            now_us: the time.
            effects: to which the records are appended.
        """
        self._dispatcher.flush(turn, effects)
        while self._cache is not None and (orphans := self._cache.orphans()):
            for orphan in orphans:
                self._ask_again(self._cache, orphan, now_us, effects)
            self._dispatcher.flush(turn, effects)

    def on_outputs(self, record: Record, now_us: int, effects: Effects) -> None:
        """Take one worker batch; append the answers that it completes.

        Raises:
            DecodeError: It is none.
        """
        batch = self._codec.decode(ModelPredictions, record.value)
        if record.timestamp_us < now_us:
            self._slow_return_us.add(now_us - record.timestamp_us)
            self._return_us.add(now_us - record.timestamp_us)
            self._back_us, self._usual_us = int(self._slow_return_us.value), int(self._return_us.value)
        self.on_batch(record.partition, batch, now_us, effects)
        effects.append(Skip((record.position,), ""))

    def on_batch(self, partition: int, batch: ModelPredictions, now_us: int, effects: Effects) -> None:
        """Take a model's outputs for queries of a partition; append the answers that they complete."""
        if self._admission is not None:
            model = self._models.get(batch.model)
            is_beside = model is not None and (batch.version in model.shares or batch.version in model.standby)
            self._admission.report(batch, now_us, is_beside=is_beside)
        if self._cache is None:
            effects += self.combiner.on_outputs(partition, batch, now_us)
        else:
            outputs = outputs_of(batch)
            effects += self.combiner.on_outputs(partition, batch, now_us, outputs)
            for query in self._cache.take_outputs(partition, batch, outputs):
                if len(query.outputs) == len(query.models):
                    effects.append(self.combiner.answer(query, now_us))

    def on_timer(self, now_us: int) -> Effects:
        """Answer due queries."""
        return list(self.combiner.on_timer(now_us))

    def next_deadline(self) -> int | None:
        """Return when the next answer is due (us); 0 if a query waits for an output that does not come."""
        return 0 if self._cache is not None and self._cache.has_orphans else self.combiner.next_deadline()

    def drop(self, partitions: Sequence[int]) -> None:
        """Forget pending queries of these partitions."""
        self._dispatcher.clear()
        self.combiner.drop(partitions)
        if self._admission is not None:
            self._admission.clear()
        if self._cache is not None:
            self._cache.drop(partitions)

    def asked(self) -> dict[str, float]:
        """Return how often each model was asked, by application."""
        asked: Counter[str] = Counter()
        for application, drawn in self._asked.items():
            for model, count in ((model, count) for models, count in drawn.items() for model in models):
                asked[render(("asked_total", "application", application, "model", model))] += count
        return {**asked}

    def statistics(self) -> dict[str, float]:
        """Return gauges of pending queries, of the cache, and of the time for the way back."""
        cached = self._cache.statistics() if self._cache is not None else {}
        return {**self.combiner.statistics(), **cached, "return_us": self._return_us.value}

    def _in_situation(self, query: Pending, arms: Arms, now_us: int) -> ArmChoice:
        """Draw by the situation that the arms' policy uses; latencies are watched once a policy uses them."""
        situation = Situation(query.features)
        if is_contextual(arms.policy) and arms.policy.uses == "latencies":
            if self.combiner.latencies is None:
                self.combiner.latencies = Latencies()
            left_us = query.until_us - now_us
            expected_us = self._latencies_of(arms.names, query, self.combiner.latencies, now_us)
            situation = Situation(query.features, left_us, expected_us)
        choice, query.weights = arms.decide_in(situation, uniform(query.query_id))
        return choice

    def _admitted(self, admission: Admission, pending: Pending, due_us: int, now_us: int) -> tuple[str, ...]:
        """Return the models that would answer in time, or whose output the cache has or awaits; the same if all."""
        models, refused = pending.models, []
        for model in models:
            if not admission.admits(model, due_us, now_us, pending.priority) and not self._is_cached(model, pending):
                self._counters["overloaded_total", "model", model] += 1
                refused.append(model)
        return tuple(model for model in models if model not in refused) if refused else models

    def _latencies_of(
        self, models: tuple[str, ...], query: Pending, latencies: Latencies, now_us: int
    ) -> tuple[float, ...]:
        """Return how long each model is expected to take (us): no time where the cache holds its output."""
        cache, deployed = self._cache, self._models
        if cache is None:
            return latencies.expected_us(models, now_us)
        asked = tuple([name for name in models if name not in deployed or not cache.holds(deployed[name], query)])
        expected_us = dict(zip(asked, latencies.expected_us(asked, now_us), strict=True))
        return tuple([expected_us.get(name, 0.0) for name in models])

    def _is_cached(self, model: str, pending: Pending) -> bool:
        return self._cache is not None and self._cache.knows(self._models[model], pending)

    def _ask_again(self, cache: PredictionCache, orphan: Orphan, now_us: int, effects: Effects) -> None:
        pending = orphan.query
        model = self._models.get(orphan.model)
        if model is None or pending.answered:
            return
        pending.input = orphan.input
        if cache.ask(model, pending, orphan.due_us, now_us):
            if self._admission is not None:
                self._admission.ask((orphan.model,), orphan.due_us, now_us)
            self._dispatcher.add((topics.model_queries(orphan.model),), [(pending, orphan.due_us, orphan.input)])
        elif len(pending.outputs) == len(pending.models):
            effects.append(self.combiner.answer(pending, now_us))
        pending.input = None  # which the cache looks at

    def _refuse(self, pending: Pending) -> Effects:
        """Answer a query whose input fits the query's record, but not the larger one to the model."""
        if self._cache is not None:
            self._cache.forget(pending)
        return [] if pending.answered else [self.combiner.answer(pending, pending.received_us, "invalid_input")]
