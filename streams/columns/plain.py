"""Applications whose queries ask models whose word is the answer, whatever the query.

Columns answer such queries many at a time. What they need of selection is here: whom to ask, with
which shares, and to be counted like everybody. A word says why an application's queries are not plain.

    the model runs here     ─▶ answered at once
    it runs in a worker     ─▶ the query waits in columns ─▶ answered by columns
                                       └─ due, or another query or an unusual output needs it ─▶ `resume`: a `Pending`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from policies.assignment import QUERY
from policies.contract import OwnAnswer, is_answering, is_contextual, is_stepwise
from policies.outside import comes_from_outside
from schemas import topics
from schemas.records import Query
from streams.operators.configuration import RUNNING_MEAN
from streams.operators.contract import Record
from streams.operators.selection.answer import EXPIRED, Substitutes, predicted
from streams.operators.selection.dispatch import canary_shares
from streams.operators.selection.pending import Pending
from streams.operators.selection.questions import MAX_RETURN_SHARE
from streams.operators.selection.state_view import OutsideArms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from policies.contract import Policy
    from schemas.records import ModelOutput, ModelPredictions, Prediction
    from streams.operators.configuration import Deployed
    from streams.operators.contract import StateKey
    from streams.operators.selection.kernel import Selection
    from streams.operators.selection.pending import Quota
    from streams.operators.selection.state_view import Arms


class Answers(NamedTuple):
    """Answers of an application that were given together.

    Attributes:
        asked: how many there are, by the models that were asked.
        queries: that were read for them, copies of others too.
        durations_us: from when each query was sent to its answer.
        late: answers behind their deadline.
        slack_us: that the last query had for its answer; -1 = there was none.
    """

    asked: Mapping[tuple[str, ...], int]
    queries: int
    durations_us: Sequence[int]
    late: int
    slack_us: int


class WaitingQuery(NamedTuple):
    """A query that waits in columns for its model, which runs in a worker."""

    query_id: str
    row_id: str
    key: bytes | None
    context: str | None
    token: str
    headers: tuple[tuple[str, bytes], ...]
    partition: int
    offset: int
    sent_us: int
    received_us: int
    deadline_us: int
    until_us: int
    arm: int
    state: int
    places: int


class Way(NamedTuple):
    """The way back from a worker.

    Attributes:
        share: of what a query has for its answer that is kept for it.
        most_us: that is kept for it.
    """

    share: float
    most_us: int


class PlainQueries:
    """What columns need of the selection kernel."""

    def __init__(self, selection: Selection) -> None:
        self.quotas = selection.quotas
        self.next_turn = selection.next_turn
        self._configuration = selection.configuration
        self._arms = selection.known_arms
        self._combiner, self._questions = selection.serving.combiner, selection.serving.questions
        self._counters = selection.counters

    def applications(self) -> dict[str, Deployed | str]:
        """Return those that are deployed, or in a word why their queries are not plain."""
        known = self._configuration.applications
        return {name: self._why_not(deployed) or deployed for name, deployed in known.items()}

    def arms(self, deployed: Deployed, context: str | None, now_us: int, wanted: list[StateKey]) -> Arms | None:
        """Return the arms that decide a plain application's queries now; None: it asks otherwise, or waits for a state.

        Args:
            deployed: the application.
            context: of the queries.
            now_us: the time.
            wanted: gets the state, if it should be read again.
        """
        arms = self._arms(deployed, context, now_us, now_us, wanted)
        return arms if arms is not None and (_asks_one(arms) or asks_all(arms)) else None

    def together(self, deployed: Deployed, arms: Arms, outputs: Sequence[ModelOutput], asked: Query) -> Prediction:
        """Return the answer to a query to several models, all of which have answered.

        Args:
            deployed: the application.
            arms: that decide.
            outputs: of all models.
            asked: the query; its times are those of the answer, too.
        """
        query = _in_hand(asked, deployed)
        query.decision, query.models = arms.choices[0]
        query.weights, query.arms = arms.votes, arms
        query.outputs = {output.model: output for output in outputs}
        known = self._configuration
        return predicted(query, asked.sent_us, None, Substitutes(), known.classes, known.models)

    def late(self, deployed: Deployed, message: str, asked: Query) -> Prediction:
        """Return the answer to a query whose time was over when it came.

        Args:
            deployed: the application.
            message: of the answer.
            asked: the query; its times are those of the answer, too.
        """
        query = _in_hand(asked, deployed)
        query.message = message
        return predicted(query, asked.sent_us, EXPIRED, Substitutes(), {}, self._configuration.models)

    def is_timed(self) -> bool:
        """Tell whether each batch is to be timed from its first query on: then nothing is plain."""
        return self._combiner.latencies is not None

    def has_room(self, name: str, places: int = 1) -> bool:
        """Tell whether an application may have so much more in hand."""
        quota = self.quotas.by_name.get(name)
        return quota is not None and quota.places + places <= quota.limit

    def count(self, name: str, answers: Answers, now_us: int) -> None:
        """Count answers as if each query had been taken by itself."""
        self.count_asked(name, answers.asked, answers.queries, answers.slack_us)
        self.count_answered(name, answers.durations_us, answers.late, now_us)

    def count_asked(self, name: str, asked: Mapping[tuple[str, ...], int], queries: int, slack_us: int) -> None:
        """Count queries; arguments are as in `Answers`."""
        quota = self.quotas.by_name[name]
        self._counters["queries_total", "application", name] += queries
        for _ in range(sum(asked.values())):
            if not quota.expired:  # it comes to nothing after some hundred
                break
            quota.note_arrival(0, is_expired=False)
        self._questions.count_asked(name, asked, slack_us)

    def count_late(self, name: str, answers: Answers, now_us: int) -> None:
        """Count answers to queries whose time was over when they came, which took as long as they were sent ago."""
        counters, quota, given = self._counters, self.quotas.by_name[name], len(answers.durations_us)
        counters["queries_total", "application", name] += answers.queries
        if given:
            counters["answers_total", "application", name, "status", "default", "reason", EXPIRED] += given
        if answers.late:
            counters["late_answers_total", "application", name, "status", "default"] += answers.late
        for _ in range(given):
            quota.note_arrival(answers.durations_us[-1], is_expired=True)
        self._combiner.count(name, answers.durations_us, now_us, by_default=True)

    def count_answered(self, name: str, durations_us: Sequence[int], late: int, now_us: int) -> None:
        """Count answers; arguments are as in `Answers`."""
        counters = self._counters
        if durations_us:
            counters["answers_total", "application", name, "status", "complete", "reason", ""] += len(durations_us)
        if late:
            counters["late_answers_total", "application", name, "status", "complete"] += late
        self._combiner.count(name, durations_us, now_us)

    def is_outside(self, deployed: Deployed) -> bool:
        """Tell whether all models of an application run in workers."""
        return self._questions.inside.isdisjoint(map(topics.model_queries, deployed.application.models))

    @property
    def way(self) -> Way:
        """The way back from a worker."""
        return Way(MAX_RETURN_SHARE, self._questions.back_us)

    @property
    def spare_us(self) -> int:
        """How much later than due an output may still be of use, by the latest query."""
        return self._questions.dispatcher.spare_us

    def place(self, topic: str) -> int:
        """Return the partition of a model's topic whose turn it is."""
        return self._questions.dispatcher.place(topic, self._questions.turn)

    @property
    def waiting(self) -> Mapping[int, Mapping[str, Pending]]:
        """Queries that wait in the kernel, by partition and row id."""
        return self._combiner.waiting

    def lend(self, fetch: Callable[[Iterable[tuple[int, str]]], None]) -> None:
        """Have queries that wait in columns fetched by this, as far as the kernel needs them; it calls `resume`."""
        self._combiner.fetch = fetch

    def takes_outputs(self) -> bool:
        """Tell whether nobody but the query itself looks at a model's output."""
        coded = self._questions.coded
        return not (self.is_timed() or (coded is not None and coded.waits))

    def admits(self, deployed: Deployed, rows: int) -> bool:
        """Tell whether so many rows would be asked of each of an application's models, whenever they are due."""
        admission = self._questions.admission
        return admission is None or admission.has_room(deployed.application.models, rows)

    def on_asked(self, model: str, due_us: Sequence[int], now_us: int) -> None:
        """Take that columns have asked a model, and when the rows are due."""
        if self._questions.admission is not None:
            self._questions.admission.ask((model,), max(due_us), now_us, len(due_us))

    def on_outputs(self, batch: ModelPredictions, written_us: int, now_us: int) -> None:
        """Take that columns have answered by a worker batch, which was written at a time."""
        self._questions.on_batch(batch, written_us, now_us)

    def resume(self, waits: Sequence[tuple[Deployed, Quota, Arms, WaitingQuery]]) -> None:
        """Let queries wait in the kernel that have waited in columns, as if they had waited here all the time."""
        self._combiner.take_over([_pending(*each) for each in waits])

    def _why_not(self, deployed: Deployed) -> str:
        """Return in a word what an application has that columns do not; "" = nothing."""
        inside, models, application = self._questions.inside, self._configuration.models, deployed.application
        asked = {*map(topics.model_queries, application.models)}
        found = (
            ("graph", application.stages),
            ("policy", not _is_plain(deployed.policy) or (deployed.policy.full_information and not inside >= asked)),
            ("missing", deployed.policy.full_information and application.missing == RUNNING_MEAN),
            ("floor", deployed.policy.full_information and application.confidence_floor > 0),
            ("features", application.sources),
            ("versions", application.versions),
            ("coverage", application.coverage),
            ("timings", application.timings and inside >= asked),
            ("hedging", application.hedge),
            ("workers", not (inside >= asked or inside.isdisjoint(asked))),
            ("parity", application.parity and not inside >= asked),
            ("models", not models.keys() >= {*application.models}),
            ("assign", application.assign != QUERY or application.holdout),
            ("canary", canary_shares(application.models, models, application)),
            ("cache", self._questions.cache is not None),
            ("admission", self._questions.admission is not None and not inside.isdisjoint(asked)),
        )
        return next((word for word, is_so in found if is_so), "")


