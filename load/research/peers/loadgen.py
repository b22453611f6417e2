"""Finds with MLCommons' LoadGen the rate at which a contender still answers 99 % within an objective."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from load.errors import PeerFailedError
from load.harness.processes import rest
from load.research.peers import environments, running
from load.research.peers.loadgen_case import Case, Judgement
from load.research.peers.task import MODEL
from load.research.peers.wire_formats import V2

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from load.research.peers.contenders import Contender
    from load.research.peers.running import Ground, Running

ENVIRONMENT = "loadgen"
OBJECTIVE_MS = 50.0
_LIMIT_S = 60.0
_TAIL_CHARS = 300


def bounded_rate(
    contender: Contender, ground: Ground, run: Running, rates: Iterable[float], seconds: float
) -> dict[str, Any]:
    """Try rates, the highest first, until LoadGen says VALID; returns a row, with rate 0 if it never does.

    A judge that fails costs nobody its figures: the row says why, and ends there.
    """
    row: dict[str, Any] = {"system": contender.name, "label": contender.label, "valid_per_s": 0.0, "tried": []}
    for index, rate in enumerate(sorted(rates, reverse=True)):
        folder = ground.stage.folder / f"judge-{run.prefix}-{index}"
        try:
            rest(run.pids)  # until it has worked off the rate before
            judgement = _judge(_case(contender, ground, run, rate, seconds, folder), ground.stage.folder / "path")
        except (PeerFailedError, psutil.NoSuchProcess) as error:
            row["failed"] = str(error)
            break
        row["tried"].append({"rate_per_s": rate, **asdict(judgement)})
        if judgement.valid:
            row["valid_per_s"] = rate
            break
    return row


def _case(contender: Contender, ground: Ground, run: Running, rate: float, seconds: float, folder: Path) -> Case:
    folder.mkdir()
    rows = folder / "rows.npy"
    np.save(rows, ground.data.test_x)
    return Case(
        bootstrap=ground.stage.bootstrap,
        prefix=run.prefix,
        sink=run.sink,
        application=running.APPLICATION,
        model=MODEL if isinstance(contender.wire_format, V2) else "",
        rows=str(rows),
        rate_per_s=rate,
        seconds=seconds,
        objective_ms=OBJECTIVE_MS,
        seed=int(folder.name.rpartition("-")[2]) + 1_000_000,
        folder=str(folder),
        direct=contender.kind == "direct",
    )


def _judge(case: Case, path: Path) -> Judgement:
    python = environments.root() / ENVIRONMENT / "bin" / "python"
    command = (str(python), "-P", "-m", "load.research.peers.loadgen_process", json.dumps(asdict(case)))
    try:
        done = subprocess.run(  # noqa: S603  # our own command
            command,
            cwd=case.folder,
            env=running.variables(path),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerFailedError(f"LoadGen was not done after {_LIMIT_S:g} s at {case.rate_per_s:g}/s") from error
    if done.returncode != 0:
        raise PeerFailedError(f"LoadGen ended with {done.returncode}: {done.stderr[-_TAIL_CHARS:]}")
    return Judgement(**json.loads(done.stdout.splitlines()[-1]))
