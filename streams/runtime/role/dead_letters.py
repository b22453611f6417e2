"""Dead letters: a record that cannot be used, key and bytes untouched, with its cause in the headers.

    skysail.error.cause       one word to group by: undecodable, late, too_large, refused, corrupt_batch, bug, …
    skysail.error.message     for a person; it may quote the record, so protect it like the record
    skysail.error.topic, .partition, .offset, .timestamp   where it came from (timestamp in µs)
    skysail.error.group, .version                          who refused it
    skysail.error.null        `value`, if the value was null (the copy's is empty)
    skysail.error.truncated   the original size in bytes, where not even the copy fits
    skysail.error.batch       of a batch that cannot be unpacked: its offsets, its size, and why

They stand behind the record's own headers; of two with the same name the last is ours. The source record is complete
when the dead letter is acknowledged, not before. A dead letter always fits: its value, key and foreign headers are cut
until the broker takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from schemas.topics import dead_letters
from streams.dead_letters.letter import NAMES, PREFIX, TRUNCATED
from streams.operators.contract import Emit
from streams.runtime.errors import MisconfiguredError
from streams.runtime.ports import size_of

if TYPE_CHECKING:
    from streams.operators.contract import DeadLetter
    from streams.runtime.errors import RecordRefusedError

# Headers are for people and dashboards: an exception's text must not make a small record a large one.
MESSAGE_BYTES: Final = 1024
CAUSE_BYTES: Final = 64
# The part that is kept of a value or key over the topic's own limit: enough to recognise it.
TRUNCATED_BYTES: Final = 64 * 1024
_LAST_KEY_BYTES: Final = 1024  # what is kept of the key where nothing else may stay
# A letter has some ten headers of ours, and five more each time it was refused.
_MOST_HEADERS: Final = 40


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
        """Return what is left of a record that the broker refuses for its size: a dead letter that says how large.

        Each time that it is refused again less is left: of its value, its key, the headers of others.

        Raises:
            MisconfiguredError: the dead-letter topic does not even take what is left at last.
        """
        topic = _topic(emit)
        smaller = _smaller(emit)
        if smaller is None:
            raise MisconfiguredError(f"{topic} refuses the smallest dead letter; raise its max.message.bytes to 2 MiB")
        if topic == emit.topic and emit.headers[-1][0] == TRUNCATED:
            return smaller  # it says so already
        found = self._cause("too_large", f"{emit.topic} takes no record of {size_of(emit)} bytes")
        found["truncated"] = str(len(emit.value))
        return smaller._replace(topic=topic, partition=0, headers=smaller.headers + _headers(found))

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


def _smaller(emit: Emit) -> Emit | None:
    """Return the record with the next thing cut that can be spared; None if there is none."""
    key, own = emit.key, _own(emit)
    attempts = (
        emit._replace(value=emit.value[:TRUNCATED_BYTES]),
        emit._replace(key=key and key[:TRUNCATED_BYTES]),
        emit._replace(headers=own),
        emit._replace(headers=own, value=b"", key=key and key[:_LAST_KEY_BYTES]),
    )
    return next((smaller for smaller in attempts if smaller != emit), None)


def _own(emit: Emit) -> tuple[tuple[str, bytes], ...]:
    """Return our own headers: the last ones, by their exact names, and no longer than we write them."""
    last = takewhile(_is_own, reversed(emit.headers[-_MOST_HEADERS:]))
    return tuple(last)[::-1]


def _is_own(header: tuple[str, bytes | None]) -> bool:
    name, value = header
    return name in NAMES and value is not None and len(value) <= MESSAGE_BYTES


def _topic(emit: Emit) -> str:
    """Return where a dead letter of this record belongs; one of a dead letter stays in its topic."""
    is_dead = emit.topic == dead_letters(emit.topic.removesuffix(".dlq"))
    return emit.topic if is_dead else dead_letters(emit.topic)


def _headers(found: dict[str, str]) -> tuple[tuple[str, bytes], ...]:
    return tuple(
        (PREFIX + name, text.encode(errors="backslashreplace")[: CAUSE_BYTES if name == "cause" else MESSAGE_BYTES])
        for name, text in found.items()
    )
