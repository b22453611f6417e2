"""The argument and the verdict of LoadGen, which runs in an environment of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One rate to judge, as the judge's only argument, in JSON.

    Attributes:
        bootstrap: of the broker.
        prefix: of the topics.
        sink: where answers come, without the prefix.
        application: whom the queries ask.
        model: what MLServer calls its model; empty = speak Avro.
        rows: a numpy file.
        rate_per_s: of queries.
        seconds: how long at least.
        objective_ms: within which 99 % must be answered.
        seed: of ids and arrivals.
        folder: for LoadGen's own logs.
        direct: there is no system: what comes back is the query.
        labels: a numpy file with the truth about each row, which follows each answer; empty = no feedback.
    """

    bootstrap: str
    prefix: str
    sink: str
    application: str
    model: str
    rows: str
    rate_per_s: float
    seconds: float
    objective_ms: float
    seed: int
    folder: str
    direct: bool = False
    labels: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """LoadGen's verdict, which gets a default as an answer that is too late; one in a hundred may be.

    Missing answers are counted here, because LoadGen would wait for them without end: none may be.
    """

    valid: bool
    p99_ms: float
    completed_per_s: float
    unanswered: int
    defaults: int = 0
