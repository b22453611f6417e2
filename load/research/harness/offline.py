"""A policy played against recorded answers, without Kafka: the policies' own functions, in the order of the queries."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.combine import combine
from policies.contract import Situation, has_shared_prior, is_answer_aware, is_contextual
from policies.draw import pick
from policies.lessons import Lesson
from streams.topology import state_name, state_partition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.contract import Policy, State


@dataclass(frozen=True, slots=True)
class Stream:
    """Queries in order, with what every model would answer.

    Attributes:
        rows: (n, models) labels.
        labels: (n,) the truth.
        contexts: of each query; empty = one state for all.
        features: (n, d) of each query; None = it has none.
        late: queries that are decided before the feedback of one is learnt.
        partitions: over which the contexts are spread, each with a common state of its own.
    """

    rows: NDArray[np.integer]
    labels: NDArray[np.integer]
    contexts: tuple[str, ...] = ()
    features: NDArray[np.float64] | None = None
    late: int = 0
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class Played:
    """The outcome: the share of wrong answers, and how many models were asked a query."""

    error: float
    asked: float


class States:
    """A policy's state of each context; a new one starts from those of its partition, as in the system."""

    def __init__(self, policy: Policy, arms: int, partitions: int = 1) -> None:
        self._policy = policy
        self._arms = arms
        self._partitions = partitions
        self._common: defaultdict[int, State] = defaultdict(lambda: policy.init(arms))
        self._own: dict[str, State] = {}

    def of(self, context: str) -> State:
        """Return a context's state; of "" the one for all."""
        if context in self._own:
            return self._own[context]
        common = self._common[self._partition(context)]
        if not context:
            return common
        return (
            self._policy.start(common, self._arms) if has_shared_prior(self._policy) else self._policy.init(self._arms)
        )

    def learn(self, context: str, lesson: Lesson) -> None:
        """Fold one observation into a context's state and into the one for all."""
        if context:
            self._own[context] = self._policy.observe(self.of(context), self._arms, lesson)
        number = self._partition(context)
        self._common[number] = self._policy.observe(self._common[number], self._arms, lesson)

    def _partition(self, context: str) -> int:
        return state_partition(state_name("a", context, is_spread=True), self._partitions)


def play(policy: Policy, stream: Stream, seed: int) -> Played:
    """Answer every query by the policy, and teach it."""
    arms, wrong, asked = stream.rows.shape[1], 0, 0
    states, waiting = States(policy, arms, stream.partitions), deque[tuple[str, Lesson]]()
    draws = np.random.default_rng(seed).random(len(stream.labels)).tolist()
    features = (stream.features if stream.features is not None else np.empty((len(draws), 0))).tolist()
    contexts = stream.contexts or ("",) * len(draws)
    for row, label, context, its, u in zip(
        stream.rows.tolist(), stream.labels.tolist(), contexts, features, draws, strict=True
    ):
        state, situation = states.of(context), Situation(tuple(its))
        shares = policy.propensities(state, arms)
        if is_contextual(policy):
            shares = policy.propensities_in(state, arms)(situation)
        chosen = tuple(range(arms)) if policy.full_information else (pick(shares, u),)
        answers = {arm: row[arm] for arm in chosen}
        votes = policy.vote_weights(state, arms)(answers) if is_answer_aware(policy) else policy.weights(state, arms)
        answer = combine({arm: votes[arm] for arm in chosen}, answers)[0] if len(chosen) > 1 else row[chosen[0]]
        wrong += answer != label
        asked += len(chosen)
        losses = [float(row[arm] != label) if arm in answers else None for arm in range(arms)]
        told = [answers.get(arm) for arm in range(arms)]
        waiting.append((context, Lesson(chosen, shares, losses, situation.features, told)))
        if len(waiting) > stream.late:
            states.learn(*waiting.popleft())
    return Played(wrong / len(draws), asked / len(draws))
