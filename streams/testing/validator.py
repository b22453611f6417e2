"""Laws that hold for every run, whatever was killed: a pure function of inputs and outcome.

Identities, each by query id:

    asked                      = answered
    garbage                    = dead letters
    feedback on a decision     = learnt, or told after its window and a dead letter, never both
    feedback on nobody's query = dead letters
    windows without feedback   = default losses
    replies over HTTP          = answered
    answers of applications    = records of their topics, where they have some
    lessons of a stored state  = distinct observed queries that teach it
    stored bytes               = bytes of the offline fold of the log
    offsets of every group     = ends of what it reads

What is there twice is no fault as long as it counts once: `doubled` counts it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas.codec import Codec
from schemas.records import JoinStatus, PolicyState
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
        perhaps: ids of queries that were sent and never acknowledged: they may be there, or not.
        late: ids whose feedback was told after the window.
        stray: ids of feedback, told of queries that nobody asked.
        expired: ids of an application with a default loss that were told nothing, and whose window is long over.
        refused: ids of the feedback among the dead letters; the others are in `dead`.
        replied: ids of the queries that were answered over HTTP.
        behind: records that a group had not committed in time, by group and partition.
        unrecorded: records of a topic that a trace of it lacks, by topic.
        mapped: applications whose answers go to a topic of others besides.
        written: what these topics hold: ids of queries and answers.
        is_lossy: records went away by themselves: a topic was deleted, or a broker lost them. What is missing is then
            nobody's fault. What is there has to be right all the same, and must not count twice.
    """

    asked: frozenset[str]
    garbage: frozenset[bytes]
    told: Mapping[str, int]
    predictions: Sequence[Prediction]
    log: Mapping[int, ObservationLog]
    stored: Mapping[int, Stored]
    dead: Sequence[bytes]
    window_us: int
    perhaps: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    stray: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    replied: frozenset[str] = frozenset()
    behind: Mapping[str, int] = field(default_factory=dict)
    unrecorded: Mapping[str, int] = field(default_factory=dict)
    mapped: frozenset[str] = frozenset()
    written: Sequence[tuple[str, object]] = ()
    is_lossy: bool = False


def faults(evidence: RunEvidence) -> list[str]:
    """Return one sentence for each thing that is wrong; none if nothing was lost and nothing counted twice."""
    seen = _first_observations(evidence)
    wrong = (*_strange(evidence), *_mislearnt(evidence, seen), *_miscounted(evidence, seen), *_misstored(evidence))
    found = [*wrong, *_miswritten(evidence), *_left_behind(evidence)]
    return found if evidence.is_lossy else [*_missing(evidence, seen), *found]


def doubled(evidence: RunEvidence) -> dict[str, int]:
    """Return how many predictions and observations there are beyond one of each id: what a crash may repeat."""
    observed = [observation.query_id for log in evidence.log.values() for _, observation in log.observations]
    ids = {"predictions": [each.query_id for each in evidence.predictions], "observations": observed}
    return {kind: len(found) - len({*found}) for kind, found in ids.items()}


def _missing(evidence: RunEvidence, seen: Mapping[str, Observation]) -> Iterator[str]:
    yield from _unanswered(evidence)
    yield from _unwritten(evidence)
    yield from _untaught(evidence, seen)
    yield from _unrecorded(evidence)


def _unanswered(evidence: RunEvidence) -> Iterator[str]:
    answered = {prediction.query_id for prediction in evidence.predictions}
    dead = set(evidence.dead)
    yield from _some(evidence.asked - answered, "queries have no answer")
    yield from _some(evidence.replied - answered, "replies over HTTP without an answer")
    yield from _some(evidence.garbage - dead, "pieces of garbage are no dead letters")


def _of_mapped(evidence: RunEvidence) -> dict[str, list[object]]:
    """Return the answers of applications that have a topic for them, by query: a query that is read twice has two."""
    answers: dict[str, list[object]] = {}
    for each in evidence.predictions:
        if each.application in evidence.mapped:
            answers.setdefault(each.query_id, []).append(each.answer)
    return answers


def _unwritten(evidence: RunEvidence) -> Iterator[str]:
    written = {query_id for query_id, _ in evidence.written}
    yield from _some(_of_mapped(evidence).keys() - written, "answers are not in their topic")


def _miswritten(evidence: RunEvidence) -> Iterator[str]:
    answers = _of_mapped(evidence)
    wrong = {query_id for query_id, answer in evidence.written if answer not in answers.get(query_id, ())}
    yield from _some(wrong, "records of answers say what no prediction says")


def _strange(evidence: RunEvidence) -> Iterator[str]:
    answered = {prediction.query_id for prediction in evidence.predictions}
    yield from _some(answered - evidence.asked - evidence.perhaps, "answers to nobody's query")
    yield from _some(set(evidence.dead) - evidence.garbage, "good records are dead letters")


def _first_observations(evidence: RunEvidence) -> dict[str, Observation]:
    """Return the first observation of each query: the one that counts."""
    seen = [observation for log in evidence.log.values() for _, observation in log.observations]
    return {observation.query_id: observation for observation in reversed(seen)}


def _joined(seen: Mapping[str, Observation]) -> set[str]:
    return {query_id for query_id, its in seen.items() if its.status is JoinStatus.JOINED}


def _untaught(evidence: RunEvidence, seen: Mapping[str, Observation]) -> Iterator[str]:
    """Find feedback that was lost; it joins the first answer to its query."""
    first = {prediction.query_id: prediction for prediction in reversed(evidence.predictions)}
    decided = {query_id for query_id, prediction in first.items() if prediction.decision is not None}
    joined, told, in_time = _joined(seen), evidence.told.keys(), evidence.told.keys() - evidence.late
    settled = joined | (evidence.refused & evidence.late)
    yield from _some((told & decided) - settled - (seen.keys() & in_time), "feedbacks were not learnt")
    yield from _some(seen.keys() & in_time - joined, "feedbacks came in time, and a default loss was learnt")
    yield from _some(joined & evidence.refused, "feedbacks were learnt and are dead letters, too")
    yield from _some(evidence.refused & in_time - joined, "feedbacks that came in time are dead letters")
    yield from _some(evidence.stray - evidence.refused, "feedbacks on nobody's query are no dead letters")
    yield from _some(evidence.expired & decided - seen.keys(), "windows without feedback taught no default loss")


def _mislearnt(evidence: RunEvidence, seen: Mapping[str, Observation]) -> Iterator[str]:
    """Find lessons that nobody gave, or gave otherwise."""
    joined, told = _joined(seen), evidence.told
    wrong = {query_id for query_id in joined & told.keys() if seen[query_id].label != told[query_id]}
    yield from _some(joined - told.keys(), "lessons without feedback")
    yield from _some(wrong, "lessons have another label than their feedback")


def _miscounted(evidence: RunEvidence, seen: Mapping[str, Observation]) -> Iterator[str]:
    """Count lessons without the fold, which might be wrong in the same way as the learner."""
    taught = Counter(name for observation in seen.values() for name in _states(observation))
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


def _left_behind(evidence: RunEvidence) -> Iterator[str]:
    for place, count in sorted(evidence.behind.items()):
        if count:
            yield f"{place} is {count} records behind"


def _unrecorded(evidence: RunEvidence) -> Iterator[str]:
    for topic, count in sorted(evidence.unrecorded.items()):
        if count:
            yield f"the trace lacks {count} records of {topic}"


def _some(found: set[str] | set[bytes] | frozenset[str] | frozenset[bytes], what: str) -> Iterator[str]:
    if found:
        yield f"{len(found)} {what}, e.g. {min(found)!r}"
