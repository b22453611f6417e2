"""Dead letters: a record that cannot be used, key and bytes untouched, with its cause in the headers.

    skysail.error.cause       one word to group by: undecodable, late, too_large, refused, bug, …
    skysail.error.message     for a person; never contains the payload
    skysail.error.topic, .partition, .offset, .timestamp   where it came from (timestamp in µs)
    skysail.error.group, .version                          who refused it
    skysail.error.null        `value`, if the value was null (the copy's is empty)
    skysail.error.truncated   the original size in bytes, where not even the copy fits

The source record is complete when the dead letter is acknowledged, not before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.topics import dead_letters
from streams.operators.contract import Emit
from streams.runtime.errors import MisconfiguredError

if TYPE_CHECKING:
    from streams.operators.contract import DeadLetter
    from streams.runtime.errors import RecordRefusedError

# Headers are for people and dashboards: an exception's text must not make a small record a large one.
MESSAGE_BYTES = 1024
CAUSE_BYTES = 64
# What is kept of a value that is over the topic's own limit: enough to see what it was.
TRUNCATED_BYTES = 64 * 1024
_PREFIX = "skysail.error."


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Builds dead letters.

    Attributes:
        group: consumer group that refuses.
        version: of this program.
    """

    group: str
    version: str = ""

    def emit(self, letter: DeadLetter) -> Emit:
        """Return the copy that completes the refused record; its topic has one partition."""
        record = letter.record
        found = {
            **self._cause(letter.cause, letter.message),
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "timestamp": str(record.timestamp_us),
        }
        if record.value is None:
            found["null"] = "value"
        headers = record.headers + _headers(found)
        value = record.value or b""
        return Emit(dead_letters(record.topic), 0, record.key, value, (record.position,), headers)

    def too_large(self, emit: Emit) -> Emit:
        """Return the dead letter of a record that the broker refuses for its size: its beginning, and its size.

        Raises:
            MisconfiguredError: the dead-letter topic does not even take that.
        """
        topic = _topic(emit)
        if topic == emit.topic and len(emit.value) <= TRUNCATED_BYTES:
            raise MisconfiguredError(f"{topic} refuses {len(emit.value)} bytes; raise its max.message.bytes to 2 MiB")
        found = self._cause("too_large", f"{emit.topic} takes no record of {len(emit.value)} bytes")
        found["truncated"] = str(len(emit.value))
        return Emit(
            topic,
            0,
            emit.key and emit.key[:TRUNCATED_BYTES],
            emit.value[:TRUNCATED_BYTES],
            emit.completes,
            tuple(header for header in emit.headers if header[0].startswith(_PREFIX)) + _headers(found),
        )

    def refused(self, emit: Emit, fault: RecordRefusedError) -> Emit:
        """Return the dead letter of a record that the broker will never take, whole.

        Raises:
            MisconfiguredError: it was a dead letter itself: nothing is left to be done with it.
        """
        topic = _topic(emit)
        if topic == emit.topic:
            raise MisconfiguredError(f"{topic} refuses a dead letter: {fault}; see its cleanup.policy and format")
        found = self._cause("refused", f"{emit.topic} does not take it: {fault}")
        return Emit(topic, 0, emit.key, emit.value, emit.completes, emit.headers + _headers(found))

    def _cause(self, cause: str, message: str) -> dict[str, str]:
        return {"cause": cause, "message": message, "group": self.group, "version": self.version}


def _topic(emit: Emit) -> str:
    """Return where a dead letter of this record belongs; one of a dead letter stays in its topic."""
    is_dead = emit.topic == dead_letters(emit.topic.removesuffix(".dlq"))
    return emit.topic if is_dead else dead_letters(emit.topic)


def _headers(found: dict[str, str]) -> tuple[tuple[str, bytes], ...]:
    limits = {"cause": CAUSE_BYTES, "message": MESSAGE_BYTES}
    return tuple((_PREFIX + name, text.encode()[: limits.get(name)]) for name, text in found.items())
