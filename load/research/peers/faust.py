"""Faust: an agent that takes events in batches and waits for its sends before it acknowledges them."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import faust

from load.research.peers.task import Task, Work


def app(task: Task) -> Any:
    """Return the application; `take` waits 5 ms at most, as peers.md's best known setting."""
    work = Work(task.model)
    setting = dict(task.setting)
    rows, within_s = setting.pop("rows"), setting.pop("within_s")
    app = faust.App(
        task.group,
        broker=f"kafka://{task.bootstrap}",
        datadir=task.folder,
        key_serializer="raw",
        value_serializer="raw",
        store="memory://",
        topic_partitions=4,
        stream_wait_empty=False,
        stream_buffer_maxsize=4096,
        broker_max_poll_records=500,
        broker_commit_interval=1.0,
        producer_acks=-1,
        consumer_auto_offset_reset="earliest",
        web_enabled=False,
        **setting,
    )
    raw: dict[str, Any] = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    source, sink = app.topic(task.source, **raw), app.topic(task.sink, **raw)

    @app.agent(source)
    async def answer(queries: Any) -> None:
        async for events in queries.take_events(rows, within_s):
            answers = work.answer([event.value for event in events])
            sends = [
                await sink.send(key=event.key, value=answer, partition=event.message.partition)
                for event, answer in zip(events, answers, strict=True)
            ]
            await asyncio.gather(*sends)

    return app


def main(task: Task) -> None:
    """Run until terminated."""
    logging.disable(logging.INFO)  # 9 % of its CPU otherwise
    sys.argv[1:] = ["worker", "--loglevel=warn", "--without-web"]
    app(task).main()


if __name__ == "__main__":
    main(Task.from_arguments())
