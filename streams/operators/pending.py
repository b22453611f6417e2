"""A query from when it is read until it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.operators.contract import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.contract import Ballots
    from schemas.records import Application, Decision, Input, ModelOutput, Query
    from streams.operators.contract import Record

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
        message: what its answer says to a person, beside the reason.
    """

    __slots__ = (
        "answered", "application", "application_name", "completes", "context", "deadline_us", "decision", "features",
        "headers", "input", "key", "message", "models", "outputs", "partition", "priority", "query_id", "received_us",
        "reply_token", "sent_us", "until_us", "version", "weights",
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
        topic, self.partition, offset, _, self.key, _, self.headers = record
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
        self.message = ""

    @property
    def is_alone(self) -> bool:
        """Whether one model was to be asked, and no other."""
        return self.decision is not None and len(self.decision.chosen) == 1
