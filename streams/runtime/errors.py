"""What can go wrong around the kernels.

RuntimeFault
├── StoreUnavailable      the store did not answer: retry a write, go on without a read
├── BrokerUnavailable     this attempt failed, another may succeed: retry
│   └── UnknownPartition  the topic or partition is not there (yet)
├── RecordTooLarge        the broker will never take this record: dead letter
└── Stopped               this process cannot go on: exit non-zero, the supervisor starts a new one
    ├── Stuck             a client makes no progress although there is work
    └── Misconfigured     topics, rights or partition counts are not as needed: a person has to act
"""

from __future__ import annotations


class RuntimeFault(Exception):
    """Root of everything the runtime raises."""


class StoreUnavailable(RuntimeFault):
    """The state store did not answer in time; nothing is known about what it did."""


class BrokerUnavailable(RuntimeFault):
    """A request to Kafka failed in a way that may pass; the same request may be sent again."""


class UnknownPartition(BrokerUnavailable):
    """The topic does not exist, or has fewer partitions than asked for."""


class RecordTooLarge(RuntimeFault):
    """One record is larger than the topic accepts."""


class Stopped(RuntimeFault):
    """The process cannot go on."""


class Stuck(Stopped):
    """A Kafka client makes no progress although there is work; only a new process helps (aiokafka #703, #1037)."""


class Misconfigured(Stopped):
    """The broker refuses, or lacks, something that only a person can change."""
