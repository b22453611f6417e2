"""Serve: a decided query → the models that can answer it in time → its answer.

    decided ─▶ admission ─▶ cache ─▶ combiner waits ─▶ asking ─▶ models.<m>.queries
                   │ overloaded │ known      ▲
                   └────────────┴──▶ answer ◀┴─ on_outputs ◀─ model-predictions

Admission and the cache are there if the settings say so.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from policies.contract import Situation, is_situated
from policies.draw import uniform
from schemas import topics
from schemas.records import ModelPredictions
from streams.operators.asking import Asking
from streams.operators.combiner import Combiner, outputs_of
from streams.operators.contract import Skip
from streams.operators.counters import Counters, render
from streams.operators.latencies import Latencies
from streams.operators.quantile import RunningQuantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Model
    from streams.operators.admission import Admission
    from streams.operators.cache import Orphan, PredictionCache
    from streams.operators.combiner import Pending
    from streams.operators.contract import Effects, Record
    from streams.operators.views import Arms

# The share of the objective that the way back from a worker may claim, however slow it has been.
MAX_RETURN_SHARE = 0.25


class Serving:
    """Has decided queries answered.

    Attributes:
        combiner: holds those that wait, and answers.
    """

    def __init__(
        self,
        codec: Codec,
        models: Mapping[str, Model],
        margin_us: int,
        cache: PredictionCache | None,
        admission: Admission | None,
        counters: Counters,
    ) -> None:
        """Start with nothing pending.

        Args:
            codec: of all records.
            models: that are deployed, by name, as they change.
            margin_us: how long before the deadline the answer leaves.
            cache: of outputs by input; None = every query is asked.
            admission: refuses what a model cannot answer in time; None = everything is asked.
            counters: of the role.
        """
        self.combiner = Combiner(codec, margin_us, counters)
        self._codec = codec
        self._models = models
        self._margin_us = margin_us
        self._cache = cache
        self._admission = admission
        self._counters = counters
        self._asking = Asking(codec, self._refuse)
        self._asked: Counter[tuple[str, tuple[str, ...]]] = Counter()  # by application and models
        # From a worker's record timestamp to here, µs; starts at one measured leg.
        self._slow_return_us, self._return_us = RunningQuantile(0.95, 2_000.0), RunningQuantile(0.5, 2_000.0)
        self._back_us = self._usual_us = 2_000

    def ask(self, pending: Pending, arms: Arms, now_us: int, effects: Effects) -> None:
        """Draw the arms, wait for them, and ask their models."""
        if pending.features or arms.situated is not None:
            if len(pending.features) > arms.most_features:
                effects.append(self.combiner.answer(pending, now_us, "too_many_features"))
                return
            situation = self._situation(pending, arms, now_us)
            choice, pending.weights = arms.decide_in(situation, uniform(pending.query_id))
            pending.decision, models, model_topics = choice
        else:
            pending.weights = arms.votes
            pending.decision, models, model_topics = arms.decide(uniform(pending.query_id))
        deployed = self._models
        for model in models:
            if model not in deployed:
                effects.append(self.combiner.answer(pending, now_us, "unknown_model"))
                return
        pending.models = models
        self._asked[pending.application_name, models] += 1
        deadline_us = pending.deadline_us
        allowed_us = int((deadline_us - pending.sent_us) * MAX_RETURN_SHARE)
        kept_us = min(allowed_us, self._back_us)
        due_us = deadline_us - self._margin_us - kept_us
        self._asking.spare_us = max(0, kept_us - self._usual_us)
        if self._admission is not None:
            admitted = self._admitted(self._admission, pending, due_us, now_us)
            if admitted is not models:
                if not admitted:
                    effects.append(self.combiner.answer(pending, now_us, "overloaded"))
                    return
                pending.models, pending.is_reduced = admitted, True
                models, model_topics = admitted, tuple(map(topics.model_queries, admitted))
        cache = self._cache
        if cache is not None and not (len(models) == 1 and cache.ask(deployed[models[0]], pending, due_us, now_us)):
            self._ask_rest(cache, pending, due_us, now_us, effects)
            return
        self.combiner.open(pending)
        if self._admission is not None:
            self._admission.ask(models, due_us, now_us)
        self._asking.add(model_topics, pending, due_us)

    def flush(self, partition: int, now_us: int, effects: Effects) -> None:
        """Ask what has been gathered, and for themselves those who waited for another's output in vain."""
        self._asking.flush(partition, effects)
        while self._cache is not None and (orphans := self._cache.orphans()):
            for orphan in orphans:
                self._ask_again(self._cache, orphan, now_us, effects)
            self._asking.flush(partition, effects)

    def on_outputs(self, record: Record, now_us: int, effects: Effects) -> None:
        """Take one worker batch; append the answers that it completes.

        Raises:
            DecodeError: It is none.
        """
        batch = self._codec.decode(ModelPredictions, record.value)
        if record.timestamp_us < now_us:  # an inline model's answers have no way back
            self._slow_return_us.add(now_us - record.timestamp_us)
            self._return_us.add(now_us - record.timestamp_us)
            self._back_us, self._usual_us = int(self._slow_return_us.value), int(self._return_us.value)
        if self._admission is not None:
            model = self._models.get(batch.model)
            is_beside = model is not None and batch.version in model.shares
            self._admission.report(batch, now_us, is_beside=is_beside)
        if self._cache is None:  # of a batch for which nobody waits no output is made
            effects += self.combiner.on_outputs(record.partition, batch, outputs_of(batch), now_us)
        else:
            outputs = tuple(outputs_of(batch))
            effects += self.combiner.on_outputs(record.partition, batch, outputs, now_us)
            for query in self._cache.land(record.partition, batch, outputs):
                if len(query.outputs) == len(query.models):
                    effects.append(self.combiner.answer(query, now_us))
        effects.append(Skip((record.position,), ""))

    def on_timer(self, now_us: int) -> Effects:
        """Answer what is due."""
        return list(self.combiner.on_timer(now_us))

    def next_deadline(self) -> int | None:
        """Return when the next answer is due (us); 0 if somebody waits for another's output in vain."""
        return 0 if self._cache is not None and self._cache.has_orphans else self.combiner.next_deadline()

    def drop(self, partitions: Sequence[int]) -> None:
        """Forget what is pending in these partitions."""
        self._asking.clear()
        self.combiner.drop(partitions)
        if self._admission is not None:
            self._admission.clear()
        if self._cache is not None:
            self._cache.drop(partitions)

    def asked(self) -> dict[str, float]:
        """Return how often each model was asked, by application."""
        asked: Counter[str] = Counter()
        for (application, models), count in self._asked.items():
            for model in models:
                asked[render(("asked_total", "application", application, "model", model))] += count
        return {**asked}

    def statistics(self) -> dict[str, float]:
        """Return gauges of what is pending and cached, and of how long the way back takes."""
        cached = self._cache.statistics() if self._cache is not None else {}
        return {**self.combiner.statistics(), **cached, "return_us": self._return_us.value}

    def _situation(self, pending: Pending, arms: Arms, now_us: int) -> Situation:
        """Return what the arms' policy may go by; how long models take is watched from the first time it matters."""
        if not (is_situated(arms.policy) and arms.policy.uses == "latencies"):
            return Situation(pending.features)
        if self.combiner.latencies is None:
            self.combiner.latencies = Latencies()
        left_us = pending.deadline_us - self._margin_us - now_us
        return Situation(pending.features, left_us, self.combiner.latencies.expected_us(arms.names, now_us))

    def _admitted(self, admission: Admission, pending: Pending, due_us: int, now_us: int) -> tuple[str, ...]:
        """Return the models that would answer in time, or whose output the cache has or awaits; the same if all."""
        models, refused = pending.models, []
        for model in models:
            if not admission.admits(model, due_us, now_us, pending.priority) and not self._is_cached(model, pending):
                self._counters["overloaded_total", "model", model] += 1
                refused.append(model)
        return tuple(model for model in models if model not in refused) if refused else models

    def _is_cached(self, model: str, pending: Pending) -> bool:
        return self._cache is not None and self._cache.knows(self._models[model], pending)

    def _ask_rest(self, cache: PredictionCache, pending: Pending, due_us: int, now_us: int, effects: Effects) -> None:
        """Ask those of several models whose output is neither known nor awaited; answer at once if all are known.

        The only model of a query has been looked up, and need not be asked.
        """
        deployed, models = self._models, pending.models
        asked = [name for name in models if len(models) > 1 and cache.ask(deployed[name], pending, due_us, now_us)]
        if len(pending.outputs) == len(models):
            effects.append(self.combiner.answer(pending, now_us))
            return
        self.combiner.open(pending)
        if asked:
            if self._admission is not None:
                self._admission.ask(asked, due_us, now_us)
            self._asking.add(tuple(map(topics.model_queries, asked)), pending, due_us)
        pending.input = None

    def _ask_again(self, cache: PredictionCache, orphan: Orphan, now_us: int, effects: Effects) -> None:
        pending = orphan.query
        model = self._models.get(orphan.model)
        if model is None or pending.answered:
            return
        pending.input = orphan.input
        if cache.ask(model, pending, orphan.due_us, now_us):
            if self._admission is not None:
                self._admission.ask((orphan.model,), orphan.due_us, now_us)
            self._asking.add((topics.model_queries(orphan.model),), pending, orphan.due_us)
        elif len(pending.outputs) == len(pending.models):
            effects.append(self.combiner.answer(pending, now_us))
        pending.input = None

    def _refuse(self, pending: Pending) -> Effects:
        """Answer a query whose input fits the query's record, but not the larger one to the model."""
        if self._cache is not None:
            self._cache.forget(pending)
        return [] if pending.answered else [self.combiner.answer(pending, pending.received_us, "invalid_input")]
