"""The gateway's OpenAPI document: it has each route, and what it promises is so."""

from __future__ import annotations

from typing import Any

import pytest

from streams.gateway import routes
from streams.gateway.protocol import openapi
from streams.gateway.routes import Router
from tests.unit.streams.gateway.requests import Served


def test_each_route_is_in_the_document_and_each_path_is_a_route() -> None:
    """By the method, and with what stands behind it."""
    named = {"application": "iris", "version": "3", "event": "e"}
    found = set()
    for one in openapi.OPERATIONS:
        route = Router().find(one.method.upper(), one.path.format(**named))
        assert (route.door, route.what) == (one.door, one.what)
        found.add((one.method.upper(), route.door, route.what))
    assert found == {(method, door, what) for method, _, door, what in routes.TABLE}


async def test_it_is_served_and_all_its_references_lead_somewhere() -> None:
    """To schemas of its own."""
    async with Served() as there:
        told = (await there.request("GET", "/openapi.json")).json
    known, used = told["components"]["schemas"], set[str]()

    def follow(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                used.add(node["$ref"].removeprefix("#/components/schemas/"))
            for one in node.values():
                follow(one)
        elif isinstance(node, list):
            for one in node:
                follow(one)

    follow(told)
    assert used == {*known}
    assert told["info"]["version"] == "1.2.3"


@pytest.mark.parametrize("path", ["/v2", "/v2/models", "/v2/models/iris", "/v2/models/iris/stats", "/v2/health/ready"])
async def test_replies_have_what_it_requires(path: str) -> None:
    """Each member that it says is always there."""
    (one,) = [one for one in openapi.OPERATIONS if one.path.replace("{application}", "iris") == path]
    async with Served() as there:
        reply = await there.request("GET", path)
    assert reply.status == one.status
    assert {*openapi.SCHEMAS[str(one.gives)]["required"]} <= reply.json.keys()


@pytest.mark.parametrize("more", [{"outputs": {}}, {"parameters": []}, {"parameters": {"top": 0}}])
async def test_what_it_rules_out_is_refused(more: dict[str, Any]) -> None:
    """Also what is empty."""
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    async with Served() as there:
        assert (await there.post("/v2/models/iris/infer", body)).status == 200
        assert (await there.post("/v2/models/iris/infer", body | more)).status == 400


async def test_another_method_is_told_which_there_are() -> None:
    """In the header that HTTP has for that, too."""
    async with Served() as there:
        for path, methods in (("/v2/health/live", b"GET, HEAD"), ("/v2/models/iris/infer", b"POST")):
            refused = await there.request("PATCH", path)
            assert (refused.status, refused.headers[b"allow"]) == (405, methods)
