"""Quix Streams, vectorised: a sink that predicts what has gathered at each checkpoint, then commits."""

from __future__ import annotations

from typing import Any

from quixstreams import Application
from quixstreams.sinks import BaseSink

from load.research.peers.task import Answering, Task, Work


class Predict(BaseSink):  # type: ignore[misc]  # not installed where types are checked
    """Predicts between two checkpoints; offsets are committed after `flush`, so at least once."""

    def __init__(self, work: Answering, producer: Any, topic: str) -> None:
        super().__init__()
        self._work, self._producer, self._topic = work, producer, topic
        self._pending: list[tuple[bytes, bytes]] = []

    def add(self, value: bytes, key: bytes, *_: Any, **__: Any) -> None:
        """Take one record."""
        self._pending.append((key, value))

    def flush(self) -> None:
        """Answer what has gathered."""
        pending, self._pending = self._pending, []
        answers = self._work.answer([value for _, value in pending]) if pending else []
        for (key, _), answer in zip(pending, answers, strict=True):
            self._producer.produce(self._topic, answer, key)
        self._producer.flush()

    def on_paused(self) -> None:
        """Never: the sink does not push back."""


def main(task: Task, work: Answering) -> None:
    """Run until terminated."""
    setting = dict(task.setting)
    linger_ms = setting.pop("linger_ms")
    app = Application(
        task.bootstrap,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        loglevel="WARNING",
        consumer_poll_timeout=0.05,
        auto_create_topics=False,
        producer_extra_config={"linger.ms": linger_ms, "acks": "all"},
        consumer_extra_config={"fetch.wait.max.ms": 5, "fetch.min.bytes": 1},
        **setting,
    )
    source = app.topic(task.source, key_deserializer="bytes", value_deserializer="bytes")
    with app.get_producer() as producer:
        app.dataframe(source).sink(Predict(work, producer, task.sink))
        app.run()


if __name__ == "__main__":
    given = Task.from_arguments()
    main(given, Work(given.model))
