"""The role reads what there is, begins anew with another model or after a fault, and says when it reads nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from schemas import topics
from schemas.records import Report
from streams.operators.contract import Record
from streams.runtime.errors import BrokerUnavailableError
from streams.runtime.kafka.fast.whole_batches import sound_records_of
from streams.runtime.process.readiness import hindrances
from streams.telemetry.export import LegQueue
from streams.telemetry.kernel import LegReader
from streams.telemetry.role import READ, TelemetryParts, TelemetryRole
from streams.testing.broker import FakeBroker
from tests.fakes import FakeTransport
from tests.loops import CODEC
from tests.virtual import elapse, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Models:
    """A reader of topic `models`."""

    caught_up = True

    def __init__(self) -> None:
        self.news: list[Record] = []

    async def start(self) -> None:
        """Connect."""

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what is new."""
        await asyncio.sleep(timeout_ms / 1000)
        news, self.news = self.news, []
        return news

    async def stop(self, timeout_s: float) -> None:
        """Disconnect."""

    def tell(self, key: str, value: bytes | None = b"a model") -> None:
        """Write a record."""
        self.news.append(Record(topics.MODELS, 0, 0, 0, key.encode(), value))


class Tails:
    """Makes tails of topics, and notes which."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.open = 0
        self.fault: Exception | None = None

    def __call__(self, names: Sequence[str]) -> Tails:
        """Make one."""
        self.asked.append([*names])
        return self

    async def start(self) -> Mapping[str, int]:
        """Connect."""
        self.open += 1
        return dict.fromkeys(self.asked[-1], 2)

    async def poll_batches(self, timeout_ms: int) -> Sequence[Record]:
        """Return nothing, or fail."""
        if self.fault is not None:
            raise self.fault
        await asyncio.sleep(timeout_ms / 1000)
        return []

    async def stop(self) -> None:
        """Disconnect."""
        self.open -= 1


def test_it_reads_the_topics_of_all_models_and_goes_on_after_a_fault() -> None:
    """A version has no topic of its own; a removed model's is read no more."""

    async def scene() -> None:
        models, tails, reports, closed = Models(), Tails(), list[Report](), list[bool]()
        reader = LegReader(CODEC, sound_records_of, str, 0.0)
        parts = TelemetryParts(
            reader, LegQueue(lambda _: True), tails, lambda: models, FakeTransport(FakeBroker()), CODEC.encode,
            lambda: 0, lambda: closed.append(True),
        )  # fmt: skip
        role, stop = TelemetryRole("telemetry@1", parts, (reports.append,)), asyncio.Event()
        running = asyncio.create_task(role.run(stop))
        models.tell("svc")
        models.tell("svc@2")
        await elapse(3)
        assert tails.asked == [[*READ, "models.svc.queries"]]
        assert hindrances([(reports[-1], 0.0)]) == []
        models.tell("forest")
        await elapse(3)
        assert tails.asked[1:] == [[*READ, "models.forest.queries", "models.svc.queries"]]
        models.tell("svc", None)
        await elapse(3)
        assert tails.asked[2:] == [[*READ, "models.forest.queries"]]
        tails.fault = BrokerUnavailableError("away")
        await elapse(3)
        (said,) = hindrances([(reports[-1], 0.0)])
        assert said.startswith("telemetry@1 waits for Kafka")
        tails.fault = None
        await elapse(3)
        assert hindrances([(reports[-1], 0.0)]) == []
        assert reports[-1].gauges["partitions"] == 8
        stop.set()
        await running
        assert (tails.open, closed, reports[-1].gauges["stopped"]) == (0, [True], 1.0)

    run(scene())
