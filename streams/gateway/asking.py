"""Queries of requests, over the client that is connected now: one batch a request, within a bound on rows in hand."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Final, Protocol

from schemas.errors import SchemaError
from schemas.records import Query
from streams.client import UnansweredError
from streams.gateway.protocol.values import RequestRefusedError
from streams.runtime.errors import BrokerUnavailableError, StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from schemas.records import Feedback, MetricFeedback, Prediction
    from streams.gateway.protocol.values import HttpQuestion

_log = logging.getLogger(__name__)

_TOKEN_BYTES: Final = 8  # as the client's own
RETRY_S: Final = 1
_BACKOFF_S: Final = 1.0


def _token() -> str:
    return secrets.token_hex(_TOKEN_BYTES)


class AskingClient(Protocol):
    """What the client does for a gateway."""

    async def connect(self) -> None:
        """Connect."""
        ...

    async def lost(self) -> str:
        """Return why, when predictions can no longer be read."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...

    async def ask(
        self, queries: Sequence[Query], timeout_s: float, headers: tuple[tuple[str, bytes], ...]
    ) -> list[Prediction]:
        """Ask queries in one batch; see `streams.client.Client.ask`."""
        ...

    async def send_feedback(self, feedback: Iterable[tuple[Feedback | MetricFeedback, str | None]]) -> None:
        """Send feedback, each with the context of its query."""
        ...


class Asking:
    """Asks, while there is a connection.

    Args:
        make: makes a client, which is not connected yet; another one after each loss.
        now_us: the clock.
        most_rows: that may wait for answers at a time.
        timeout_s: for answers, beyond which selection is taken to be away.
        token: draws what an answer is known by; nobody may guess it.
    """

    def __init__(
        self,
        make: Callable[[], AskingClient],
        now_us: Callable[[], int],
        most_rows: int,
        timeout_s: float,
        token: Callable[[], str] = _token,
    ) -> None:
        self._make = make
        self._now_us = now_us
        self._most_rows = most_rows
        self._timeout_s = timeout_s
        self._token = token
        self._client: AskingClient | None = None
        self.rows = 0  # that wait

    @property
    def is_connected(self) -> bool:
        """Whether queries can be asked."""
        return self._client is not None

    async def keep_connected(self) -> None:
        """Connect, and again whenever predictions can no longer be read, until cancelled."""
        while True:
            client = self._make()
            try:
                await client.connect()
                self._client = client
                _log.warning("connecting again: %s", await client.lost())
            except StreamError as fault:
                _log.warning("cannot ask: %s", fault)
            finally:
                self._client = None
                await client.close()
            await asyncio.sleep(_BACKOFF_S)

    async def ask(self, ask: HttpQuestion, name: str) -> list[Prediction]:
        """Return one prediction a row, in order.

        Args:
            ask: what is asked.
            name: of the one query; of several `NAME/0`, `NAME/1`, ...

        Raises:
            RequestRefusedError: there is no connection or no room, a query is too large, or nobody answers.
        """
        client, count = self._connected(), len(ask.rows)
        if self.rows + count > self._most_rows:
            raise RequestRefusedError(503, f"{self.rows:,} rows wait already (`gateway.rows`); try again", RETRY_S)
        self.rows += count
        try:
            return await client.ask(self._queries(ask, name), self._timeout_s, ask.headers)
        except UnansweredError as fault:
            raise RequestRefusedError(504, str(fault)) from fault
        except BrokerUnavailableError as fault:
            raise RequestRefusedError(503, str(fault), RETRY_S) from fault
        except SchemaError as fault:
            raise RequestRefusedError(400, str(fault)) from fault
        except ValueError as fault:  # another gateway's client cannot know, this one does: the id is under way
            raise RequestRefusedError(409, str(fault)) from fault
        finally:
            self.rows -= count

    async def tell(self, items: Iterable[tuple[Feedback | MetricFeedback, str | None]]) -> None:
        """Send feedback; returns when Kafka has it.

        Raises:
            RequestRefusedError: Kafka does not take it.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connected().send_feedback(items)
        except (StreamError, TimeoutError) as fault:
            raise RequestRefusedError(503, f"Kafka did not take the feedback: {fault}", RETRY_S) from fault
        except SchemaError as fault:
            raise RequestRefusedError(400, str(fault)) from fault

    def _connected(self) -> AskingClient:
        if self._client is None:
            raise RequestRefusedError(503, "there is no connection to Kafka; see `skysail doctor`", RETRY_S)
        return self._client

    def _queries(self, ask: HttpQuestion, name: str) -> list[Query]:
        now_us, is_one = self._now_us(), len(ask.rows) == 1
        return [
            Query(
                name if is_one else f"{name}/{at}",
                ask.application,
                row,
                ask.context,
                now_us,
                ask.slo_ms,
                ask.priority,
                ask.features[at] if ask.features else (),
                ask.version,
                self._token(),
                ask.candidates,
                ask.top,
            )
            for at, row in enumerate(ask.rows)
        ]
