"""What Kafka's brokers can answer to each request of a role, and what the role has to make of it: data.

Codes are those of `org.apache.kafka.common.protocol.Errors` in Apache Kafka 4.3. Which of them a request can meet, the
comments of `org.apache.kafka.common.requests.*Response` say there, for the versions that our clients send; -1, which a
broker answers where it fails itself, can come of any. Left out is what depends on something that no role does: on
transactions, on metadata of commits, on topics' ids, on sessions between brokers.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Api(IntEnum):
    """The requests that roles make, by Kafka's numbers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    COMMIT = 8
    OFFSETS = 9
    COORDINATOR = 10
    JOIN = 11
    HEARTBEAT = 12
    LEAVE = 13
    SYNC = 14
    VERSIONS = 18


class Code(IntEnum):
    """Kafka's codes of errors."""

    UNKNOWN_SERVER_ERROR = -1
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    KAFKA_STORAGE_ERROR = 56
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    INVALID_RECORD = 87


C: Final = Code
_OF_A_LEADER: Final = (
    C.UNKNOWN_SERVER_ERROR,
    C.UNKNOWN_TOPIC_OR_PARTITION,
    C.NOT_LEADER_OR_FOLLOWER,
    C.KAFKA_STORAGE_ERROR,
)
_OF_A_REPLICA: Final = (*_OF_A_LEADER, C.REPLICA_NOT_AVAILABLE, C.FENCED_LEADER_EPOCH, C.UNKNOWN_LEADER_EPOCH)
_OF_A_COORDINATOR: Final = (
    C.UNKNOWN_SERVER_ERROR,
    C.COORDINATOR_LOAD_IN_PROGRESS,
    C.COORDINATOR_NOT_AVAILABLE,
    C.NOT_COORDINATOR,
)
_OF_A_MEMBER: Final = (*_OF_A_COORDINATOR, C.UNKNOWN_MEMBER_ID, C.REBALANCE_IN_PROGRESS)


class Answers(NamedTuple):
    """What brokers may answer to a request.

    Attributes:
        passing: codes of what may pass: the role asks again until it is through.
        lasting: codes of what only a person can change, and a word of the sentence in which the role ends.
        blaming: codes that blame a record, which becomes a dead letter.
    """

    passing: tuple[Code, ...] = ()
    lasting: Mapping[Code, str] = MappingProxyType({})
    blaming: tuple[Code, ...] = ()


RIGHT: Final = {C.TOPIC_AUTHORIZATION_FAILED: "right"}
OF_GROUP: Final = {C.GROUP_AUTHORIZATION_FAILED: "right"}

ANSWERS: Final = {
    Api.PRODUCE: Answers(
        (
            *_OF_A_LEADER,
            C.CORRUPT_MESSAGE,
            C.REQUEST_TIMED_OUT,
            C.NOT_ENOUGH_REPLICAS,
            C.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ),
        {**RIGHT, C.CLUSTER_AUTHORIZATION_FAILED: "right", C.INVALID_TOPIC: "topic", C.INVALID_REQUIRED_ACKS: "topic"},
        (
            C.MESSAGE_TOO_LARGE,
            C.RECORD_LIST_TOO_LARGE,
            C.INVALID_TIMESTAMP,
            C.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            C.INVALID_RECORD,
        ),
    ),
    Api.FETCH: Answers(
        (*_OF_A_REPLICA, C.OFFSET_OUT_OF_RANGE, C.CORRUPT_MESSAGE, C.OFFSET_NOT_AVAILABLE),
        RIGHT,
    ),
    Api.LIST_OFFSETS: Answers((*_OF_A_REPLICA, C.LEADER_NOT_AVAILABLE, C.OFFSET_NOT_AVAILABLE), RIGHT),
    Api.METADATA: Answers(
        (C.UNKNOWN_SERVER_ERROR, C.UNKNOWN_TOPIC_OR_PARTITION, C.LEADER_NOT_AVAILABLE),
        RIGHT,
    ),
    Api.COMMIT: Answers(
        (*_OF_A_MEMBER, C.UNKNOWN_TOPIC_OR_PARTITION, C.REQUEST_TIMED_OUT, C.ILLEGAL_GENERATION),
        {**RIGHT, **OF_GROUP},
    ),
    Api.OFFSETS: Answers(_OF_A_COORDINATOR, {**RIGHT, **OF_GROUP}),
    Api.COORDINATOR: Answers(
        (C.UNKNOWN_SERVER_ERROR, C.COORDINATOR_LOAD_IN_PROGRESS, C.COORDINATOR_NOT_AVAILABLE), OF_GROUP
    ),
    Api.JOIN: Answers(
        (*_OF_A_MEMBER, C.MEMBER_ID_REQUIRED),
        {
            **OF_GROUP,
            C.INCONSISTENT_GROUP_PROTOCOL: "group",
            C.INVALID_GROUP_ID: "group",
            C.INVALID_SESSION_TIMEOUT: "session",
            C.UNSUPPORTED_VERSION: "Kafka 2.3",
            C.GROUP_MAX_SIZE_REACHED: "group.max.size",
            C.FENCED_INSTANCE_ID: "name",
        },
    ),
    Api.HEARTBEAT: Answers((*_OF_A_MEMBER, C.ILLEGAL_GENERATION), OF_GROUP),
    # Who may not leave is missed by the group when its session ends.
    Api.LEAVE: Answers((*_OF_A_COORDINATOR, C.UNKNOWN_MEMBER_ID, C.GROUP_AUTHORIZATION_FAILED, C.FENCED_INSTANCE_ID)),
    Api.SYNC: Answers(
        (*_OF_A_MEMBER, C.ILLEGAL_GENERATION),
        {**OF_GROUP, C.INCONSISTENT_GROUP_PROTOCOL: "group", C.FENCED_INSTANCE_ID: "name"},
    ),
    # A broker refuses a version of this request that it lacks, or a client without a name; neither can be ours, which
    # is version 0.
    Api.VERSIONS: Answers(),
}
