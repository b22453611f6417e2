"""Serve: a decided query → the models that its arms draw → its answer.

decided ─▶ drawn ─▶ questions ─▶ models.<m>.queries
│          └─ refused, or known ─┐
└─ cannot be asked ──────────────┴▶ combiner ─▶ answer
▲   └─ who asks more goes on ─▶ questions
model-predictions ─────┘
"""

from __future__ import annotations

from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from policies.contract import Situation, chooses_among, is_contextual
from policies.draw import uniform
from policies.errors import PolicyError
from schemas.records import ModelPredictions, outputs_of
from streams.operators.configuration import CASCADE, GRAPH, HEDGE, asks_more
from streams.operators.contract import Skip
from streams.operators.selection.again.cascade import Cascades
from streams.operators.selection.again.hedge import Hedges
from streams.operators.selection.combiner import Combiner
from streams.operators.selection.dispatch import canary_shares, named, with_versions
from streams.operators.selection.graph.stages import Stages
from streams.operators.selection.holdout import default_arms, split
from streams.operators.selection.questions import Questions
from streams.operators.selection.state_view import UNDECIDED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Decision, Model
    from streams.operators.contract import Effects, Record
    from streams.operators.selection.admission import Admission
    from streams.operators.selection.cache import PredictionCache
    from streams.operators.selection.pending import Pending
    from streams.operators.selection.questions import Asker
    from streams.operators.selection.state_view import ArmChoice, Arms
    from streams.operators.statistics import Counters

_LOOKUPS = attrgetter("lookups")
_NO_CLASSES: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_ASKERS: Mapping[str, Callable[[Combiner, Mapping[str, Model], Questions, Counters], Asker[Any]]] = {
    GRAPH: Stages,
    CASCADE: Cascades,
    HEDGE: Hedges,
}


