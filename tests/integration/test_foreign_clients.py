"""Client libraries by other people, as they are, against the gateway of a whole deployment.

Each is installed into an environment of its own, as the peers of `load.research` are. `tests/foreign/` has what a user
of theirs would write; it ends with an error where something is not as it has to be. `FOREIGN_CLIENTS=1` fetches large
packages, too: 450 MB for KServe's client, 300 MB for MLflow's. `TRITON_EXAMPLES=FOLDER` runs Triton's own
example scripts (`src/python/examples` of its client's repository, which no package carries).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import orjson
import pytest
import pytest_asyncio

from deploy.local.process import free_port
from load.errors import PeerUnavailableError
from load.research.peers import environments
from streams.gateway.rpc.messages import MESSAGES
from tests.deployments import PATIENT_MS, UNTIL_S, Toy
from tests.integration.test_gateway import APPLICATION, MODELS, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROGRAMS = Path(__file__).parents[1] / "foreign"
TEXT = '{"INPUT0": [1], "INPUT1": [2]}'
PAIRS = {"sums": Toy("tests.toys:sums", [TEXT]), "same": Toy("tests.toys:same", [TEXT])}
# Not `health_metadata`: it wants a server that calls itself `triton`. What else it asks is in our own programs.
EXAMPLES = ("infer_client", "async_infer_client", "aio_infer_client", "string_infer_client")


class Ports(NamedTuple):
    """Where the gateway listens."""

    http: int
    rpc: int


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ports(
    kafka: Broker, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ports]:
    """Where the gateway listens; its applications are `parity`, which paths without a name mean, and Triton's own."""
    pairs = {name: {"models": ["sums"], "slo_ms": PATIENT_MS} for name in ("simple", "simple-string")}
    applications = {"parity": APPLICATION, **pairs, "simple-identity": {"models": ["same"], "slo_ms": PATIENT_MS}}
    gateway = {"application": "parity", "grpc_port": free_port()}
    more = {"models": MODELS | PAIRS, "applications": applications, "gateway": gateway}
    folder = tmp_path_factory.mktemp("foreign")
    async with served(kafka, redis_server.url, f"t{folder.stat().st_ino}", folder, **more) as (there, _):
        yield Ports(there.settings.gateway.port, gateway["grpc_port"])


def interpreter(name: str, megabytes: int = 0) -> Path:
    """Return the interpreter of an environment with foreign packages; large ones are fetched only if that is wanted."""
    if megabytes and not os.environ.get("FOREIGN_CLIENTS") and environments.found(name) is None:
        pytest.skip(f"{name} is not installed: FOREIGN_CLIENTS=1 fetches it ({megabytes} MB)")
    try:
        return environments.ensure(name, lambda _: None)
    except PeerUnavailableError as fault:
        pytest.skip(f"{name} {fault}")


