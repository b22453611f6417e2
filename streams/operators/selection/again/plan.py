"""What a query asks after its first models: a question more when an answer has come, or when time has.

    models asked ──▶ their answers, or the time at which they are overdue ──▶ Steps.after ──▶ Step ─┬▶ asked: go on
                                                                                                    ├▶ kept: answer
                                                                                                    ├▶ late: answer
                                                                                                    └▶ overloaded

A question has the query's id and deadline. It is put at random, by a draw from that id, so a query that is read twice
is decided alike by the same state. The decision that is logged has the probability with which each arm was asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.draw import uniform
from policies.errors import PolicyError
from schemas.records import Outcome, Step
from streams.operators.selection.pending import FollowUp
from streams.operators.selection.questions import OVERLOADED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.contract import Ask, Steps
    from schemas.records import Decision, ModelOutput
    from streams.operators.selection.pending import FollowsUp

ESCALATE: Final = "escalate"
OVERDUE: Final = "overdue"
ASKED: Final = "asked"
KEPT: Final = "kept"
LATE: Final = "late"


class QueryPlan(FollowUp):
    """One query's questions.

    Attributes:
        steps: what its policy may ask; None = nothing, it is asked again as it was (`hedge`).
        taken: what has been decided after the first question.
        latest: the models that were asked last.
        copies: of models that were asked the same twice, which of both answers has come and was none.
        has_failed: its policy, which is somebody's own, could not say what it asks next.
    """

    __slots__ = ("copies", "has_failed", "latest", "steps", "taken")

    def __init__(self, steps: Steps | None, models: tuple[str, ...], asker: FollowsUp | None = None) -> None:
        super().__init__(asker)
        self.steps = steps
        self.taken: tuple[Step, ...] = ()
        self.latest = models
        self.copies: dict[str, set[bool]] = {}
        self.has_failed = False

    @property
    def is_stepwise(self) -> bool:
        """Whether its policy may ask other models after the first."""
        return self.steps is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing more is asked, because the last question was not."""
        return bool(self.taken) and self.taken[-1].outcome != ASKED

    def ask(self, decision: Decision, outputs: Mapping[str, ModelOutput]) -> Ask | None:
        """Return the next question; None = there is none.

        Args:
            decision: so far.
            outputs: that have come, by model.
        """
        if self.is_over or self.steps is None or self.has_failed:
            return None
        arms = decision.arms
        known = {arm: outputs[arms[arm]] for arm in decision.chosen if arms[arm] in outputs}
        try:
            return self.steps.after(decision.chosen, known)
        except PolicyError:
            self.has_failed = True
            return None

    def confidence(self, outputs: Mapping[int, ModelOutput], otherwise: float) -> float:
        """Return how sure the models are of the answer made of these outputs."""
        known = None if self.steps is None else self.steps.confidence(outputs)
        return otherwise if known is None else known

    def decide(
        self,
        query_id: str,
        decision: Decision,
        ask: Ask,
        kind: str,
        needed_us: int,
        left_us: int,
        now_us: int,
        *,
        is_refused: bool = False,
    ) -> Decision:
        """Decide on a question, and return the decision with it; `is_over` tells whether it is asked.

        Args:
            query_id: draws.
            decision: so far.
            ask: the question.
            kind: why it comes now.
            needed_us: what its models take to answer; 0 = not known.
            left_us: until the answer has to leave.
            now_us: the time.
            is_refused: whether its models would refuse it: then nothing is asked, nor spent.
        """
        if needed_us > left_us:
            probability, outcome = 0.0, LATE
        elif is_refused:
            probability, outcome = 0.0, OVERLOADED
        else:
            drawn = uniform(query_id, f"step {len(self.taken) + 1}")
            probability, outcome = ask.probability, ASKED if drawn < ask.probability else KEPT
        step = Step(kind, ask.arms, now_us, probability, outcome, ask.confidence, ask.threshold, needed_us)
        self.taken += (step,)
        return _with(decision, step)

    def waits_for_copy(self, output: ModelOutput, *, is_again: bool) -> bool:
        """Tell whether the same question to a model is still on its way, as its other answer is none.

        Args:
            output: has come.
            is_again: whether it answers the second question. The same answer may come several times.
        """
        come = self.copies.get(output.model)
        if come is None or output.outcome is Outcome.OK:
            return False
        come.add(is_again)
        return len(come) < 2

    def is_due(self, outputs: Mapping[str, ModelOutput]) -> bool:
        """Tell whether the models that were asked last have answered, and well."""
        known = [outputs.get(model) for model in self.latest]
        return all(output is not None and output.outcome is Outcome.OK for output in known)


def _with(decision: Decision, step: Step) -> Decision:
    """Return a decision with a step: an arm is asked if all steps up to its own are."""
    reached = min([decision.propensities[arm] for arm in decision.chosen])
    propensities = list(decision.propensities)
    for arm in step.arms:
        propensities[arm] = reached * step.probability
    chosen = decision.chosen + step.arms if step.outcome == ASKED else decision.chosen
    return decision._replace(chosen=chosen, propensities=tuple(propensities))
