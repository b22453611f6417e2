"""Models beside the kernel that asks them: the same batches as over Kafka, handed on in memory, never encoded.

    records ─▶ asker ─▶ effects ─┬─ HandOver to an inline model's topic ─▶ its kernel (queue) ─▶ its task predicts
                  ▲              └─ everything else ─▶ performed                                      │
                  └─────────────────── HandOver to model-predictions ◀────────────────────────────────┘

For models whose rows cost so little that two legs over Kafka are absurd. Nothing is weaker for it: a query is complete
when its prediction is acknowledged, so what is in memory when the process dies is read, asked and answered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas import topics
from schemas.records import ModelPredictions, Outcome
from streams.operators.contract import HandOver, Operator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import PolicyState
    from streams.operators.contract import Effects, Record, StateKey


# Queries whose answers broke the asker, the last ones: each batch that does brings at most some hundreds.
DISTRUSTED = 10_000
# A poll of what is followed brings nothing else.
_FOLLOWED = frozenset({topics.APPLICATIONS, topics.MODELS})


class Loopback(Operator):
    """An operator, and the kernels of models that answer it in the same process.

    Args:
        asker: asks models, e.g. the selection kernel.
        models: kernels of inline models, by the topic that they would consume.
    """

    def __init__(self, asker: Operator, models: Mapping[str, Operator]) -> None:
        self._asker = asker
        self._models = models
        self._distrusted: dict[str, None] = {}
        asker.hand_over(frozenset(models))
        for model in models.values():
            model.hand_over(frozenset({topics.MODEL_PREDICTIONS}))

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Let the asker take a poll's records; what it asks of inline models is queued, and they hear of versions."""
        if records and records[0].topic in _FOLLOWED:
            about = [record for record in records if record.topic == topics.MODELS]
            for model in self._models.values():
                model.on_records(about, now_us)
        return self._handed_on(self._asker.on_records(records, now_us), now_us)

    def on_timer(self, now_us: int) -> Effects:
        """Do what is due."""
        return self._handed_on(self._asker.on_timer(now_us), now_us)

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Take states."""
        return self._handed_on(self._asker.on_states(states, now_us), now_us)

    def on_answers(self, answers: Effects, now_us: int) -> Effects:
        """Give what a model's kernel answers to the asker, as if it had been read; returns what is to be done."""
        handed = [self._checked(effect) for effect in answers if isinstance(effect, HandOver)]
        effects: Effects = [effect for effect in answers if not isinstance(effect, HandOver)]
        if handed:
            effects += self._asker.on_handed(handed, now_us)
        return self._handed_on(effects, now_us)

    def distrust(self, answers: Effects) -> None:
        """Take the rows of these answers for failed when their queries are read and asked again: the asker broke."""
        for effect in answers:
            if isinstance(effect, HandOver):
                self._distrusted |= dict.fromkeys(effect.batch.query_ids)
        for query_id in [*self._distrusted][: max(0, len(self._distrusted) - DISTRUSTED)]:
            del self._distrusted[query_id]

    def next_deadline(self) -> int | None:
        """When `on_timer` wants to be called next (us)."""
        return self._asker.next_deadline()

    @property
    def held(self) -> int:
        """Rows that wait for an inline model."""
        return max([self._asker.held, *(model.held for model in self._models.values())])

    def on_assigned(self, starts: Mapping[int, int]) -> None:
        """These partitions are ours; answers to what was asked before are late, and recognised as such."""
        self._asker.on_assigned(starts)

    def on_revoked(self, partitions: Sequence[int]) -> None:
        """Forget everything about these partitions."""
        self._asker.on_revoked(partitions)

    def statistics(self) -> Mapping[str, float]:
        """Return the figures of all."""
        return {
            name: value for part in (*self._models.values(), self._asker) for name, value in part.statistics().items()
        }

    def _handed_on(self, effects: Effects, now_us: int) -> Effects:
        """Keep what is to be performed; give the rest to the models, and what they refuse back to the asker."""
        asked: dict[str, list[HandOver]] = {}
        for effect in effects:
            if isinstance(effect, HandOver):
                asked.setdefault(effect.topic, []).append(effect)
        if not asked:
            return effects
        kept: Effects = [effect for effect in effects if not isinstance(effect, HandOver)]
        for topic, handed in asked.items():
            refused = self._models[topic].on_handed(handed, now_us)
            kept += self.on_answers(refused, now_us)
        return kept

    def _checked(self, answer: HandOver) -> HandOver:
        """Return an answer with the rows that are not trusted marked as failed."""
        batch = answer.batch
        if not self._distrusted or not isinstance(batch, ModelPredictions):
            return answer
        outcomes = tuple(
            Outcome.FAILED if query_id in self._distrusted else outcome
            for query_id, outcome in zip(batch.query_ids, batch.outcomes, strict=True)
        )
        return answer._replace(batch=batch._replace(outcomes=outcomes))
