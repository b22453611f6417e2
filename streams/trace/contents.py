"""What a trace holds beyond its manifest: rates over time, who was asked, which models answered, when feedback came.

One pass over the records, in bounded memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_id, peek_texts
from schemas.records import Observations, Outcome, Prediction, Status
from streams.trace.times import LogTimes

if TYPE_CHECKING:
    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.trace.reader import Trace

# Those whose rates are shown; the first three at one time in this order.
SHOWN: Final = (topics.QUERIES, topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS)
STEPS: Final = 60  # of time
REMEMBERED: Final = 500_000  # predictions that feedback may still come for
SUBJECTS: Final = 1_000  # applications, models and statuses that are told apart
BARS: Final = " ▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Contents:
    """What was found.

    Attributes:
        begin_us: of the first step.
        step_us: of time.
        counts: records by topic and step.
        applications: queries by application.
        statuses: predictions by status.
        models: outputs by model, version and outcome.
        observations: in all records of their topic, which hold several each.
        delays: from predictions to their feedback.
        unmatched: feedback whose prediction is not in the trace before it.
        undecodable: records that are no record of ours.
    """

    begin_us: int = 0
    step_us: int = 1
    counts: dict[str, list[int]] = field(default_factory=dict)
    applications: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    models: dict[str, Counter[str]] = field(default_factory=dict)
    observations: int = 0
    delays: LogTimes = field(default_factory=LogTimes)
    unmatched: int = 0
    undecodable: int = 0

    def summary(self) -> dict[str, Any]:
        """Return it as JSON values."""
        points = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}
        return {
            "rates": {"begin_us": self.begin_us, "step_us": self.step_us, "counts": self.counts},
            "applications": dict(self.applications.most_common()),
            "statuses": dict(self.statuses),
            "models": {model: dict(outcomes) for model, outcomes in sorted(self.models.items())},
            "observations": self.observations,
            "feedback_delay_ms": {name: self.delays.quantile_ms(share) for name, share in points.items()},
            "feedback_unmatched": self.unmatched,
            "undecodable": self.undecodable,
        }


def contents(trace: Trace, codec: Codec) -> Contents:
    """Read a trace and return what it holds."""
    shown = [topic for topic in SHOWN if topic in trace.topics()]
    parts = [part for topic in shown for part in trace.manifest.topics[topic].parts]
    if not parts:
        return Contents()
    begin_us, until_us = min(part.from_us for part in parts), max(part.until_us for part in parts)
    found = Contents(begin_us, (until_us - begin_us) // STEPS + 1, {topic: [0] * STEPS for topic in shown})
    answered: dict[str, int] = {}
    for record in trace.merged(shown):
        found.counts[record.topic][(record.timestamp_us - begin_us) // found.step_us] += 1
        try:
            _look(record, found, answered, codec)
        except DecodeError:
            found.undecodable += 1
    return found


def _look(record: Record, found: Contents, answered: dict[str, int], codec: Codec) -> None:
    match record.topic:
        case topics.QUERIES:
            _count(found.applications, peek_texts(record.value, 2)[1])
        case topics.PREDICTIONS:
            prediction = codec.decode(Prediction, record.value)
            _predicted(prediction, found)
            answered[prediction.query_id] = record.timestamp_us
            if len(answered) > REMEMBERED:
                del answered[next(iter(answered))]
        case topics.FEEDBACK:
            query_id = peek_id(record.value)
            if not query_id:  # by key: what it was about was written again, with the id
                return
            at_us = answered.get(query_id)
            if at_us is None:
                found.unmatched += 1
            else:
                found.delays.add(record.timestamp_us - at_us)
        case topics.OBSERVATIONS:
            found.observations += len(codec.decode(Observations, record.value).items)


def _predicted(prediction: Prediction, found: Contents) -> None:
    is_default = prediction.status is Status.DEFAULT
    word = f"default: {prediction.reason or 'no reason'}" if is_default else prediction.status.value
    _count(found.statuses, word)
    for output in prediction.outputs:
        name = f"{output.model}@{output.version}" if output.outcome is not Outcome.MISSING else output.model
        if name in found.models or len(found.models) < SUBJECTS:
            found.models.setdefault(name, Counter())[output.outcome.value] += 1


def _count(counts: Counter[str], word: str) -> None:
    counts[word if word in counts or len(counts) < SUBJECTS else "others"] += 1


def plot(counts: list[int]) -> str:
    """Return counts as a line of bars; any that is not 0 can be seen."""
    top = max(counts, default=0) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // top)] for count in counts)
