"""The gateway's door of gRPC on a real port: what calls become, errors, tokens, bounds, TLS."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
import trustme

from deploy.local.process import free_port
from schemas.records import Status
from streams.gateway.rpc.messages import MESSAGES, SERVICE
from streams.gateway.rpc.server import RpcServer
from streams.gateway.server import Listening
from tests.unit.streams.gateway.requests import Served, predicted, row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from schemas.records import Prediction, Query

TOKEN = "0123456789abcdef"


class Stub:
    """Calls one server."""

    def __init__(self, port: int, credentials: grpc.ChannelCredentials | None = None) -> None:
        place, options = f"127.0.0.1:{port}", [("grpc.max_send_message_length", -1)]
        secure = grpc.aio.secure_channel
        insecure = grpc.aio.insecure_channel(place, options)
        self.channel = insecure if credentials is None else secure(place, credentials, options)

    async def call(self, method: str, metadata: Sequence[tuple[str, str]] = (), **fields: Any) -> Any:
        """Call a method."""
        ask = self.channel.unary_unary(
            f"/{SERVICE}/{method}",
            lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            MESSAGES[f"{method}Response"].FromString,
        )
        request = fields["raw"] if "raw" in fields else MESSAGES[f"{method}Request"](**fields)
        return await ask(request, metadata=metadata, timeout=30, wait_for_ready=True)

    async def refused(self, method: str, **fields: Any) -> tuple[grpc.StatusCode, str]:
        """Call a method that is refused; returns how."""
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.call(method, **fields)
        return refused.value.code(), refused.value.details() or ""


@asynccontextmanager
async def serving(
    there: Served, message_bytes: int = 4_096, reading: int = 4, trusting: Any = None, **more: Any
) -> AsyncIterator[Stub]:
    """Serve an application; yields a stub that calls it."""
    port, stop = free_port(), asyncio.Event()
    server = RpcServer(there.application, Listening("127.0.0.1", port, **more), message_bytes, reading)
    stub = Stub(port, trusting)
    async with there:
        running = asyncio.create_task(server.run(stop))
        try:
            yield stub
        finally:
            await stub.channel.close()
            stop.set()
            await running


def tensor(datatype: str = "FP32", shape: Sequence[int] = (1, 4), **contents: Any) -> dict[str, Any]:
    """Return an input."""
    more = {"contents": contents} if contents else {}
    return {"name": "input", "datatype": datatype, "shape": shape, **more}


def asking(**more: Any) -> dict[str, Any]:
    """Return a request of four numbers as bytes."""
    raw = np.array([1, 2, 3, 4], "<f4").tobytes()
    return {"model_name": "iris", "inputs": [tensor()], "raw_input_contents": [raw], **more}


async def test_health_and_metadata_are_told() -> None:
    """As over HTTP; an unknown model is not ready, and has no metadata."""
    async with serving(Served()) as stub:
        assert (await stub.call("ServerLive")).live
        assert (await stub.call("ServerReady")).ready
        assert (await stub.call("ModelReady", name="iris")).ready
        assert not (await stub.call("ModelReady", name="none")).ready
        assert (await stub.call("ServerMetadata")).version == "1.2.3"
        about = await stub.call("ModelMetadata", name="iris", version="3")
        assert (about.name, [*about.versions], [*about.inputs[0].shape]) == ("iris", ["3"], [-1, 4])
        assert (await stub.call("ModelConfig", name="iris")).config.platform == "skysail"
        code, said = await stub.refused("ModelMetadata", name="none")
        assert code is grpc.StatusCode.NOT_FOUND
        assert said.startswith("Request for unknown model")


async def test_a_row_is_asked_and_answered() -> None:
    """With its parameters and id; all outputs are bytes."""
    there = Served()
    parameters = {"context": {"string_param": "ann"}, "priority": {"int64_param": 3}, "slo_ms": {"double_param": 20.5}}
    async with serving(there) as stub:
        reply = await stub.call("ModelInfer", **asking(id="a", parameters=parameters))
        ((query,),) = there.asker.batches
        assert row(query.input) == [1, 2, 3, 4]
        assert (query.query_id, query.context, query.priority, query.slo_ms) == ("a", "ann", 3, 20.5)
        outputs = dict(zip([one.name for one in reply.outputs], reply.raw_output_contents, strict=True))
        assert (reply.id, reply.model_name, reply.model_version) == ("a", "iris", "3")
        assert np.frombuffer(outputs["answer"], "<i8").tolist() == [1]
        assert outputs["decision"] == b"\6\0\0\0forest"
        await stub.call("ModelInfer", **asking(id="a", parameters=parameters))
        assert len(there.asker.batches) == 1
        (one,) = (await stub.call("ModelStatistics", name="iris")).model_stats
        assert (one.inference_count, one.execution_count) == (1, 1)
        only = await stub.call("ModelInfer", **asking(outputs=[{"name": "confidence"}]))
        assert [one.name for one in only.outputs] == ["confidence"]


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (tensor(fp32_contents=[1, 2, 3, 0.5]), [1, 2, 3, 0.5]),
        (tensor("FP64", fp64_contents=[1, 2, 3, 0.1]), [1, 2, 3, 0.1]),
        (tensor("INT8", int_contents=[1, -2, 3, 127]), [1, -2, 3, 127]),
        (tensor("UINT64", uint64_contents=[1, 2, 3, 2**63]), [1, 2, 3, 2**63]),
        (tensor("BOOL", bool_contents=[True, False, True, True]), [True, False, True, True]),
    ],
)
async def test_values_may_come_as_lists(given: dict[str, Any], values: list[float]) -> None:
    """Of each type."""
    there = Served()
    async with serving(there) as stub:
        await stub.call("ModelInfer", model_name="iris", inputs=[given])
        ((query,),) = there.asker.batches
        assert row(query.input) == values


@pytest.mark.parametrize(
    "given",
    [
        {"inputs": [tensor("INT8", int_contents=[1, 2, 3, 128])]},
        {"inputs": [tensor("FP16", fp32_contents=[1, 2, 3, 4])]},
        {"inputs": [tensor(fp32_contents=[1, 2, 3])]},
        {"inputs": [tensor(), tensor()], "raw_input_contents": [b"1234"]},
        {"inputs": [tensor()], "raw_input_contents": [b"1234"]},
        {"inputs": []},
        {"raw": b"\xff\xff\xff"},
    ],
)
async def test_what_does_not_fit_is_refused(given: dict[str, Any]) -> None:
    """Nothing is asked."""
    there = Served()
    async with serving(there) as stub:
        code, _ = await stub.refused("ModelInfer", **({"model_name": "iris"} if "raw" not in given else {}), **given)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert not there.asker.batches


async def test_each_token_has_its_applications() -> None:
    """In the call's metadata; health asks for none."""
    async with serving(Served(tokens=f"{TOKEN} iris\nfedcba9876543210 other\n")) as stub:
        assert (await stub.call("ServerReady")).ready
        assert await stub.call("ModelInfer", metadata=(("authorization", f"Bearer {TOKEN}"),), **asking())
        other = (("authorization", "Bearer fedcba9876543210"),)
        assert (await stub.refused("ModelInfer", metadata=other, **asking()))[0] is grpc.StatusCode.PERMISSION_DENIED
        assert (await stub.refused("ModelInfer", **asking()))[0] is grpc.StatusCode.UNAUTHENTICATED
        assert (await stub.refused("ModelReady", name="iris"))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_overload_says_when_to_come_again() -> None:
    """As a status that clients may try again after."""

    def overloaded(query: Query) -> Prediction:
        return predicted(query, None, status=Status.DEFAULT, reason="overloaded")

    async with serving(Served(overloaded)) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.call("ModelInfer", **asking())
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert ("retry-after", "1") in [tuple(one) for one in refused.value.trailing_metadata()]


