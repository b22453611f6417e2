"""What the demo's client counts about models, out of nothing but what it read off the topics. Reads no clock.

Answers and latencies are counted by `load.recorder`; here is who was asked, who was right, how the workers batched,
what was joined and learnt. A query belongs to the second in which it was meant to be sent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from deploy.demo.meters import Meters
from schemas.records import JoinStatus, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from schemas.records import Observation, Prediction, Report, Value

Phase: TypeAlias = Literal["before", "during", "after"]


class Question(NamedTuple):
    """What the client knows about a query it sent."""

    second: int
    row: int
    label: Value
    phase: Phase


@dataclass(slots=True)
class ModelCount:
    """One model's figures over the whole run; `*_by_second` count from the start of the load."""

    asked: Counter[Phase] = field(default_factory=Counter)
    asked_by_second: Counter[int] = field(default_factory=Counter)
    wrong_by_second: Counter[int] = field(default_factory=Counter)
    judged_by_second: Counter[int] = field(default_factory=Counter)
    cap_by_second: dict[int, float] = field(default_factory=dict)
    batch_rows: float = 0.0  # mean of the last report
    cap_max: float = 0.0


class Tally:
    """Folds predictions, observations, reports and dead letters.

    Args:
        application: whose learning is counted.
        models: names, in the order they are shown.
        start_us: when the load starts.
        broken_s: from when until when, in seconds from the start, the best model is broken.
    """

    def __init__(self, application: str, models: Sequence[str], start_us: int, broken_s: tuple[float, float]) -> None:
        self.application = application
        self.start_us = start_us
        self.broken_s = broken_s
        self.models = {name: ModelCount() for name in models}
        self.questions: dict[str, Question] = {}
        self.meters = Meters()
        self.asked_by_phase: Counter[Phase] = Counter()
        self.wrong_by_second: Counter[int] = Counter()
        self.judged_by_second: Counter[int] = Counter()
        self.dead_letters = 0
        self._joined: set[str] = set()

    @property
    def error(self) -> float:
        """Share of the answers that were wrong; a default output counts as what it is."""
        return sum(self.wrong_by_second.values()) / max(1, sum(self.judged_by_second.values()))

    @property
    def joined(self) -> int:
        """Distinct queries whose feedback was joined."""
        return len(self._joined)

    @property
    def applied(self) -> int:
        """Observations folded into policy states, as the learners report."""
        return self.meters.count("applied_total", self.application)

    def phase(self, seconds: float) -> Phase:
        """Return the phase of a moment, in seconds from the start."""
        begin, end = self.broken_s
        return "before" if seconds < begin else "during" if seconds < end else "after"

    def asked(self, query_id: str, row: int, label: Value, intended_us: int) -> None:
        """Note a query before it is sent; `row` is the number of its held-out row."""
        seconds = (intended_us - self.start_us) / 1e6
        self.questions[query_id] = Question(int(seconds), row, label, self.phase(seconds))

    def predictions(self, answers: Iterable[Prediction]) -> None:
        """Count first answers."""
        for answer in answers:
            question = self.questions.get(answer.query_id)
            if question is not None:
                self._prediction(answer, question)

    def _prediction(self, answer: Prediction, question: Question) -> None:
        second = question.second
        self.judged_by_second[second] += 1
        self.wrong_by_second[second] += answer.answer != question.label
        for output in answer.outputs:
            model = self.models[output.model]
            model.asked[question.phase] += 1
            model.asked_by_second[second] += 1
            self.asked_by_phase[question.phase] += 1
            if output.outcome is Outcome.OK:
                model.judged_by_second[second] += 1
                model.wrong_by_second[second] += output.answer != question.label

    def observations(self, records: Iterable[Observation]) -> None:
        """Count what was joined; a record that was written twice counts once."""
        joined = (o.query_id for o in records if o.status is JoinStatus.JOINED)
        self._joined.update(query_id for query_id in joined if query_id in self.questions)

    def reports(self, records: Iterable[Report]) -> None:
        """Take what the processes say about themselves."""
        for report in records:
            if report.time_us < self.start_us:
                self.meters.begin(report)
                continue
            grown = self.meters.take(report)
            second = (report.time_us - self.start_us) // 1_000_000
            for name, model in self.models.items():
                if grown.get(("batches_total", name)):
                    model.batch_rows = grown.get(("batch_rows_total", name), 0.0) / grown["batches_total", name]
                if cap := self.meters.gauge("batch_cap", name):
                    model.cap_by_second[second] = cap
                    model.cap_max = max(model.cap_max, cap)

    def share(self, name: str, phase: Phase) -> float:
        """Return the share of a phase's model queries that one model was asked."""
        return self.models[name].asked[phase] / max(1, self.asked_by_phase[phase])


def recent(counts: Counter[int], until: int, seconds: int) -> int:
    """Return the sum of the last `seconds` whole seconds before `until`."""
    return sum(counts[second] for second in range(max(0, until - seconds), until))
