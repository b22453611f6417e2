"""Asking over a connection that may be lost: what a request is told, and that another client is made."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from schemas.errors import OversizedError
from streams.client import UnansweredError
from streams.gateway import asking
from streams.gateway.asking import Asking
from streams.gateway.protocol.values import HttpQuestion, RequestRefusedError
from streams.runtime.errors import BrokerUnavailableError
from tests.unit.streams.gateway.requests import NOW_US, FakeAsker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from schemas.records import Prediction, Query

QUESTION = HttpQuestion("iris", ("a", "b"), features=((1.0,), (2.0,)), context="ann", priority=2)


class FailingAsker(FakeAsker):
    """A client that raises an error for whatever it is asked or told."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def ask(
        self, queries: Sequence[Query], timeout_s: float, headers: tuple[tuple[str, bytes], ...] = ()
    ) -> list[Prediction]:
        """Fail."""
        raise self.error

    async def send_feedback(self, feedback: Iterable[tuple[Any, str | None]]) -> None:
        """Fail."""
        raise self.error


class LosingAsker(FakeAsker):
    """A client that loses its connection when it is told to, or has none."""

    def __init__(self, *, is_away: bool = False) -> None:
        super().__init__()
        self.is_away = is_away
        self.end = asyncio.Event()
        self.is_closed = False

    async def connect(self) -> None:
        """Be connected, if there is a broker."""
        if self.is_away:
            raise BrokerUnavailableError("no broker")

    async def lost(self) -> str:
        """Wait for the end."""
        await self.end.wait()
        return "it has ended"

    async def close(self) -> None:
        """Note it."""
        self.is_closed = True


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - who is watched tells nobody
            await asyncio.sleep(0)


@asynccontextmanager
async def connected(*clients: FakeAsker) -> AsyncIterator[Asking]:
    """Keep connected with these clients, one after the other."""
    made = iter(clients)
    found = Asking(lambda: next(made), lambda: NOW_US, 10, 0.05)
    task = asyncio.create_task(found.keep_connected())
    await until(lambda: found.is_connected)
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_query_has_all_that_was_asked() -> None:
    """Each row its features; all the same context, time and priority."""
    client = FakeAsker()
    async with connected(client) as there:
        await there.ask(QUESTION, "q")
    first, second = client.batches[0]
    assert (first.query_id, first.input, first.features) == ("q/0", "a", (1.0,))
    assert (second.query_id, second.input, second.features) == ("q/1", "b", (2.0,))
    assert {(query.context, query.priority, query.sent_us) for query in (first, second)} == {("ann", 2, NOW_US)}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnansweredError("late"), 504),
        (BrokerUnavailableError("away"), 503),
        (OversizedError("large"), 400),
        (ValueError("query q is already being asked"), 409),
    ],
)
async def test_a_fault_is_told_as_what_it_is(error: Exception, status: int) -> None:
    """And its rows are given back."""
    async with connected(FailingAsker(error)) as there:
        with pytest.raises(RequestRefusedError, match=str(error)) as caught:
            await there.ask(QUESTION, "q")
        assert (caught.value.status, bool(caught.value.retry_s), there.rows) == (status, status == 503, 0)


async def test_feedback_that_kafka_does_not_take_is_told() -> None:
    """To be sent again."""
    async with connected(FailingAsker(BrokerUnavailableError("away"))) as there:
        with pytest.raises(RequestRefusedError, match="away") as caught:
            await there.tell([])
        assert caught.value.status == 503


async def test_after_a_loss_another_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the next one finds no broker; requests are refused meanwhile."""
    monkeypatch.setattr(asking, "_BACKOFF_S", 0.0)
    first, away, last = LosingAsker(), LosingAsker(is_away=True), LosingAsker()
    async with connected(first, away, last) as there:
        first.end.set()
        await until(lambda: first.is_closed)
        with pytest.raises(RequestRefusedError, match="no connection"):
            await there.ask(QUESTION, "q")
        await until(lambda: there.is_connected)
        await there.ask(QUESTION, "q")
        assert (len(first.batches), away.is_closed, len(last.batches)) == (0, True, 1)
