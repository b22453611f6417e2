"""Laws that hold for every run, whatever was killed: a pure function of inputs and outcome.

Identities, each by query id:

    asked                      = answered
    garbage                    = dead letters
    feedback on a decision     = learnt
    lessons of a stored state  = distinct observed queries that teach it
    stored bytes               = bytes of the offline fold of the log
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.codec import Codec
from schemas.records import PolicyState
from streams.operators.learn.fold import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.records import Observation, Prediction

_CODEC = Codec()


@dataclass(frozen=True, slots=True)
class ObservationLog:
    """One partition of `observations`: each with its record's timestamp (µs), and the offset after the last."""

    observations: Sequence[tuple[int, Observation]] = ()
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What Redis holds of one partition: the next offset to apply, and the states' bytes by name."""

    offset: int | None
    states: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """What a run left behind.

    Attributes:
        asked: ids of the queries that the broker acknowledged.
        garbage: what was acknowledged on `queries` beside them and is no query.
        told: the label of every query for which feedback was acknowledged.
        predictions: everything on the topic `predictions`, in order within each partition.
        log: the observations by partition.
        stored: the policy states by partition, for every partition there is.
        dead: values of all dead letters of all topics; one may be there twice.
        window_us: of the learner's memory of ids.
    """

    asked: frozenset[str]
    garbage: frozenset[bytes]
    told: Mapping[str, int]
    predictions: Sequence[Prediction]
    log: Mapping[int, ObservationLog]
    stored: Mapping[int, Stored]
    dead: Sequence[bytes]
    window_us: int


def faults(evidence: RunEvidence) -> list[str]:
    """Return one sentence for each thing that is wrong; none if nothing was lost and nothing counted twice."""
    return [*_unanswered(evidence), *_mislearnt(evidence), *_misstored(evidence)]


def _unanswered(evidence: RunEvidence) -> Iterator[str]:
    answered = {prediction.query_id for prediction in evidence.predictions}
    dead = set(evidence.dead)
    yield from _some(evidence.asked - answered, "queries have no answer")
    yield from _some(answered - evidence.asked, "answers to nobody's query")
    yield from _some(evidence.garbage - dead, "pieces of garbage are no dead letters")
    yield from _some(dead - evidence.garbage, "good records are dead letters")


def _mislearnt(evidence: RunEvidence) -> Iterator[str]:
    """Compare learnt observations with feedback; feedback joins the first answer to its query."""
    first = {prediction.query_id: prediction for prediction in reversed(evidence.predictions)}
    decided = {query_id for query_id, prediction in first.items() if prediction.decision is not None}
    seen = [observation for log in evidence.log.values() for _, observation in log.observations]
    learnt = {observation.query_id for observation in seen}
    wrong = {o.query_id for o in seen if o.query_id in evidence.told and o.label != evidence.told[o.query_id]}
    yield from _some(evidence.told.keys() & decided - learnt, "feedbacks were not learnt")
    yield from _some(learnt - evidence.told.keys(), "lessons without feedback")
    yield from _some(wrong, "lessons have another label than their feedback")
    # Counted without the fold, which might be wrong in the same way as the learner.
    taught = Counter(name for observation in {o.query_id: o for o in seen}.values() for name in _states(observation))
    stored = Counter[str]()
    for of_partition in evidence.stored.values():
        for name, value in of_partition.states.items():
            stored[name] += _CODEC.decode(PolicyState, value).version
    for name in sorted(taught.keys() | stored.keys()):
        if stored[name] != taught[name]:
            yield f"{stored[name]} lessons stored for {name!r} from {taught[name]} observed queries"


def _states(observation: Observation) -> set[str]:
    """Return whom a query teaches: a context, and what new contexts of the application start from."""
    return {observation.decision.state, observation.application}


def _misstored(evidence: RunEvidence) -> Iterator[str]:
    for number, stored in sorted(evidence.stored.items()):
        log = evidence.log.get(number, ObservationLog())
        expected = {name: _CODEC.encode(state) for name, state in fold(log.observations, evidence.window_us).items()}
        names = expected.keys() | stored.states.keys()
        different = {name for name in names if expected.get(name) != stored.states.get(name)}
        yield from _some(different, f"states of partition {number} are not the fold of the log")
        if stored.offset != log.end:
            yield f"partition {number} is stored up to offset {stored.offset}, its log ends at {log.end}"


def _some(found: set[str] | set[bytes] | frozenset[str] | frozenset[bytes], what: str) -> Iterator[str]:
    if found:
        yield f"{len(found)} {what}, e.g. {min(found)!r}"
