"""Where a policy that asks several models would have ended, question by question, as far as the log holds the outputs.

    asked first ─▶ outputs ─▶ stops, with some probability ─▶ an end
                          └─▶ asks on ─▶ outputs ─▶ ...        the log has not asked: an end of which nothing is known

An end is to an estimator what an arm is. It is known where the log has asked all that the policy would have asked until
then, which the log did with a probability of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from policies.cascade import ASKED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from policies.contract import Ask, Steps
    from schemas.records import ModelOutput, Observation, Value


class AskedInTurn(Protocol):
    """What is asked about one query: `policies.contract.Steps`, or everything at once."""

    first: tuple[int, ...]

    def after(self, asked: tuple[int, ...], outputs: Mapping[int, ModelOutput]) -> Ask | None:
        """Return what may be asked next; None = nothing."""
        ...

    def votes(self, answers: Mapping[int, Value | None]) -> Mapping[int, float]:
        """Return how much each asked arm's answer counts."""
        ...


class WalkEnd(NamedTuple):
    """Where a policy may end.

    Attributes:
        asked: the arms until then, in order.
        chance: that it ends here.
        is_known: whether the log has asked all of them; if not, the policy ends here or further on.
        before: the arms that the log has asked of these, at an end that is not known.
    """

    asked: tuple[int, ...]
    chance: float
    is_known: bool = True
    before: tuple[int, ...] = ()


def ends(
    questions: AskedInTurn, outputs: Mapping[int, ModelOutput], there: Collection[int], most: int | None = None
) -> Iterator[WalkEnd]:
    """Yield where a policy may end; their chances sum to 1.

    Args:
        questions: of the policy, in its state.
        outputs: what has been answered, by arm.
        there: the arms that the log has asked.
        most: after so many questions no time was left; None = nobody knows.
    """
    asked, reached, number = questions.first, 1.0, 0
    before: tuple[int, ...] = ()
    while True:
        if not all(arm in there for arm in asked):
            yield WalkEnd(asked, reached, is_known=False, before=before)
            return
        known = {arm: outputs[arm] for arm in asked if arm in outputs}
        ask = None if most is not None and number >= most else questions.after(asked, known)
        if ask is None:
            yield WalkEnd(asked, reached)
            return
        if ask.probability < 1.0:
            yield WalkEnd(asked, reached * (1.0 - ask.probability))
        reached *= ask.probability
        if reached <= 0.0:
            return
        asked, before, number = asked + ask.arms, asked, number + 1


def follows(steps: Steps, seen: Observation) -> bool:
    """Tell whether the log has asked the same questions, so that the confidences that it holds are theirs."""
    later = {arm for step in seen.steps if step.outcome == ASKED for arm in step.arms}
    if seen.steps and {*steps.first} != {*seen.decision.chosen} - later:
        return False
    asked = steps.first
    for step in seen.steps:
        ask = steps.after(asked, {})
        if ask is None or ask.arms != step.arms:
            return False
        asked += step.arms
    return True


def ends_by_confidence(steps: Steps, seen: Observation) -> Iterator[WalkEnd]:
    """Yield the same by the confidences that another cascade has logged, where outputs are not known.

    Of a log that asked by other questions nothing is known.
    """
    if not follows(steps, seen):
        yield WalkEnd(steps.first, 1.0, is_known=False)
        return
    asked, reached = steps.first, 1.0
    for number, step in enumerate(seen.steps):
        chance = steps.chance(number, step.confidence) if step.probability else 0.0
        if chance < 1.0:
            yield WalkEnd(asked, reached * (1.0 - chance))
        reached *= chance
        if reached <= 0.0:
            return
        if step.outcome != ASKED:
            yield WalkEnd(asked + step.arms, reached, is_known=False, before=asked)
            return
        asked += step.arms
    is_over = len(asked) >= len(seen.decision.arms)
    yield WalkEnd(asked, reached, is_known=is_over, before=() if is_over else asked)


def time_for(seen: Observation) -> int | None:
    """Return for how many questions there was time; None = nothing was asked that had none."""
    return next((number for number, step in enumerate(seen.steps) if not step.probability), None)


def together(seen: Observation, arms: Collection[int]) -> float:
    """Return how likely the log was to ask all of these; 0 = as far as it says, never.

    AskedInTurn that follow one another contain each other, so the rarest tells. Of arms that were drawn otherwise two
    that are not certain tell nothing of both.
    """
    shares = [seen.decision.propensities[arm] for arm in arms]
    unsure = [share for share in shares if share < 1.0]
    return min(shares, default=1.0) if seen.steps or len(unsure) < 2 else 0.0


def may_go_on(seen: Observation) -> bool:
    """Tell whether the log could have asked on and did not: arms behind that question have no probability yet."""
    return bool(seen.steps) and seen.steps[-1].outcome != ASKED and seen.steps[-1].probability > 0.0