class Serving:
    """Answers decided queries.

    Attributes:
        combiner: holds those that wait, and answers.
        questions: asks models.
    """

    def __init__(
        self,
        codec: Codec,
        models: Mapping[str, Model],
        cache: PredictionCache | None,
        admission: Admission | None,
        counters: Counters,
        inside: frozenset[str] = frozenset(),
        classes: Mapping[str, tuple[str, ...]] = _NO_CLASSES,
    ) -> None:
        """Start with nothing pending.

        Args:
            codec: of all records.
            models: that are deployed, by name, as they change.
            cache: of outputs by input; None = every query is asked.
            admission: refuses queries that a model cannot answer in time; None = every query is asked.
            counters: of the role.
            inside: topics whose models run in this process.
            classes: names of the scores' classes, by `MODEL@VERSION`, as they change.
        """
        self.combiner = Combiner(codec, counters, classes, models)
        self.questions = Questions(codec, models, self.combiner, cache, admission, counters, inside)
        self._codec = codec
        self._models = models
        self._counters = counters
        self._askers: dict[str, Asker[Any]] = {}  # those that applications have had

    def serve(self, queries: Sequence[Pending], arms: Arms, now_us: int, effects: Effects) -> None:
        """Answer queries with candidates, of which no model knows more; ask the models about the others.

        Args:
            queries: of one application.
            arms: that decide them all.
            now_us: the time.
            effects: to which answers are appended.
        """
        application = queries[0].application
        if application is not None and application.holdout:
            queries, held_out = split(queries)
            if held_out:
                self._serve(held_out, default_arms(application), now_us, effects)
        if queries:
            self._serve(queries, arms, now_us, effects)

    def _serve(self, queries: Sequence[Pending], arms: Arms, now_us: int, effects: Effects) -> None:
        if any(map(_LOOKUPS, queries)):
            queries = self._unranked(queries, arms, now_us, effects)
        if not queries:
            return
        application = queries[0].application
        more = "" if application is None else asks_more(application, arms.policy)
        is_one_version = more == GRAPH or queries[0].is_held_out
        shares = {} if is_one_version else canary_shares(arms.names, self._models, application)
        drawn = [query for query in queries if self._is_drawn(query, arms, shares, now_us, effects)]
        if more:
            self._begin(more, drawn, now_us, effects)
        elif drawn:
            self._ask(drawn, now_us, effects)

    def _unranked(self, queries: Sequence[Pending], arms: Arms, now_us: int, effects: Effects) -> list[Pending]:
        """Answer queries whose candidates are ranked without a model; returns the others."""
        is_choosing = arms.read is not None and chooses_among(arms.read)
        left = [query for query in queries if query.candidates is None or (is_choosing and query.ids)]
        ranked = [query for query in queries if query.candidates is not None and not (is_choosing and query.ids)]
        effects += [self.combiner.rank(query, arms, now_us) for query in ranked]
        return left

    def _ask(self, queries: Sequence[Pending], now_us: int, effects: Effects) -> None:
        """Ask the models of queries once, and wait for their outputs."""
        if self.questions.is_direct:
            self.combiner.open(queries)
            self.questions.put_directly(queries, now_us)
            return
        for query in queries:
            if not self.questions.begin(query, now_us, effects):
                continue
            if len(query.outputs) == len(query.models):
                effects.append(self.combiner.answer(query, now_us))
            else:
                self.combiner.open((query,))
                query.input = None  # nobody is asked about it again

    def _begin(self, more: str, queries: Sequence[Pending], now_us: int, effects: Effects) -> None:
        """Have whoever asks more about queries put their first questions."""
        asker = self._askers.get(more)
        if asker is None:
            asker = self._askers[more] = _ASKERS[more](self.combiner, self._models, self.questions, self._counters)
        self.questions.row_turn += 1
        for query in queries:
            asker.begin(query, now_us, effects)
        self._settle_ready(now_us, effects)

    def _is_drawn(
        self,
        query: Pending,
        arms: Arms,
        shares: Mapping[int, Mapping[str, float]],
        now_us: int,
        effects: Effects,
    ) -> bool:
        """Draw the models of a query; False: it cannot be asked as it is, and has been answered by default."""
        query.arms, query.weights = arms, arms.votes
        query.decision, query.models = self._choice(query, arms, now_us)
        if shares:
            query.decision = with_versions(query, shares)
        reason = self._impossible(query, arms)
        if reason is None:
            return True
        query.decision, query.models = None, ()  # a query that asks no model has no decision
        effects.append(self.combiner.answer(query, now_us, reason))
        return False

    def _choice(self, query: Pending, arms: Arms, now_us: int) -> tuple[Decision | None, tuple[str, ...]]:
        """Draw the models of a query with a situation or a named version of its own."""
        if query.features or arms.goes_by_query:
            decision, models = self._in_situation(query, arms, now_us)
        else:
            decision, models = arms.decide(uniform(query.arm_id))
        if query.version is None or not models:
            return decision, models
        asked = named(query.version, query.query_id, models, arms.names, self._models)
        if asked is models:
            return decision, models
        query.weights = (1.0,)
        return None, asked  # the client has decided, not the policy

    def _in_situation(self, query: Pending, arms: Arms, now_us: int) -> ArmChoice:
        """Draw by the situation that the arms' policy uses; latencies are watched once a policy uses them."""
        if arms.features_of is not None and not query.features and query.input is not None:
            try:
                query.features = arms.features_of(query.input)
            except PolicyError:
                return UNDECIDED
        situation = Situation(query.features)
        if is_contextual(arms.policy) and arms.policy.uses == "latencies":
            latencies, left_us = self.combiner.watch_latencies(), query.until_us - now_us
            expected_us = self.questions.expected_us(arms.names, query, latencies, now_us)
            situation = Situation(query.features, left_us, expected_us)
        choice, query.weights = arms.decide_in(situation, uniform(query.arm_id))
        return choice

    def _impossible(self, query: Pending, arms: Arms) -> str | None:
        """Return why a query cannot be asked as it is: too many features for its policy, or no arm; None if it can."""
        if len(query.features) > arms.most_features:
            return "too_many_features"
        if not query.models:
            undecided = "policy_failed" if query.version is None else "unknown_version"
            return "no_model_in_time" if query.decision is not None else undecided
        return None if self._models.keys() >= {*query.models} else "unknown_model"

    def flush(self, now_us: int, effects: Effects) -> None:
        """Append what was asked, also for queries whose awaited output does not come."""
        self.questions.flush(effects)
        cache = self.questions.cache
        while cache is not None and (orphans := cache.orphans()):
            for orphan in orphans:
                if self.questions.ask_again(orphan, now_us):
                    self._settle(orphan.query, now_us, effects)
            self._settle_ready(now_us, effects)
            self.questions.flush(effects)

    def on_outputs(self, record: Record, now_us: int, effects: Effects) -> None:
        """Take one worker batch; append the answers that it completes.

        Raises:
            DecodeError: It is none.
        """
        batch = self._codec.decode(ModelPredictions, record.value)
        self.questions.on_batch(batch, record.timestamp_us, now_us)
        self._take(record.partition, batch, now_us, effects)
        effects.append(Skip((record.position,), ""))

    def _take(self, partition: int, batch: ModelPredictions, now_us: int, effects: Effects) -> None:
        """Take a model's outputs for queries of a partition; append the answers that they complete."""
        questions, coded = self.questions, self.questions.coded
        is_coding = coded is not None and coded.waits
        outputs = outputs_of(batch) if is_coding or questions.cache is not None else None
        is_parity = False
        if coded is not None and is_coding and outputs is not None:
            is_parity = coded.is_parity(partition, batch)
            coded.on_outputs(partition, batch, outputs, now_us, effects)
        if not is_parity:
            effects += self.combiner.on_outputs(partition, batch, now_us, outputs)
            if outputs is not None:
                for query in questions.taken_by_others(partition, batch, outputs):
                    if query.is_due and not query.answered:
                        self._settle(query, now_us, effects)
        self._settle_ready(now_us, effects)

    def _settle(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Answer a query that has all outputs that were asked for, or have its asker go on."""
        follow_up = query.follow_up
        if follow_up is not None and follow_up.asker is not None:
            follow_up.asker.on_output(query, now_us, effects)
        elif len(query.outputs) == len(query.models):
            effects.append(self.combiner.answer(query, now_us))

    def _settle_ready(self, now_us: int, effects: Effects) -> None:
        """Have askers go on whose outputs have come; each asks some models of its own, so this ends."""
        while self.combiner.ready:
            ready, self.combiner.ready = self.combiner.ready, []
            for query in ready:
                if not query.answered:
                    self._settle(query, now_us, effects)

    def on_timer(self, now_us: int) -> Effects:
        """Answer due queries, and have askers go on with what has waited long enough."""
        effects: Effects = []
        if self.questions.coded is not None:  # first: what is decoded at its deadline is in time
            self.questions.coded.on_timer(now_us, effects)
        effects += self.combiner.on_timer(now_us)
        for asker in self._askers.values():
            asker.on_due(now_us, effects)
        self._settle_ready(now_us, effects)
        return effects

    def next_deadline(self) -> int | None:
        """Return when the next answer is due (us); 0 if a query waits for an output that does not come."""
        if self.questions.cache is not None and self.questions.cache.has_orphans:
            return 0
        due = [self.combiner.next_deadline(), *[asker.next_due() for asker in self._askers.values()]]
        if self.questions.coded is not None:
            due.append(self.questions.coded.next_due())
        return min([time_us for time_us in due if time_us is not None], default=None)

    def drop(self, partitions: Sequence[int]) -> None:
        """Forget pending queries of these partitions."""
        self.questions.drop(partitions)
        self.combiner.drop(partitions)

    def statistics(self) -> dict[str, float]:
        """Return gauges of pending queries, and what asking them has come to."""
        found = {**self.combiner.statistics(), **self.questions.statistics()}
        for asker in self._askers.values():
            found |= asker.statistics()
        return found