async def run(python: Path, program: Path, *arguments: str) -> None:
    """Run a program; fails with what it says."""
    process = await asyncio.create_subprocess_exec(
        str(python), str(program), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said


async def test_tritons_client_is_served(ports: Ports) -> None:
    """Health, metadata, JSON and binary tensors, packed bodies, repeated requests, statistics, errors, examples."""
    await run(interpreter("gateway-clients"), PROGRAMS / "triton_http.py", f"127.0.0.1:{ports.http}")


async def test_tritons_client_is_served_over_grpc(ports: Ports) -> None:
    """Health, metadata, configuration, statistics, requests of all kinds, errors."""
    await run(interpreter("gateway-grpc"), PROGRAMS / "triton_grpc.py", f"127.0.0.1:{ports.rpc}")


async def test_the_messages_of_grpc_are_tritons() -> None:
    """By name, number and type of each field."""
    table = {
        name: [[one.name, one.number, one.type, one.is_repeated] for one in message.DESCRIPTOR.fields]
        for name, message in MESSAGES.items()
    }
    await run(interpreter("gateway-grpc"), PROGRAMS / "triton_messages.py", orjson.dumps(table).decode())


@pytest.mark.parametrize("door", ["http", "grpc"])
@pytest.mark.parametrize("name", EXAMPLES)
async def test_tritons_example_scripts_pass(ports: Ports, door: str, name: str) -> None:
    """Unchanged, from a checkout of theirs."""
    folder = os.environ.get("TRITON_EXAMPLES")
    if not folder:
        pytest.skip("no package carries them: TRITON_EXAMPLES names their folder in a checkout")
    address = f"127.0.0.1:{ports.http if door == 'http' else ports.rpc}"
    python = interpreter("gateway-clients" if door == "http" else "gateway-grpc")
    await run(python, Path(folder) / f"simple_{door}_{name}.py", "-u", address)


async def test_kserves_client_is_served(ports: Ports) -> None:
    """In Open Inference v2 and in its older protocol."""
    await run(interpreter("gateway-kserve", 450), PROGRAMS / "kserve_rest.py", f"http://127.0.0.1:{ports.http}")


async def test_mlflows_client_is_served(ports: Ports) -> None:
    """Data frames, arrays and lists."""
    await run(interpreter("gateway-mlflow", 300), PROGRAMS / "mlflow_scoring.py", "127.0.0.1", str(ports.http))


# As okhttp 4.12 writes what `TritonInferenceModelFunction` of Apache Flink's module flink-model-triton builds, by its
# sources: at commit 000c4e98 names are in capitals and the version is `latest`; at 8064017e names stay as they are, and
# without a version the path has none.
TENSOR = '{"name":"%s","datatype":"FP32","shape":[1,2],"data":[3.0,2.0]}'
CAPITALS = f'{{"parameters":{{"priority":5}},"inputs":[{TENSOR % "INPUT"}],"outputs":[{{"name":"ANSWER"}}]}}'
AS_NAMED = f'{{"id":"orders-0-17","inputs":[{TENSOR % "input"}],"outputs":[{{"name":"answer"}}]}}'
FLINK = {
    "2.3": ("POST /v2/models/parity/versions/latest/infer HTTP/1.1", CAPITALS),
    "later": ("POST /v2/models/parity/infer HTTP/1.1", AS_NAMED),
}


@pytest.mark.parametrize("version", FLINK)
async def test_a_request_of_flinks_ml_predict_is_answered(ports: Ports, version: str) -> None:
    """Byte for byte; it reads the first of `outputs`, and the first value of that."""
    line, body = FLINK[version]
    head = (
        f"{line}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"Host: 127.0.0.1:{ports.http}\r\nConnection: Keep-Alive\r\nAccept-Encoding: gzip\r\n"
        "User-Agent: okhttp/4.12.0\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
    writer.write((head + body).encode())
    told = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), UNTIL_S)
    assert told.startswith(b"HTTP/1.1 200 "), told
    length = next(int(one[16:]) for one in told.split(b"\r\n") if one.startswith(b"content-length: "))
    reply = orjson.loads(await reader.readexactly(length))
    writer.close()
    assert len(reply["outputs"]) == 1
    assert reply["outputs"][0]["data"][0] in {0, 1}


async def test_a_client_of_personalizer_moves_by_its_address(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Its rewards teach which action is better, and that one is shown from then on."""
    loop = {"models": ["right", "wrong"], "policy": "thompson", "loss": "given", "slo_ms": PATIENT_MS}
    tokens = tmp_path / "tokens"
    tokens.write_text("0123456789abcdef shop\n")
    more = {"applications": {"shop": loop}, "gateway": {"tokens_file": str(tokens)}}
    async with served(kafka, redis_server.url, prefix, tmp_path, **more) as (there, _):
        address = f"http://127.0.0.1:{there.settings.gateway.port}"
        await run(interpreter("gateway-clients"), PROGRAMS / "personalizer.py", address, str(UNTIL_S))
