"""The seams: what the loop needs from Kafka and from a kernel, without naming a client library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Mapping, Sequence

    from schemas.records import Tensor
    from streams.operators.contract import Batch, Emit, EmitBatch, Load, Loaded, Predict, Predicted, Ran, Record, Unload

# A logical topic name (without the deployment's prefix) and a partition number.
TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Vitals:
    """Signs of life of a consumer, for the watchdog and the reports.

    Attributes:
        assigned: partitions owned now.
        lag: offsets between our position and the broker's high watermark, summed over what is owned; the position
            passes what is no record.
        polled_us: when a poll last returned, with or without records.
        progressed_us: when a poll last returned records, or there were none to return.
        failures: polls in a row that raised.
        unserved: records in partitions that no member of the group reads, by topic, where there are such partitions.
    """

    assigned: int
    lag: int
    polled_us: int
    progressed_us: int
    failures: int
    unserved: Mapping[str, int] = field(default_factory=dict)


class Rebalanced(Protocol):
    """Told about changes of ownership, while Kafka waits: both calls must return within seconds."""

    async def on_assigned(self, committed: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, int | None]:
        """These partitions are ours; the values are the group's committed next offsets (None = nothing committed).

        Returns:
            where to start instead, for the partitions that must not start at the committed offset; None = the oldest
            record that is still there.
        """
        ...

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions will be someone's else; commit what is done, forget the rest."""
        ...


class Consumer(Protocol):
    """A member of a consumer group."""

    @property
    def generation(self) -> int:
        """Number of the assignment: records in hand from an earlier one must be dropped."""
        ...

    async def start(self, rebalanced: Rebalanced) -> None:
        """Join the group; `rebalanced` gets every assignment."""
        ...

    def subscribe(self, topics: frozenset[str]) -> None:
        """Read these topics from now on, at least one; some may not exist yet. A running member rejoins for it."""
        ...

    def rejoin(self) -> None:
        """Have partitions spread anew over the members, because what they are spread by has changed.

        It does not wait. Offsets are committed as in any rebalance. A rebalance waits for all members, so all of them
        are to call this at about the same time: the others find out by their next heartbeat.
        """
        ...

    async def poll(self, timeout_ms: int, only: frozenset[str] | None = None) -> list[Record | Batch]:
        """Return everything fetched, waiting up to `timeout_ms` if there is nothing.

        A `CorruptBatch` among the records stands for a batch that cannot be unpacked. Plain record batches may come
        whole, of topics that are wanted so. What is read again after a `seek` comes record by record.

        Args:
            timeout_ms: a rebalance can take longer than this.
            only: take from these topics alone and leave the others where they are.

        Raises:
            StoppedError: the client cannot go on.
            LogSetBackError: a log goes on below what was read of it; call `seek`, or what is there now comes next.
        """
        ...

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit next offsets; False if they were not accepted (a rebalance, an unreachable broker)."""
        ...

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue a partition from another offset; what was fetched of it is dropped."""
        ...

    def vitals(self) -> Vitals:
        """Return signs of life."""
        ...

    def unread(self) -> dict[TopicPartition, int]:
        """Return how many records no poll has returned yet, by partition; 1 where that is not known.

        Partitions without any are not in it.
        """
        ...

    async def stop(self, timeout_s: float) -> None:
        """Leave the group; returns after `timeout_s` at the latest."""
        ...


class Broadcast(Protocol):
    """Follows whole topics from the beginning, outside any group.

    Any call may raise MisconfiguredError: what only a person can change.
    """

    async def start(self) -> None:
        """Connect and find the ends of all partitions."""
        ...

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what has arrived; a `CorruptBatch` stands for a batch that cannot be unpacked."""
        ...

    @property
    def caught_up(self) -> bool:
        """Whether everything that was there at the start has been returned."""
        ...

    async def stop(self, timeout_s: float) -> None:
        """Disconnect."""
        ...


class Bounds(NamedTuple):
    """Where a partition's log begins and ends: its oldest offset, and the one that is written next."""

    begin: int
    end: int


class Logs(Protocol):
    """Reads all partitions of some topics from any offset on, outside any group.

    Any call may raise MisconfiguredError: what only a person can change.
    """

    async def start(self) -> Mapping[TopicPartition, Bounds]:
        """Connect; return where logs begin and end.

        Raises:
            BrokerUnavailableError: no broker answers, or a topic is not there.
        """
        ...

    async def bounds(self) -> Mapping[TopicPartition, Bounds]:
        """Return where logs begin and end now.

        Raises:
            BrokerUnavailableError: ask again later.
        """
        ...

    async def find(self, time_us: int) -> Mapping[TopicPartition, int]:
        """Return of each partition the first offset whose timestamp is not older; no partition without any.

        Raises:
            BrokerUnavailableError: ask again later.
        """
        ...

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue from these offsets; nothing is read of a partition before."""
        ...

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what has arrived; a `CorruptBatch` stands for a batch that cannot be unpacked.

        Partitions that were added to a topic meanwhile are read from their beginning.

        Raises:
            StuckError: nothing can be read for long.
        """
        ...

    def position(self, place: TopicPartition) -> int | None:
        """Return the offset that is read next, behind what is no record; None = not known yet."""
        ...

    def unread(self) -> int:
        """Return how many records no poll has returned yet, as far as known."""
        ...

    async def stop(self, timeout_s: float) -> None:
        """Disconnect."""
        ...


