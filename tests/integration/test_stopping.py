"""A process on real clients whose broker has fallen silent ends by itself before its supervisor would kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.local.process import free_port
from streams.runtime.stopping import PATIENCE_S, STOP_S

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
from deploy.system.run import run
logging.basicConfig(level="INFO", stream=sys.stdout)
_, role, bootstrap, port = sys.argv
given = {"kafka": {"bootstrap": bootstrap}, "partitions": 1, "control": {"port": int(port)}}
settings = Settings.model_validate(given)
uvloop.run(run(settings, codec_for(settings), (role,), (), f"{role}-1"))
"""


@pytest.mark.parametrize("role", ["joiner", "control"])
def test_a_process_ends_by_its_deadline_though_its_broker_says_nothing_any_more(role: str, tmp_path: Path) -> None:
    """The broker is there and answers no request: reports, the leave of the group and Faust wait."""
    out, log = tmp_path / "broker", tmp_path / "role"
    with running(BROKER, out) as broker:
        bootstrap = said(broker, out, "\n").strip()
        with running(ROLE, log, role, bootstrap, str(free_port())) as process:
            said(process, log, f"{role} is ready")
            os.kill(broker.pid, signal.SIGSTOP)
            time.sleep(1.5)  # a report at least is on its way and unanswered
            began_s = time.monotonic()
            process.terminate()
            assert process.wait(4 * PATIENCE_S) == 0
            took_s = time.monotonic() - began_s
    assert STOP_S / 2 < took_s < PATIENCE_S


def test_a_page_that_has_not_begun_ends_by_its_deadline(tmp_path: Path) -> None:
    """The broker says nothing from the beginning: Faust waits for its coordinator, and is asked to end."""
    out, log = tmp_path / "broker", tmp_path / "role"
    with running(BROKER, out) as broker:
        bootstrap = said(broker, out, "\n").strip()
        os.kill(broker.pid, signal.SIGSTOP)
        with running(ROLE, log, "control", bootstrap, str(free_port())) as process:
            said(process, log, "Starting...")
            began_s = time.monotonic()
            process.terminate()
            process.wait(4 * PATIENCE_S)
            assert time.monotonic() - began_s < PATIENCE_S
            assert "is ready" not in log.read_text(encoding="utf-8")


@contextmanager
def running(program: str, out: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; what it prints goes into a file."""
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdout=file, stderr=subprocess.STDOUT, cwd=ROOT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(process: subprocess.Popen[bytes], out: Path, words: str) -> str:
    """Return what a process has printed, once these words are among it."""
    while words not in (text := out.read_text(encoding="utf-8")):
        assert process.poll() is None, text
        time.sleep(0.05)
    return text
