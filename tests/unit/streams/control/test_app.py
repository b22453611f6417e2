"""The control app's own reports: what a broker that is away holds up, and what not."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from schemas.codec import Codec
from schemas.records import Report
from streams.control import app
from streams.control.app import ControlOptions, create
from streams.control.figures import SILENT_AFTER_US
from streams.control.page.visibility import BLIND_REPORTS, STUCK_REPORTS, DeploymentSettings, Visibility
from tests.virtual import run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


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
        create(options, Codec(), asyncio.Event())
        for _ in range(3):
            await asyncio.wait_for(timers["report"](), 10)

    run(scene())
    assert len(told) == 3


@pytest.mark.parametrize(
    ("taken", "read", "is_alone", "is_stuck"),
    [
        (STUCK_REPORTS, None, True, True),
        (STUCK_REPORTS, 30, True, False),
        (STUCK_REPORTS, None, False, False),
        (0, None, True, False),
    ],
)
def test_an_app_is_stuck_once_a_minute_of_reports_was_taken_and_none_is_read(
    taken: int, read: int | None, is_alone: bool, is_stuck: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where Kafka takes none, where old ones are still read, or where another page reads: no app would see more."""
    timers: dict[str, Any] = {}
    stuck, sent = asyncio.Event(), list[Report]()
    options = ControlOptions("127.0.0.1:1", "test", "control@1", tmp_path, hooks=(sent.append,))

    async def send(*_: object, **__: object) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if len(sent) <= taken:
            future.set_result(None)
        else:
            future.set_exception(OSError("not taken"))
        return future

    monkeypatch.setattr("faust.App.timer", lambda _app, _s, name: lambda task: timers.__setitem__(name, task))
    monkeypatch.setattr("faust.topics.Topic.send", send)

    async def scene() -> None:
        control, state = create(options, Codec(), stuck)
        control.unassigned = not is_alone
        for number in range(STUCK_REPORTS + 1):
            await timers["report"]()
            await asyncio.sleep(0)
            assert not stuck.is_set() or number == STUCK_REPORTS
            if number == read:
                state.sight.read()

    run(scene())
    assert stuck.is_set() is is_stuck


@pytest.mark.parametrize(("has_seen", "reports"), [(False, STUCK_REPORTS), (True, BLIND_REPORTS)])
def test_a_page_that_has_seen_before_is_waited_for_a_shorter_time(has_seen: bool, reports: int) -> None:
    """A start reads a table first; after a freeze there is little to catch up with."""
    sight = Visibility(DeploymentSettings(instance="control@1"), 0)
    if has_seen:
        sight.heard(Report("control@1", "control", 1, {}, {}), 1)
    for number in range(reports):
        assert not sight.is_stuck
        sight.taken(2 + number)
    assert sight.is_stuck


class Ticked:
    """Stands for what is carried on; counts."""

    courses: Mapping[str, Any] = MappingProxyType({})
    ticks = 0

    async def tick(self, *_: object) -> None:
        """Count."""
        self.ticks += 1

    def keep_in(self, _table: object) -> None:
        """Keep nothing."""


@pytest.mark.parametrize("name", ["promote", "sense"])
def test_long_work_waits_until_the_page_sees(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start an hour of observations is folded: reports come first, and guardrails are told by them."""
    timers: dict[str, Any] = {}
    monkeypatch.setattr("faust.App.timer", lambda _app, _s, name: lambda task: timers.__setitem__(name, task))
    monkeypatch.setattr(app, "_now_us", lambda: now_us)
    work, now_us = Ticked(), 1_000_000
    given: Any = {"promote": {"promoting": work}, "sense": {"sensing": work}}[name]
    _, state = create(ControlOptions("127.0.0.1:1", "t", "control@1", tmp_path, **given), Codec(), asyncio.Event())
    seen = []
    for _ in range(2):
        now_us += SILENT_AFTER_US + 1
        state.sight.sent(now_us)
        run(timers[name]())
        seen.append(work.ticks)
        now_us += SILENT_AFTER_US + 1
        run(timers[name]())
        seen.append(work.ticks)
        state.sight.heard(Report("control@1", "control", now_us, {}, {}), now_us)
        now_us += SILENT_AFTER_US + 1
        run(timers[name]())
        seen.append(work.ticks)
    assert seen == [0, 0, 1, 2, 2, 3]
