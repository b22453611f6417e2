"""What must be true of every run, whatever was killed: a pure function of what was sent and what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streams.operators.learner import fold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Observation, PolicyState, Prediction


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a run left behind.

    Attributes:
        asked: ids of the queries that the broker acknowledged.
        told: ids of the queries for which feedback was acknowledged.
        predictions: everything on the topic `predictions`.
        log: by partition, the observations with their records' timestamps (µs).
        states: as they are stored, by name.
        dead: causes of all dead letters.
        window_us: of the learner's memory of ids.
    """

    asked: frozenset[str]
    told: frozenset[str]
    predictions: Sequence[Prediction]
    log: Mapping[int, Sequence[tuple[int, Observation]]]
    states: Mapping[str, PolicyState]
    dead: Sequence[str]
    window_us: int


def faults(evidence: Evidence) -> list[str]:
    """Return one sentence for each thing that is wrong; none if nothing was lost and nothing counted twice."""
    answered = {prediction.query_id for prediction in evidence.predictions}
    decided = {prediction.query_id for prediction in evidence.predictions if prediction.decision is not None}
    learnt = {seen.query_id for log in evidence.log.values() for _, seen in log}
    expected: dict[str, PolicyState] = {}
    for log in evidence.log.values():
        expected |= fold(log, evidence.window_us)
    checks = {
        f"{len(evidence.asked - answered)} queries have no answer": evidence.asked <= answered,
        f"{len(answered - evidence.asked)} answers to nobody's query": answered <= evidence.asked,
        f"{len(evidence.told & decided - learnt)} feedbacks were not learnt": evidence.told & decided <= learnt,
        f"{sum(state.version for state in expected.values())} lessons from {len(learnt)} observed queries": sum(
            state.version for state in expected.values()
        )
        == len(learnt),
        "the stored states are not the fold of the log": dict(evidence.states) == expected,
        f"dead letters: {sorted(set(evidence.dead))}": not evidence.dead,
    }
    return [sentence for sentence, holds in checks.items() if not holds]
