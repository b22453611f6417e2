"""MLServer's own Kafka server in front of its scikit-learn runtime: JSON V2, one record a message, at most once."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from load.research.peers.task import VERSION, Task, name_of


def main(task: Task) -> None:
    """Write its two settings files and become it."""
    folder = Path(task.folder)
    setting = dict(task.setting)
    server = {
        "debug": False,
        "parallel_workers": setting.pop("parallel_workers"),
        "kafka_enabled": True,
        "kafka_servers": task.bootstrap,
        "kafka_topic_input": task.source,
        "kafka_topic_output": task.sink,
        "http_port": _port(0),
        "grpc_port": _port(1),
        "metrics_port": _port(2),
        "logging_settings": str(_quiet(folder)),
    }
    model = {
        "name": name_of(task.model),
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": str(shutil.copy(task.model, folder / "model.joblib")), "version": VERSION},
        **setting,
    }
    (folder / "settings.json").write_text(json.dumps(server))
    (folder / "model-settings.json").write_text(json.dumps(model))
    program = Path(sys.executable).with_name("mlserver")
    os.execv(program, [str(program), "start", str(folder)])  # noqa: S606  # its own program, in its own environment


def _quiet(folder: Path) -> Path:
    """Write logging settings: it tells of every message otherwise."""
    settings = {"version": 1, "disable_existing_loggers": False, "root": {"level": "WARNING"}}
    path = folder / "logging.json"
    path.write_text(json.dumps(settings))
    return path


def _port(index: int) -> int:
    """Return a port for an interface that nobody uses but that it opens anyway."""
    return 20_000 + os.getpid() % 10_000 * 3 + index


if __name__ == "__main__":
    main(Task.from_arguments())
