"""`skysail.consume`: an application's predictions, as a consumer group reads them.

    async with consume("digits", group="ledger") as predictions:
        async for prediction in predictions:                       # or, without `async`: with … for …
            await write(prediction)

    with consume("digits", group="ledger") as predictions:
        for batch in predictions.batches(at_most=500):
            write_all(batch)

What the loop has been given counts as handled when it asks for more, or leaves the block without an error. Its offsets
are committed then, once a second. If the block ends by an error, or the process is killed, the group reads again what
had not been committed: write so that a second time changes nothing, by the query's id.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal

from schemas import topics
from schemas.codec import Codec
from schemas.sizes import MAX_BYTES
from streams.consumers.deliveries import Deliveries
from streams.consumers.member import Member, MemberSettings
from streams.runtime.clock import SystemClock
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.consumer import KafkaConsumer
from streams.runtime.kafka.log_reader import KafkaPositions
from streams.runtime.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from schemas.records import Prediction

_REMEMBERED = 100_000
_AT_MOST = 500
# Before the name of a group: Skysail's own groups are named as its roles are.
_GROUPS = "consumers."
_GROUP = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}", re.ASCII)
_USE = "with consume(...)"


def consume(
    application: str | None,
    *,
    group: str,
    bootstrap: str = "127.0.0.1:9092",
    prefix: str = "skysail",
    properties: Mapping[str, object] | None = None,
    begin: Literal["oldest", "newest"] = "oldest",
    idle_s: float | None = None,
    remembered: int = _REMEMBERED,
    codec: Codec | None = None,
    max_input_kib: int = MAX_BYTES >> 10,
) -> PredictionStream:
    """Return an application's predictions, for `async with` or `with`.

    Members of a group share the partitions: so many of them can read at once. Each prediction goes to one of them.

    Args:
        application: whose predictions; None = those of all.
        group: Kafka knows it as `PREFIX.consumers.GROUP`.
        bootstrap: `host:port` of the brokers.
        prefix: of the deployment's topics.
        properties: of the Kafka clients, as of `Client`.
        begin: where a group begins that has never committed: `oldest`, or behind the `newest` prediction.
        idle_s: the loop ends when nothing has come for so long, as in a nightly job; None = it does not end.
        remembered: ids by which repetitions are known, about 60 bytes each; a repetition further back is not dropped.
        codec: of the records; without one, Avro single-object encoding.
        max_input_kib: as the deployment's setting of this name.

    Raises:
        ValueError: the group's name is none that Kafka takes, or a number is not positive.
    """
    if not _GROUP.fullmatch(group):
        raise ValueError(f"group {group!r}: use 1 to 128 letters, digits and . _ -, the first a letter or digit")
    if remembered < 1 or (idle_s is not None and idle_s <= 0):
        raise ValueError("remembered= and idle_s= are positive")
    codec = codec or Codec(max_bytes=max_input_kib << 10)
    place = KafkaConnection(bootstrap, prefix, properties or {}, record_bytes=codec.max_bytes)

    def member() -> Member:
        consumer = KafkaConsumer(place, (topics.PREDICTIONS,), _GROUPS + group, SystemClock())
        deliveries = Deliveries(codec, application, remembered)
        return Member(consumer, KafkaPositions(place), deliveries, MemberSettings(begin=begin))

    return PredictionStream(member, idle_s)


class PredictionStream:
    """Predictions one by one, or in batches; with `async` or without. `consume` makes it.

    Args:
        make: a member of the group, inside the event loop that it will run in.
        idle_s: as of `consume`.
    """

    def __init__(self, make: Callable[[], Member], idle_s: float | None) -> None:
        self._make, self._idle_s = make, idle_s
        self._member: Member | None = None
        self._process = 0
        self._thread = LoopThread("consumer", _USE)

    async def __aenter__(self) -> Self:
        """Join the group.

        Raises:
            BrokerUnavailableError: no broker answers, or the deployment has no topics there.
        """
        if self._member is not None:
            raise RuntimeError("this consumer is connected already; open another one")
        member = self._make()
        await member.start()
        self._member, self._process = member, os.getpid()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit what is handled, which the last ones are unless an error ends the block, and leave the group."""
        member, self._member = self._reading(), None
        await member.stop(is_handled=kind is None)

    def __enter__(self) -> Self:
        """Join the group, as `async with` does."""
        self._thread.start()
        try:
            return self._thread.do(self.__aenter__())
        except BaseException:
            self._thread.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit and leave, as `async with` does."""
        try:
            self._thread.do(self.__aexit__(kind, error, trace))
        finally:
            self._thread.stop()

    def __aiter__(self) -> Self:
        """Go on with the next prediction."""
        return self

    def __iter__(self) -> Self:
        """Go on with the next prediction."""
        return self

    async def __anext__(self) -> Prediction:
        """Return the next prediction; the one before is handled."""
        return (await self._next(1))[0]

    def __next__(self) -> Prediction:
        """Return the next prediction; the one before is handled."""
        return self._next_now(1)[0]

    def batches(self, at_most: int = _AT_MOST) -> PredictionBatches:
        """Return what is there together, at least one prediction, for `async for` or `for`; nothing is waited for.

        Args:
            at_most: so many predictions a batch.
        """
        if at_most < 1:
            raise ValueError("a batch has one prediction at least")
        return PredictionBatches(self, at_most)

    async def _next(self, at_most: int) -> list[Prediction]:
        found = await self._reading().next(at_most, self._idle_s)
        if not found:
            raise StopAsyncIteration
        return found

    def _next_now(self, at_most: int) -> list[Prediction]:
        try:
            return self._thread.do(self._next(at_most))
        except StopAsyncIteration:
            raise StopIteration from None

    def _reading(self) -> Member:
        if self._member is None:
            raise RuntimeError(f"this consumer is not connected; use it inside `async {_USE}` or `{_USE}`")
        if self._process != os.getpid():
            raise RuntimeError("this consumer was connected in another process: connect after the fork")
        return self._member


class PredictionBatches:
    """The predictions of a stream, several at a time.

    Args:
        stream: whose.
        at_most: predictions a batch.
    """

    def __init__(self, stream: PredictionStream, at_most: int) -> None:
        self._stream, self._at_most = stream, at_most

    def __aiter__(self) -> Self:
        """Go on with the next batch."""
        return self

    def __iter__(self) -> Self:
        """Go on with the next batch."""
        return self

    async def __anext__(self) -> list[Prediction]:
        """Return the next batch; the one before is handled."""
        return await self._stream._next(self._at_most)  # noqa: SLF001 - the other half of one class

    def __next__(self) -> list[Prediction]:
        """Return the next batch; the one before is handled."""
        return self._stream._next_now(self._at_most)  # noqa: SLF001
