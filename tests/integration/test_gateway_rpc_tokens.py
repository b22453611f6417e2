"""Whose token opens which method of the gateway's door of gRPC: nobody's, another application's and its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from streams.gateway.rpc.messages import MESSAGES
from tests.integration.test_gateway_rpc import Stub, asking, serving
from tests.unit.streams.gateway.test_tokens import OTHERS, OWN, served, written

if TYPE_CHECKING:
    from collections.abc import Mapping

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
# What each method takes about the application `iris`.
NAMED: Mapping[str, Mapping[str, Any]] = {
    "ModelReady": {"name": "iris"},
    "ModelMetadata": {"name": "iris"},
    "ModelConfig": {"name": "iris"},
    "ModelStatistics": {"name": "iris"},
    "ModelInfer": asking(),
}
OPEN = ("ServerLive", "ServerReady", "ServerMetadata")
UNKNOWN = (None, "0123456789abcdef-none", OWN[:-1], OWN.upper(), "")


def by(token: str | None, name: str = "authorization") -> tuple[tuple[str, str], ...]:
    """Return a call's metadata with a token."""
    return () if token is None else ((name, f"Bearer {token}" if name == "authorization" else token),)


async def refusal(stub: Stub, method: str, token: str | None, **more: Any) -> grpc.StatusCode:
    """Return how a call is refused."""
    return (await stub.refused(method, metadata=by(token), **{**NAMED[method], **more}))[0]


def test_every_method_is_in_the_table() -> None:
    """One that is added has to say whom it is for."""
    assert {name.removesuffix("Request") for name in MESSAGES if name.endswith("Request")} == {*NAMED, *OPEN}


@pytest.mark.parametrize("method", NAMED)
async def test_without_a_known_token_a_method_is_refused(method: str) -> None:
    """And nothing is written."""
    async with serving(there := served()) as stub:
        assert [await refusal(stub, method, token) for token in UNKNOWN] == [UNAUTHENTICATED] * len(UNKNOWN)
        assert written(there) == 0


@pytest.mark.parametrize("method", NAMED)
async def test_another_application_s_token_is_refused_by_every_method(method: str) -> None:
    """And nothing is written; its own token is let in, in each place where a token may stand."""
    async with serving(there := served()) as stub:
        assert await refusal(stub, method, OTHERS) is DENIED
        assert written(there) == 0
        for place in ("authorization", "api-key", "ocp-apim-subscription-key"):
            await stub.call(method, metadata=by(OWN, place), **NAMED[method])
        assert written(there) == (3 if method == "ModelInfer" else 0)


@pytest.mark.parametrize(
    "model",
    [("", ""), ("iris/stats", ""), ("other/../iris", ""), ("/iris", ""), ("iris", "3/stats"), ("other", "../../iris")],
)
@pytest.mark.parametrize("method", NAMED)
async def test_a_name_that_is_a_path_is_refused(method: str, model: tuple[str, str]) -> None:
    """Names become paths, so a slash would lead elsewhere; no name at all leads to the list of all."""
    names = ("model_name", "model_version") if method == "ModelInfer" else ("name", "version")
    fields = dict(zip(names, model, strict=True))
    async with serving(there := served()) as stub:
        for token in (OWN, OTHERS):
            assert await refusal(stub, method, token, **fields) is grpc.StatusCode.INVALID_ARGUMENT
        assert written(there) == 0


@pytest.mark.parametrize("method", OPEN)
async def test_what_is_open_asks_for_no_token(method: str) -> None:
    """Whoever reaches the gateway may see that it lives, and its version; a token changes nothing."""
    async with serving(there := served()) as stub:
        replies = [
            await stub.call(method, metadata=by(token)) for token in (None, OWN, OTHERS, "0123456789abcdef-none")
        ]
        assert all(reply == replies[0] for reply in replies)
        assert written(there) == 0
