"""The hand-written loops of `load.baseline` on the peers' work. They run in Skysail's own environment."""

from __future__ import annotations

import asyncio

import uvloop

from load.baseline import hand_confluent
from load.baseline.codec_work import CodecWork
from load.baseline.hand_aiokafka import Loop
from load.baseline.job import Job
from load.research.peers.task import Task, Work


def main(task: Task) -> None:
    """Run until terminated."""
    setting = dict(task.setting)
    client, run = setting.pop("client"), uvloop.run if setting.pop("uvloop", False) else asyncio.run
    work = CodecWork(task.model) if setting.pop("codec", False) else Work(task.model)
    job = Job(task.bootstrap, task.source, task.sink, **setting)
    if client == "confluent":
        hand_confluent.run(job, work)
    else:
        run(Loop(job, work).run())


if __name__ == "__main__":
    main(Task.from_arguments())
