"""Hedging: a model that takes longer than usual is asked again in another partition, and the first answer counts.

    asked ──▶ 95 of 100 would have answered by now ──▶ a token left? time left? ──▶ the same row, another partition

Replicas share a model's partitions in ranges, so another replica reads the one half of them further on. Each answer
brings a share of a token and each question takes one. So at most that share of the questions is asked twice, and while
nobody answers, no more than the tokens held (Dean and Barroso, The tail at scale, CACM 2013; gRPC's retry throttling).
Five in a hundred take longer than usual on an ordinary day. Half of the tokens is therefore kept for what takes twice
as long: a replica that stands still holds up many at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from policies.tokens import Tokens
from streams.operators.selection.overdue import BUCKET_US, Overdue
from streams.operators.statistics import render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.records import Application
    from streams.operators.selection.pending import Pending

HEDGE: Final = "hedge"
UNPAID: Final = "unpaid"


class Hedge(NamedTuple):
    """Models that are to be asked again about a query."""

    query: Pending
    models: tuple[str, ...]
    turn: int  # in whose partitions they were asked
    usual_us: int  # what 95 of 100 rows take at most
    is_urgent: bool = False  # it takes twice as long as that

    @property
    def missing(self) -> tuple[str, ...]:
        """The models that have not answered yet."""
        return tuple([model for model in self.models if model not in self.query.outputs])


class Hedges:
    """What may be asked again, and the tokens for it by application."""

    __slots__ = ("_due", "_tokens")

    def __init__(self) -> None:
        self._due: Overdue[Hedge] = Overdue(lambda hedge: not hedge.query.answered)
        self._tokens: dict[str, Tokens] = {}

    def expect(self, hedge: Hedge, asked_us: int) -> None:
        """Ask these models again if they take longer than usual."""
        self._due.add(hedge, asked_us + hedge.usual_us + BUCKET_US)

    def next_due(self) -> int | None:
        """Return when the next takes longer than usual (us)."""
        return self._due.next_due()

    def due(self, now_us: int) -> Iterator[Hedge]:
        """Yield those that do."""
        return self._due.due(now_us)

    def earn(self, application: Application, answers: int) -> None:
        """Count answers of an application."""
        self._tokens[application.name] = self._tokens.get(application.name, Tokens()).earn(application.hedge, answers)

    def spend(self, application: Application, *, is_urgent: bool) -> bool:
        """Take a token; False: there is none."""
        left = self._tokens.get(application.name, Tokens()).spend(is_urgent=is_urgent)
        if left is not None:
            self._tokens[application.name] = left
        return left is not None

    def statistics(self) -> dict[str, float]:
        """Return the tokens by application."""
        return {render(("hedge_tokens", "application", name)): tokens.held for name, tokens in self._tokens.items()}
