"""The shape of what the page shows: rows as plain JSON values, and commands to be copied.

Shares lie in [0, 1]; a figure that is not known is None. Everything but gauges is over the last minute.
Commands are quoted, since the names in them come off a topic.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from streams.control.history import Series

WORKER = "worker."


class Alert(TypedDict):
    """One thing that is wrong."""

    level: Literal["bad", "warn"]  # users notice it; it may become so
    text: str
    command: str
    application: NotRequired[str]  # whose answers show it


class VersionRow(TypedDict):
    """One of several versions of a model, for one application."""

    version: str
    label: str  # stable, canary, shadow or standby, and the labels that it was given
    share: float  # of the model's queries that it answers
    loss: float | None


class AnswerTimes(TypedDict):
    """How long the answers of the last minute took, from when they were sent."""

    bounds_ms: list[float]  # ascending; the last bar is of what took longer than all of them
    shares: list[float]  # of the answers, one more than bounds
    objective_ms: float | None


class LegBudget(TypedDict):
    """Where the time of a question to a model goes, in ms: what each leg takes as a rule."""

    wait: float | None  # what a row that came now would wait for its batch
    predict: float | None  # a batch, in the mean of the last minute


class ModelRow(TypedDict):
    """One model of one application; batches and latency are of the model for all its applications."""

    name: str
    version: str
    share: float | None  # of the queries that asked it
    weight: float | None  # in the policy's global state
    loss: float | None
    cost: float | None  # of 1,000 answers, as that of the application
    failed: float | None  # share of the application's queries to it at which it raised
    invalid: float | None  # share of the same whose input it does not take
    batch_rows: float | None
    batch_cap: float | None
    queue_rows: float | None
    p50_ms: float | None  # from being fetched to being predicted
    p99_ms: float | None
    budget: LegBudget
    shares: Series
    versions: list[VersionRow]  # where there are several, the one that serves first


class Holding(TypedDict):
    """Something that takes room: what it is, how much of it there is, and how much there may be."""

    name: str
    value: float  # bytes if the name ends so, else a count
    limit: float | None


class CoverageRow(TypedDict):
    """What an application promises of its sets or intervals, and what became of it in the last five minutes."""

    promised: float
    of: str  # sets of labels, or intervals
    truth: str  # label, or number
    unit: str  # of `size`
    held: float | None  # share of those judged that had the truth in them
    at_most: float  # that the share may be in truth, but for one chance in a million
    judged: float  # those whose truth was told
    size: float | None  # labels in a set, or how wide an interval is: the mean of those that do not hold all
    all: float | None  # share of those that every label or number was in
    series: Series  # held, by step


class SourceRow(TypedDict):
    """A source that features are looked up in, over all applications that do."""

    name: str
    imputed: float | None  # share of the features that were not known in time: their mean stood in


class ApplicationRow(TypedDict):
    """One application."""

    name: str
    policy: str
    rate: float  # answers a second
    in_time: float | None
    partial: float | None
    partials: dict[str, float]  # reasons of partial answers, as shares of all answers
    defaults: float | None
    reasons: dict[str, float]  # of the defaults, as shares of all answers
    late: float | None  # answered after the deadline
    sent_ago_ms: float | None  # where nearly all expire on arrival: the last one's age by its sender's clock
    without_state: float | None  # share of the answers decided before the policy's state had been read
    by_columns: float | None  # share of the answers that columns gave; None = none, lately
    left: str  # in a word why columns leave its queries to Python; "" = they do not
    again: dict[str, float]  # what else was asked in the last minute, and what stages went without, as shares
    turned_away: dict[str, float]  # in the last minute, beyond its share: kind and number
    holds: list[Holding]  # of what has a share for each application
    sources: list[SourceRow]  # of features that are looked up for its queries
    joined: float  # a second
    loss: float | None
    cost: float | None  # of 1,000 answers, in the unit of its loss; None = it has none, or no feedback came
    coverage: CoverageRow | None  # where it promises any
    p50_ms: float | None  # from the client to the answer
    p99_ms: float | None
    times: AnswerTimes | None
    rates: Series
    default_shares: Series
    losses: Series
    models: list[ModelRow]


class ProcessRow(TypedDict):
    """One process."""

    instance: str
    role: str
    silent: bool
    stopped: bool  # in good order, as it said itself
    pid: float | None  # on its machine
    age_s: float
    up_s: float | None
    restarts: int
    exit: float | None  # how its predecessor ended: exit status, or minus the signal; None = nobody knows
    back_s: float | None  # since when it is heard again after a silence
    away_s: float  # how long that was
    cpu: float | None  # cores
    memory_mb: float | None
    clock_off_ms: float | None  # ahead of its machine's
    holds: list[Holding]  # that may grow
    lag: float | None
    lags: Series


class LetterRow(TypedDict):
    """Dead letters of one topic and cause."""

    topic: str
    lies_with: str  # whose letters are in the same topic
    cause: str
    minute: float
    total: float
    command: str  # that shows them


class Overview(TypedDict):
    """What the page shows."""

    prefix: str  # of the deployment
    kafka: str  # where its broker is
    stale_s: float | None  # age of the figures, if nothing comes back from Kafka
    level: Literal["well", "warn", "bad"]  # of the worst alert
    window_s: float  # how much of the last minute is known
    step_s: float  # of the series
    alerts: list[Alert]
    applications: list[ApplicationRow]
    processes: list[ProcessRow]
    dead_letters: list[LetterRow]


def of(application: str, alert: Alert) -> Alert:
    """Return an alert as one whose cause the last answers of an application show."""
    return {**alert, "application": application}


def skysail(*words: str) -> str:
    """Return `skysail ...` as a shell takes it."""
    return shlex.join(("skysail", *words))


def run(role: str) -> str:
    """Return what starts a role."""
    model = role.removeprefix(WORKER)
    return skysail("run", "--role", role) if model == role else skysail("run", "--role", "worker", "--model", model)
