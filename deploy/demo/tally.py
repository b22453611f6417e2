"""What the demo's client counts about models, out of what it has read from the topics. Reads no clock.

`load.harness.recorder` counts answers and latencies. Here is who was asked, who was right, how the workers batched,
what was joined and learnt, and which outputs came from the cache. A query counts in the second in which it was due.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from schemas.records import JoinStatus, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.records import Decision, ModelOutput, ModelPredictions, Observation, Prediction, Value

Phase: TypeAlias = Literal["before", "during", "after"]


@dataclass(slots=True)
class VersionCount:
    """What one version of a model answered, by second, and how much of it was wrong."""

    answered: Counter[int] = field(default_factory=Counter)
    wrong: Counter[int] = field(default_factory=Counter)


class DemoTrial(NamedTuple):
    """What is tried, and when; seconds from the start of the load."""

    model: str
    before: str  # the version that serves until then
    version: str
    share: float
    begin_s: float
    end_s: float  # from here on it serves

    @property
    def name(self) -> str:
        """The model and its new version."""
        return f"{self.model} {self.version}"

    def state(self, second: float) -> str:
        """Say in a word or two what the version does at a moment."""
        if second < self.begin_s:
            return f"from {self.begin_s:.0f} s"
        return f"canary {self.share:.0%}" if second < self.end_s else "serves"


class TrialOutcome(NamedTuple):
    """What came of it, by the second in which queries were meant to be sent; the error of no answers is None."""

    answered: int  # as a canary
    error: float | None
    beside: int  # by the version before, meanwhile
    error_beside: float | None
    since: int  # by the new version, since it serves


def tried(versions: Mapping[str, VersionCount], trial: DemoTrial) -> TrialOutcome:
    """Return what came of a trial.

    Args:
        versions: of the model, with what each has answered.
        trial: of one of them.
    """
    canary, beside = (_during(versions.get(name), trial) for name in (trial.version, trial.before))
    new = versions.get(trial.version)
    return TrialOutcome(*canary, *beside, since=new.answered.total() - canary[0] if new else 0)


def _during(count: VersionCount | None, trial: DemoTrial) -> tuple[int, float | None]:
    """Return how many queries a version answered during the trial, and the share of them that was wrong."""
    if count is None:
        return 0, None
    seconds = [second for second in count.answered if int(trial.begin_s) <= second < trial.end_s]
    answered, wrong = (sum(counts[second] for second in seconds) for counts in (count.answered, count.wrong))
    return answered, wrong / answered if answered else None


class AnswerSource(NamedTuple):
    """What an output follows from: a model's version, and the number of a row."""

    model: str
    version: str
    row: int


class Remembered:
    """Folds outputs and predicted rows; each is one (query id, model)."""

    def __init__(self) -> None:
        self._predicted: set[tuple[str, str]] = set()
        self._unpredicted: dict[tuple[str, str], AnswerSource] = {}
        self._sources: set[AnswerSource] = set()

    def output(self, query_id: str, source: AnswerSource) -> bool:
        """Note a fine output of an answer; tells whether nobody is known to have predicted it for this query."""
        key = query_id, source.model
        if key in self._predicted:
            return False
        self._unpredicted[key] = source
        return True

    def predicted(self, query_id: str, source: AnswerSource) -> bool:
        """Note a row that a worker predicted; tells whether its output has been taken for a remembered one."""
        key = query_id, source.model
        self._predicted.add(key)
        self._sources.add(source)
        return self._unpredicted.pop(key, None) is not None

    def count(self, model: str) -> int:
        """Return how many of a model's outputs were remembered: those that another query explains."""
        return sum(source.model == model and source in self._sources for source in self._unpredicted.values())


class DemoQuestion(NamedTuple):
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
    rows_by_second: Counter[int] = field(default_factory=Counter)
    batches_by_second: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    cap_by_second: dict[int, int] = field(default_factory=dict)  # of the last batch
    queue_by_second: dict[int, int] = field(default_factory=dict)  # behind the batch that left most waiting
    cap_max: int = 0
    cached_by_second: Counter[int] = field(default_factory=Counter)  # of those judged
    versions: defaultdict[str, VersionCount] = field(default_factory=lambda: defaultdict(VersionCount))

    @property
    def rows(self) -> int:
        """Rows that the workers predicted."""
        return self.rows_by_second.total()

    @property
    def batches(self) -> int:
        """Batches that they were predicted in."""
        return round(sum(self.batches_by_second.values()))


