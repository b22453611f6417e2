"""FastStream, as it is compared elsewhere: it scores JSON records here."""

from __future__ import annotations

import asyncio

from load.research.peers.faststream import app
from load.research.peers.task import Task
from load.research.topics.work import TopicWork

if __name__ == "__main__":
    task = Task.from_arguments()
    asyncio.run(app(task, TopicWork(task.model)).run())
