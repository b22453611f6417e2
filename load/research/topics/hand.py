"""The floor: a hand-written loop on confluent-kafka. It consumes, scores a poll, produces, flushes and commits."""

from __future__ import annotations

from load.baseline import hand_confluent
from load.baseline.job import Job
from load.research.peers.task import Task
from load.research.topics.work import TopicWork


def main(task: Task) -> None:
    """Run until terminated."""
    hand_confluent.run(Job(task.bootstrap, task.source, task.sink), TopicWork(task.model))


if __name__ == "__main__":
    main(Task.from_arguments())
