"""The mock cluster inside librdkafka, through ctypes: confluent-kafka ships the library but not these functions.

The functions are `rd_kafka_mock_*` of librdkafka's `rdkafka_mock.h`, which calls them experimental; hence the pinned
version of confluent-kafka. A disconnected client stands for the cluster's owner, as the C API wants it.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from ctypes import c_char_p, c_int, c_int16, c_int32, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka

from deploy.errors import MissingError, StartError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PRODUCER = 0  # RD_KAFKA_PRODUCER
_ERROR_BYTES = 512
_CODES_AT_ONCE = 512  # ctypes passes 1024 arguments at most
_TOPIC_ALREADY_EXISTS = 36  # Kafka error code

# For each function the type of its result and those of its arguments.
_SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "rd_kafka_conf_new": (c_void_p, ()),
    "rd_kafka_conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "rd_kafka_new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "rd_kafka_destroy": (None, (c_void_p,)),
    "rd_kafka_err2str": (c_char_p, (c_int,)),
    "rd_kafka_mock_cluster_new": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_mock_cluster_destroy": (None, (c_void_p,)),
    "rd_kafka_mock_cluster_bootstraps": (c_char_p, (c_void_p,)),
    "rd_kafka_mock_topic_create": (c_int, (c_void_p, c_char_p, c_int, c_int)),
    "rd_kafka_mock_broker_set_down": (c_int, (c_void_p, c_int32)),
    "rd_kafka_mock_broker_set_up": (c_int, (c_void_p, c_int32)),
    "rd_kafka_mock_coordinator_set": (c_int, (c_void_p, c_char_p, c_char_p, c_int32)),
    "rd_kafka_mock_push_request_errors_array": (None, (c_void_p, c_int16, c_size_t, ctypes.POINTER(c_int))),
    "rd_kafka_mock_clear_request_errors": (None, (c_void_p, c_int16)),
    # The codes follow, one argument each.
    "rd_kafka_mock_partition_push_request_errors": (c_int, (c_void_p, c_char_p, c_int32, c_int16, c_size_t)),
    "rd_kafka_mock_topic_set_error": (None, (c_void_p, c_char_p, c_int)),
    "rd_kafka_mock_start_request_tracking": (None, (c_void_p,)),
    "rd_kafka_mock_get_requests": (ctypes.POINTER(c_void_p), (c_void_p, ctypes.POINTER(c_size_t))),
    "rd_kafka_mock_request_api_key": (c_int16, (c_void_p,)),
    "rd_kafka_mock_request_destroy_array": (None, (ctypes.POINTER(c_void_p), c_size_t)),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, (c_void_p, c_int32)),
}


def library_path() -> Path:
    """Return the librdkafka that confluent-kafka's wheel carries.

    Raises:
        MissingError: This build of confluent-kafka carries none.
    """
    package = Path(confluent_kafka.__file__).parent
    folders = (package.parent / "confluent_kafka.libs", package / ".dylibs")  # where Linux and macOS wheels keep it
    for folder in folders:
        if found := sorted(folder.glob("librdkafka*")):
            return found[0]
    raise MissingError("This confluent-kafka carries no librdkafka: install its wheel from PyPI, or use BROKER=apache.")


class MockCluster:
    """A cluster of mock brokers that listen on free ports of 127.0.0.1, served by librdkafka's own threads.

    Broker ids count from 1. Topics that a client asks for come into being with 4 partitions.
    """

    def __init__(self, brokers: int = 1) -> None:
        """Start `brokers` brokers.

        Raises:
            MissingError: librdkafka is not there.
            StartError: librdkafka refused.
        """
        self._library = _library()
        self._owner: int | None = _new_owner(self._library)
        self._cluster: int | None = self._library.rd_kafka_mock_cluster_new(self._owner, brokers)
        if not self._cluster:
            self.close()
            raise StartError("librdkafka could not start its mock brokers.")
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def close(self) -> None:
        """Stop the brokers; everything they held is gone. May be called twice."""
        if self._cluster:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        if self._owner:
            self._library.rd_kafka_destroy(self._owner)
        self._cluster = self._owner = None

    def topic_create(self, topic: str, partitions: int, replicas: int = 1) -> bool:
        """Create a topic; returns False, and changes nothing, if it exists."""
        name = topic.encode()
        code: int = self._library.rd_kafka_mock_topic_create(self._handle, name, partitions, replicas)
        if code != _TOPIC_ALREADY_EXISTS:
            self._require(code, f"Topic {topic} could not be created")
        return code != _TOPIC_ALREADY_EXISTS

    def broker_down(self, broker: int = 1) -> None:
        """Cut a broker's connections and refuse new ones."""
        self._check("rd_kafka_mock_broker_set_down", broker)

    def broker_up(self, broker: int = 1) -> None:
        """Let a broker accept connections again."""
        self._check("rd_kafka_mock_broker_set_up", broker)

    def group_coordinator(self, group: str, broker: int) -> None:
        """Move a group's coordinator."""
        self._check("rd_kafka_mock_coordinator_set", b"group", group.encode(), broker)

    def group_initial_rebalance_delay_ms(self, delay_ms: int) -> None:
        """Set how long a new group waits for more members."""
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._handle, delay_ms)

    def push_request_errors(self, api_key: int, codes: Sequence[int]) -> None:
        """Answer the next requests of this ApiKey with these Kafka error codes, one each (0 is none)."""
        array = (c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(self._handle, api_key, len(codes), array)

    def clear_request_errors(self, api_key: int) -> None:
        """Forget the errors that were pushed for this ApiKey and not used yet."""
        self._library.rd_kafka_mock_clear_request_errors(self._handle, api_key)

    def push_partition_errors(self, topic: str, partition: int, api_key: int, codes: Sequence[int]) -> None:
        """Answer for one partition with these codes: of Produce or Fetch, which are not refused as a whole."""
        push = self._library.rd_kafka_mock_partition_push_request_errors
        for start in range(0, len(codes), _CODES_AT_ONCE):  # each call may wait 25 ms for the cluster's thread
            them = [c_int(code) for code in codes[start : start + _CODES_AT_ONCE]]
            fault = push(self._handle, topic.encode(), partition, api_key, len(them), *them)
            self._require(fault, f"{topic}-{partition}")

    def topic_error(self, topic: str, code: int) -> None:
        """Say this of a topic to all who ask for metadata, until another code is set (0 is none)."""
        self._library.rd_kafka_mock_topic_set_error(self._handle, topic.encode(), code)

    def track_requests(self) -> None:
        """Remember from now on which requests come; `requests` tells."""
        self._library.rd_kafka_mock_start_request_tracking(self._handle)

    def requests(self) -> Counter[int]:
        """Return how many requests of each ApiKey have come since `track_requests`."""
        count = c_size_t()
        them = self._library.rd_kafka_mock_get_requests(self._handle, ctypes.byref(count))
        try:
            return Counter(self._library.rd_kafka_mock_request_api_key(them[number]) for number in range(count.value))
        finally:
            if count.value:
                self._library.rd_kafka_mock_request_destroy_array(them, count)

    @property
    def _handle(self) -> int:
        if not self._cluster:
            raise StartError("The mock cluster is closed.")
        return self._cluster

    def _check(self, function: str, *arguments: bytes | int) -> None:
        self._require(getattr(self._library, function)(self._handle, *arguments), f"{function}{arguments}")

    def _require(self, code: int, what: str) -> None:
        if code:
            raise StartError(f"{what}: {self._library.rd_kafka_err2str(code).decode()}.")


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_path()))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _new_owner(library: ctypes.CDLL) -> int:
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    settings = library.rd_kafka_conf_new()
    library.rd_kafka_conf_set(settings, b"log_level", b"0", error, _ERROR_BYTES)
    owner: int | None = library.rd_kafka_new(_PRODUCER, settings, error, _ERROR_BYTES)
    if not owner:
        raise StartError(f"librdkafka could not be started: {error.value.decode()}")
    return owner
