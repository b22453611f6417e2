"""The short form of `skysail load run hostile`: what used to end roles does not, and honest clients notice nothing.

Each attack meets processes of one role that go by Python alone, and a shared process that goes by columns.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

import pytest

from deploy.cli.load_stage import launcher
from load.harness.system import Stage
from load.scenarios.operation import hostile

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker


def seed_of(*, is_columnar: bool) -> int:
    """Return the first seed by which all attacks of the short form meet columns, or none does."""
    return next(
        seed for seed in count(1) if {hostile.is_columnar(name, seed) for name in hostile.SHORT} == {is_columnar}
    )


@pytest.mark.parametrize(("processes", "is_columnar"), [("each", False), ("shared", True)], ids=["each", "shared"])
def test_no_record_ends_a_role_or_keeps_an_honest_query_waiting(
    kafka: Broker, redis_server: RedisServer, tmp_path: Path, processes: str, is_columnar: bool
) -> None:
    """Every attack leaves roles, answers and what is learnt as they were; how quick answers are is the machine's."""
    stage = Stage(
        kafka.bootstrap,
        launcher(kafka.bootstrap, redis_server.url, tmp_path / "runs"),
        tmp_path,
        short=True,
        processes=processes,
        redis_url=redis_server.url,
        seed=seed_of(is_columnar=is_columnar),
    )
    result = asyncio.run(hostile.run(stage))
    found = {name: result.figures[name] for name in ("unanswered", "roles_ended", "faults")}
    assert (found, result.notes) == (dict.fromkeys(found, 0), ())
    assert result.figures["queries_sent"] > 1_000
    struck = {(attack["name"], attack["by_columns"]) for attack in result.series["attacks"]}
    assert struck == {(name, is_columnar) for name in hostile.SHORT}
