"""What a client sends and what it keeps of what it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas import topics as names
from schemas.codec import Codec
from schemas.framing import peek_id
from schemas.records import Feedback

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from load.harness.openloop import Asked
    from load.harness.wire import Wire
    from load.harness.workload import Rows
    from load.research.peers.ledger import Ledger
    from load.research.peers.speech import Speech

    Record = tuple[str, bytes, bytes]  # logical topic, key, value


@dataclass(slots=True)
class Asking:
    """Makes queries, notes them in a ledger, and knows the truth about them."""

    rows: Rows
    speech: Speech
    ledger: Ledger
    codec: Codec = field(default_factory=Codec)

    def ask(self, index: int, intended_us: int) -> tuple[Asked, Record]:
        """Return query number `index` and its record."""
        asked = self.rows(index, intended_us)
        query_id = asked.query.query_id
        self.ledger.asked(query_id, index % len(self.rows.inputs), intended_us)
        return asked, (names.QUERIES, query_id.encode(), self.speech.query(asked.query))

    def tell(self, asked: Asked, now_us: int) -> Record:
        """Return the record with the truth about a query."""
        query_id = asked.query.query_id
        feedback = Feedback(query_id, label=asked.label, sent_us=now_us)
        return names.FEEDBACK, query_id.encode(), self.codec.encode(feedback)


def backlog(asking: Asking, count: int, now_us: int, *, feedback: bool) -> list[Record]:
    """Return all records of a backlog; feedback goes with the queries, so that nobody waits for the client."""
    records = []
    for index in range(count):
        asked, record = asking.ask(index, now_us)
        records.append(record)
        if feedback:
            records.append(asking.tell(asked, now_us))
    return records


class Side:
    """Sends queries when they are due (`load.harness.pacing`); keeps when each answer was taken and its bytes.

    Args:
        wire: where; it follows the answers.
        asking: makes the records.
        intended_us: when each query is meant to be sent; all are made beforehand, and what is told about them.
        now_us: the clock.
        feedback: whether the truth follows each answer, which must be one of Skysail's.

    Attributes:
        taken: `(arrived_us, value)` of each answer.
        late_us: how late the latest query was sent.
    """

    def __init__(
        self, wire: Wire, asking: Asking, intended_us: Sequence[int], now_us: Callable[[], int], *, feedback: bool
    ) -> None:
        self._wire, self._now_us, self._asking = wire, now_us, asking
        made = [asking.ask(index, at_us) for index, at_us in enumerate(intended_us)]
        self._records = [record for _, record in made]
        truths = (
            [asking.tell(asked, at_us) for (asked, _), at_us in zip(made, intended_us, strict=True)] if feedback else []
        )
        self._untold = {asked.query.query_id: truth for (asked, _), truth in zip(made, truths, strict=False)}
        self.taken: list[tuple[int, bytes]] = []
        self.late_us = 0

    def send(self, index: int, intended_us: int) -> None:
        """Send query number `index`."""
        self._wire.produce(*self._records[index], self._asking.speech.headers)
        self.late_us = max(self.late_us, self._now_us() - intended_us)

    def turn(self, wait_s: float) -> None:
        """Take what has arrived, waiting at most `wait_s` for the first of it."""
        arrived = self._wire.poll(wait_s)
        now_us = self._now_us()
        self.taken += [(now_us, arrival.value or b"") for arrival in arrived]
        if self._untold:
            self._tell(len(arrived))

    def take(self, wait_s: float) -> int:
        """Take a turn; returns how many answers have been taken."""
        self.turn(wait_s)
        return len(self.taken)

    def _tell(self, count: int) -> None:
        """Tell the truth about the latest `count` answers."""
        for _, value in self.taken[len(self.taken) - count :]:
            truth = self._untold.pop(peek_id(value), None)
            if truth is not None:
                self._wire.produce(*truth, patient=True)
