"""Client libraries by other people, as they are, against the gateway: Triton's and Azure Personalizer's.

They are installed into an environment of their own, as the peers of `load.research` are. Each script below is what a
user of theirs would write; it ends with an error where something is not as it has to be.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from load.errors import PeerUnavailableError
from load.research.peers import environments
from tests.deployments import PATIENT_MS, UNTIL_S
from tests.integration.test_gateway import served

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

TRITON = """
import sys
import numpy as np
import tritonclient.http as triton

client = triton.InferenceServerClient(sys.argv[1], network_timeout=60, connection_timeout=60)
assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("parity") and not client.is_model_ready("none")
assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
about = client.get_model_metadata("parity")
assert about["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 2]}], about
rows = np.arange(8, dtype=np.float32).reshape(4, 2)


def check(result):
    answers, decisions = result.as_numpy("answer"), result.as_numpy("decision")
    for row, answer, decision in zip(rows, answers, decisions):
        name = decision.decode() if isinstance(decision, bytes) else decision
        assert answer == (row.sum() + (name == "wrong")) % 2, (row, answer, name)
    assert result.as_numpy("probability").min() > 0


for binary in (True, False):
    tensor = triton.InferInput("input", [4, 2], "FP32")
    tensor.set_data_from_numpy(rows, binary_data=binary)
    wanted = [triton.InferRequestedOutput(one["name"], binary_data=binary) for one in about["outputs"]]
    for packed in (None, "gzip", "deflate"):
        name = f"{binary}-{packed}"
        more = {"request_id": name, "request_compression_algorithm": packed, "parameters": {"context": "ann"}}
        found = client.infer("parity", [tensor], outputs=wanted, **more)
        check(found)
        assert found.get_response()["id"] == name
        again = client.infer("parity", [tensor], outputs=wanted, **more)
        assert (again.as_numpy("query_id") == found.as_numpy("query_id")).all()
    check(client.infer("parity", [tensor]))
    check(client.async_infer("parity", [tensor]).get_result())
statistics = client.get_inference_statistics("parity")["model_stats"]
assert len(statistics) == 1 and statistics[0]["inference_count"] >= 40, statistics
try:
    client.infer("none", [tensor])
except triton.InferenceServerException as error:
    assert "there is no application 'none'" in str(error), error
else:
    raise AssertionError("an unknown model answers")
"""

PERSONALIZER = """
import sys
import time
import uuid
from azure.cognitiveservices.personalizer import PersonalizerClient
from azure.cognitiveservices.personalizer.models import RankableAction, RankRequest
from msrest.authentication import CognitiveServicesCredentials

client = PersonalizerClient(sys.argv[1], CognitiveServicesCredentials("0123456789abcdef"))
actions = [RankableAction(id=name, features=[{"kind": name}]) for name in ("right", "wrong")]
shown, end = [], time.monotonic() + float(sys.argv[2])
while shown[-40:].count("wrong") < 36:
    assert time.monotonic() < end, shown
    event = uuid.uuid4().hex
    ranked = client.rank(RankRequest(actions=actions, context_features=[{"day": "monday"}], event_id=event))
    assert ranked.event_id == event
    assert [one.id for one in ranked.ranking][0] == ranked.reward_action_id
    assert abs(sum(one.probability for one in ranked.ranking) - 1) < 1e-6
    client.events.reward(event_id=event, value=float(ranked.reward_action_id == "wrong"))
    client.events.activate(event_id=event)
    shown.append(ranked.reward_action_id)
    time.sleep(0.02)
"""


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of an environment with their libraries."""
    try:
        return environments.ensure("gateway-clients", lambda _: None)
    except PeerUnavailableError as fault:
        pytest.skip(f"client libraries {fault}")


async def run(python: Path, program: str, *arguments: str) -> None:
    """Run a program; fails with what it says."""
    process = await asyncio.create_subprocess_exec(
        str(python), "-c", program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said


async def test_tritons_client_is_served(
    python: Path, kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Health, metadata, JSON and binary tensors, packed bodies, repeated requests, statistics, errors."""
    async with served(kafka, redis_server.url, prefix, tmp_path) as (there, _):
        await run(python, TRITON, f"127.0.0.1:{there.settings.gateway.port}")


async def test_a_client_of_personalizer_moves_by_its_address(
    python: Path, kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Its rewards teach which action is better, and that one is shown from then on."""
    loop = {"models": ["right", "wrong"], "policy": "thompson", "loss": "given", "slo_ms": PATIENT_MS}
    tokens = tmp_path / "tokens"
    tokens.write_text("0123456789abcdef shop\n")
    more = {"applications": {"shop": loop}, "gateway": {"tokens_file": str(tokens)}}
    async with served(kafka, redis_server.url, prefix, tmp_path, **more) as (there, _):
        await run(python, PERSONALIZER, f"http://127.0.0.1:{there.settings.gateway.port}", str(UNTIL_S))
