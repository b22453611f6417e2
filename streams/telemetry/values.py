"""Legs, as OpenTelemetry's spans have them: frozen values, times in microseconds since the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Prediction
    from streams.operators.contract import Position
    from streams.telemetry.context import TraceContext

# Names of the semantic conventions 1.45 for messaging, which has renamed what is Kafka's own.
SYSTEM: Final = "messaging.system.name"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"  # receive or process
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
GROUP: Final = "messaging.consumer.group.name"
MESSAGE_ID: Final = "messaging.message.id"
COUNT: Final = "messaging.batch.message_count"
OFFSET: Final = "kafka.offset"
ERROR: Final = "error.type"
CONVENTIONS: Final = "https://opentelemetry.io/schemas/1.45.0"


class LegContext(NamedTuple):
    """Where a leg stands, for others to refer to."""

    trace_id: int
    leg_id: int


class TimedLeg(NamedTuple):
    """One leg of a sampled query, or a batch that had rows of some.

    Attributes:
        name: operation and destination.
        at: its own ids.
        parent_id: of the leg that it is a part of; 0 = it begins its trace.
        role: whose work it is: `selection`, `worker.svc`, `joiner`.
        instance: of that role; "" = not known.
        begin_us: when it began.
        end_us: when it ended, not before.
        attributes: by the names of the semantic conventions, or `skysail.*`.
        kind: a consumer takes records, the others are inside.
        links: legs that it belongs to and is no part of.
        fault: why it did not do what it is for; "" = it did.
    """

    name: str
    at: LegContext
    parent_id: int
    role: str
    instance: str
    begin_us: int
    end_us: int
    attributes: Mapping[str, str | int | float | bool]
    kind: Literal["consumer", "internal"] = "internal"
    links: tuple[LegContext, ...] = ()
    fault: str = ""


class SampledQuery(NamedTuple):
    """A query whose legs are shown.

    Attributes:
        context: its trace, and who asked.
        at: the leg of the whole query.
        place: of its prediction.
        time_us: of its prediction's record.
        said: its prediction.
    """

    context: TraceContext
    at: LegContext
    place: Position
    time_us: int
    said: Prediction
