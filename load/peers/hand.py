"""The hand-written loops of `load.floor`, doing the work that the peers do. Runs in Skysail's own environment."""

from __future__ import annotations

import asyncio

import uvloop

from load.floor import hand_confluent
from load.floor.hand_aiokafka import Loop
from load.floor.job import Job
from load.peers.shared import Task, Work


def main(task: Task) -> None:
    """Run until terminated."""
    setting = dict(task.setting)
    client, run = setting.pop("client"), uvloop.run if setting.pop("uvloop", False) else asyncio.run
    job = Job(task.bootstrap, task.source, task.sink, **setting)
    work = Work(task.model)
    if client == "confluent":
        hand_confluent.run(job, work)
    else:
        run(Loop(job, work).run())


if __name__ == "__main__":
    main(Task.from_arguments())
