"""schemathesis, as it is, against the gateway's own OpenAPI document: it draws requests, and checks the replies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from tests.integration.test_foreign_clients import interpreter
from tests.integration.test_gateway_server import serving
from tests.unit.streams.gateway.requests import Served

if TYPE_CHECKING:
    from pathlib import Path

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance,negative_data_rejection,unsupported_method"
)
EXAMPLES = 5
ROW = [5.1, 3.5, 1.4, 0.2]
TENSOR = {"name": "input", "datatype": "FP32", "shape": [1, 4], "data": ROW}
# Of each schema of a body one that `iris` answers: a program that draws numbers of any shape rarely does.
BODIES: dict[str, object] = {
    "Inference": {"inputs": [TENSOR], "outputs": [{"name": "answer"}], "parameters": {"context": "ann"}},
    "Predict": {"instances": [ROW]},
    "Invocation": {"dataframe_split": {"columns": ["a", "b", "c", "d"], "data": [ROW]}},
    "Rank": {"actions": [{"id": "forest", "features": [{"a": 1}]}], "contextFeatures": [{"day": "monday"}]},
    "Feedback": {"id": "q1", "label": 0},
    "Reward": {"value": 0.5},
}


def known(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose application is one that there is, with a body that it answers."""
    for operation in [each for path in document["paths"].values() for each in path.values()]:
        for parameter in operation.get("parameters", ()):
            if parameter["name"] == "application":
                parameter |= {"schema": {"enum": ["iris"]}, "example": "iris"}
            else:
                parameter["example"] = "3"
        if "requestBody" in operation:
            given = operation["requestBody"]["content"]["application/json"]
            given["example"] = BODIES[given["schema"]["$ref"].rpartition("/")[2]]
    return document


async def test_requests_that_a_program_draws_are_answered_as_the_document_says(tmp_path: Path) -> None:
    """No error of the server, no status, type or form that is not in it, and nothing is taken that it rules out."""
    python = interpreter("gateway-schemathesis")
    async with serving(Served(rows=100_000, each=1 << 20, together=64 << 20)) as (server, _):
        async with (
            aiohttp.ClientSession(server.address) as session,
            session.get("/openapi.json") as reply,
        ):
            (tmp_path / "openapi.json").write_bytes(orjson.dumps(known(await reply.json())))
        program = (str(python.with_name("schemathesis")), "run", "openapi.json", "--url", server.address)
        options = (
            "--checks",
            CHECKS,
            "--phases",
            "examples,coverage,fuzzing",
            "--max-examples",
            str(EXAMPLES),
            "--seed",
            "1",
        )
        process = await asyncio.create_subprocess_exec(
            *program, *options, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said
