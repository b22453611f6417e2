"""What came of a replay, in constant memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Final

from schemas.records import Status
from streams.trace.times import LogTimes

_REASONS: Final = 32  # that are told apart


@dataclass(slots=True)
class Score:
    """What came of a replay; a query counts from the time at which it was meant to be sent.

    Attributes:
        sent: queries.
        repeated: of them, those whose id had been sent before: one answer is due for all.
        answered: answers that came, one for each id.
        in_time: of them, those by their deadline that are no default output.
        defaults: default outputs, by reason.
        partial: answers without some of the models that were asked.
        doubled: further answers to a query that had one.
        feedback: that was sent.
        without_answer: feedback that was not sent, since the answer to its query never came.
        left_out: records that are no query or feedback, and feedback about queries that are not in the trace.
        refused: queries that Kafka did not take.
        latency: of the answers.
        behind: how late queries were sent.
    """

    sent: int = 0
    repeated: int = 0
    answered: int = 0
    in_time: int = 0
    defaults: Counter[str] = field(default_factory=Counter)
    partial: int = 0
    doubled: int = 0
    feedback: int = 0
    without_answer: int = 0
    left_out: int = 0
    refused: int = 0
    latency: LogTimes = field(default_factory=LogTimes)
    behind: LogTimes = field(default_factory=LogTimes)

    def heard(self, status: Status, reason: str | None, took_us: int, *, is_late: bool) -> None:
        """Count a query's first answer."""
        self.answered += 1
        self.latency.add(took_us)
        if status is Status.DEFAULT:
            word = reason or "no reason"
            self.defaults[word if word in self.defaults or len(self.defaults) < _REASONS else "others"] += 1
        elif not is_late:
            self.in_time += 1
        self.partial += status is Status.PARTIAL

    def summary(self) -> dict[str, Any]:
        """Return the score as JSON values."""
        ids = self.sent - self.repeated
        counts = {one.name: value for one in fields(self) if isinstance(value := getattr(self, one.name), int)}
        return {
            **counts,
            "defaults": self.defaults.total(),
            "reasons": dict(self.defaults),
            "lost": ids - self.answered,
            "share_in_time": self.in_time / ids if ids else None,
            "p50_ms": self.latency.quantile_ms(0.5),
            "p99_ms": self.latency.quantile_ms(0.99),
            "max_ms": self.latency.largest_us / 1e3,
            "behind_p99_ms": self.behind.quantile_ms(0.99),
            "behind_max_ms": self.behind.largest_us / 1e3,
        }
