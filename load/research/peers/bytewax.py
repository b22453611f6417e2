"""Bytewax: whole batches of the Kafka source through `flat_map_batch`, recovery on, so at least once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import cli_main  # what `python -m bytewax.run` calls
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir

from load.research.peers.task import Task, Work

_EPOCH = timedelta(seconds=1)


def main(task: Task) -> None:
    """Run until terminated."""
    setting = dict(task.setting)
    linger_ms = str(setting.pop("linger_ms"))
    work = Work(task.model)

    def answer(batch: list[Any]) -> list[Any]:
        answers = work.answer([message.value for message in batch]) if batch else []
        return [
            KafkaSinkMessage(message.key, answer, partition=message.partition)
            for message, answer in zip(batch, answers, strict=True)
        ]

    flow = Dataflow("peer")
    brokers = [task.bootstrap]
    waits = {"fetch.wait.max.ms": "5"}
    queries = op.input("queries", flow, KafkaSource(brokers, [task.source], add_config=waits, **setting))
    answered = op.flat_map_batch("answer", queries, answer)
    op.output(
        "predictions", answered, KafkaSink(brokers, task.sink, add_config={"linger.ms": linger_ms, "acks": "all"})
    )
    recovery = Path(task.folder) / "recovery"
    recovery.mkdir()
    init_db_dir(recovery, 1)
    cli_main(flow, epoch_interval=_EPOCH, recovery_config=RecoveryConfig(str(recovery)))


if __name__ == "__main__":
    main(Task.from_arguments())
