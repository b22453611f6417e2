"""Cascades: another model is asked where the answers that have come leave it in doubt, or do not come in time.

    first models ──▶ outputs, or the last moment at which the next model is in time ──▶ `plan` ─┬▶ asked: go on
                                                                                                └▶ not: answer

The last moment is known once the next model's latency is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.operators.selection.again.plan import ESCALATE, OVERDUE, QueryPlan
from streams.operators.selection.questions import Asker, Question

if TYPE_CHECKING:
    from streams.operators.contract import Effects
    from streams.operators.selection.pending import Pending


class Cascades(Asker[tuple["Pending", int]]):
    """Asks what policies ask stepwise; queries wait, with their steps so far, until their next models must be asked."""

    __slots__ = ()

    def begin(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Ask a query's first models; go on if their outputs are known."""
        if not self._questions.begin(query, now_us, effects):
            return
        self._combiner.open([query])
        if query.version is not None or query.arms is None:
            query.input = None  # its client has chosen: nothing else is asked
            return
        query.follow_up = QueryPlan(query.arms.steps, query.models, self)
        self._combiner.watch_latencies()
        query.keep_input()
        if query.is_due:
            self.on_output(query, now_us, effects)
        else:
            self._expect(query, now_us)

    def on_due(self, now_us: int, effects: Effects) -> None:
        """Go on with queries whose answers are overdue."""
        for query, _ in self._due.due(now_us):
            self._go_on(query, now_us, effects, OVERDUE)

    def on_output(self, query: Pending, now_us: int, effects: Effects) -> None:
        """Go on with a query whose outputs have come."""
        self._go_on(query, now_us, effects, ESCALATE)

    def _go_on(self, query: Pending, now_us: int, effects: Effects, kind: str) -> None:
        """Ask what a query's plan asks next, or answer it; without an answer it waits until its deadline."""
        plan = query.follow_up
        if isinstance(plan, QueryPlan) and self._has_asked(query, plan, now_us, kind):
            if query.is_due:
                self._go_on(query, now_us, effects, ESCALATE)
        elif query.is_due:
            effects.append(self._combiner.answer(query, now_us))

    def _has_asked(self, query: Pending, plan: QueryPlan, now_us: int, kind: str) -> bool:
        """Decide on the next question, and put it; False: nothing more is asked."""
        decision = query.decision
        ask = None if decision is None else plan.ask(decision, query.outputs)
        if decision is None or ask is None:
            return False
        models = tuple([decision.arms[arm] for arm in ask.arms])
        question = Question(query, models, query.until_us, len(plan.taken) + 1)
        needed_us, left_us = self._needed_us(models, query, now_us), query.until_us - now_us
        is_refused = needed_us > left_us or not self._is_admitted(question, now_us)
        query.decision = plan.decide(
            query.query_id, decision, ask, kind, needed_us, left_us, now_us, is_refused=is_refused
        )
        labels = ("application", query.application_name, "kind", kind, "outcome", plan.taken[-1].outcome)
        self._counters["steps_total", *labels] += 1
        if plan.is_over:
            return False
        query.models += models
        plan.latest = models
        self._questions.ask(question, models, now_us)
        self._expect(query, now_us)
        return True

    def _is_admitted(self, question: Question, now_us: int) -> bool:
        """Tell whether all models of a question can be asked, and would not refuse it."""
        if question.query.input is None or not self._models.keys() >= {*question.models}:
            return False
        return len(self._questions.admitted(question, now_us)) == len(question.models)

    def _needed_us(self, models: tuple[str, ...], query: Pending, now_us: int) -> int:
        """Return what models take to answer, at a high quantile; 0 = not known, or to be tried again."""
        latencies = self._combiner.latencies
        if latencies is None:
            return 0
        return int(max(self._questions.expected_us(models, query, latencies, now_us), default=0.0))

    def _expect(self, query: Pending, now_us: int) -> None:
        """Note when the next model must be asked without an answer, if its latency is known."""
        decision, latencies, plan = query.decision, self._combiner.latencies, query.follow_up
        if decision is None or latencies is None or plan is None:
            return
        if len(decision.chosen) == len(decision.arms) or query.is_due:
            return
        at_us = self._questions.last_chance_us(query, decision.arms[len(decision.chosen)], latencies)
        if at_us is not None and at_us >= now_us:
            self._due.add((query, len(plan.taken)), at_us)

    def _is_of_use(self, waiting: tuple[Pending, int]) -> bool:
        query, taken = waiting
        return not query.answered and query.follow_up is not None and len(query.follow_up.taken) == taken
