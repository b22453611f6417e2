"""What can go wrong around the kernels.

StreamError
├── StoreUnavailableError      the store did not answer: ask again
├── BrokerUnavailableError     this attempt failed, another may succeed: try again
│   └── UnknownPartitionError  the topic or partition is not there (yet)
├── RecordRefusedError         the broker will never take this record: dead letter
│   └── RecordTooLargeError    for its size
├── LogSetBackError            a log goes on below what was read of it: start its partition over from there
├── OffsetOrderError           our bug: the tracker was not told of a seek
├── UnassignedError            our bug: records of a partition that nobody assigned
└── StoppedError               this process cannot go on: exit non-zero, the supervisor starts a new one
    ├── KernelError            a kernel fails again and again, and no record can be blamed for it: a bug of ours
    ├── StuckError             a client makes no progress although there is work, or the clock was set back
    └── MisconfiguredError     topics, rights or partition counts are not as needed: a person has to act
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class StreamError(Exception):
    """Root of everything the runtime raises."""


class StoreUnavailableError(StreamError):
    """The state store did not answer in time; nothing is known about what it did."""


class BrokerUnavailableError(StreamError):
    """A request to Kafka failed in a way that may pass; the same request may be sent again."""


class UnknownPartitionError(BrokerUnavailableError):
    """The topic does not exist, or has fewer partitions than asked for."""


class RecordRefusedError(StreamError):
    """One record that the topic will never accept, such as one without a key on a compacted topic."""


class RecordTooLargeError(RecordRefusedError):
    """One record is larger than the topic accepts."""


class LogSetBackError(StreamError):
    """A log goes on below what was read of it: its topic was deleted and made anew, or it lost its newest records.

    Attributes:
        starts: the first offset that is there and was not read, by topic and partition.
    """

    def __init__(self, starts: Mapping[tuple[str, int], int]) -> None:
        self.starts = dict(starts)
        listed = ", ".join(f"{topic}-{number} at {offset}" for (topic, number), offset in sorted(self.starts.items()))
        super().__init__(
            f"{listed}: below what was read before. The topic was deleted and made anew, or a broker lost its newest"
            " records; what went with them is gone, and what is there now is read"
        )


class OffsetOrderError(StreamError):
    """Offsets came out of order: the tracker was not told of a seek."""


class UnassignedError(StreamError):
    """Records of a partition came that is not assigned."""


class StoppedError(StreamError):
    """The process cannot go on."""


class StuckError(StoppedError):
    """A Kafka client makes no progress although there is work, or the clock was set back: a new process helps."""


class KernelError(StoppedError):
    """A kernel fails again and again although it was started over."""


class MisconfiguredError(StoppedError):
    """The broker refuses, or lacks, something that only a person can change."""
