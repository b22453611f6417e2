"""The hand loop on confluent-kafka: consume, answer the poll, produce, flush, commit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from load.baseline.job import Done, Job
from load.baseline.work import work_of

if TYPE_CHECKING:
    from load.baseline.work import Answers

_POLL_ROWS = 2000
_POLL_S = 0.2
_COMMIT_S = 0.5


def run(job: Job, work: Answers | None = None) -> Done:
    """Answer `count` records; `work` answers polls, by default as the job says."""
    work = work or work_of(job)
    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "acks": "all",
            "linger.ms": job.linger_ms,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": job.group,
            "group.protocol": "classic",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([job.source])
    rows, started, cpu_started, committed = 0, 0.0, 0.0, 0.0
    while not job.count or rows < job.count:
        messages = _poll(consumer)
        if messages and not started:
            started, cpu_started, committed = time.perf_counter(), time.process_time(), time.perf_counter()
        if messages:
            for message, answer in zip(messages, work.answer([m.value() or b"" for m in messages]), strict=True):
                producer.produce(job.sink, answer, message.key(), message.partition() or 0)
            rows += len(messages)
        producer.poll(0)
        if started and time.perf_counter() - committed > _COMMIT_S:
            producer.flush()
            _commit(consumer)
            committed = time.perf_counter()
    producer.flush()
    _commit(consumer)
    done = Done(rows, time.perf_counter() - started, time.process_time() - cpu_started)
    consumer.close()
    return done


def _commit(consumer: Consumer) -> None:
    """Commit what was consumed; having nothing new to commit is no fault."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:  # noqa: SLF001  # the client's public name for it
            raise


def _poll(consumer: Consumer) -> list[Message]:
    """Wait for the first message only: `consume` alone would wait for all of them."""
    first = consumer.poll(_POLL_S)
    messages = [] if first is None else [first, *consumer.consume(_POLL_ROWS, 0)]
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


if __name__ == "__main__":
    run(Job.from_arguments()).say()
