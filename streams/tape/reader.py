"""Calls from bytes, as `writer` has written them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas.errors import DecodeError
from schemas.records import TensorForm, element
from schemas.wire import read_long, read_tensor, unpack_outcomes
from streams.operators.contract import Loaded, Predicted, Ran, Record, StateKey
from streams.tape.calls import KernelCall, Method, RecordRun, StateMark, TapeChunk
from streams.tape.common import FIRST, CommonCalls
from streams.tape.writer import FORMAT, GIVEN, WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from streams.tape.calls import Answered

_TIMELESS: Final = frozenset({Method.PARTITIONS, Method.LOST})


def chunk_of(value: bytes | None) -> TapeChunk:
    """Read a chunk.

    Raises:
        DecodeError: it is none.
    """
    if not value or value[0] != FORMAT:
        raise DecodeError("unknown_schema", "calls: not in the format of this release")
    read = _Bytes(value)
    read.at = 1
    try:
        tape, number, is_part, about = read.text(), read.number(), bool(read.number()), read.some()
        return TapeChunk(tape, number, json.loads(about) if about else None, value[read.at :], is_part)
    except (IndexError, ValueError) as fault:
        raise DecodeError("invalid", f"calls: {fault!r}") from fault


class TapeReader:
    """Reads the calls of one tape, chunk by chunk."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._ends: dict[tuple[str, int], int] = {}
        self._now_us = 0
        self._number = 0
        self._common = CommonCalls()

    def calls(self, data: bytes) -> Iterator[KernelCall]:
        """Yield the calls of the next chunk.

        Raises:
            DecodeError: it holds none.
        """
        read = _Bytes(data)
        try:
            while read.at < len(data):
                yield self._whole(read)
        except (IndexError, KeyError, ValueError) as fault:
            raise DecodeError("invalid", f"calls: {fault!r} at byte {read.at}") from fault

    def _whole(self, read: _Bytes) -> KernelCall:
        """Read a call, and what happened in it."""
        call = self._told(read)
        answered: list[Answered] = []
        while read.next_is(Method.ASKED):
            answered.append((self._predicted(read), read.number()) if read.number() else None)
        has_raised = read.next_is(Method.RAISED)
        damaged = [read.number() for _ in range(read.number())] if has_raised else ()
        self._number += 1
        return call._replace(answered=answered, has_raised=has_raised, damaged=damaged, number=self._number - 1)

    def _told(self, read: _Bytes) -> KernelCall:
        """Read a call, or the number of one that was made lately with the same arguments."""
        kind = read.byte()
        if kind >= FIRST:
            said = self._common.said(kind - FIRST)
            self._now_us += read.number()
            call = self._call(_Bytes(said[1:]), Method(said[0]))
        elif kind in _TIMELESS:
            return self._call(read, Method(kind))
        else:
            self._now_us += read.number()
            begin = read.at
            call = self._call(read, Method(kind))
            said = bytes((kind,)) + read.since(begin)
        self._common.number(said)
        return call

    def _call(self, read: _Bytes, method: Method) -> KernelCall:
        call = KernelCall(method, self._now_us)
        match method:
            case Method.RECORDS:
                call = call._replace(runs=[self._run(read) for _ in range(read.number())])
            case Method.TIMER:
                call = call._replace(unread=dict(self._unread(read) for _ in range(read.number())))
            case Method.STATES:
                call = call._replace(states=dict(self._state(read) for _ in range(read.number())))
            case Method.PREDICTED:
                batch_id = read.number()
                ran = Ran(self._predicted(read), read.number(), bool(read.number()), bool(read.number()))
                call = call._replace(batch_id=batch_id, ran=ran)
            case Method.LOADED:
                call = call._replace(loaded=self._loaded(read))
            case Method.PARTITIONS:
                starts = {read.number(): read.number() for _ in range(read.number())}
                call = call._replace(starts={place: None if at < 0 else at for place, at in starts.items()})
        return call

    def _run(self, read: _Bytes) -> RecordRun:
        topic, partition, how = self._name(read), read.number(), read.number()
        if how == GIVEN:
            record = Record(topic, partition, read.number(), read.number(), read.some(), read.some())
            return RecordRun(topic, partition, record.offset, 1, given=(record,))
        begin = self._ends.get((topic, partition), 0) + read.number()
        count = read.number()
        self._ends[topic, partition] = begin + count
        return RecordRun(topic, partition, begin, count, how == WHOLE)

    def _unread(self, read: _Bytes) -> tuple[tuple[str, int], int]:
        return (self._name(read), read.number()), read.number()

    def _state(self, read: _Bytes) -> tuple[StateKey, StateMark | None]:
        partition, name, version = read.number(), self._name(read), read.number()
        return StateKey(partition, name), None if version < 0 else StateMark(version, read.number())

    def _predicted(self, read: _Bytes) -> Predicted:
        outcomes, count = unpack_outcomes(read.some() or b""), read.number()
        answers = read.named() if count == -2 else read.tensor() if count < 0 else read.texts(count)
        scores = read.tensor() if read.number() else None
        reasons, messages, fault = self._texts(read), self._texts(read), read.some()
        return Predicted(outcomes, answers, scores, reasons, None if fault is None else fault.decode(), messages)

    def _texts(self, read: _Bytes) -> Mapping[int, str]:
        return {read.number(): read.text() for _ in range(read.number())}

    def _loaded(self, read: _Bytes) -> Loaded:
        model, version, fault = self._name(read), self._name(read), read.some()
        copy, took_us, size_bytes, *flags = [read.number() for _ in range(5)]
        said = None if fault is None else fault.decode()
        return Loaded(model, version, copy, said, took_us, size_bytes, *map(bool, flags))

    def _name(self, read: _Bytes) -> str:
        place = read.number()
        if place == len(self._names):
            self._names.append(read.text())
        return self._names[place]


class _Bytes:
    """Bytes that are read from the front."""

    __slots__ = ("_data", "at")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def byte(self) -> int:
        """Read one."""
        self.at += 1
        return self._data[self.at - 1]

    def since(self, begin: int) -> bytes:
        """Return what was read from there on."""
        return self._data[begin : self.at]

    def next_is(self, byte: int) -> bool:
        """Read a byte if it is this one."""
        is_it = self._data[self.at : self.at + 1] == bytes((byte,))
        self.at += is_it
        return is_it

    def number(self) -> int:
        """Read a number."""
        number, self.at = read_long(self._data, self.at)
        return number

    def some(self) -> bytes | None:
        """Read bytes; None where nothing was given."""
        size = self.number()
        if size < 0:
            return None
        if size > len(self._data) - self.at:
            raise IndexError(f"{size} bytes announced")
        self.at += size
        return self._data[self.at - size : self.at]

    def text(self) -> str:
        """Read a text."""
        return (self.some() or b"").decode()

    def texts(self, count: int) -> tuple[str, ...]:
        """Read so many texts."""
        return tuple([self.text() for _ in range(count)])

    def named(self) -> NDArray[np.generic]:
        """Read rows of named tensors."""
        forms = [TensorForm(name, dtype, tuple(shape)) for name, dtype, shape in json.loads(self.text())]
        return np.frombuffer(self.some() or b"", element(tuple(forms)))

    def tensor(self) -> NDArray[np.generic]:
        """Read an array."""
        found, self.at = read_tensor(self._data, self.at)
        return found.numpy()
