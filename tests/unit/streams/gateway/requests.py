"""Requests, applications and predictions for the tests of the gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from schemas.codec import Codec
from schemas.records import (
    Application,
    Decision,
    Model,
    ModelOutput,
    Outcome,
    Prediction,
    Status,
    Tensor,
)
from streams.gateway.application import GatewayApplication, GatewayParts
from streams.gateway.asking import Asking
from streams.gateway.bodies import Bodies
from streams.gateway.catalog import Catalog
from streams.gateway.figures import GatewayFigures
from streams.gateway.memory import ReplyMemory
from streams.gateway.tokens import BearerTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from schemas.records import Feedback, Query

NOW_US = 1_700_000_000_000_000
IRIS = Model("forest", "3", "sklearn", "packages/forest", "00", "label", "float32", (4,), ("0", "1", "2"))
TEXTS = Model("words", "1", "sklearn", "packages/words", "00", "label", None, ())


def predicted(query: Query, answer: object = 1, **more: Any) -> Prediction:
    """Return a prediction for a query: `forest` was asked with probability 0.75."""
    decision = Decision((0,), 7, query.application, "exp3", ("forest", "net"), (0.75, 0.25))
    output = ModelOutput("forest", "3", Outcome.OK, answer)  # type: ignore[arg-type]
    fields = {"status": Status.COMPLETE, "reason": None, "confidence": 0.5, "decision": decision} | more
    return Prediction(
        query.query_id,
        query.application,
        query.context,
        answer=answer,  # type: ignore[arg-type]
        outputs=(output,),
        sent_us=query.sent_us,
        received_us=0,
        deadline_us=0,
        answered_us=0,
        reply_token=query.reply_token,
        **fields,
    )


class FakeAsker:
    """A client whose answers a function makes; remembers what it was asked and told."""

    def __init__(self, answer: Callable[[Query], Prediction] = predicted) -> None:
        self.answer = answer
        self.batches: list[list[Query]] = []
        self.headers: tuple[tuple[str, bytes], ...] = ()
        self.told: list[tuple[Feedback, str | None]] = []
        self.gate = asyncio.Event()  # answers wait for it
        self.gate.set()

    async def connect(self) -> None:
        """Be connected."""

    async def lost(self) -> str:
        """Stay connected."""
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        """Be gone."""

    async def ask(
        self, queries: Sequence[Query], timeout_s: float, headers: tuple[tuple[str, bytes], ...] = ()
    ) -> list[Prediction]:
        """Answer."""
        self.batches.append(list(queries))
        self.headers = headers
        await self.gate.wait()
        return [self.answer(query) for query in queries]

    async def send_feedback(self, feedback: Iterable[tuple[Any, str | None]]) -> None:
        """Take feedback."""
        self.told.extend(feedback)


class Answered:
    """A reply of the application."""

    def __init__(self, sent: list[Mapping[str, Any]]) -> None:
        self.status: int = sent[0]["status"]
        self.headers: dict[bytes, bytes] = dict(sent[0]["headers"])
        self.body: bytes = b"".join(message.get("body", b"") for message in sent[1:])

    @property
    def json(self) -> Any:
        """The body's JSON."""
        return orjson.loads(self.body)


class Served:
    """An application that is asked as a server asks it; use it as an async context manager.

    Args:
        answer: makes predictions.
        applications: that there are.
        models: likewise.
        tokens: as their file has them.
        more: parts instead of the usual ones, and bounds: `rows`, `each`, `together`, `within_s`, `memory`.
    """

    def __init__(
        self,
        answer: Callable[[Query], Prediction] = predicted,
        applications: Sequence[Application] = (Application("iris", ("forest",)),),
        models: Sequence[Model] = (IRIS, TEXTS),
        tokens: str = "",
        **more: Any,
    ) -> None:
        self.asker = FakeAsker(answer)
        catalog = Catalog(Codec())
        catalog.applications = {one.name: one for one in applications}
        catalog._models = {one.name: one for one in models}
        self.asking = Asking(lambda: self.asker, lambda: NOW_US, more.pop("rows", 100), 5.0)
        bodies = Bodies(more.pop("each", 4_096), more.pop("together", 1 << 20), more.pop("within_s", 5.0))
        memory = ReplyMemory(more.pop("memory", 100_000))
        now_us, figures = (lambda: NOW_US), GatewayFigures(lambda: NOW_US)
        self.parts = GatewayParts(
            self.asking, catalog, bodies, memory, BearerTokens(tokens), figures, now_us, lambda: True, "1.2.3", **more
        )
        self.application = GatewayApplication(self.parts)

    async def __aenter__(self) -> Self:
        """Connect."""
        self._task = asyncio.create_task(self.asking.keep_connected())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def request(
        self,
        method: str,
        path: str,
        body: object = b"",
        headers: Mapping[str, str] | None = None,
        parts: Sequence[bytes] = (),
    ) -> Answered:
        """Send a request; `parts` = its body in pieces, of a length that is not said."""
        given = {name.lower().encode(): value.encode() for name, value in (headers or {}).items()}
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        if not parts:
            given.setdefault(b"content-length", b"%d" % len(data))
        pieces = list(parts or [data])
        messages = [
            {"type": "http.request", "body": piece, "more_body": at < len(pieces) - 1}
            for at, piece in enumerate(pieces)
        ]
        sent: list[Mapping[str, Any]] = []

        async def receive() -> Mapping[str, Any]:
            if not messages:
                await asyncio.Event().wait()
            return messages.pop(0)

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "headers": list(given.items()), "query_string": b""}
        await self.application(scope, receive, send)
        return Answered(sent)

    async def post(self, path: str, body: object, **headers: str) -> Answered:
        """Send a POST."""
        return await self.request("POST", path, body, headers)


def row(tensor: object) -> list[float]:
    """Return a row's numbers."""
    assert isinstance(tensor, Tensor)
    return tensor.numpy().tolist()
