"""Hedging: a model that takes longer than usual is asked again in another partition, and the first answer counts.

    asked ──▶ 95 of 100 would have answered by now ──▶ a token left? time left? ──▶ the same row, another partition

Replicas share a model's partitions in ranges, so another replica reads the one half of them further on. Each answer
brings a share of a token and each question takes one. So at most that share of the questions is asked twice, and while
nobody answers, no more than the tokens held (Dean and Barroso, The tail at scale, CACM 2013; gRPC's retry throttling).
Five in a hundred take longer than usual on an ordinary day. Half of the tokens is therefore kept for what takes twice
as long: a replica that stands still holds up many at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from policies.tokens import Tokens
from schemas import topics
from schemas.records import Step
from streams.operators.configuration import HEDGE
from streams.operators.selection.again.plan import ASKED, LATE, QueryPlan
from streams.operators.selection.questions import OVERLOADED, Asker, Question, Questions
from streams.operators.statistics import render
from streams.operators.timers import BUCKET_US

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Application, Model
    from streams.operators.contract import Effects
    from streams.operators.selection.combiner import Combiner
    from streams.operators.selection.pending import Pending
    from streams.operators.statistics import Counters

UNPAID: Final = "unpaid"


class Hedge(NamedTuple):
    """Models that are to be asked again about a query."""

    query: Pending
    models: tuple[str, ...]
    turn: int  # in whose partitions they were asked
    usual_us: int  # what 95 of 100 rows take at most
    is_urgent: bool = False  # it takes twice as long as that

    @property
    def missing(self) -> tuple[str, ...]:
        """The models that have not answered yet."""
        return tuple([model for model in self.models if model not in self.query.outputs])


class Hedges(Asker[Hedge]):
    """Asks again, for tokens by application."""

    __slots__ = ("_tokens",)

    def __init__(
        self, combiner: Combiner, models: Mapping[str, Model], questions: Questions, counters: Counters
    ) -> None:
        super().__init__(combiner, models, questions, counters)
        self._tokens: dict[str, Tokens] = {}

    def begin(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Ask a query's models, and note when they take longer than usual."""
        latencies = self._combiner.watch_latencies()
        if not self._questions.begin(query, now_us, effects):
            return
        if len(query.outputs) == len(query.models):
            effects.append(self._combiner.answer(query, now_us))
            return
        self._combiner.open([query])
        models = tuple([name for name in query.models if self._has_replicas(name)]) if query.version is None else ()
        usual_us = [known for name in models if (known := latencies.quantile_us(name)) is not None]
        if models and len(usual_us) == len(models):
            query.keep_input()
            self._expect(Hedge(query, models, self._questions.turn, max(usual_us)), now_us)
        else:
            query.input = None

    def _has_replicas(self, model: str) -> bool:
        """Tell whether another replica may read another partition of a model's topic."""
        known = self._models.get(model)
        return known is not None and known.partitions > 1 and topics.model_queries(model) not in self._questions.inside

    def _expect(self, hedge: Hedge, asked_us: int) -> None:
        """Ask these models again if they take longer than usual."""
        self._due.add(hedge, asked_us + hedge.usual_us + BUCKET_US)

    def on_output(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Answer a query that was asked twice, if nothing is on its way that it needs."""
        if query.is_due:
            effects.append(self._combiner.answer(query, now_us))

    def on_due(self, now_us: int, effects: Effects) -> None:
        """Ask again what takes longer than usual."""
        for hedge in self._due.due(now_us):
            self._hedge(hedge, now_us)

    def _hedge(self, hedge: Hedge, now_us: int) -> None:
        """Ask a query's models again that have not answered, for a token each."""
        query, application, missing = hedge.query, hedge.query.application, hedge.missing
        if application is None or query.decision is None or query.input is None or not missing:
            return
        self._earn(application, self._combiner.answers.pop(application.name, 0))
        asked: list[str] = []
        for name in missing:
            outcome = self._asked(name, hedge, application, now_us)
            if outcome == UNPAID and not hedge.is_urgent:
                self._expect(hedge._replace(models=(name,), is_urgent=True), now_us)
                continue
            self._counters["hedges_total", "application", application.name, "model", name, "outcome", outcome] += 1
            if outcome == ASKED:
                asked.append(name)
        if asked:
            arms = tuple([query.decision.arms.index(name) for name in asked])
            plan = query.follow_up if isinstance(query.follow_up, QueryPlan) else QueryPlan(None, query.models, self)
            plan.taken += (Step(HEDGE, arms, now_us, 1.0, ASKED, needed_us=hedge.usual_us),)
            plan.copies |= {name: set() for name in asked}
            plan.right = () if query.follow_up is None else query.follow_up.right
            query.follow_up = plan

    def _asked(self, model: str, hedge: Hedge, application: Application, now_us: int) -> str:
        """Return what becomes of a question that is to be put again: if there are time and a token, it is."""
        query, latencies = hedge.query, self._combiner.latencies
        half_us = None if latencies is None else latencies.quantile_us(model, 0.5)
        if half_us is None or now_us + half_us > query.until_us:
            return LATE
        # Half of its partitions further on another replica reads.
        partitions = self._models[model].partitions
        place = (hedge.turn + partitions // 2) % partitions
        question = Question(query, (model,), query.until_us, 1, place, is_again=True, is_copy=True)
        if not self._questions.admitted(question, now_us):
            return OVERLOADED
        if not self._spend(application, is_urgent=hedge.is_urgent):
            return UNPAID
        self._questions.ask(question, question.models, now_us)
        return ASKED

    def _is_of_use(self, hedge: Hedge) -> bool:
        return not hedge.query.answered

    def _earn(self, application: Application, answers: int) -> None:
        """Count answers of an application."""
        self._tokens[application.name] = self._tokens.get(application.name, Tokens()).earn(application.hedge, answers)

    def _spend(self, application: Application, *, is_urgent: bool) -> bool:
        """Take a token; False: there is none."""
        left = self._tokens.get(application.name, Tokens()).spend(is_urgent=is_urgent)
        if left is not None:
            self._tokens[application.name] = left
        return left is not None

    def statistics(self) -> dict[str, float]:
        """Return the tokens by application."""
        return {render(("hedge_tokens", "application", name)): tokens.held for name, tokens in self._tokens.items()}
