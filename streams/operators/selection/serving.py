"""Serve: a decided query → the models that can answer it in time → its answer.

    decided ─▶ admission ─▶ cache ─▶ combiner waits ─▶ dispatch ─▶ models.<m>.queries
                ▲  │ overloaded │ known      ▲
                │  └────────────┴──▶ answer ◀┴─ on_outputs ◀─ model-predictions
                │                      ▲           │
                └── a question more ◀──┴── plan ◀──┘

Admission and the cache are optional; the settings turn them on. Only policies that ask stepwise make plans.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING

from policies.contract import Situation, chooses_among, is_contextual
from policies.draw import uniform
from schemas import topics
from schemas.records import ModelOutput, ModelPredictions, Outcome, Step, outputs_of
from streams.operators.contract import Skip
from streams.operators.selection import overdue
from streams.operators.selection.canaries import canary_shares, with_versions
from streams.operators.selection.combiner import Combiner
from streams.operators.selection.dispatch import Dispatcher, Row, named
from streams.operators.selection.hedging import HEDGE, UNPAID, Hedge, Hedges
from streams.operators.selection.latencies import Latencies, RunningQuantile
from streams.operators.selection.plan import ASKED, ESCALATE, LATE, OVERDUE, QueryPlan
from streams.operators.selection.reconstruction import Reconstruction
from streams.operators.selection.walks import Walks
from streams.operators.statistics import Counters, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Application, Decision, Model
    from streams.operators.contract import Effects, Record
    from streams.operators.selection.admission import Admission
    from streams.operators.selection.cache import Orphan, PredictionCache
    from streams.operators.selection.pending import Pending
    from streams.operators.selection.state_view import ArmChoice, Arms

# The largest share of the objective for the way back from a worker, however slow that has been.
MAX_RETURN_SHARE = 0.25
_NO_CLASSES: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class Serving:
    """Answers decided queries.

    Attributes:
        combiner: holds those that wait, and answers.
        turn: in which rows are asked that are gathered now.
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
        self._codec = codec
        self._models = models
        self._cache = cache
        self._admission = admission
        self._counters = counters
        self._inside = inside
        self._dispatcher = Dispatcher(codec, models, self._refuse, inside)
        self._coded = Reconstruction(codec, models, self._dispatcher, self.combiner, counters)
        self._asked: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)  # models by application
        # From a worker's record timestamp to here (us); starts at one measured leg.
        self._slow_return_us, self._return_us = RunningQuantile(0.95, 2_000.0), RunningQuantile(0.5, 2_000.0)
        self._back_us = self._usual_us = 2_000
        self._due = overdue.steps()
        self._hedges = Hedges()
        self._walks = Walks(self.combiner, models, self._ask_row, counters)
        self.turn = self._row_turn = 0  # rows of later stages come with outputs, between polls with queries

    @property
    def inside(self) -> frozenset[str]:
        """Topics whose models run in this process."""
        return self._inside

    @property
    def is_cached(self) -> bool:
        """Whether outputs are kept by input."""
        return self._cache is not None

    @property
    def is_admitting(self) -> bool:
        """Whether queries are refused that a model cannot answer in time."""
        return self._admission is not None

    def count_asked(self, application: str, asked: Mapping[tuple[str, ...], int], slack_us: int) -> None:
        """Count questions by the models that were asked; the last one's slack (us) says what others may be spared."""
        for models, count in asked.items():
            self._asked[application][models] += count
        self._note_slack(slack_us)

    def _note_slack(self, slack_us: int) -> None:
        """Note how much later than due outputs may come, by a query's slack: the way back usually takes less.

        Args:
            slack_us: from when it was sent to its deadline; -1 = there was no query.
        """
        if slack_us >= 0:
            self._dispatcher.spare_us = max(0, self._return_budget_us(slack_us) - self._usual_us)

    def _return_budget_us(self, slack_us: int) -> int:
        """Return how much of a query's slack is kept for the way back."""
        return min(int(slack_us * MAX_RETURN_SHARE), self._back_us)

    def serve(self, queries: Sequence[Pending], arms: Arms, now_us: int, effects: Effects) -> None:
        """Answer queries with candidates, of which no model knows more; ask the models about the others."""
        if any(query.candidates is not None for query in queries):
            is_choosing = arms.read is not None and chooses_among(arms.read)
            at_once = [query for query in queries if query.candidates is not None and not (is_choosing and query.ids)]
            queries = [query for query in queries if query.candidates is None or (is_choosing and query.ids)]
            effects += [self.combiner.rank(query, arms, now_us) for query in at_once]
        if queries and (known := queries[0].application) is not None and known.stages:
            self.walk(queries, arms, now_us, effects)
        elif queries:
            self.ask(queries, arms, now_us, effects)

    def walk(self, queries: Sequence[Pending], arms: Arms, now_us: int, effects: Effects) -> None:
        """Choose the model of the stage that answers, and ask the first stages of the queries' graph."""
        self._row_turn += 1
        for query in queries:
            query.decision, query.models, _ = self._singled_out(query, arms, now_us)
            if (reason := self._impossible(query, arms)) is not None:
                effects.append(self.combiner.answer(query, now_us, reason))
            else:
                self._walks.begin(query, now_us, effects)
        self._settle_ready(now_us, effects)

    def _ask_row(self, row: Pending, until_us: int, step: int, now_us: int) -> bool:
        """Ask the model of a stage's row; False: it would not answer in time."""
        models, cache = row.models, self._cache
        due_us = until_us - self._return_us_of(row, models)
        if self._admission is not None and not self._admitted(self._admission, row, models, due_us, now_us):
            return False
        assert row.input is not None
        self._asked[row.application_name][models] += 1
        self._name(row)
        if cache is None or cache.ask(self._models[models[0]], row, due_us, now_us):
            if self._admission is not None:
                self._admission.ask(models, due_us, now_us)
            versions = {} if row.application is None else row.application.versions
            place = self._row_turn % self._models[models[0]].partitions
            self._dispatcher.add(
                (topics.model_queries(models[0]),), [Row(row, due_us, row.input)], versions, step, place
            )
        return True

    def ask(self, queries: Sequence[Pending], arms: Arms, now_us: int, effects: Effects) -> None:
        """Draw the arms of queries, which `arms` decide all; wait for these, and ask their models."""
        application, drawn = queries[0].application, self._asked[queries[0].application_name]
        is_hedged = self._is_hedged(application, arms)
        asked: dict[tuple[str, ...], list[Row]] = {}
        opened: list[Pending] = []
        planned: list[Pending] = []
        slack_us = -1  # of the last one that can be asked
        shares = canary_shares(arms.names, self._models, application)
        for query in queries:
            its = self._drawn(query, arms, shares, now_us)
            if (reason := self._impossible(query, arms)) is not None:
                effects.append(self.combiner.answer(query, now_us, reason))
                continue
            slack_us = query.deadline_us - query.sent_us
            due_us = query.until_us - self._return_us_of(query, query.models)
            if arms.steps is not None and query.version is None:
                query.plan = QueryPlan(arms.steps, query.models)
                planned.append(query)
            left = self._left(query, its, due_us, now_us, effects)
            drawn[query.models] += 1
            if left is None:
                continue
            opened.append(query)
            if left:
                assert query.input is not None
                asked.setdefault(left, []).append(Row(query, due_us, query.input))
            if not is_hedged and query.plan is None:
                query.input = None  # nobody is asked about it again
        self._note_slack(slack_us)
        self._open(opened, asked, application, now_us)
        self._begin(planned, now_us, effects)
        self._watch(opened if is_hedged else (), now_us)

    def _drawn(
        self, query: Pending, arms: Arms, shares: Mapping[int, Mapping[str, float]], now_us: int
    ) -> tuple[str, ...]:
        """Decide a query, and return the topics of the models that it asks first."""
        query.weights, query.read, query.confidences, query.aim = arms.votes, arms.read, arms.confidences, arms.aim
        query.decision, query.models, its = self._singled_out(query, arms, now_us)
        if shares:
            query.decision = with_versions(query, shares)
        return its

    def _open(
        self,
        opened: Sequence[Pending],
        asked: Mapping[tuple[str, ...], list[Row]],
        application: Application | None,
        now_us: int,
    ) -> None:
        """Wait for the outputs of queries, and ask for them by topics."""
        self.combiner.open(opened)
        versions = {} if application is None else application.versions
        for model_topics, rows in asked.items():
            if application is not None and application.parity and not self._inside.issuperset(model_topics):
                self._coded.ask(application, model_topics, rows, versions, now_us)
            else:
                self._dispatcher.add(model_topics, rows, versions)

    def _begin(self, planned: Sequence[Pending], now_us: int, effects: Effects) -> None:
        """Keep what plans will need, and go on with those whose first outputs were known."""
        for query in planned:
            if query.answered:
                continue
            self.combiner.latencies = self.combiner.latencies or Latencies()
            query.keep_input()
            if query.is_due:
                self._go_on(query, now_us, effects)
            else:
                self._expect(query, now_us)

    def _go_on(self, query: Pending, now_us: int, effects: Effects, kind: str = ESCALATE) -> None:
        """Ask what a query's plan asks next, or answer it; without an answer it waits until its deadline."""
        plan, decision = query.plan, query.decision
        ask = None if plan is None or decision is None else plan.ask(decision, query.outputs)
        if plan is not None and decision is not None and ask is not None:
            models, left_us = tuple([decision.arms[arm] for arm in ask.arms]), query.until_us - now_us
            needed_us = self._needed_us(models, query, now_us)
            admitted = self._askable(query, models, now_us) if needed_us <= left_us else ()
            query.decision = plan.decide(
                query.query_id, decision, ask, kind, needed_us, left_us, now_us, is_refused=len(admitted) < len(models)
            )
            labels = ("application", query.application_name, "kind", kind, "outcome", plan.taken[-1].outcome)
            self._counters["steps_total", *labels] += 1
            if not plan.is_over:
                self._ask_more(query, plan, models, now_us)
                if query.is_due:
                    self._go_on(query, now_us, effects)
                return
        if query.is_due:
            effects.append(self.combiner.answer(query, now_us))

    def _askable(self, query: Pending, models: tuple[str, ...], now_us: int) -> tuple[str, ...]:
        """Return those of a question's models that can be asked, and would not refuse it."""
        due_us = query.until_us - self._return_us_of(query, models)
        deployed = tuple([name for name in models if name in self._models])
        if query.input is None:
            return ()
        if self._admission is None:
            return deployed
        return self._admitted(self._admission, query, deployed, due_us, now_us)

    def _ask_more(self, query: Pending, plan: QueryPlan, models: tuple[str, ...], now_us: int) -> None:
        """Ask models of a query in hand."""
        assert query.input is not None, "it can be asked"
        self._asked[query.application_name][models] += 1
        due_us = query.until_us - self._return_us_of(query, models)
        query.models += models
        plan.latest = models
        cache = self._cache
        left = tuple([name for name in models if cache is None or cache.ask(self._models[name], query, due_us, now_us)])
        if self._admission is not None:
            self._admission.ask(left, due_us, now_us)
        if left:
            versions = {} if query.application is None else query.application.versions
            row = Row(query, due_us, query.input)
            self._dispatcher.add(tuple(map(topics.model_queries, left)), [row], versions, len(plan.taken))
        self._expect(query, now_us)

    def _expect(self, query: Pending, now_us: int) -> None:
        """Note when the next model must be asked without an answer, if its latency is known."""
        decision, latencies = query.decision, self.combiner.latencies
        if decision is None or latencies is None or len(decision.chosen) == len(decision.arms) or query.is_due:
            return
        following = decision.arms[len(decision.chosen)]
        until_us = query.until_us - self._return_us_of(query, (following,))
        at_us = latencies.last_chance_us(following, until_us)
        if at_us is not None and at_us >= now_us:
            self._due.add((query, 0 if query.plan is None else len(query.plan.taken)), at_us)

    def _needed_us(self, models: tuple[str, ...], query: Pending, now_us: int) -> int:
        """Return what models take to answer, at a high quantile; 0 = not known, or to be tried again."""
        latencies = self.combiner.latencies
        return 0 if latencies is None else int(max(self._latencies_of(models, query, latencies, now_us), default=0.0))

    def _return_us_of(self, query: Pending, models: tuple[str, ...]) -> int:
        """Return how long before a query's answer the outputs of models must be on their way back (us)."""
        if self._inside and self._inside.issuperset(map(topics.model_queries, models)):
            return 0
        return self._return_budget_us(query.deadline_us - query.sent_us)

    def _is_hedged(self, application: Application | None, arms: Arms) -> bool:
        """Tell whether models may be asked twice for these queries; latencies are watched then."""
        if application is None or not application.hedge or arms.steps is not None:
            return False
        self.combiner.latencies = self.combiner.latencies or Latencies()
        return True

    def _watch(self, queries: Sequence[Pending], now_us: int) -> None:
        """Note when the models of queries that wait take longer than usual."""
        latencies = self.combiner.latencies
        for query in queries:
            if query.answered or query.version is not None or latencies is None:
                query.input = None
                continue
            models = tuple([name for name in query.models if self._has_replicas(name)])
            usual_us = [known for name in models if (known := latencies.quantile_us(name)) is not None]
            if models and len(usual_us) == len(models):
                query.keep_input()
                self._hedges.expect(Hedge(query, models, self.turn, max(usual_us)), now_us)
            else:
                query.input = None

    def _has_replicas(self, model: str) -> bool:
        """Tell whether another replica may read another partition of a model's topic."""
        known = self._models.get(model)
        return known is not None and known.partitions > 1 and topics.model_queries(model) not in self._inside

    def _hedge(self, hedge: Hedge, now_us: int) -> None:
        """Ask a query's models again that have not answered, for a token each."""
        query, application, given, missing = hedge.query, hedge.query.application, hedge.query.input, hedge.missing
        if application is None or query.decision is None or given is None or not missing:
            return
        self._hedges.earn(application, self.combiner.answers.pop(application.name, 0))
        due_us = query.until_us - self._return_us_of(query, missing)
        asked: list[str] = []
        for name in missing:
            outcome = self._hedged(name, hedge, application, due_us, now_us)
            if outcome == UNPAID and not hedge.is_urgent:
                self._hedges.expect(hedge._replace(models=(name,), is_urgent=True), now_us)
                continue
            self._counters["hedges_total", "application", application.name, "model", name, "outcome", outcome] += 1
            if outcome == ASKED:
                asked.append(name)
        if asked:
            arms = tuple([query.decision.arms.index(name) for name in asked])
            query.plan = query.plan or QueryPlan(None, query.models)
            query.plan.taken += (Step(HEDGE, arms, now_us, 1.0, ASKED, needed_us=hedge.usual_us),)
            query.plan.copies |= {name: set() for name in asked}
            for name in asked:  # half of its partitions further on, where another replica reads
                partitions = self._models[name].partitions
                place, to = (hedge.turn + partitions // 2) % partitions, (topics.model_queries(name),)
                self._dispatcher.add(to, [Row(query, due_us, given)], application.versions, 1, place)

    def _hedged(self, model: str, hedge: Hedge, application: Application, due_us: int, now_us: int) -> str:
        """Return what becomes of a question that is to be put again, and pay for it if it is asked."""
        query, latencies = hedge.query, self.combiner.latencies
        half_us = None if latencies is None else latencies.quantile_us(model, 0.5)
        if half_us is None or now_us + half_us > query.until_us:
            return LATE
        admission = self._admission
        if admission is not None and not admission.admits(model, due_us, now_us, query.priority):
            return "overloaded"
        if not self._hedges.spend(application, is_urgent=hedge.is_urgent):
            return UNPAID
        if admission is not None:
            admission.ask((model,), due_us, now_us)
        return ASKED

    def _settle(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Answer a query that has all outputs that were asked for, or go on with its plan or its graph."""
        if query.row is not None:
            self._walks.take(query, now_us, effects)
        elif query.plan is not None:
            self._go_on(query, now_us, effects)
        elif len(query.outputs) == len(query.models):
            effects.append(self.combiner.answer(query, now_us))

    def _settle_ready(self, now_us: int, effects: Effects) -> None:
        """Go on with plans whose answers have come; each asks some models of its own, so this ends."""
        while self.combiner.ready:
            ready, self.combiner.ready = self.combiner.ready, []
            for query in ready:
                if not query.answered:
                    self._settle(query, now_us, effects)

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
            undecided = "policy_failed" if query.version is None else "unknown_version"
            reason = "no_model_in_time" if query.decision is not None else undecided
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
        if self._cache is None and self._admission is None:
            return model_topics
        self._name(query)
        if self._admission is not None:
            admitted = self._admitted(self._admission, query, query.models, due_us, now_us)
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
            if len(query.outputs) == len(query.models) and query.plan is None:
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
        self._coded.flush(effects)
        while self._cache is not None and (orphans := self._cache.orphans()):
            for orphan in orphans:
                self._ask_again(self._cache, orphan, now_us, effects)
            self._settle_ready(now_us, effects)
            self._dispatcher.flush(turn, effects)

    def on_outputs(self, record: Record, now_us: int, effects: Effects) -> None:
        """Take one worker batch; append the answers that it completes.

        Raises:
            DecodeError: It is none.
        """
        batch = self._codec.decode(ModelPredictions, record.value)
        self._note_return(record.timestamp_us, now_us)
        self.on_batch(record.partition, batch, now_us, effects)
        effects.append(Skip((record.position,), ""))

    def _note_return(self, written_us: int, now_us: int) -> None:
        if written_us < now_us:
            self._slow_return_us.add(now_us - written_us)
            self._return_us.add(now_us - written_us)
            self._back_us, self._usual_us = int(self._slow_return_us.value), int(self._return_us.value)

    @property
    def is_coding(self) -> bool:
        """Whether outputs are looked at for queries that wait for coded ones."""
        return self._coded.waits

    @property
    def back_us(self) -> int:
        """The most that is kept for the way back from a worker."""
        return self._back_us

    @property
    def spare_us(self) -> int:
        """How much later than due an output may still be of use, by the latest query."""
        return self._dispatcher.spare_us

    def place(self, topic: str) -> int:
        """Return the partition of a model's topic whose turn it is."""
        return self._dispatcher.place(topic, self.turn)

    def admits(self, models: Sequence[str], rows: int) -> bool:
        """Tell whether so many rows would be asked of each of these models, whenever they are due."""
        return self._admission is None or self._admission.has_room(models, rows)

    def on_asked(self, model: str, due_us: Sequence[int], now_us: int) -> None:
        """Take that columns have asked a model, and when the rows are due."""
        if self._admission is not None:
            self._admission.ask((model,), max(due_us), now_us, len(due_us))

    def on_columns(self, batch: ModelPredictions, written_us: int, now_us: int) -> None:
        """Take that columns have answered by a worker batch, which was written at a time."""
        self._note_return(written_us, now_us)
        self._report(batch, now_us)
        self._row_turn += 1

    def _report(self, batch: ModelPredictions, now_us: int) -> None:
        if self._admission is not None:
            model = self._models.get(batch.model)
            is_beside = model is not None and (batch.version in model.shares or batch.version in model.standby)
            self._admission.report(batch, now_us, is_beside=is_beside)

    def on_batch(self, partition: int, batch: ModelPredictions, now_us: int, effects: Effects) -> None:
        """Take a model's outputs for queries of a partition; append the answers that they complete."""
        self._report(batch, now_us)
        self._row_turn += 1
        outputs: list[ModelOutput] | None = None
        if self._coded.waits:
            is_parity, outputs = self._coded.is_parity(partition, batch), outputs_of(batch)
            self._coded.on_outputs(partition, batch, outputs, now_us, effects)
            if is_parity:
                return
        if self._cache is None:
            effects += self.combiner.on_outputs(partition, batch, now_us, outputs)
        else:
            outputs = outputs or outputs_of(batch)
            effects += self.combiner.on_outputs(partition, batch, now_us, outputs)
            left = self.combiner.doubled(partition, batch)
            for query in self._cache.take_outputs(partition, batch, outputs, left):
                if query.is_due:
                    self._settle(query, now_us, effects)
        self._settle_ready(now_us, effects)

    def on_timer(self, now_us: int) -> Effects:
        """Answer due queries, and go on with plans whose answers are overdue."""
        effects: Effects = []
        self._coded.on_timer(now_us, effects)  # first: what is decoded at its deadline is in time
        effects += self.combiner.on_timer(now_us)
        for query, _ in self._due.due(now_us):
            self._go_on(query, now_us, effects, OVERDUE)
        for hedge in self._hedges.due(now_us):
            self._hedge(hedge, now_us)
        self._settle_ready(now_us, effects)
        return effects

    def next_deadline(self) -> int | None:
        """Return when the next answer is due (us); 0 if a query waits for an output that does not come."""
        if self._cache is not None and self._cache.has_orphans:
            return 0
        due = (
            self.combiner.next_deadline(),
            self._coded.next_due(),
            self._due.next_due(),
            self._hedges.next_due(),
        )
        return min([time_us for time_us in due if time_us is not None], default=None)

    def drop(self, partitions: Sequence[int]) -> None:
        """Forget pending queries of these partitions."""
        self._dispatcher.clear()
        self._coded.drop(partitions)
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
        more = {**self._hedges.statistics(), **(self._coded.statistics() if self._coded.is_used else {})}
        return {**self.combiner.statistics(), **cached, **more, "return_us": self._return_us.value}

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

    def _admitted(
        self, admission: Admission, pending: Pending, models: tuple[str, ...], due_us: int, now_us: int
    ) -> tuple[str, ...]:
        """Return the models that would answer in time, or whose output the cache has or awaits; the same if all."""
        refused = []
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
            self._dispatcher.add((topics.model_queries(orphan.model),), [Row(pending, orphan.due_us, orphan.input)])
        elif pending.is_due:
            self._settle(pending, now_us, effects)
        if pending.plan is None:
            pending.input = None  # which the cache looks at

    def _refuse(self, pending: Pending) -> Effects:
        """Answer a query whose input fits the query's record, but not the larger one to the model."""
        if self._cache is not None:
            self._cache.forget(pending)
        if pending.row is not None and not pending.answered:
            pending.outputs[pending.models[0]] = ModelOutput(pending.models[0], "", Outcome.FAILED, None)
            pending.message = "its input is too large"
            effects: Effects = []
            self._walks.take(pending, pending.received_us, effects)
            return effects
        return [] if pending.answered else [self.combiner.answer(pending, pending.received_us, "invalid_input")]
