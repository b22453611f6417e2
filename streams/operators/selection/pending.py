"""A query from when it is read until it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.records import Tensor
from streams.operators.contract import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.contract import Ballots
    from schemas.records import Application, Decision, Input, ModelOutput, Query
    from streams.operators.contract import Record
    from streams.operators.selection.quotas import Intake

# A query and what belongs to it take about 1 KiB (CPython 3.11): a place. More of them for what a client made larger.
PLACE_BYTES = 1_024
_NEW = tuple.__new__  # makes a named tuple for a third of its constructor's cost


class Pending:
    """A query that waits for its models. Made for every one of them, so by hand: half of what a dataclass costs.

    The record it came in is not kept: thousands wait, and what is touched again after so many others is not in the
    processor's cache any more.

    Attributes:
        partition: that it was read from.
        completes: where it stands there.
        key: of its record, and of its answer.
        headers: of both.
        application: None if it is not deployed.
        input: until the models have been asked.
        models: that were asked.
        weights: of the arms, for combining.
        outputs: by model.
        until_us: how long its models are waited for: until its answer must leave to be there by the deadline.
        answered: nobody waits for it any more.
        row_id: under which models are asked: its id, unless another query in hand has that one.
        intake: of its application, while it is in hand there.
        places: that it takes there, of `PLACE_BYTES`.
        message: what its answer says to a person, beside the reason.
    """

    __slots__ = (
        "answered", "application", "application_name", "completes", "context", "deadline_us", "decision", "features",
        "headers", "input", "intake", "key", "message", "models", "outputs", "partition", "places", "priority",
        "query_id", "received_us", "reply_token", "row_id", "sent_us", "until_us", "version", "weights",
    )  # fmt: skip

    input: Input | None
    decision: Decision | None
    weights: Sequence[float] | Ballots

    def __init__(
        self,
        query: Query,
        record: Record,
        application: Application | None,
        sent_us: int,
        received_us: int,
        deadline_us: int,
        until_us: int,
    ) -> None:
        (
            self.query_id, self.application_name, self.input, self.context, _, _, self.priority, self.features,
            self.version, self.reply_token,
        ) = query  # fmt: skip
        topic, self.partition, offset, _, self.key, value, self.headers = record
        self.completes = (_NEW(Position, (topic, self.partition, offset)),)
        self.application = application
        self.sent_us = sent_us
        self.received_us = received_us
        self.deadline_us = deadline_us
        self.until_us = until_us
        self.decision = None
        self.models: tuple[str, ...] = ()
        self.weights = ()
        self.outputs: dict[str, ModelOutput] = {}
        self.answered = False
        self.row_id = self.query_id
        self.intake: Intake | None = None
        self.places = 1 if value is None or (len(value) <= PLACE_BYTES and not self.headers) else self._places(value)
        self.message = ""

    @property
    def is_alone(self) -> bool:
        """Whether one model was to be asked, and no other."""
        return self.decision is not None and len(self.decision.chosen) == 1

    def rename(self) -> None:
        """Have its models asked under another id."""
        self.row_id += f"@{self.completes[0].offset}"

    def _places(self, value: bytes) -> int:
        """Return how many places it takes once its models are asked: its input is not kept."""
        headers = sum([len(name) + len(content or b"") for name, content in self.headers])
        return 1 + (len(value) - size(self.input) + len(self.key or b"") + headers) // PLACE_BYTES

    def keep_input(self) -> None:
        """Count it for its input, too, as its models are not asked yet."""
        if self.intake is not None:
            places = size(self.input) // PLACE_BYTES
            self.places += places
            self.intake.places += places

    def leave(self) -> None:
        """Count it no more."""
        if self.intake is not None:
            self.intake.places -= self.places
            self.intake = None


def size(given: Input | tuple[str | bytes, ...] | None) -> int:
    """Return how large an input, or a column of them, is."""
    if isinstance(given, Tensor):
        return len(given.data)
    return sum(map(len, given)) if isinstance(given, tuple) else len(given or b"")
