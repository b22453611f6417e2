"""`cascade`: the cheap model first; a dearer one where the cheap one is in doubt, and there is time and money."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from policies.confidence import confidence_of
from policies.contract import Ask
from policies.errors import require
from policies.light_lessons import fading
from policies.pacing import payable, place_for, risen
from policies.risk import CELLS, cell, confidence_at, lowest_held, place
from schemas.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.contract import State
    from policies.lessons import Lesson
    from schemas.records import ModelOutput, Value

ASKED = "asked"  # the outcome of a step that was taken
_AGAIN = ("escalate", "overdue")
_PACING = 3  # numbers at the end of a state: queries, those that the last arm was asked about, the price of asking it


@dataclass(frozen=True, slots=True)
class Doubts:
    """What a cascade asks in one state.

    Args:
        first: the arms that are asked first.
        arms: how many there are.
        places: for each question after the first, the place (`risk.place`) below which it is asked for certain.
        explore: how likely it is far above.
        is_spent: whether no more may be asked of the last arm for a while, not even without any answer.
    """

    first: tuple[int, ...]
    arms: int
    places: tuple[float, ...]
    explore: float
    is_spent: bool = False

    def after(self, asked: tuple[int, ...], outputs: Mapping[int, ModelOutput]) -> Ask | None:
        """Return a question to the next arm, the more likely the less sure the answers so far are."""
        if len(asked) >= self.arms:
            return None
        question = len(asked) - len(self.first)
        latest = [outputs.get(arm) for arm in self._latest(asked)]
        confidence = confidence_of(latest) or 0.0
        is_answered = all(output is not None and output.outcome is Outcome.OK for output in latest)
        probability = self.chance(question, confidence) if is_answered or self.is_spent else 1.0
        return Ask((len(asked),), probability, confidence, confidence_at(self.places[question]))

    def chance(self, question: int, confidence: float) -> float:
        """Return 1 below the threshold; above it falls to `explore` within a cell: what is near stays random."""
        here, at = place(confidence), self.places[question]
        if here < at:
            return 1.0
        return self.explore if at <= 0.0 else min(1.0, max(self.explore, 1.0 - (here - at)))

    def votes(self, answers: Mapping[int, Value | None]) -> dict[int, float]:
        """Return 1 for the dearest arm that has answered; the arms of the first question count alike."""
        found = [arm for arm, answer in answers.items() if answer is not None]
        best = self._latest(tuple(found)) if found else self.first
        return {arm: 1.0 / len(best) if arm in best else 0.0 for arm in answers}

    def confidence(self, outputs: Mapping[int, ModelOutput]) -> float | None:
        """Return how sure the dearest arm is that has answered."""
        return confidence_of([outputs[arm] for arm in self._latest(tuple(outputs))]) if outputs else None

    def _latest(self, asked: tuple[int, ...]) -> tuple[int, ...]:
        last = max(asked)
        return tuple([arm for arm in asked if arm in self.first]) if last in self.first else (last,)


@dataclass(frozen=True, slots=True)
class Cascade:
    """Ask the first arm; ask the next one where the answer's confidence is below a threshold that is learnt.

    The arms stand in order, cheap ones first. A question is put only if the time left allows for it. A model's
    confidence is its best score; two cheap models (`first=2`) are sure where they agree. If the models give no scores,
    one model alone is never sure.

    The threshold is the lowest one that is shown to hold the `risk`: by so much at most may the mean loss exceed the
    last arm's, with probability 1 - delta at all times. Until enough is known, everything is asked on. What a cheap
    answer costs too much is known where the next arm was asked, too. Where it was not, all of its loss counts. With a
    `budget`, the last arm is asked about no larger share of the queries: those in most doubt.

    Args:
        risk: what the cheaper arms' answers may cost more than the last arm's, in the mean over all queries; 0 = they
            are given only for want of budget or time.
        delta: how often the risk may be missed, in (0, 1).
        budget: the share of the queries about which the last arm may be asked; 1 = all.
        explore: how likely a question is where the answer is sure, so that the log tells what it would have brought.
        first: how many arms are asked at once at first.
        discount: what a count keeps when one more is added to it, in (0, 1]. Below 1 the models may change, and the
            risk is held only as far as the last 1 / (1 - discount) queries can tell.

    Examples:
        >>> policy = Cascade()
        >>> policy.select(policy.init(2), 2, u=0.5)
        (0,)

    References:
        Viola and Jones, CVPR 2001; Chen, Zaharia and Zou, FrugalGPT, arXiv 2305.05176 (a threshold on confidence);
        `policies.risk` and `policies.pacing` for what is learnt.
    """

    name: ClassVar[str] = "cascade"
    weighs: ClassVar[bool] = True
    full_information: ClassVar[bool] = False

    risk: float = 0.01
    delta: float = 0.05
    budget: float = 1.0
    explore: float = 0.01
    first: int = 1
    discount: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        require(0.0 <= self.risk < 1.0, f"cascade: risk is {self.risk}; it must lie in [0, 1), 0.01 is usual")
        require(0.0 < self.delta < 1.0, f"cascade: delta is {self.delta}; it must lie in (0, 1), 0.05 is usual")
        require(0.0 <= self.budget <= 1.0, f"cascade: budget is {self.budget}; it must lie in [0, 1], 1 = no bound")
        require(0.0 < self.explore < 1.0, f"cascade: explore is {self.explore}; it must lie in (0, 1), 0.01 is usual")
        require(self.first == int(self.first) >= 1, f"cascade: first is {self.first}; it is a number of models")
        require(0.0 < self.discount <= 1.0, f"cascade: discount is {self.discount}; it must lie in (0, 1]")

    def init(self, arms: int) -> State:
        """Return the state before any observation: counts by arm and confidence; queries, questions and their price."""
        return (0.0,) * (2 * CELLS * arms + _PACING)

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return 1.0 for the arms that are asked first; those of the other ones depend on what these answer."""
        return tuple([1.0 if arm < self.first else 0.0 for arm in range(arms)])

    def floor(self, arms: int) -> float:
        """Return 0.0: the others may never be asked."""
        return 0.0

    def select(self, state: State, arms: int, u: float) -> tuple[int, ...]:
        """Return the arms of the first question."""
        return self._first(arms)

    def weights(self, state: State, arms: int) -> tuple[float, ...]:
        """Return equal weights of the arms that are asked first, as they are when no other has answered."""
        first = self._first(arms)
        return tuple([1.0 / len(first) if arm in first else 0.0 for arm in range(arms)])

    def steps(self, state: State, arms: int) -> Doubts:
        """Return what it asks in this state."""
        first = self._first(arms)
        places = [self._place(state, arm, arms) for arm in range(len(first) - 1, arms - 1)]
        queries, asked, price = state[-_PACING:]
        is_spent = self.budget < 1.0 and payable(self.budget, queries, asked, price) <= 0.0
        return Doubts(first, arms, tuple(places), self.explore, is_spent)

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Count each answer after which a question was due, by its confidence, and what it cost too much."""
        losses = lesson.losses
        if all(loss is None for loss in losses):
            return state
        kept, more = fading(self.discount, lesson.weight)
        counts, is_asked = [count * kept for count in state[:-_PACING]], False
        for step in lesson.steps:
            if step.kind in _AGAIN and len(step.arms) == 1 and 0 < step.arms[0] < arms:
                last = step.arms[0]
                at = 2 * (CELLS * (last - 1) + cell(step.confidence))
                counts[at] += more
                counts[at + 1] += more * _too_much(losses, last, self.first)
                is_asked = is_asked or (last == arms - 1 and step.outcome == ASKED)
        # The budget is of queries, whatever their lessons weigh.
        queries, asked = self.discount * state[-3] + 1.0, self.discount * state[-2] + is_asked
        return (*counts, queries, asked, risen(state[-1], self.budget, queries, is_asked=is_asked))

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Return the counts by name; a new arm has none, so its answers are not believed before they are judged."""
        if not set(old_arms) & set(new_arms):
            return self.init(len(new_arms))
        width, nothing = 2 * CELLS, (0.0,) * (2 * CELLS)
        known = {name: state[width * at : width * (at + 1)] for at, name in enumerate(old_arms)}
        return tuple([count for name in new_arms for count in known.get(name, nothing)]) + state[-_PACING:]

    def _first(self, arms: int) -> tuple[int, ...]:
        return tuple(range(min(int(self.first), arms)))

    def _place(self, state: State, arm: int, arms: int) -> float:
        """Return the place below which the next arm is asked after this one."""
        cells = state[2 * CELLS * arm : 2 * CELLS * (arm + 1)]
        parts = max(1, arms - int(self.first))
        held = float(lowest_held(cells[::2], cells[1::2], self.risk / parts, self.delta / parts))
        if arm < arms - 2 or self.budget >= 1.0:
            return held
        queries, asked, price = state[-_PACING:]
        share = payable(self.budget, queries, asked, price)
        # The arm before has not been asked about the others. Cells count weights of lessons, as those of the first do.
        start = 2 * CELLS * (len(self._first(arms)) - 1)
        due = sum(state[start : start + 2 * CELLS : 2])
        reached = sum(cells[::2]) / due if due else 1.0
        return min(held, place_for(cells[::2], share / max(reached, share, 1e-9)))


def _too_much(losses: Sequence[float | None], arm: int, first: int) -> float:
    """Return how much more than an arm's answer the one before it has cost; what is not known counts against that."""
    before = range(min(arm, int(first))) if arm <= first else (arm - 1,)
    cost = max([1.0 if (loss := losses[at]) is None else loss for at in before], default=1.0)
    return max(0.0, cost - (losses[arm] or 0.0))
