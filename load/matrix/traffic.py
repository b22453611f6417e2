"""Load for a deployment that is being broken: queries and feedback of every kind, and what was acknowledged of them.

A thread of its own asks at a steady rate and tells the truth of what is answered. Times are planned, not kept: what
cannot be sent while brokers are away is sent after it.

    of 50 queries     44 are told at once, one of them in two records of the same bytes; one is asked twice
                      (where clocks are shifted, 2 of them after half a window)
                       2 are told when their window is long over, and 2 never
                       1 is garbage, and 1 is nobody's: feedback on a query that was not asked
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from load.matrix.kinds import EVERY, asked, stray, told, truth
from schemas import topics
from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.records import Prediction, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from load.matrix.kinds import Kind, Written

GARBAGE, STRAY, TWICE_ASKED, TWICE_TOLD = 49, 48, 47, 46
NEVER, LATE, SLOW = (44, 45), (42, 43), (40, 41)
_TICK_S: Final = 0.02
_IN_TIME: Final = 0.8  # of a window since the answer: feedback that the brokers have by then is in time
_CATCH_UP: Final = 200  # queries sent in one go after an outage
_FLUSH_S: Final = 60.0
_METADATA_S: Final = 10.0
_SILENT_MS: Final = 15_000  # as roles have it: then a broker that says nothing is given up
CLEAN: Final = 60  # answers that show that all partitions are served
_GOOD: Final = 0.9


class Promised(NamedTuple):
    """What is asked of the deployment: an answer by the objective, from every partition, and its window (s)."""

    slo_s: float
    partitions: int
    window_s: float


class Acknowledged(NamedTuple):
    """What the brokers have taken, by id; `perhaps` is what they may have, `never` when nothing was told (s)."""

    asked: set[str]
    garbage: set[bytes]
    told: dict[str, int]
    late: set[str]
    stray: set[str]
    never: dict[str, float]
    perhaps: set[str]


class Traffic:
    """Asks and tells until it is stopped.

    Args:
        bootstrap: of the brokers.
        prefix: of the deployment.
        kinds: the applications, asked in turn.
        rate: queries a second.
        delays: by turn, how long after an answer feedback is told that may be late then (s).
        promised: when an answer is due, and from where answers come.

    Attributes:
        kinds: the applications.
        delays: as given.
        sent: numbers below this one were handed to the client.
        first: status of the first answer to each query, by number.
        latencies_ms: of each first answer, from when it was meant to be sent.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        kinds: tuple[Kind, ...],
        rate: float,
        delays: Mapping[int, float],
        promised: Promised,
    ) -> None:
        self.sent = 0
        self.first: dict[int, Status] = {}
        self.latencies_ms: list[float] = []
        self.acknowledged = Acknowledged(set(), set(), {}, set(), set(), {}, set())
        self.failure: BaseException | None = None
        self.kinds, self.delays = kinds, delays
        self._bootstrap, self._prefix = bootstrap, prefix
        self._codec = Codec()
        self._rate = rate
        self._promised = promised
        self._partition_of: dict[int, int] = {}
        self._due: list[tuple[float, int]] = []  # feedback that is told later, a heap
        self._is_asking, self._is_running = True, True
        self._start_s = time.monotonic()  # set anew once it asks
        self._all_sent = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "delivery.timeout.ms": 180_000,
                "socket.timeout.ms": _SILENT_MS,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def enough(self) -> None:
        """Ask no more; returns when all that was sent is acknowledged, or given up."""
        self._is_asking = False
        self._all_sent.wait(_FLUSH_S + _METADATA_S)

    def stop(self) -> None:
        """End."""
        self._is_asking = self._is_running = False
        self._thread.join()

    def settled(self) -> bool:
        """Whether every acknowledged query is answered; what would be told late is told no more."""
        self._due.clear()
        return len(self.first) >= len(self.acknowledged.asked)

    def serves(self, since: int) -> bool:
        """Whether what was asked from the number `since` on, and is due, is answered completely in every partition."""
        due = int((time.monotonic() - self._start_s - self._promised.slo_s) * self._rate)
        answers = {number: self._partition_of[number] for number in complete(self.first, since, min(due, self.sent))}
        return are_served(answers, since, min(due, self.sent), self._promised.partitions)

    def has_answered(self, since: int, until: int) -> bool:
        """Whether all queries of these numbers are answered somehow."""
        return all(number in self.first for number in range(since, until) if is_query(number))

    def answered(self, since: int, until: int, turns: Collection[int]) -> list[int]:
        """Return the queries of these numbers and turns that are answered."""
        return [number for number in range(since, until) if number % EVERY in turns and number in self.first]

    def share_complete(self, since: int, until: int) -> float:
        """Return which part of the queries of these numbers was answered completely."""
        asked = sum(map(is_query, range(since, until)))
        return len(complete(self.first, since, until)) / max(1, asked)

    # ------------------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with closing(_reader(self._bootstrap, f"{self._prefix}.{topics.PREDICTIONS}")) as reader:
                self._start_s, self._start_us = time.monotonic(), time.time_ns() // 1000
                while self._is_running:
                    if self._is_asking:
                        self._ask()
                    elif not self._all_sent.is_set():
                        self._producer.flush(_FLUSH_S)
                        self._all_sent.set()
                    self._take(reader)
                    self._tell_late()
                    self._producer.poll(0)
                self._producer.flush(_FLUSH_S)
        except BaseException as error:
            self.failure = error
            raise

    def _ask(self) -> None:
        due = int((time.monotonic() - self._start_s) * self._rate)
        for number in range(self.sent, min(due, self.sent + _CATCH_UP)):
            self._send(number, self._start_us + int(number / self._rate * 1e6))
            self.sent = number + 1

    def _send(self, number: int, sent_us: int) -> None:
        known, turn, query = self.acknowledged, number % EVERY, asked(self.kinds, number, sent_us)
        name = f"q{number}"
        if turn == GARBAGE:
            value = f"garbage {number}".encode()
            self._put(query._replace(key=name.encode(), value=value), partial(known.garbage.add, value))
        elif turn == STRAY:
            self._put(stray(self.kinds, number, sent_us), partial(known.stray.add, f"stray{number}"))
        else:
            for _ in range(2 if turn == TWICE_ASKED else 1):
                known.perhaps.add(name)
                self._put(query, partial(self._asked, name))

    def _asked(self, name: str) -> None:
        self.acknowledged.asked.add(name)
        self.acknowledged.perhaps.discard(name)

    def _put(self, record: Written, taken: Callable[[], object]) -> None:
        def delivered(error: object, _message: object) -> None:
            if error is None:
                taken()

        while True:
            try:
                self._producer.produce(
                    f"{self._prefix}.{record.topic}", record.value, record.key, on_delivery=delivered
                )
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException:  # the topic is not there now: it was not sent
                return
            else:
                return

    def _take(self, reader: Consumer) -> None:
        for message in reader.consume(500, _TICK_S):
            if message.error() is not None:
                continue  # brokers are away: it goes on by itself
            try:
                prediction = self._codec.decode(Prediction, message.value() or b"")
            except DecodeError:
                continue
            name = prediction.query_id
            if name[:1] == "q" and name[1:].isdigit() and int(name[1:]) not in self.first:
                self._answered(int(name[1:]), prediction, message.partition() or 0)

    def _answered(self, number: int, prediction: Prediction, partition: int) -> None:
        self.first[number] = prediction.status
        self._partition_of[number] = partition
        meant_us = self._start_us + int(number / self._rate * 1e6)
        self.latencies_ms.append((time.time_ns() // 1000 - meant_us) / 1e3)
        turn = number % EVERY
        if turn in NEVER:
            self.acknowledged.never[prediction.query_id] = time.monotonic()
        elif turn in self.delays:
            heappush(self._due, (time.monotonic() + self.delays[turn], number))
        else:
            self._tell(number, 2 if turn == TWICE_TOLD else 1, prediction.answered_us)

    def _tell_late(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            _, number = heappop(self._due)
            self.acknowledged.late.add(f"q{number}")
            self._tell(number, 1, 0)

    def _tell(self, number: int, times: int, answered_us: int) -> None:
        feedback = told(self.kinds, number, time.time_ns() // 1000)
        for _ in range(times):
            self._put(feedback, partial(self._told, f"q{number}", truth(number), answered_us))

    def _told(self, name: str, label: int, answered_us: int) -> None:
        """Note feedback that has come; if it, or the answer, took long on a connection that fell silent, it is late."""
        self.acknowledged.told[name] = label
        if time.time_ns() // 1000 - answered_us > _IN_TIME * self._promised.window_s * 1e6:
            self.acknowledged.late.add(name)


def is_query(number: int) -> bool:
    """Tell whether a number is a query that has an answer: neither garbage nor feedback alone."""
    return number % EVERY not in (GARBAGE, STRAY)


def complete(first: Mapping[int, Status], since: int, until: int) -> list[int]:
    """Return the queries of these numbers whose first answer was complete."""
    return [number for number in range(since, until) if first.get(number) is Status.COMPLETE]


def are_served(answers: Mapping[int, int], since: int, until: int, partitions: int) -> bool:
    """Tell whether of the last queries of these numbers nearly all have complete answers, from all partitions.

    Args:
        answers: complete ones: the partition of each, by number.
        since: the first number that counts.
        until: numbers below this one are due.
        partitions: how many there are.
    """
    asked = [number for number in range(since, until) if is_query(number)][-CLEAN:]
    served = [number for number in asked if number in answers]
    return (
        len(asked) == CLEAN
        and len(served) >= _GOOD * CLEAN
        and {answers[number] for number in served} >= {*range(partitions)}
    )


def _reader(bootstrap: str, topic: str) -> Consumer:
    """Return a reader of all partitions from their start."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "matrix",
            "group.protocol": "classic",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "socket.timeout.ms": _SILENT_MS,
            "log_level": 0,
        }
    )
    end_s = time.monotonic() + 3 * _METADATA_S
    while True:
        try:
            partitions: Mapping[int, object] = reader.list_topics(topic, timeout=_METADATA_S).topics[topic].partitions
        except KafkaException:
            if time.monotonic() > end_s:
                raise
        else:
            reader.assign([TopicPartition(topic, number, 0) for number in partitions])
            return reader