class Tally:
    """Folds predictions, model predictions, observations and dead letters.

    Args:
        application: whose learning is counted.
        models: names, in the order they are shown.
        start_us: when the load starts.
        broken_s: from when until when, in seconds from the start, the best model is broken.
        trial: of a new version.
    """

    def __init__(
        self, application: str, models: Sequence[str], start_us: int, broken_s: tuple[float, float], trial: DemoTrial
    ) -> None:
        self.application = application
        self.start_us = start_us
        self.broken_s = broken_s
        self.trial = trial
        self.models = {name: ModelCount() for name in models}
        self.questions: dict[str, DemoQuestion] = {}
        self.asked_by_phase: Counter[Phase] = Counter()
        self.wrong_by_second: Counter[int] = Counter()
        self.judged_by_second: Counter[int] = Counter()
        self.dead_letters = 0
        self.applied = 0  # observations in the policy state that decided last
        self._joined: dict[str, Observation] = {}
        self._remembered = Remembered()

    @property
    def error(self) -> float:
        """Share of the answers that were wrong; a default output counts as what it is."""
        return self.wrong_by_second.total() / max(1, self.judged_by_second.total())

    @property
    def joined(self) -> int:
        """Distinct queries whose feedback was joined."""
        return len(self._joined)

    @property
    def log(self) -> tuple[Observation, ...]:
        """What was joined, the first record of each query."""
        return (*self._joined.values(),)

    @property
    def read(self) -> tuple[int, int, int]:
        """What grows as long as there is news: joined, learnt, rows."""
        return self.joined, self.applied, sum(model.rows for model in self.models.values())

    def phase(self, seconds: float) -> Phase:
        """Return the phase of a moment, in seconds from the start."""
        begin, end = self.broken_s
        return "before" if seconds < begin else "during" if seconds < end else "after"

    def asked(self, query_id: str, row: int, label: Value, intended_us: int) -> None:
        """Note a query before it is sent; `row` is the number of its held-out row."""
        seconds = (intended_us - self.start_us) / 1e6
        self.questions[query_id] = DemoQuestion(int(seconds), row, label, self.phase(seconds))

    def predictions(self, answers: Iterable[Prediction]) -> None:
        """Count first answers."""
        for answer in answers:
            question = self.questions.get(answer.query_id)
            if question is not None:
                self._prediction(answer, question)

    def _prediction(self, answer: Prediction, question: DemoQuestion) -> None:
        second = question.second
        self.judged_by_second[second] += 1
        self.wrong_by_second[second] += answer.answer != question.label
        self.decided(answer.decision)
        for output in answer.outputs:
            model = self.models[output.model]
            model.asked[question.phase] += 1
            model.asked_by_second[second] += 1
            self.asked_by_phase[question.phase] += 1
            if output.outcome is Outcome.OK:
                self._output(answer.query_id, output, question)

    def _output(self, query_id: str, output: ModelOutput, question: DemoQuestion) -> None:
        """Count what a model said, and who of its versions, whether for this query or remembered."""
        model, second, is_wrong = self.models[output.model], question.second, output.answer != question.label
        model.judged_by_second[second] += 1
        model.wrong_by_second[second] += is_wrong
        model.versions[output.version].answered[second] += 1
        model.versions[output.version].wrong[second] += is_wrong
        source = AnswerSource(output.model, output.version, question.row)
        model.cached_by_second[second] += self._remembered.output(query_id, source)

    def decided(self, decision: Decision | None) -> None:
        """Note how many observations were in the state that decided, which all partitions share."""
        if decision is not None and decision.state == self.application:
            self.applied = max(self.applied, decision.state_version)

    def model_predictions(self, records: Iterable[ModelPredictions]) -> None:
        """Count rows and batches: of a batch of n rows, which may be spread over several records, each row is 1/n."""
        for record in records:
            model = self.models[record.model]
            for query_id, outcome in zip(record.query_ids, record.outcomes, strict=True):
                question = self.questions.get(query_id)
                if question is None:
                    continue
                second = question.second
                model.cap_by_second[second] = record.batch_cap
                model.cap_max = max(model.cap_max, record.batch_cap)
                model.queue_by_second[second] = max(model.queue_by_second.get(second, 0), record.queue_rows)
                if outcome is not Outcome.EXPIRED:
                    model.rows_by_second[second] += 1
                    model.batches_by_second[second] += 1 / record.batch_rows
                if outcome is Outcome.OK:
                    source = AnswerSource(record.model, record.version, question.row)
                    model.cached_by_second[second] -= self._remembered.predicted(query_id, source)

    def observations(self, records: Iterable[Observation]) -> None:
        """Count what was joined; a record that was written twice counts once."""
        for seen in records:
            if seen.status is JoinStatus.JOINED and seen.query_id in self.questions:
                self._joined.setdefault(seen.query_id, seen)

    def cached(self, name: str) -> int:
        """Return how many of a model's outputs it was not asked for: it had predicted the same row before."""
        return self._remembered.count(name)

    def share(self, name: str, phase: Phase) -> float | None:
        """Return the share of a phase's model queries that one model was asked; None if the phase had none."""
        asked = self.asked_by_phase[phase]
        return self.models[name].asked[phase] / asked if asked else None


def recent(counts: Mapping[int, float], until: int, seconds: int) -> float:
    """Return the sum of the last `seconds` whole seconds before `until`."""
    return sum(counts.get(second, 0) for second in range(max(0, until - seconds), until))