def _in_hand(asked: Query, deployed: Deployed) -> Pending:
    """Return a query as the kernel has it, whose times are all that of the query."""
    record = Record(topics.QUERIES, 0, 0, asked.sent_us, None, b"")
    return Pending(asked, record, deployed.application, *[asked.sent_us] * 4)


def _pending(deployed: Deployed, quota: Quota, arms: Arms, waits: WaitingQuery) -> Pending:
    """Return a query as the kernel has it once its model is asked."""
    application = deployed.application
    query = Query(waits.query_id, application.name, b"", waits.context, reply_token=waits.token)
    record = Record(topics.QUERIES, waits.partition, waits.offset, 0, waits.key, None, waits.headers)
    times = waits.sent_us, waits.received_us, waits.deadline_us, waits.until_us
    pending = Pending(query, record, application, *times)
    pending.input, pending.row_id, pending.quota, pending.places = None, waits.row_id, quota, waits.places
    pending.decision, pending.models = arms.choices[waits.arm]
    pending.weights, pending.arms = arms.votes, arms
    return pending


def asks_all(arms: Arms) -> bool:
    """Tell whether all models are asked, whatever the query, and their votes are the answer."""
    is_other = isinstance(arms, OutsideArms) or isinstance(arms.votes, OwnAnswer)
    return not (is_other or arms.propensities_in or arms.steps or arms.read or arms.aim) and (
        len(arms.choices) == 1 < len(arms.names) and arms.choices[0].models == arms.names
    )


def _is_plain(policy: Policy) -> bool:
    """Tell whether a policy asks the same, whatever the query, and its models' answers are the answer."""
    return not (is_contextual(policy) or is_stepwise(policy) or is_answering(policy) or comes_from_outside(policy))


def _asks_one(arms: Arms) -> bool:
    """Tell whether one model is drawn, whatever the query, and its answer is the answer."""
    return not (
        isinstance(arms, OutsideArms)
        or arms.propensities_in is not None
        or arms.steps is not None
        or arms.read is not None
        or arms.aim is not None
        or len(arms.choices) != len(arms.names)
        or any(len(choice.models) != 1 for choice in arms.choices)
    )
