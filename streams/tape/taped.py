"""An operator that writes down what the one behind it is called with, and changes nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas import topics
from streams.operators.contract import NONE_UNREAD, Batch, Emit, Loaded, Operator, Phase, Ran
from streams.tape.calls import Method
from streams.tape.writer import TapeWriter, written_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from schemas.codec import Codec
    from schemas.records import PolicyState, Tensor
    from streams.operators.contract import AskNow, Effects, Needs, Record, StateKey, Unread
    from streams.tape.calls import Answered

# What is lost of a tape when its process is killed: calls of so long, or so many bytes of them.
GATHERED_US: Final = 1_000_000
GATHERED_BYTES: Final = 1 << 15
# What one record holds: a call may need several.
CHUNK_BYTES: Final = 1 << 17


class HeardAsking:
    """Asks a model at once, and tells a tape what it has answered.

    Attributes:
        hear: is told; None = nobody listens.

    Args:
        ask: the model.
    """

    __slots__ = ("_ask", "hear")

    def __init__(self, ask: AskNow) -> None:
        self._ask = ask
        self.hear: Callable[[Answered], None] | None = None

    def __call__(self, model: str, copy: int, rows: Tensor, patience_us: int) -> Answered:
        """Ask it."""
        answered = self._ask(model, copy, rows, patience_us)
        if self.hear is not None:
            self.hear(answered)
        return answered


class Taped(Operator):
    """Passes every call on, and writes it to topic `calls` from time to time, as one more effect.

    Attributes:
        kernel: the operator behind it.
        about: what it is made of, as module `about` says it.

    Args:
        kernel: as above.
        codec: of the deployment.
        instance: of the role.
        about: as above.
        asking: by which it asks models at once; None = it does not.
    """

    def __init__(
        self,
        kernel: Operator,
        codec: Codec,
        instance: str,
        about: Mapping[str, Any],
        asking: HeardAsking | None = None,
    ) -> None:
        self.kernel = kernel
        self._instance = instance
        self.about = about
        self._tape = ""
        self._writer = TapeWriter(codec.encode)
        self._number = 0
        self._due_us: int | None = None  # when what is gathered is to be written
        self._is_stopping = False
        self._is_over = False
        if asking is not None:
            asking.hear = self._on_answered

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Write down where they stand, and pass them on."""
        self._write(Method.RECORDS, now_us, lambda writer: writer.records(records))
        is_read_back = (
            bool(records) and records[0].topic == topics.OBSERVATIONS and self.kernel.needs().read_back.has_written
        )
        return self._decided(
            now_us, lambda: self.kernel.on_records(records, now_us), records, may_write=not is_read_back
        )

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Pass it on, unless it is only the tape that is due."""
        needs = self.kernel.needs()
        is_due = needs.is_told_unread or (needs.deadline_us is not None and needs.deadline_us <= now_us)
        if not is_due and self._due_us is not None and self._due_us <= now_us:
            return self._chunk(now_us)
        self._write(Method.TIMER, now_us, lambda writer: writer.unread(unread))
        return self._decided(now_us, lambda: self.kernel.on_timer(now_us, unread))

    def on_phase(self, phase: Phase, now_us: int) -> Effects:
        """Pass it on; while the role stops each call is written at once."""
        self._write(Method.CAUGHT_UP if phase is Phase.CAUGHT_UP else Method.STOPPING, now_us)
        self._is_stopping |= phase is Phase.STOPPING
        return self._decided(now_us, lambda: self.kernel.on_phase(phase, now_us))

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Write down which they are, and pass them on."""
        self._write(Method.STATES, now_us, lambda writer: writer.states(states))
        return self._decided(now_us, lambda: self.kernel.on_states(states, now_us))

    def on_predicted(self, batch_id: int, ran: Ran, now_us: int) -> Effects:
        """Write it down, and pass it on."""

        def write(writer: TapeWriter) -> None:
            writer.numbers(batch_id)
            writer.ran(ran)

        self._write(Method.PREDICTED, now_us, write)
        return self._decided(now_us, lambda: self.kernel.on_predicted(batch_id, ran, now_us))

    def on_loaded(self, loaded: Loaded, now_us: int) -> Effects:
        """Write it down, and pass it on."""
        self._write(Method.LOADED, now_us, lambda writer: writer.loaded(loaded))
        return self._decided(now_us, lambda: self.kernel.on_loaded(loaded, now_us))

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Write it down, and pass it on."""
        self._write(Method.PARTITIONS, None, lambda writer: writer.starts(starts))
        self.kernel.on_partitions(starts)

    def needs(self) -> Needs:
        """Return its needs; the tape wants to be written, too."""
        needs, due_us = self.kernel.needs(), self._due_us
        if due_us is None or (needs.deadline_us is not None and needs.deadline_us <= due_us):
            return needs
        return needs._replace(deadline_us=due_us)

    def statistics(self) -> Mapping[str, float]:
        """Return its figures."""
        return self.kernel.statistics()

    def _write(
        self, method: Method, now_us: int | None, arguments: Callable[[TapeWriter], None] = lambda _: None
    ) -> None:
        """Write a call down; one that cannot be is the end of the tape."""
        if self._is_over:
            return
        try:
            self._writer.call(method, now_us, arguments)
        except (OverflowError, ValueError):
            self._is_over = True
            self._writer.call(Method.LOST)

    def _on_answered(self, answered: Answered) -> None:
        self._write(Method.ASKED, None, lambda writer: writer.answered(answered))

    def _decided(
        self,
        now_us: int,
        decide: Callable[[], Effects],
        records: Sequence[Record | Batch] = (),
        *,
        may_write: bool = True,
    ) -> Effects:
        """Make a call with these records; with `may_write` its effects are performed, and calls may be written too."""
        try:
            effects = decide()
        except Exception:
            damaged = _damaged(records)
            self._write(Method.RAISED, None, lambda writer: writer.numbers(len(damaged), *damaged))
            raise
        if self._due_us is None and len(self._writer):
            self._due_us = now_us + GATHERED_US if self._number else now_us
        is_full = len(self._writer) >= GATHERED_BYTES or self._is_stopping
        if may_write and self._due_us is not None and (is_full or self._due_us <= now_us):
            return [*effects, *self._chunk(now_us)]
        return effects

    def _chunk(self, now_us: int) -> Effects:
        """Return what is gathered, to be written."""
        self._due_us = None
        data = self._writer.take()
        if not data:
            return []
        self._tape = self._tape or f"{self._instance}/{now_us:x}"
        return [
            self._emit(data[at : at + CHUNK_BYTES], at + CHUNK_BYTES < len(data))
            for at in range(0, len(data), CHUNK_BYTES)
        ]

    def _emit(self, data: bytes, is_part: bool) -> Emit:
        value = written_chunk(self._tape, self._number, self.about, data, is_part=is_part)
        self._number += 1
        # As a part of something it is kept while the broker is away: a tape with a gap is worth nothing behind it.
        return Emit(topics.CALLS, 0, self._instance.encode(), value, is_part=True)


def _damaged(records: Sequence[Record | Batch]) -> list[int]:
    """Return which of the whole batches were damaged on the way: a replay damages them again."""
    try:
        from streams.columns.batches import records as read
    except ImportError:  # no compiler when Skysail was installed: whoever takes batches whole is not played there
        return []
    found: list[int] = []
    for place, batch in enumerate(one for one in records if isinstance(one, Batch)):
        try:
            read(batch.data)
        except ValueError:
            found.append(place)
    return found
