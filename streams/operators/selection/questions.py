"""The one way to ask a model: every question about a query in hand is put here.

    Question ─▶ time for the way back ─▶ admission ─▶ cache ─▶ counted ─▶ coded or gathered ─▶ models.<m>.queries
                                             │ refused   └─ known, or awaited by another query
                                             ▼
                                      the models that take it

Most queries are asked once. Who asks more about one is an `Asker`: `again` a model after another, or the same one
twice, `graph` the stages of a graph. An application without them meets none of these rooms.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from policies.assignment import QUERY
from schemas import topics
from schemas.records import ModelOutput, Outcome
from streams.operators.selection.coded.reconstruction import Reconstruction
from streams.operators.selection.dispatch import ITS_TURN, Dispatcher, Row, drawn_versions, is_drawn_for
from streams.operators.selection.latencies import RunningQuantile
from streams.operators.statistics import render
from streams.operators.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Application, Model, ModelPredictions, Prediction
    from streams.operators.contract import Effects
    from streams.operators.selection.admission import Admission
    from streams.operators.selection.cache import Orphan, PredictionCache
    from streams.operators.selection.combiner import Combiner
    from streams.operators.selection.latencies import Latencies
    from streams.operators.selection.pending import Pending
    from streams.operators.statistics import Counters

# The largest share of the objective for the way back from a worker, however slow that has been.
MAX_RETURN_SHARE = 0.25
OVERLOADED = "overloaded"
W = TypeVar("W")  # what an asker waits for


@dataclass(frozen=True, slots=True)
class Question:
    """What models are asked about a query, whose input is there.

    Attributes:
        query: itself, or a row of a graph.
        models: to ask.
        until_us: how long their outputs are waited for.
        step: how many questions have been put before.
        place: the partition of each model's topic; by default the one whose turn it is.
        is_again: the query has been counted for it.
        is_copy: the same is on its way already: no output that is known or awaited will do.
    """

    query: Pending
    models: tuple[str, ...]
    until_us: int
    step: int = 0
    place: int = ITS_TURN
    is_again: bool = False
    is_copy: bool = False


class Asker(Generic[W]):
    """Who asks more about a query than its policy's models once, and what it waits for.

    Args:
        combiner: that holds the queries, and answers.
        models: that are deployed, by name, as they change.
        questions: asks models.
        counters: of the role.
    """

    __slots__ = ("_combiner", "_counters", "_due", "_models", "_questions")

    def __init__(
        self, combiner: Combiner, models: Mapping[str, Model], questions: Questions, counters: Counters
    ) -> None:
        self._combiner = combiner
        self._models = models
        self._questions = questions
        self._counters = counters
        self._due: Timers[W] = Timers(self._is_of_use)

    def begin(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Put the first question about a query whose models are drawn."""
        raise NotImplementedError

    def on_output(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Go on with a query whose outputs are there, or answer it."""
        raise NotImplementedError

    def on_due(self, now_us: int, effects: Effects) -> None:
        """Go on with what has waited long enough."""

    def answer(self, query: Pending, now_us: int, reason: str | None) -> Prediction | None:
        """Return its answer; None = it is made of the query's outputs, as others are."""

    def next_due(self) -> int | None:
        """Return when something has waited long enough (us)."""
        return self._due.next_due()

    def _is_of_use(self, waiting: W) -> bool:
        """Tell whether what has waited still matters."""
        return True

    def statistics(self) -> dict[str, float]:
        """Return its figures."""
        return {}


class Questions:
    """Asks models.

    Args:
        codec: of all records.
        models: that are deployed, by name, as they change.
        combiner: holds the queries that wait, and answers.
        cache: of outputs by input; None = every query is asked.
        admission: refuses queries that a model cannot answer in time; None = every query is asked.
        counters: of the role.
        inside: topics whose models run in this process.

    Attributes:
        cache: as given.
        admission: as given.
        dispatcher: gathers rows.
        turn: in which rows are asked that are gathered now.
        row_turn: the same of later stages' rows: they come with outputs, between polls with queries.
        coded: forms groups of rows, once an application wants them coded.
    """

    def __init__(
        self,
        codec: Codec,
        models: Mapping[str, Model],
        combiner: Combiner,
        cache: PredictionCache | None,
        admission: Admission | None,
        counters: Counters,
        inside: frozenset[str] = frozenset(),
    ) -> None:
        self.inside = inside
        self.admission = admission
        self.turn = self.row_turn = 0
        self.coded: Reconstruction | None = None
        self._codec = codec
        self._models = models
        self._combiner = combiner
        self.cache = cache
        self._counters = counters
        self.dispatcher = Dispatcher(codec, models, self._refuse, inside)
        self._asked: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)  # models by application
        # From a worker's record timestamp to here (us); starts at one measured leg.
        self._slow_return_us, self._return_us = RunningQuantile(0.95, 2_000.0), RunningQuantile(0.5, 2_000.0)
        self.back_us = self._usual_us = 2_000

    @property
    def is_direct(self) -> bool:
        """Whether all that is asked goes to models: none refuses, and no output is kept."""
        return self.cache is None and self.admission is None

    def put(self, question: Question, now_us: int) -> tuple[str, ...]:
        """Ask a question; returns the models that take it, or whose outputs are known; empty = all refuse."""
        self._name(question.query)
        models = self.admitted(question, now_us)
        if models:
            self.ask(question, models, now_us)
        return models

    def begin(self, query: Pending, now_us: int, effects: Effects) -> bool:
        """Put a query's first question; False: all its models refuse, and it has been answered by default."""
        self._note_slack(query.deadline_us - query.sent_us)
        query.models = self.put(Question(query, query.models, query.until_us), now_us)
        if not query.models:
            query.decision = None  # a query that asks no model has no decision
            effects.append(self._combiner.answer(query, now_us, OVERLOADED))
        return bool(query.models)

    def put_directly(self, queries: Sequence[Pending], now_us: int) -> None:
        """Put the first questions of queries in hand that one state has decided, as `begin` does if `is_direct`."""
        asked = self._asked[queries[0].application_name]
        rows: dict[tuple[str, ...], list[Row]] = {}
        for query in queries:
            models, given = query.models, query.input
            assert given is not None
            asked[models] += 1
            rows.setdefault(models, []).append(Row(query, query.until_us - self._return_us_of(query, models), given))
            query.input = None  # nobody is asked about it again
        self._note_slack(queries[-1].deadline_us - queries[-1].sent_us)
        for models, each in rows.items():
            self._dispatch(models, each, now_us)

    def admitted(self, question: Question, now_us: int) -> tuple[str, ...]:
        """Return the models that would answer in time, or whose output the cache has or awaits; the same if all."""
        query, models, admission = question.query, question.models, self.admission
        if admission is None:
            return models
        due_us = question.until_us - self._return_us_of(query, models)
        refused = []
        for model in models:
            if admission.admits(model, due_us, now_us, query.priority):
                continue
            if question.is_copy:
                refused.append(model)
            elif self.cache is None or not self.cache.knows(self._models[model], query):
                self._counters["overloaded_total", "model", model] += 1
                refused.append(model)
        return tuple([model for model in models if model not in refused]) if refused else models

    def ask(self, question: Question, models: tuple[str, ...], now_us: int) -> bool:
        """Ask models that have been admitted; False: all their outputs are known, or awaited by another query."""
        query, cache = question.query, self.cache
        due_us = question.until_us - self._return_us_of(query, question.models)
        if not question.is_again:
            self._asked[query.application_name][models] += 1
        if cache is not None and not question.is_copy:
            models = tuple([name for name in models if cache.ask(self._models[name], query, due_us, now_us)])
        if models:
            assert query.input is not None, "it can be asked"
            if self.admission is not None:
                self.admission.ask(models, due_us, now_us)
            self._dispatch(models, [Row(query, due_us, query.input)], now_us, question)
        return bool(models)

    def _dispatch(
        self, models: tuple[str, ...], rows: Sequence[Row], now_us: int, question: Question | None = None
    ) -> None:
        """Gather rows of an application, which form groups if they are coded: those of first questions."""
        application, asked = rows[0].query.application, topics_of(models)
        versions = {} if application is None else application.versions
        if application is not None and (application.assign != QUERY or application.holdout):
            for drawn, its in self._by_draw(models, rows):
                self._put_rows(application, asked, its, {**drawn, **versions}, question, now_us)
        else:
            self._put_rows(application, asked, rows, versions, question, now_us)

    def _by_draw(self, models: tuple[str, ...], rows: Sequence[Row]) -> list[tuple[Mapping[str, str], list[Row]]]:
        """Return rows by the versions that their contexts have drawn."""
        groups: dict[tuple[tuple[str, str], ...], list[Row]] = {}
        for row in rows:
            is_drawn = is_drawn_for(row.query)
            drawn = drawn_versions(row.query, models, self._models) if is_drawn else {}
            groups.setdefault(tuple(drawn.items()), []).append(row)
        return [(dict(drawn), its) for drawn, its in groups.items()]

    def _put_rows(
        self,
        application: Application | None,
        asked: tuple[str, ...],
        rows: Sequence[Row],
        versions: Mapping[str, str],
        question: Question | None,
        now_us: int,
    ) -> None:
        step, place = (0, ITS_TURN) if question is None else (question.step, question.place)
        is_first = question is None or not (step or question.is_again)
        if is_first and application is not None and application.parity and not self.inside.issuperset(asked):
            self._coding().ask(application, asked, rows, versions, now_us)
        else:
            self.dispatcher.add(asked, rows, versions, step, place)

    def _coding(self) -> Reconstruction:
        if self.coded is None:
            self.coded = Reconstruction(self._codec, self._models, self.dispatcher, self._combiner, self._counters)
        return self.coded

    def _name(self, query: Pending) -> None:
        """Choose a query's row id before the cache uses it."""
        cache = self.cache
        while cache is not None and cache.awaits(query):
            query.rename()
        self._combiner.name(query)

    def ask_again(self, orphan: Orphan, now_us: int) -> bool:
        """Ask for an output that another query was to fetch; True: it is there by now."""
        query, model = orphan.query, orphan.model
        if model not in self._models or query.answered:
            return False
        query.input = orphan.input
        question = Question(query, (model,), query.until_us, is_again=True)
        is_known = not self.ask(question, question.models, now_us) and query.is_due
        if query.follow_up is None:
            query.input = None  # which the cache looks at
        return is_known

    def flush(self, effects: Effects) -> None:
        """Append the records of everything gathered."""
        self.dispatcher.flush(self.turn, effects)
        if self.coded is not None:
            self.coded.flush(effects)

    def _refuse(self, query: Pending) -> Effects:
        """Answer a query whose input fits the query's record, but not the larger one to the model."""
        effects: Effects = []
        if self.cache is not None:
            self.cache.forget(query)
        follow_up = query.follow_up
        if query.answered:
            return effects
        if follow_up is None or follow_up.asker is None or not follow_up.is_part:
            return [self._combiner.answer(query, query.received_us, "invalid_input")]
        query.outputs[query.models[0]] = ModelOutput(query.models[0], "", Outcome.FAILED, None)
        query.message = "its input is too large"
        follow_up.asker.on_output(query, query.received_us, effects)
        return effects

    def taken_by_others(self, partition: int, batch: ModelPredictions, outputs: Sequence[ModelOutput]) -> list[Pending]:
        """Remember a batch's outputs; returns the queries that take one which was asked for another."""
        if self.cache is None:
            return []
        left = self._combiner.doubled(partition, batch)
        return [*self.cache.take_outputs(partition, batch, outputs, left)]

    def on_batch(self, batch: ModelPredictions, written_us: int, now_us: int) -> None:
        """Learn from a batch that a worker has written at a time: how long the way back takes, and how loaded it is."""
        self.row_turn += 1
        if written_us < now_us:
            self._slow_return_us.add(now_us - written_us)
            self._return_us.add(now_us - written_us)
            self.back_us, self._usual_us = int(self._slow_return_us.value), int(self._return_us.value)
        if self.admission is not None:
            model = self._models.get(batch.model)
            is_beside = model is not None and (batch.version in model.shares or batch.version in model.standby)
            self.admission.report(batch, now_us, is_beside=is_beside)

    def _note_slack(self, slack_us: int) -> None:
        """Note how much later than due outputs may come, by a query's slack: the way back usually takes less.

        Args:
            slack_us: from when it was sent to its deadline; -1 = there was no query.
        """
        if slack_us >= 0:
            self.dispatcher.spare_us = max(0, self._return_budget_us(slack_us) - self._usual_us)

    def _return_budget_us(self, slack_us: int) -> int:
        """Return how much of a query's slack is kept for the way back."""
        return min(int(slack_us * MAX_RETURN_SHARE), self.back_us)

    def _return_us_of(self, query: Pending, models: tuple[str, ...]) -> int:
        """Return how long before a query's answer the outputs of models must be on their way back (us)."""
        if self.inside and self.inside.issuperset(topics_of(models)):
            return 0
        return self._return_budget_us(query.deadline_us - query.sent_us)

    def last_chance_us(self, query: Pending, model: str, latencies: Latencies) -> int | None:
        """Return when a model must be asked about a query to be in time; None where its latency is not known."""
        return latencies.last_chance_us(model, query.until_us - self._return_us_of(query, (model,)))

    def expected_us(
        self, models: tuple[str, ...], query: Pending, latencies: Latencies, now_us: int
    ) -> tuple[float, ...]:
        """Return how long each model is expected to take (us): no time where the cache holds its output."""
        cache, deployed = self.cache, self._models
        if cache is None:
            return latencies.expected_us(models, now_us)
        asked = tuple([name for name in models if name not in deployed or not cache.holds(deployed[name], query)])
        expected_us = dict(zip(asked, latencies.expected_us(asked, now_us), strict=True))
        return tuple([expected_us.get(name, 0.0) for name in models])

    def count_asked(self, application: str, asked: Mapping[tuple[str, ...], int], slack_us: int) -> None:
        """Count questions by the models that were asked; the last one's slack (us) says what others may be spared."""
        for models, count in asked.items():
            self._asked[application][models] += count
        self._note_slack(slack_us)

    def drop(self, partitions: Sequence[int]) -> None:
        """Forget what was asked for queries of these partitions."""
        self.dispatcher.clear()
        if self.coded is not None:
            self.coded.drop(partitions)
        if self.admission is not None:
            self.admission.clear()
        if self.cache is not None:
            self.cache.drop(partitions)

    def asked(self) -> dict[str, float]:
        """Return how often each model was asked, by application."""
        asked: Counter[str] = Counter()
        for application, drawn in self._asked.items():
            for model, count in ((model, count) for models, count in drawn.items() for model in models):
                asked[render(("asked_total", "application", application, "model", model))] += count
        return {**asked}

    def statistics(self) -> dict[str, float]:
        """Return gauges of the cache and of groups, and the time for the way back."""
        cached = self.cache.statistics() if self.cache is not None else {}
        coded = self.coded.statistics() if self.coded is not None and self.coded.is_used else {}
        return {**cached, **coded, "return_us": self._return_us.value}


@lru_cache(maxsize=4_096)
def topics_of(models: tuple[str, ...]) -> tuple[str, ...]:
    """Return the topics of models' queries."""
    return tuple(map(topics.model_queries, models))