async def test_messages_are_bounded() -> None:
    """In bytes; in time, so that nobody holds the room to read by silence; packed ones are not read."""
    there = Served()
    async with serving(there, within_s=0.2, reading=1) as stub:
        large = asking(raw_input_contents=[b"x" * 8_192])
        assert (await stub.refused("ModelInfer", **large))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        silent = stub.channel.stream_unary(f"/{SERVICE}/ModelInfer")()
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await silent
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await stub.call("ModelInfer", **asking())
        packed = stub.channel.unary_unary(f"/{SERVICE}/ServerLive")
        with pytest.raises(grpc.aio.AioRpcError) as unread:
            await packed(b"", compression=grpc.Compression.Gzip, timeout=30)
        assert unread.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_it_speaks_tls(tmp_path: Path) -> None:
    """With the certificate of the settings."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "tls.pem", tmp_path / "tls.key"
    certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    trusting = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    async with serving(Served(), trusting=trusting, certificate=certificate, key=key) as stub:
        assert await stub.call("ModelInfer", **asking())


async def test_what_is_under_way_is_answered_when_it_stops() -> None:
    """For some seconds."""
    there, port, stop = Served(), free_port(), asyncio.Event()
    server = RpcServer(there.application, Listening("127.0.0.1", port), 4_096, 4)
    async with there:
        running = asyncio.create_task(server.run(stop))
        stub = Stub(port)
        there.asker.gate.clear()
        asked = asyncio.create_task(stub.call("ModelInfer", **asking()))
        while not there.asker.batches:  # noqa: ASYNC110 - a server tells nobody
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.sleep(0.05)
        there.asker.gate.set()
        assert await asked
        await running
        await stub.channel.close()
