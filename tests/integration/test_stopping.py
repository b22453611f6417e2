"""A role on real clients whose broker has fallen silent ends by itself before its supervisor would kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streams.runtime.deadline import PATIENCE_S, STOP_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
BROKER = """
import time
from deploy.local.embedded import EmbeddedBroker
from streams.topology import build
with EmbeddedBroker() as broker:
    broker.create_topics({f"skysail.{name}": topic.partitions for name, topic in build((), 1).topics.items()})
    print(broker.bootstrap, flush=True)
    time.sleep(600)
"""
ROLE = """
import logging, sys, uvloop
from deploy.config.settings import Settings
from deploy.connect.schema_registry import codec_for
from deploy.roles import run
logging.basicConfig(level="INFO", stream=sys.stdout)
logging.getLogger("aiokafka").setLevel("WARNING")
settings = Settings.model_validate({"kafka": {"bootstrap": sys.argv[1]}, "partitions": 1})
uvloop.run(run(settings, codec_for(settings), ("joiner",), (), "joiner-1"))
"""


def test_a_role_ends_by_its_deadline_though_its_broker_says_nothing_any_more() -> None:
    """The broker is there and answers no request: the reports and the leave of the group wait."""
    with running(BROKER) as broker:
        with running(ROLE, line(broker)) as role:
            while "joiner is ready" not in line(role):
                pass
            os.kill(broker.pid, signal.SIGSTOP)
            time.sleep(1.5)  # a report at least is on its way and unanswered
            began_s = time.monotonic()
            role.terminate()
            assert role.wait(4 * PATIENCE_S) == 0
            took_s = time.monotonic() - began_s
        os.kill(broker.pid, signal.SIGCONT)
    assert STOP_S / 2 < took_s < PATIENCE_S


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT, bufsize=1
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    found = process.stdout.readline()
    assert found, "the process has ended"
    return found.strip()
