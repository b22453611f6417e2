"""grpc.aio, bounded: so many calls, a message within its time and size, no packed ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc
import orjson

from streams.gateway.protocol.values import RequestRefusedError
from streams.gateway.rpc import translated
from streams.gateway.rpc.messages import MESSAGES, SERVICE
from streams.gateway.rpc.translated import Answered, HttpCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from streams.gateway.application import GatewayApplication
    from streams.gateway.server import Listening

_DRAIN_S: Final = 5
_STREAMS: Final = 128  # of one connection
_HEAD_BYTES: Final = 16 << 10
_DEADLINE = grpc.StatusCode.DEADLINE_EXCEEDED


class RpcServer:
    """Serves Open Inference's gRPC, from when it runs.

    Args:
        application: that answers.
        listening: where; its port is this door's own.
        message_bytes: of the largest message.
        reading: how many messages may be read at a time; others wait.

    Raises:
        OSError: the certificate cannot be read.
    """

    def __init__(self, application: GatewayApplication, listening: Listening, message_bytes: int, reading: int) -> None:
        self._application = application
        self._within_s = listening.within_s
        self._reading = asyncio.Semaphore(reading)
        self._listening = listening
        self._message_bytes = message_bytes
        self._credentials = _credentials(listening)
        self.port = listening.port

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; calls under way are answered, for some seconds."""
        options = [
            ("grpc.max_receive_message_length", self._message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", _HEAD_BYTES),
            ("grpc.max_concurrent_streams", _STREAMS),
            ("grpc.so_reuseport", 0),
            ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a packed message has no bound
        ]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=self._listening.connections)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._handlers()),))
        place = f"{self._listening.host}:{self._listening.port}"
        if self._credentials is None:
            self.port = server.add_insecure_port(place)
        else:
            self.port = server.add_secure_port(place, self._credentials)
        await server.start()
        try:
            await stop.wait()
        finally:
            await server.stop(_DRAIN_S)

    def _handlers(self) -> dict[str, Any]:
        # Each is one message in and one out. As streams they are read when there is room, and not before.
        return {
            name: grpc.stream_unary_rpc_method_handler(
                self._handler(name, make), response_serializer=lambda message: message.SerializeToString()
            )
            for name, make in _CALLS.items()
        }

    def _handler(self, name: str, make: Callable[[Any, Answered], Any]) -> Any:
        async def handle(requests: AsyncIterator[bytes], context: Any) -> Any:
            request = await self._read(name, requests, context)
            try:
                reply = await self._ask(_http(name, request, translated.headers(context.invocation_metadata() or ())))
            except RequestRefusedError as fault:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(fault))
            if reply.status != 200 and not (name in _HEALTH and reply.status in _NOT_READY):
                await _refuse(context, reply)
            return make(request, reply)

        return handle

    async def _read(self, name: str, requests: AsyncIterator[bytes], context: Any) -> Any:
        """Return a call's message, which comes within its time."""
        async with self._reading:
            try:
                async with asyncio.timeout(self._within_s):
                    data = await anext(requests)
            except TimeoutError:
                await context.abort(_DEADLINE, f"the message did not come within {self._within_s:g} s")
            except StopAsyncIteration:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
        try:
            return MESSAGES[f"{name}Request"].FromString(data)
        except Exception:  # noqa: BLE001 - protobuf's own, which its releases name differently
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the message is no {name}Request")

    async def _ask(self, call: HttpCall) -> Answered:
        """Ask the application as a server of HTTP does."""
        sent: list[Mapping[str, Any]] = []
        body = [{"type": "http.request", "body": call.body, "more_body": False}]

        async def receive() -> Mapping[str, Any]:
            return body.pop() if body else {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": call.method, "path": call.path, "headers": call.headers, "query_string": b""}
        await self._application(scope, receive, send)
        start, *rest = sent
        return Answered(start["status"], dict(start["headers"]), b"".join([one["body"] for one in rest]))


async def _refuse(context: Any, reply: Answered) -> NoReturn:
    code, said = translated.refusal(reply)
    if retry := reply.headers.get(b"retry-after"):
        context.set_trailing_metadata((("retry-after", retry.decode()),))
    await context.abort(code, said)
    raise AssertionError  # abort raises


def _http(name: str, request: Any, headers: Sequence[tuple[bytes, bytes]]) -> HttpCall:
    """Return the request of HTTP that a call stands for."""
    if name == "ModelInfer":
        return translated.infer(request, headers)
    if name in _PATHS:
        return HttpCall("GET", _PATHS[name], headers)
    return HttpCall("GET", translated.model_path(request.name, request.version, _OF_MODEL[name]), headers)


def _metadata(_: Any, reply: Answered) -> Any:
    told = orjson.loads(reply.body)
    fields = {name: told[name] for name in ("name", "versions", "platform", "inputs", "outputs")}
    return MESSAGES["ModelMetadataResponse"](**fields)


def _config(_: Any, reply: Answered) -> Any:
    told = orjson.loads(reply.body)
    return MESSAGES["ModelConfigResponse"](config={"name": told["name"], "platform": told["platform"]})


def _as_json(name: str) -> Callable[[Any, Answered], Any]:
    return lambda _, reply: MESSAGES[name](**orjson.loads(reply.body))


def _health(name: str, field: str) -> Callable[[Any, Answered], Any]:
    return lambda _, reply: MESSAGES[name](**{field: reply.status == 200})


_PATHS: Final = {"ServerLive": "/v2/health/live", "ServerReady": "/v2/health/ready", "ServerMetadata": "/v2"}
_OF_MODEL: Final = {"ModelReady": "/ready", "ModelMetadata": "", "ModelConfig": "", "ModelStatistics": "/stats"}
_NOT_READY: Final = frozenset({404, 503})
_HEALTH: Final = frozenset({"ServerLive", "ServerReady", "ModelReady"})
_CALLS: Final[Mapping[str, Callable[[Any, Answered], Any]]] = {
    "ServerLive": _health("ServerLiveResponse", "live"),
    "ServerReady": _health("ServerReadyResponse", "ready"),
    "ModelReady": _health("ModelReadyResponse", "ready"),
    "ServerMetadata": _as_json("ServerMetadataResponse"),
    "ModelMetadata": _metadata,
    "ModelConfig": _config,
    "ModelStatistics": _as_json("ModelStatisticsResponse"),
    "ModelInfer": lambda _, reply: translated.inferred(reply),
}


def _credentials(listening: Listening) -> Any:
    if listening.certificate is None:
        return None
    certificate = listening.certificate.read_bytes()
    key = certificate if listening.key is None else listening.key.read_bytes()
    return grpc.ssl_server_credentials([(key, certificate)])
