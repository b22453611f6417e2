"""Calls as bytes: the method, the time since the call before, the arguments as numbers; names are written once.

    on_records   runs of records: topic, partition, offset from where the run before ended, count
    on_states    partition, name, version, checksum
    configuration, features, results of models      whole: nothing else holds them, or not for ever

A call that was made lately with the same arguments, as most are, is a number and the time: three bytes or four.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np

from schemas import framing, topics
from schemas.records import Tensor, forms_of
from schemas.wire import pack_outcomes, write_long, write_tensor
from streams.operators.contract import LOOKED_UP, Batch, end_of
from streams.tape.common import FIRST, CommonCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from schemas.records import PolicyState
    from streams.operators.contract import Loaded, Predicted, Ran, Record, StateKey, Unread
    from streams.tape.calls import Answered, Method

FORMAT: Final = 1
# How a run of records came: by itself, as one batch, or from where it may not be found any more.
SINGLY, WHOLE, GIVEN = range(3)
# Kafka compacts these: what a role has followed there may be gone when it is recorded.
_FOLLOWED: Final = frozenset({topics.APPLICATIONS, topics.MODELS, topics.FEATURES})


class TapeWriter:
    """Writes calls.

    Args:
        encode: turns a state into a value.
    """

    def __init__(self, encode: Callable[[PolicyState], bytes]) -> None:
        self._encode = encode
        self._out = bytearray()
        self._names: dict[str, int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._now_us = 0
        self._common = CommonCalls()

    def __len__(self) -> int:
        return len(self._out)

    def take(self) -> bytes:
        """Remove and return what was written."""
        data = bytes(self._out)
        self._out.clear()
        return data

    def call(
        self, method: Method, now_us: int | None = None, arguments: Callable[[TapeWriter], None] = lambda _: None
    ) -> None:
        """Write a call; `arguments` writes what it is called with.

        Raises:
            OverflowError, ValueError: that cannot be written, and nothing of the call is.
        """
        out, self._out = self._out, bytearray((method,))
        try:
            arguments(self)
            said = bytes(self._out)
        finally:
            self._out = out
        if now_us is None:
            out += said
            return
        number, time = self._common.number(said), write_long(now_us - self._now_us)
        self._now_us = now_us
        out.append(method if number is None else FIRST + number)
        out += time
        if number is None:
            out += said[1:]

    def numbers(self, *numbers: int) -> None:
        """Write numbers; most are small, and a byte."""
        out = self._out
        for number in numbers:
            if 0 <= number < 64:
                out.append(number << 1)
            else:
                out += write_long(number)

    def records(self, records: Sequence[Record | Batch]) -> None:
        """Write where records stand."""
        runs = [*_runs(records)]
        self.numbers(len(runs))
        for how, first, end in runs:
            place = first[0], first[1]
            self._name(first[0])
            self.numbers(first[1], how)
            if isinstance(first, Batch) or how != GIVEN:
                self.numbers(first.offset - self._ends.get(place, 0), end - first.offset)
                self._ends[place] = end
            else:
                self.numbers(first.offset, first.timestamp_us)
                self._bytes(first.key)
                self._bytes(first.value)

    def states(self, states: Mapping[StateKey, PolicyState | None]) -> None:
        """Write which states were given."""
        self.numbers(len(states))
        for key, state in states.items():
            self.numbers(key.partition)
            self._name(key.name)
            self.numbers(-1 if state is None else state.version)
            if state is not None:
                self.numbers(checksum(self._encode(state)))

    def unread(self, unread: Unread) -> None:
        """Write how much is unread."""
        self.numbers(len(unread))
        for (topic, partition), count in unread.items():
            self._name(topic)
            self.numbers(partition, count)

    def ran(self, ran: Ran) -> None:
        """Write what became of a batch."""
        self.predicted(ran.results)
        self.numbers(ran.took_us, ran.is_blocking, ran.is_lost)

    def answered(self, answered: Answered) -> None:
        """Write what a model has answered at once."""
        self.numbers(answered is not None)
        if answered is not None:
            self.predicted(answered[0])
            self.numbers(answered[1])

    def predicted(self, results: Predicted) -> None:
        """Write results."""
        self._bytes(pack_outcomes(results.outcomes))
        if isinstance(results.answers, tuple):
            self.numbers(len(results.answers))
            for answer in results.answers:
                self._bytes(answer.encode())
        elif forms := forms_of(results.answers.dtype):
            self.numbers(-2)
            self._bytes(json.dumps(forms).encode())
            self._bytes(results.answers.tobytes())
        else:
            self.numbers(-1)
            self._out += write_tensor(Tensor.of(np.asarray(results.answers)))
        self.numbers(results.scores is not None)
        if results.scores is not None:
            self._out += write_tensor(Tensor.of(np.asarray(results.scores)))
        self._texts(results.reasons)
        self._texts(results.messages)
        self._bytes(None if results.fault is None else results.fault.encode())

    def loaded(self, loaded: Loaded) -> None:
        """Write what became of a copy."""
        self._name(loaded.model)
        self._name(loaded.version)
        self._bytes(None if loaded.fault is None else loaded.fault.encode())
        self.numbers(loaded.copy, loaded.took_us, loaded.size_bytes, loaded.is_lost, loaded.is_hopeless)

    def starts(self, starts: Mapping[int, int | None]) -> None:
        """Write where partitions begin; -1 = they are handed over."""
        self.numbers(len(starts))
        for place, start in starts.items():
            self.numbers(place, -1 if start is None else start)

    def _texts(self, texts: Mapping[int, str]) -> None:
        self.numbers(len(texts))
        for row, text in texts.items():
            self.numbers(row)
            self._bytes(text.encode())

    def _name(self, name: str) -> None:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = len(self._names)
            self.numbers(known)
            self._bytes(name.encode())
        else:
            self.numbers(known)

    def _bytes(self, data: bytes | None) -> None:
        if data is None:
            self.numbers(-1)
        else:
            self.numbers(len(data))
            self._out += data


def written_chunk(tape: str, number: int, about: Mapping[str, Any], data: bytes, *, is_part: bool = False) -> bytes:
    """Return a chunk as the value of a record; the first one says what the kernel is made of."""
    name, head = tape.encode(), json.dumps(about, separators=(",", ":")).encode() if number == 0 else b""
    said = write_long(len(name)), name, write_long(number), write_long(is_part), write_long(len(head)), head
    return b"".join((bytes((FORMAT,)), *said, data))


def checksum(value: bytes) -> int:
    """Return a checksum of a record, however it is framed: two bytes, as the version stands beside it."""
    start = framing.SINGLE_OBJECT_BYTES if value[0] else framing.CONFLUENT_BYTES
    return crc32(value[start:]) & 0xFFFF


def _runs(records: Sequence[Record | Batch]) -> Iterable[tuple[int, Record | Batch, int]]:
    """Yield how records came, the first one, and the offset behind the last."""
    first, end = None, 0
    for one in records:
        if first is not None and one[2] == end and one[0] == first[0] and one[1] == first[1] and type(one) is not Batch:
            end += 1
            continue
        if first is not None:
            yield SINGLY, first, end
        first = None
        if type(one) is Batch:
            yield WHOLE, one, end_of(one)
        elif one[1] == LOOKED_UP or one[0] in _FOLLOWED:
            yield GIVEN, one, 0
        else:
            first, end = one, one[2] + 1
    if first is not None:
        yield SINGLY, first, end
