"""The laws that every run must obey, for any faults in it; each has a name."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from load.research.seeds.evidence import Truth
from load.research.seeds.features import untrue
from schemas import topics
from schemas.records import JoinStatus, PolicyState
from streams.operators.learn.fold import fold
from streams.replay.as_it_was import CLOCKS_US, RecordedDeployment, replay
from streams.replay.recording import MemoryTrace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from load.research.seeds.ledger import Ledger, Told
    from load.research.seeds.plan import Plan
    from schemas.codec import Codec
    from schemas.records import Observation
    from streams.operators.contract import StateKey
    from streams.testing.broker import FakeBroker

# By name: what each law says.
LAWS: Mapping[str, str] = {
    "answered": "each query that was accepted is answered, or a dead letter",
    "answered_once": "until something goes wrong, the copies of a query are answered once",
    "deadlines": "until something goes wrong, answers come by their deadlines, the default where models are not there",
    "feedback": "feedback is joined, a copy, or a dead letter that says why",
    "in_time": "feedback that was written inside its window is learnt as feedback",
    "taught": "nothing is learnt that nobody has told",
    "states": "the stored states are the fold of the observations, bit for bit",
    "once": "states have as many lessons as there are queries of which something was observed",
    "evidence": "what a version or a policy has cost is what was answered and told, silence included; none is left out",
    "features": "what was decided by is what was stored, or is named as imputed",
    "replayed": "the kernels do it again, bit for bit, from what was written",
    "mapped": "each record of a mapped topic is asked or told as it says, or a dead letter; nothing else is",
    "scored": "each answer is in the topic that it is mapped to, beside its own order, with what its models say",
    "heard": "who asks the gateway hears an own answer in time, or why not; if nothing is wrong, an answer",
    "ended": "nothing ends a role",
    "hosts": "a host loads no model twice at once, and holds no more than its memory",
    "commits": "no commit passes a record without an outcome, nor the learner's what is stored",
    "committed": "everything is committed when nothing happens any more",
    "ran": "the simulation itself goes through",
    "memory": "nothing is left in a role's memory when nothing happens any more",
}
# Gauges that are 0 where nothing waits.
_WAITING = (
    "outstanding",
    "pressure",
    "pending",
    "predictions_waiting",
    "feedback_waiting",
    "observations_waiting",
    "shadows_waiting",
    "features_waiting",
)
# Why feedback in time may be a dead letter: its prediction was not there yet, it is damaged, there was no room.
_EXCUSES = ("unmatched", "invalid_feedback", "unknown_label", "over_limit")


class Violation(NamedTuple):
    """A law that does not hold, and where."""

    law: str
    what: str


class Left(NamedTuple):
    """The records and states that a run has left.

    Attributes:
        ended: what ended a role, each with its process.
        gauges: of the last report of each process that runs.
        offsets: stored by partition.
        states: stored.
        overfull: what hosts have loaded that they should not have.
    """

    ended: Iterable[str]
    gauges: Mapping[str, Mapping[str, float]]
    offsets: Mapping[int, int]
    states: Mapping[StateKey, PolicyState]
    overfull: Iterable[str] = ()


class Laws:
    """Judges one run."""

    def __init__(self, plan: Plan, broker: FakeBroker, ledger: Ledger, codec: Codec, tolerance_us: int) -> None:
        self._plan = plan
        self._broker = broker
        self._ledger = ledger
        self._codec = codec
        self._tolerance_us = tolerance_us

    def violations(self, left: Left) -> list[Violation]:
        """Return what is wrong; nothing, if all laws hold."""
        found = {
            "answered": self._answered(),
            "answered_once": (f"{query_id} was answered again" for query_id in self._ledger.again),
            "deadlines": self._ledger.late,
            "feedback": self._feedback(),
            "in_time": self._in_time(),
            "taught": self._taught(),
            "states": self._states(left),
            "once": self._once(left),
            "evidence": Truth(self._plan, self._broker, self._ledger, self._codec).untrue(),
            "features": self._features(),
            "replayed": self._replayed(),
            "ended": left.ended,
            "hosts": left.overfull,
            "commits": self._ledger.early,
            "committed": self._committed(left),
            "memory": _memory(left),
        }
        return [Violation(law, what) for law, its in found.items() for what in its]

    def _answered(self) -> Iterator[str]:
        ledger = self._ledger
        for query_id, position in ledger.asked.items():
            if query_id not in ledger.answers and position not in ledger.dead:
                yield f"{query_id} at {_shown(position)} has no answer"
        yield from (f"{name} was answered, nobody asked" for name in ledger.answers if name not in ledger.asked)

    def _feedback(self) -> Iterator[str]:
        ledger = self._ledger
        for query_id, several in ledger.told.items():
            for told in several:
                if told.record.position not in ledger.dead and not ledger.has_outcome(told.record):
                    yield f"feedback for {query_id} at {_shown(told.record.position)} has no outcome"
                elif told is self._first_in_time(query_id) and not self._is_learnt(query_id, told):
                    yield f"feedback for {query_id} at {_shown(told.record.position)} is lost"

    def _is_learnt(self, query_id: str, told: Told) -> bool:
        """Whether feedback is in an observation, or a dead letter says why not."""
        seen = self._ledger.observed.get(query_id, [])
        return told.record.position in self._ledger.dead or any(one.status is JoinStatus.JOINED for one in seen)

    def _in_time(self) -> Iterator[str]:
        """Check the first lesson of each query that had feedback in time."""
        ledger = self._ledger
        for query_id in ledger.told:
            told = self._first_in_time(query_id)
            cause = ledger.dead.get(told.record.position) if told is not None else None
            if told is None or cause in _EXCUSES:
                continue
            first = ledger.observed.get(query_id, [None])[0]
            if cause is not None or first is None or first.status is not JoinStatus.JOINED:
                learnt = "nothing" if first is None else first.status.value
                yield f"{query_id} was told of in time ({_shown(told.record.position)}), learnt: {learnt}; {cause}"

    def _first_in_time(self, query_id: str) -> Told | None:
        """Return the first feedback that can be joined, if it was written inside the window of a decided query."""
        answer = self._ledger.answers.get(query_id)
        if answer is None or answer.prediction.decision is None or query_id in self._ledger.turned_away:
            return None
        end_us = answer.stamp_us + self._ledger.window_us(answer.prediction.application) - self._tolerance_us
        for told in self._ledger.told[query_id]:
            if not isinstance(told.feedback.label, str):
                return told if told.record.timestamp_us < end_us else None
        return None

    def _taught(self) -> Iterator[str]:
        ledger = self._ledger
        for query_id, several in ledger.observed.items():
            labels = [told.feedback.label for told in ledger.told.get(query_id, ())]
            for seen in several:
                if seen.status is JoinStatus.JOINED and seen.label not in labels:
                    yield f"{query_id} was learnt with label {seen.label!r}, told were {labels}"
                if seen.status is JoinStatus.DEFAULT and ledger.default_loss(seen.application) is None:
                    yield f"{query_id} was learnt by default, its application has none"

    def _states(self, left: Left) -> Iterator[str]:
        encode, stored = self._codec.encode, Counter[int]()
        for number in range(self._plan.selection.partitions):
            log = self._ledger.log.get(number, [])
            expected = {name: encode(state) for name, state in fold(log, self._plan.joiner.memory_us).items()}
            found = {key.name: encode(state) for key, state in left.states.items() if key.partition == number}
            for name in sorted(expected.keys() | found.keys()):
                if expected.get(name) != found.get(name):
                    yield f"partition {number}: {name} {_lessons(self._codec, expected, found, name)}"
            end = len(self._broker.logs[topics.OBSERVATIONS, number])
            if left.offsets.get(number, 0) != end:
                yield f"partition {number} is stored up to {left.offsets.get(number)}, its log ends at {end}"
            stored[number] += len(found)

    def _once(self, left: Left) -> Iterator[str]:
        """Count what each application has learnt, apart from the fold."""
        for key, state in sorted(left.states.items()):
            log = self._ledger.log.get(key.partition, [])
            told = len(
                {seen.query_id for _, seen in log if seen.application == key.name and _teaches(seen, state.policy)}
            )
            if told and state.version != told:
                yield f"partition {key.partition}: {key.name} has {state.version} lessons, of {told} queries"

    def _features(self) -> Iterator[str]:
        """Hold features that decided, and rows that were ranked, against what the stores have."""
        sources = {application.name: application.sources for application in self._plan.applications}
        for query_id, answer in self._ledger.answers.items():
            prediction = answer.prediction
            its = sources.get(prediction.application, ())
            if its and prediction.decision is not None:
                yield from [f"{query_id}: {what}" for what in untrue(prediction, its)]

    def _replayed(self) -> Iterator[str]:
        written = (record for log in self._broker.logs.values() for record in log)
        trace = MemoryTrace(written, self._broker.partitions)
        clocks_us = max(self._tolerance_us, CLOCKS_US)
        deployment = RecordedDeployment(self._plan.selection, self._plan.joiner, clocks_us=clocks_us)
        report = replay(trace, deployment, self._codec)
        for kind, name, recorded, replayed in report.differences:
            yield f"{kind} of {name}: {recorded}, again: {replayed}"

    def _committed(self, left: Left) -> Iterator[str]:
        for name, group in sorted(self._broker.groups.items()):
            for place, log in sorted(self._broker.logs.items()):
                if place not in group.committed and all(
                    place[0] not in known.topics for known in group.members.values()
                ):
                    continue
                committed = group.committed.get(place, 0)
                if committed > len(log) or self._broker.readable(place, committed):
                    yield f"{name} has committed {committed} of {len(log)} of {place[0]}-{place[1]}"


def _teaches(seen: Observation, policy: str) -> bool:
    """Tell whether an observation teaches the state of a policy: it decided, or learnt along."""
    return policy in (seen.decision.policy, seen.decision.apprentice)


def _memory(left: Left) -> Iterator[str]:
    for process, gauges in sorted(left.gauges.items()):
        waiting = {name: gauges[name] for name in _WAITING if gauges.get(name)}
        waiting |= {name: value for name, value in gauges.items() if name.startswith("queue_rows") and value}
        if waiting:
            yield f"{process} still has {waiting}"


def _lessons(codec: Codec, expected: Mapping[str, bytes], found: Mapping[str, bytes], name: str) -> str:
    numbers = [codec.decode(PolicyState, where[name]).version if name in where else 0 for where in (found, expected)]
    return f"has {numbers[0]} lessons stored, {numbers[1]} in the log" + (
        ", other numbers" * (numbers[0] == numbers[1])
    )


def _shown(position: tuple[str, int, int]) -> str:
    return f"{position[0]}-{position[1]}@{position[2]}"
