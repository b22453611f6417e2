"""The control app's own reports: what a broker that is away holds up, and what not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from schemas.codec import Codec
from streams.control.app import ControlOptions, create
from tests.virtual import run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from schemas.records import Report


def test_reports_are_told_to_the_probes_while_kafka_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart would mend nothing there, and the page would have nothing to show."""
    told: list[Report] = []
    timers: dict[str, Any] = {}
    options = ControlOptions("127.0.0.1:1", "test", "control@1", tmp_path, hooks=(told.append,))

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("faust.App.timer", lambda _app, _s, name: lambda task: timers.__setitem__(name, task))
    monkeypatch.setattr("faust.topics.Topic.send", never)

    async def scene() -> None:
        create(options, Codec())
        for _ in range(3):
            await asyncio.wait_for(timers["report"](), 10)

    run(scene())
    assert len(told) == 3
