"""Applications whose queries need no memory between question and answer: their models are asked here, at once.

Columns answer such queries many at a time (`streams.columns`). What they need of selection is here: whom to ask, with
which shares, and to be counted like everybody. A word says why an application's queries are not plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from policies.contract import OwnAnswer, is_answering, is_contextual, is_stepwise
from policies.outside import comes_from_outside
from schemas import topics
from streams.operators.configuration import RUNNING_MEAN
from streams.operators.contract import Record
from streams.operators.selection.answer import Substitutes, predicted
from streams.operators.selection.canaries import canary_shares
from streams.operators.selection.pending import Pending
from streams.operators.selection.state_view import OutsideArms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policies.contract import Policy
    from schemas.records import ModelOutput, Prediction, Query
    from streams.operators.configuration import Configuration, Deployed
    from streams.operators.contract import StateKey
    from streams.operators.selection.pending import Quotas
    from streams.operators.selection.serving import Serving
    from streams.operators.selection.state_view import Arms
    from streams.operators.statistics import Counters


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


class PlainQueries:
    """What columns need of the selection kernel, whose parts these are."""

    def __init__(
        self,
        configuration: Configuration,
        quotas: Quotas,
        arms: Callable[[Deployed, str | None, int, int, list[StateKey]], Arms | None],
        serving: Serving,
        counters: Counters,
    ) -> None:
        self.quotas = quotas
        self._configuration = configuration
        self._arms = arms
        self._serving = serving
        self._counters = counters

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
        sent_us = asked.sent_us
        record = Record(topics.QUERIES, 0, 0, sent_us, None, b"")
        query = Pending(asked, record, deployed.application, sent_us, sent_us, sent_us, sent_us)
        query.decision, query.models, _ = arms.choices[0]
        query.weights, query.confidences = arms.votes, arms.confidences
        query.outputs = {output.model: output for output in outputs}
        return predicted(query, sent_us, None, Substitutes(), self._configuration.classes, self._configuration.models)

    def is_timed(self) -> bool:
        """Tell whether each batch is to be timed from its first query on: then nothing is plain."""
        return self._serving.combiner.latencies is not None

    def has_room(self, name: str) -> bool:
        """Tell whether an application may have more in hand."""
        quota = self.quotas.by_name.get(name)
        return quota is not None and quota.places < quota.limit

    def count(self, name: str, answers: Answers, now_us: int) -> None:
        """Count answers as if each query had been taken by itself."""
        counters, quota = self._counters, self.quotas.by_name[name]
        counters["queries_total", "application", name] += answers.queries
        count = len(answers.durations_us)
        for _ in range(count):
            if not quota.expired:  # it comes to nothing after some hundred
                break
            quota.note_arrival(0, is_expired=False)
        self._serving.count_asked(name, answers.asked, answers.slack_us)
        if count:
            counters["answers_total", "application", name, "status", "complete", "reason", ""] += count
        if answers.late:
            counters["late_answers_total", "application", name, "status", "complete"] += answers.late
        self._serving.combiner.count(name, answers.durations_us, now_us)

    def _why_not(self, deployed: Deployed) -> str:
        """Return in a word what an application has that columns do not; "" = nothing."""
        inside, models, application = self._serving.inside, self._configuration.models, deployed.application
        found = (
            ("graph", application.stages),
            ("policy", not _is_plain(deployed.policy)),
            ("missing", deployed.policy.full_information and application.missing == RUNNING_MEAN),
            ("floor", deployed.policy.full_information and application.confidence_floor > 0),
            ("features", application.sources),
            ("versions", application.versions),
            ("coverage", application.coverage),
            ("hedging", application.hedge),
            ("workers", not inside.issuperset(map(topics.model_queries, application.models))),
            ("models", not models.keys() >= {*application.models}),
            ("canary", canary_shares(application.models, models, application)),
            ("cache", self._serving.is_cached),
            ("admission", self._serving.is_admitting),
        )
        return next((word for word, is_so in found if is_so), "")


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
