"""One process of the role `selection`: polls queries and outputs, asks models, notes when outputs are there.

As in the real one, each poll asks one partition of a model's topic, the next one at the next poll, whatever it brought;
an output is due before the answer's time by what the way back usually takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streams.operators.selection.latencies import RunningQuantile
from streams.operators.selection.questions import MAX_RETURN_SHARE

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from streams.testing.events import Events

# Of the way back, before any was seen: one measured leg (us).
_FIRST_RETURN_US = 2_000.0


class SimulatedOutputs(NamedTuple):
    """A record of one batch: which model, when it was sent, the queries that were predicted, those given up."""

    model: int
    sent_us: int
    predicted: Sequence[int]
    expired: Sequence[int]


class SimulatedArms(NamedTuple):
    """Which models each query asks.

    Attributes:
        models: how many there are.
        drawn: the model of each query; None = each asks all.
    """

    models: int
    drawn: bytes | None


class SimulatedAnswers(NamedTuple):
    """When each query's output of a model was at selection (us), and whether it was given up; one entry a query."""

    at_us: array[int]
    is_expired: bytearray


class SimulatedSelection:
    """One process.

    Args:
        queries: numbers of its queries, in the order in which they are received.
        received_us: when each of all queries is received.
        until_us: when each of all queries is answered at the latest.
        slack_us: the application's objective.
        arms: whom queries ask.
        answers: by model: takes what is known of each query.
        ask: called with the time, a model, a turn and rows (due_us, query).
        events: takes what will happen.
        poll_us: the least time between polls.
        turn: of its last poll; processes that have run for long stand at different ones.
    """

    def __init__(
        self,
        queries: Sequence[int],
        received_us: array[int],
        until_us: array[int],
        slack_us: int,
        arms: SimulatedArms,
        answers: Sequence[SimulatedAnswers],
        ask: Callable[[int, int, int, list[tuple[int, int]]], None],
        events: Events,
        poll_us: int,
        turn: int = 0,
    ) -> None:
        self._queries = queries
        self._received_us, self._until_us = received_us, until_us
        self._arms, self._answers, self._ask = arms, answers, ask
        self._events = events
        self._poll_us = poll_us
        self._at = 0
        self._turn = turn
        self._inbox: list[SimulatedOutputs] = []
        self._free_us = 0
        self._next_us = -1
        self._back = RunningQuantile(0.95, _FIRST_RETURN_US)
        self._most_back_us = int(slack_us * MAX_RETURN_SHARE)
        self._plan_poll()

    def on_outputs(self, now_us: int, outputs: SimulatedOutputs) -> None:
        """Take a record of a worker."""
        self._inbox.append(outputs)
        if now_us >= self._free_us:
            self._poll(now_us)
        elif self._next_us != self._free_us:
            self._next_us = self._free_us
            self._events.add(self._free_us, self._timed)

    def _timed(self, now_us: int, _about: object) -> None:
        if now_us == self._next_us:
            self._poll(now_us)

    def _poll(self, now_us: int) -> None:
        """Take everything that is there."""
        self._turn += 1
        self._free_us = now_us + self._poll_us
        if self._inbox:
            self._take_outputs(now_us)
        rows = self._asking(now_us)
        if rows:
            self._dispatch(now_us, rows)
        self._plan_poll()

    def _plan_poll(self) -> None:
        if self._at < len(self._queries):
            next_us = max(self._free_us, self._received_us[self._queries[self._at]])
            if next_us != self._next_us:
                self._next_us = next_us
                self._events.add(next_us, self._timed)

    def _take_outputs(self, now_us: int) -> None:
        inbox, self._inbox = self._inbox, []
        for model, sent_us, predicted, expired in inbox:
            if sent_us < now_us:
                self._back.add(now_us - sent_us)
            at_us, is_expired = self._answers[model]
            for query in predicted:
                at_us[query] = now_us
            for query in expired:
                at_us[query] = now_us
                is_expired[query] = 1

    def _asking(self, now_us: int) -> list[tuple[int, int]]:
        """Return the rows (due_us, query) of the queries that are there; those too late ask nobody."""
        at, queries, received_us, until_us = self._at, self._queries, self._received_us, self._until_us
        back_us = min(self._most_back_us, int(self._back.value))
        rows = []
        while at < len(queries) and received_us[queries[at]] <= now_us:
            query = queries[at]
            at += 1
            if until_us[query] > now_us:
                rows.append((until_us[query] - back_us, query))
        self._at = at
        return rows

    def _dispatch(self, now_us: int, rows: list[tuple[int, int]]) -> None:
        arms, drawn = self._arms
        if drawn is None:
            for model in range(arms):
                self._ask(now_us, model, self._turn, rows)
            return
        for model in range(arms):
            its = rows if arms == 1 else [row for row in rows if drawn[row[1]] == model]
            if its:
                self._ask(now_us, model, self._turn, its)
