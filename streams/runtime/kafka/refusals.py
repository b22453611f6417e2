"""What brokers refuse a reader until a person has changed something, and the sentences that say what."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from aiokafka import errors
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    TopicAuthorizationFailedError,
)

from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError
from streams.runtime.kafka.error_codes import GroupFullError, NameTakenError, unwrapped

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_log = logging.getLogger(__name__)
_RIGHT: Final = "this user has no right Read on it: `skysail topics acl` prints who needs which"
# A broker that creates topics by itself says the same of one that is not there, to who may not create it.
_TOPIC: Final = "this user has no right Read on it, or it is not there: see `skysail topics acl` and `topics check`"
_OLD: Final = "Apache Kafka 2.3 or a later one is needed"
_OTHERS: Final = "others are in its group who divide partitions otherwise; stop them, or choose another `kafka.prefix`"
_SENTENCES: Final[dict[type[Exception], str]] = {
    ClusterAuthorizationFailedError: _RIGHT,
    GroupAuthorizationFailedError: _RIGHT,
    TopicAuthorizationFailedError: _TOPIC,
    IncompatibleBrokerVersion: _OLD,
    errors.UnsupportedVersionError: _OLD,
    errors.InconsistentGroupProtocolError: _OTHERS,
    errors.InvalidGroupIdError: "the broker takes no such name of a group; choose another `kafka.prefix`",
    errors.InvalidSessionTimeoutError: "the broker's `group.min.session.timeout.ms` or `group.max.session.timeout.ms`"
    " does not allow this role's session; change that",
    GroupFullError: "its group is full: run fewer processes of this role, or raise the broker's `group.max.size`",
    NameTakenError: "another process has joined under its name; give each process a name of its own",
}


def refusal(fault: Exception) -> MisconfiguredError | None:
    """Return what a person has to change, if a fault will not pass before."""
    answered = unwrapped(fault)
    for kind, sentence in _SENTENCES.items():
        if isinstance(answered, kind):
            said = str(answered) if isinstance(answered, IncompatibleBrokerVersion) else repr(answered)
            return MisconfiguredError(f"{said}: {sentence}")
    return None


def translated(fault: Exception, what: str = "", advice: str = "") -> BrokerUnavailableError | MisconfiguredError:
    """Return a client's error in our words; one that may pass stands between what failed and what to do about it."""
    return refusal(fault) or BrokerUnavailableError(f"{what}{fault!r}{advice}")


def unattended(running: AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell in a line of a request that failed after its caller had given it up: aiokafka goes on with commits then."""
    if isinstance(fault := context.get("exception"), KafkaError):
        _log.info("Kafka refused what nobody waits for any more: %s", fault)
    else:
        running.default_exception_handler(context)