class Transport(Protocol):
    """Sends one batch to one partition."""

    async def send(self, topic: str, partition: int, emits: Sequence[Emit]) -> int:
        """Send as many of the leading records as fit into one batch and wait until the broker has them.

        Returns:
            how many were acknowledged, at least one.

        Raises:
            BrokerUnavailableError: send them again later.
            RecordRefusedError: the first record is not taken and never will be, e.g. a `RecordTooLargeError`.
            MisconfiguredError: not allowed.
        """
        ...

    def post(self, offers: Sequence[Sequence[Emit] | EmitBatch]) -> Sequence[Posted | None]:
        """Send of each offer what `send` and `send_batch` would, of all in one request, without waiting.

        Args:
            offers: leading records of a partition, or a finished batch; no partition twice.

        Returns:
            what left of each. None: that has to be waited for, or is no good; `send` or `send_batch` will tell.
        """
        ...

    async def send_batch(self, batch: EmitBatch) -> None:
        """Send one finished batch as it is, and wait until the broker has it.

        Raises:
            BrokerUnavailableError: send it again later.
            RecordRefusedError: not as it is. Its records may be taken by `send`, or some of them.
            MisconfiguredError: not allowed.
        """
        ...


class Posted(NamedTuple):
    """What left without being waited for.

    Attributes:
        sent: how many of the offered ones.
        answer: done when the broker has them, or with an exception: then they are to be sent by `send` or `send_batch`.
    """

    sent: int
    answer: asyncio.Future[None]


class LogPositions(Protocol):
    """Finds places in logs, without belonging to a group.

    Any call may raise MisconfiguredError: what only a person can change.
    """

    async def before(self, offsets: Mapping[TopicPartition, int], window_us: int) -> Mapping[TopicPartition, int]:
        """Return for each partition the first offset that is at most `window_us` older than the record before `offset`.

        Raises:
            BrokerUnavailableError: ask again later.
        """
        ...

    async def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the next offset to be written of each partition.

        Raises:
            BrokerUnavailableError: ask again later.
        """
        ...

    async def times(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the time (us) of the first record at each offset or after it, where there is one.

        Raises:
            BrokerUnavailableError: ask again later.
        """
        ...


class RecentRecords(Protocol):
    """Reads the ends of topics, without belonging to a group.

    Any call may raise MisconfiguredError: what only a person can change.
    """

    async def last(self, topic: str, count: int) -> Sequence[Record]:
        """Return about the last `count` records of a topic, oldest first: of each partition as many as of the others.

        Raises:
            BrokerUnavailableError: this cannot be had now, within seconds.
        """
        ...


class ExecutorEvents(NamedTuple):
    """What executors tell, on the event loop's thread.

    Attributes:
        predicted: a batch has been predicted, or has failed.
        loaded: a copy has been loaded, or is of no use.
    """

    predicted: Callable[[Predict, Ran], None]
    loaded: Callable[[Loaded], None]


class Executors(Protocol):
    """Runs models: in the event loop's thread, in another one, or in child processes. No call waits."""

    def connect(self, events: ExecutorEvents, tasks: asyncio.TaskGroup) -> None:
        """Set who hears of events, and who owns the tasks: an error that ends one of them ends the role."""
        ...

    def load(self, load: Load) -> None:
        """Load a copy of a version, once what is being unloaded of its model has gone."""
        ...

    def unload(self, unload: Unload) -> None:
        """Let go of a copy; one that is not there is no fault."""
        ...

    def predict(self, predict: Predict) -> None:
        """Predict a batch; what runs on the event loop's own thread waits for `go_on`."""
        ...

    def go_on(self) -> None:
        """Run what is to run on the event loop's own thread; for no longer than others may wait for their turn.

        It may tell of batches before it returns. Effects decided so far have been performed.
        """
        ...

    def ask_now(self, model: str, copy: int, rows: Tensor, patience_us: int) -> tuple[Predicted, int] | None:
        """Ask a copy at once, on this thread; see `streams.operators.contract.AskNow`."""
        ...

    async def loaded(self) -> None:
        """Return when no vital copy is being loaded."""
        ...

    async def stop(self) -> None:
        """Let go of all models, without waiting for them."""
        ...

    def statistics(self) -> Mapping[str, float]:
        """Return what is known of the models that are loaded."""
        ...


def size_of(emit: Emit) -> int:
    """Return the bytes of value, key and headers, without what frames them."""
    size = len(emit.value) + len(emit.key or b"")
    if emit.headers:
        size += sum(len(name.encode()) + len(value or b"") for name, value in emit.headers)
    return size
