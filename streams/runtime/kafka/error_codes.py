"""What brokers answer and aiokafka does not say: codes without a class there, and errors in the text of others.

aiokafka makes the same `UnknownError` of all codes that it does not know. Those that mean something to a role get a
class here, and a place in aiokafka's table. A later aiokafka that has its own keeps that.
"""

from __future__ import annotations

import re
from typing import Final

from aiokafka import errors
from aiokafka.errors import BrokerResponseError, KafkaError


class GroupFullError(BrokerResponseError):  # type: ignore[misc]  # aiokafka has no types
    """The group has as many members as its broker allows (`group.max.size`)."""

    errno = 81
    message = "GROUP_MAX_SIZE_REACHED"


class NameTakenError(BrokerResponseError):  # type: ignore[misc]  # as above
    """Another process has joined the group under the name of this static member."""

    errno = 82
    message = "FENCED_INSTANCE_ID"


class InvalidRecordError(BrokerResponseError):  # type: ignore[misc]  # as above
    """A record that the topic will never take, such as one without a key on a compacted topic."""

    errno = 87
    message = "INVALID_RECORD"


for _kind in (GroupFullError, NameTakenError, InvalidRecordError):
    errors.kafka_errors.setdefault(_kind.errno, _kind)

_NAMES: Final = re.compile(r"\w+(?=\()")
_BY_NAME: Final = {kind.__name__: kind for kind in errors.kafka_errors.values()}


def fault_of(code: int, *said: object) -> KafkaError:
    """Return the error of a code that is not 0."""
    return errors.for_code(code)(*said)


def unwrapped(fault: Exception) -> Exception:
    """Return what a broker has answered: where aiokafka expects no such code, its error names it in its text alone.

    >>> unwrapped(KafkaError("TopicAuthorizationFailedError()"))
    TopicAuthorizationFailedError()
    """
    if type(fault) is KafkaError:
        for name in _NAMES.findall(str(fault)):
            if name in _BY_NAME:
                answered: Exception = _BY_NAME[name]()
                return answered
    return fault
