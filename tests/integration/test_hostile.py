"""The short form of `skysail load run hostile`: what used to end roles does not, and honest clients notice nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from deploy.cli.load_stage import launcher
from load.harness.system import Stage
from load.scenarios.operation import hostile

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker


@pytest.mark.parametrize("processes", ["each", "shared"])
def test_no_record_ends_a_role_or_keeps_an_honest_query_waiting(
    kafka: Broker, redis_server: RedisServer, tmp_path: Path, processes: str
) -> None:
    """Every attack leaves roles, answers and what is learnt as they were; how quick answers are is the machine's."""
    stage = Stage(
        kafka.bootstrap,
        launcher(kafka.bootstrap, redis_server.url, tmp_path / "runs"),
        tmp_path,
        short=True,
        processes=processes,
        redis_url=redis_server.url,
    )
    result = asyncio.run(hostile.run(stage))
    found = {name: result.figures[name] for name in ("unanswered", "roles_ended", "faults")}
    assert (found, result.notes) == (dict.fromkeys(found, 0), ())
    assert result.figures["queries_sent"] > 1_000
