"""Kafka Streams with ONNX Runtime, both from Maven alone: `jvm/Peer.java`, a record at a time, Apache's Avro.

It keeps no states. By default it would commit every 30 seconds, and wait 100 ms for more records to send.
"""

from __future__ import annotations

import os
from pathlib import Path

import joblib
import numpy as np
import skl2onnx

from load.research.peers.task import Task, name_of
from schemas import framing
from schemas.definitions import CURRENT

_FEATURES = 64
_HEAP = "-Xmx512m"


def main(task: Task) -> None:
    """Write its model, its schemas and its properties, and become it."""
    folder = Path(task.folder)
    model = folder / "model.onnx"
    estimator = joblib.load(task.model)
    options = {id(estimator): {"zipmap": False}}
    graph = skl2onnx.to_onnx(estimator, np.zeros((1, _FEATURES), np.float32), options=options)
    model.write_bytes(graph.SerializeToString())
    for name in ("Query", "Prediction"):
        (folder / f"{name}.avsc").write_text(CURRENT[name].text, encoding="utf-8")
    given = {
        "application.id": task.group,
        "bootstrap.servers": task.bootstrap,
        "state.dir": folder / "states",
        "commit.interval.ms": 500,
        "consumer.auto.offset.reset": "earliest",
        "producer.acks": "all",
        "source": task.source,
        "sink": task.sink,
        "onnx": model,
        "model": name_of(task.model),
        "query": folder / "Query.avsc",
        "prediction": folder / "Prediction.avsc",
        "header": framing.single_object(CURRENT["Prediction"].fingerprint).hex(),
        **task.setting,
    }
    settings = folder / "peer.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in given.items()), encoding="utf-8")
    jars = os.environ["PEER_JARS"]
    os.execvp("java", ["java", _HEAP, "-XX:+UseSerialGC", "-cp", f"{jars}/*:{jars}", "Peer", str(settings)])  # noqa: S606, S607  # its own program


if __name__ == "__main__":
    main(Task.from_arguments())
