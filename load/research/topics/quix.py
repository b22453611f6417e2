"""Quix Streams, as it is compared elsewhere: it scores JSON records here."""

from __future__ import annotations

from load.research.peers.quix import main
from load.research.peers.task import Task
from load.research.topics.work import TopicWork

if __name__ == "__main__":
    task = Task.from_arguments()
    main(task, TopicWork(task.model))
