"""Quix Streams, vectorised: a sink that scores what has gathered at each checkpoint, then commits."""

from __future__ import annotations

from typing import Any

from quixstreams import Application
from quixstreams.sinks import BaseSink

from load.research.topics.work import TopicTask, TopicWork


class Score(BaseSink):  # type: ignore[misc]  # not installed where types are checked
    """Scores between two checkpoints; offsets are committed after `flush`, so at least once."""

    def __init__(self, work: TopicWork, producer: Any, topic: str) -> None:
        super().__init__()
        self._work, self._producer, self._topic = work, producer, topic
        self._pending: list[tuple[bytes, bytes]] = []

    def add(self, value: bytes, key: bytes, *_: Any, **__: Any) -> None:
        """Take one record."""
        self._pending.append((key, value))

    def flush(self) -> None:
        """Write what has gathered."""
        pending, self._pending = self._pending, []
        answers = self._work.answer([value for _, value in pending]) if pending else []
        for (key, _), answer in zip(pending, answers, strict=True):
            self._producer.produce(self._topic, answer, key)
        self._producer.flush()

    def on_paused(self) -> None:
        """Never: the sink does not push back."""


def main(task: TopicTask) -> None:
    """Run until terminated."""
    app = Application(
        task.bootstrap,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        loglevel="WARNING",
        consumer_poll_timeout=0.05,
        commit_interval=0.2,
        auto_create_topics=False,
        producer_extra_config={"linger.ms": 5, "acks": "all"},
    )
    source = app.topic(task.source, key_deserializer="bytes", value_deserializer="bytes")
    with app.get_producer() as producer:
        app.dataframe(source).sink(Score(TopicWork(task.model), producer, task.sink))
        app.run()


if __name__ == "__main__":
    main(TopicTask.from_arguments())
