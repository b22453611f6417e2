"""The runner of the crash matrix on one broker, with one of its rows: the rest is `skysail load run matrix`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deploy.cli.load_stage import launcher, open_brokers, open_redis
from load.harness.system import Stage
from load.matrix.roles import ROLE_ROWS
from load.matrix.runner import struck

if TYPE_CHECKING:
    from pathlib import Path

ROW = "joiner SIGKILL"


def test_a_joiner_that_is_killed_loses_nothing_and_ends_nobody(tmp_path: Path) -> None:
    """Queries, replies, feedback of every kind, states, the trace: all that was acknowledged is there once."""
    launch = launcher("", "", tmp_path / "runs")
    stage = Stage("", launch, tmp_path, brokers=open_brokers, redis=open_redis)
    rows = [row for row in ROLE_ROWS if row.name == ROW]
    its = asyncio.run(struck(stage, "one", rows, brokers=1, is_patient=False))
    assert {row.name: (row.faults, row.ended) for row in its.rows} == {ROW: ((), {})}
    assert its.faults == ()
    assert its.counts["queries"] > 100
    assert its.counts["joined"] > 50
