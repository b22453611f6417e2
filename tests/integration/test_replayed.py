"""The short form of `skysail load run replayed`: what was recorded of a live deployment comes out bit-equal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from deploy.cli.load_stage import launcher
from load.harness.system import Stage
from load.scenarios.operation import replayed

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker


@pytest.mark.parametrize("processes", ["each", "shared"])
def test_a_live_run_with_crashes_copies_late_feedback_and_a_new_version_replays_bit_equal(
    kafka: Broker, redis_server: RedisServer, tmp_path: Path, processes: str
) -> None:
    """Each role is killed once; nothing differs, and nearly everything is checked."""
    stage = Stage(
        kafka.bootstrap,
        launcher(kafka.bootstrap, redis_server.url, tmp_path / "runs"),
        tmp_path,
        short=True,
        processes=processes,
        redis_url=redis_server.url,
    )
    result = asyncio.run(replayed.run(stage))
    figures = result.figures

    assert result.series["differences"] == []
    assert {name: count for name, count in figures.items() if name.startswith("different_") and count} == {}
    assert figures["killed"] == 4
    assert figures["queries"] >= replayed.SHORT_QUERIES
    assert figures["checked_predictions"] + figures["unchecked"] >= figures["predictions"]
    assert figures["checked_predictions"] > 0.5 * figures["predictions"], result.series["unchecked"]
    assert figures["checked_observations"] > 100
    assert figures["checked_states"] >= 9  # together; alone and its users
