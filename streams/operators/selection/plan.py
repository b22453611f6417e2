"""What a query asks after its first models: a question more when an answer has come, or when time has.

    models asked ──▶ their answers, or the time at which they are overdue ──▶ Steps.after ──▶ Step ─┬▶ asked: go on
                                                                                                    ├▶ kept: answer
                                                                                                    └▶ late: answer

A question has the query's id and deadline. It is put at random, by a draw from that id, so a query that is read twice
is decided alike by the same state. The decision that is logged has the probability with which each arm was asked.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from policies.draw import uniform
from schemas.records import Outcome, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policies.contract import Ask, Steps
    from schemas.records import Decision, ModelOutput
    from streams.operators.selection.pending import Pending

ESCALATE: Final = "escalate"
OVERDUE: Final = "overdue"
ASKED: Final = "asked"
KEPT: Final = "kept"
LATE: Final = "late"
_BUCKET_US: Final = 1_000  # as the combiner keeps deadlines


class QueryPlan:
    """One query's questions.

    Attributes:
        steps: what its policy may ask.
        taken: what has been decided after the first question.
        latest: the models that were asked last.
    """

    __slots__ = ("latest", "steps", "taken")

    def __init__(self, steps: Steps, models: tuple[str, ...]) -> None:
        self.steps = steps
        self.taken: tuple[Step, ...] = ()
        self.latest = models

    @property
    def is_over(self) -> bool:
        """Whether nothing more is asked, because the last question was not."""
        return bool(self.taken) and self.taken[-1].outcome != ASKED

    def ask(self, query: Pending) -> Ask | None:
        """Return the next question; None = there is none."""
        decision = query.decision
        return None if self.is_over or decision is None else self.steps.after(decision.chosen, outputs_by_arm(query))

    def confidence(self, outputs: Mapping[int, ModelOutput], otherwise: float) -> float:
        """Return how sure the models are of the answer made of these outputs."""
        known = self.steps.confidence(outputs)
        return otherwise if known is None else known

    def decide(self, query: Pending, ask: Ask, kind: str, needed_us: int, now_us: int) -> bool:
        """Decide on a question, and note it in plan and decision; tells whether it is asked.

        Args:
            query: whose plan it is.
            ask: the question.
            kind: why it comes now.
            needed_us: what its models take to answer; 0 = not known.
            now_us: the time.
        """
        decision = query.decision
        assert decision is not None
        if needed_us > query.until_us - now_us:
            probability, outcome = 0.0, LATE
        else:
            drawn = uniform(query.query_id, f"step {len(self.taken) + 1}")
            probability, outcome = ask.probability, ASKED if drawn < ask.probability else KEPT
        step = Step(kind, ask.arms, now_us, probability, outcome, ask.confidence, ask.threshold, needed_us)
        self.taken += (step,)
        query.decision = _with(decision, step)
        return outcome is ASKED


def _with(decision: Decision, step: Step) -> Decision:
    """Return a decision with a step: an arm is asked if all steps up to its own are."""
    reached = min([decision.propensities[arm] for arm in decision.chosen])
    propensities = list(decision.propensities)
    for arm in step.arms:
        propensities[arm] = reached * step.probability
    chosen = decision.chosen + step.arms if step.outcome == ASKED else decision.chosen
    return decision._replace(chosen=chosen, propensities=tuple(propensities))


def outputs_by_arm(query: Pending) -> dict[int, ModelOutput]:
    """Return the outputs that have come, by the arm that was asked."""
    decision, outputs = query.decision, query.outputs
    if decision is None:
        return {}
    return {arm: outputs[name] for arm in decision.chosen if (name := decision.arms[arm]) in outputs}


def is_due(query: Pending) -> bool:
    """Tell whether all that was asked has been answered, or all that was asked last, well."""
    outputs, plan = query.outputs, query.plan
    if len(outputs) == len(query.models):
        return True
    return plan is not None and all(
        (output := outputs.get(model)) is not None and output.outcome is Outcome.OK for model in plan.latest
    )


class DueSteps:
    """Queries whose answers are overdue at some time, by the millisecond."""

    __slots__ = ("_buckets", "_due")

    def __init__(self) -> None:
        self._due: dict[int, list[tuple[Pending, int]]] = {}
        self._buckets: list[int] = []

    def add(self, query: Pending, at_us: int) -> None:
        """Expect a query's latest models to have answered by then."""
        assert query.plan is not None
        bucket = at_us // _BUCKET_US
        if bucket not in self._due:
            self._due[bucket] = []
            heapq.heappush(self._buckets, bucket)
        self._due[bucket].append((query, len(query.plan.taken)))

    def next_due(self) -> int | None:
        """Return when the next is overdue (us); what was answered or has gone on is dropped."""
        while self._buckets:
            due = self._due[self._buckets[0]]
            due[:] = filter(_still_waits, due)
            if due:
                return self._buckets[0] * _BUCKET_US
            del self._due[heapq.heappop(self._buckets)]
        return None

    def due(self, now_us: int) -> Iterator[Pending]:
        """Remove and yield queries whose latest models have not answered in time."""
        while self._buckets and self._buckets[0] * _BUCKET_US <= now_us:
            for waiting in self._due.pop(heapq.heappop(self._buckets)):
                if _still_waits(waiting):
                    yield waiting[0]


def _still_waits(waiting: tuple[Pending, int]) -> bool:
    query, taken = waiting
    return not query.answered and query.plan is not None and len(query.plan.taken) == taken
