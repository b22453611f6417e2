"""Models of several named inputs and outputs in a whole deployment: Skysail's client, Triton's, feedback."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import pytest_asyncio
from sklearn.linear_model import LinearRegression

from deploy.errors import UsageError
from deploy.local.process import free_port
from deploy.state import desired
from deploy.state.packages import model_record
from policies.errors import PolicyError
from schemas import topics
from schemas.records import Model, NamedTensors, Observations, Prediction
from tests import pairs
from tests.deployments import PATIENT_MS, Deployed
from tests.integration.test_foreign_clients import PROGRAMS, interpreter, run
from tests.integration.test_gateway import served
from workers.packages.packaging import package_onnx, package_sklearn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
pytestmark = pytest.mark.asyncio(loop_scope="module")
FIRST = np.arange(48, dtype=np.float32).reshape(3, pairs.WIDTH)
SECOND = np.full_like(FIRST, 2)
WEIGHTS = np.array([[1.0, 3.0], [2.0, 4.0]])  # of two numbers, for each of two targets


class Served(NamedTuple):
    """A deployment, and where its gateway listens."""

    there: Deployed
    http: int
    rpc: int


def packaged(folder: Path) -> dict[str, Any]:
    """Package a graph of two inputs and outputs, and a regression on two targets."""
    sample = {"INPUT0": FIRST, "INPUT1": SECOND}
    package_onnx(pairs.write(folder / "pairs.onnx"), folder / "pairs", "pairs", "1", sample, output="tensors")
    rows = np.random.default_rng(0).normal(size=(30, 2))
    package_sklearn(LinearRegression().fit(rows, rows @ WEIGHTS), folder / "heights", "heights", "1", rows[:5])
    return {name: folder / name for name in ("pairs", "heights")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(
    kafka: Broker, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """The deployment that all tests ask."""
    folder = tmp_path_factory.mktemp("tensors")
    usual: dict[str, Any] = {"slo_ms": PATIENT_MS, "policy": "single"}
    applications = {
        "pairs": {"models": ["pairs"], "loss": "absolute", "span": 10.0, **usual},
        "heights": {"models": ["heights"], **usual},
    }
    gateway = {"grpc_port": free_port()}
    more = {"models": packaged(folder), "applications": applications, "gateway": gateway}
    async with served(kafka, redis_server.url, f"t{folder.stat().st_ino}", folder, **more) as (there, _):
        yield Served(there, there.settings.gateway.port, gateway["grpc_port"])


def tensors(prediction: Prediction | Exception) -> dict[str, Any]:
    """Return the tensors of an answer."""
    assert isinstance(prediction, Prediction), prediction
    assert isinstance(prediction.answer, NamedTensors), prediction
    return prediction.answer.arrays()


async def test_a_client_gives_arrays_by_name_and_gets_such(door: Served) -> None:
    """One row, and many as arrays whose first dimension is rows."""
    client = door.there.client
    found = tensors(await client.predict("pairs", {"INPUT0": FIRST[1], "INPUT1": SECOND[1].tolist()}))
    np.testing.assert_array_equal(found["OUTPUT0"], FIRST[1] + 2)
    np.testing.assert_array_equal(found["OUTPUT1"], FIRST[1] - 2)
    many = await client.predict_many("pairs", {"INPUT0": FIRST, "INPUT1": SECOND})
    np.testing.assert_array_equal([tensors(one)["OUTPUT1"] for one in many], FIRST - 2)


async def test_a_row_that_does_not_fit_is_told_what_is_taken(door: Served) -> None:
    """As for any model."""
    found = await door.there.client.predict("pairs", {"INPUT0": FIRST[1]})
    assert found.reason == "invalid_input"
    assert "takes INPUT0 float32[16], INPUT1 float32[16], got INPUT0 float32[16]" in found.message


async def test_two_targets_are_a_vector(door: Served) -> None:
    """Of an estimator that answers several numbers."""
    found = tensors(await door.there.client.predict("heights", [1.0, 1.0]))
    np.testing.assert_allclose(found["answer"], WEIGHTS.sum(axis=0), atol=1e-6)


async def test_a_label_that_names_an_output_is_learnt_from(door: Served) -> None:
    """The loss is that of the outputs that it names: here each number is 1 off, of a span of 10."""
    prediction = await door.there.client.predict("pairs", {"INPUT0": FIRST[0], "INPUT1": SECOND[0]})
    await door.there.client.feedback(prediction, label={"OUTPUT1": FIRST[0] - 3})

    def losses() -> list[float | None]:
        batches = door.there.watch.decoded(Observations, topics.OBSERVATIONS)
        items = itertools.chain.from_iterable(batch.items for batch in batches)
        return [one.loss for one in items if one.query_id == prediction.query_id]

    (loss,) = await door.there.watch.until(losses, "it is observed")
    assert loss == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["http", "grpc"])
async def test_tritons_client_gives_and_gets_several_tensors(door: Served, kind: str) -> None:
    """Metadata, binary and JSON tensors, other orders and types, refusals; unchanged, over both protocols."""
    python = interpreter("gateway-clients" if kind == "http" else "gateway-grpc")
    await run(python, PROGRAMS / "triton_tensors.py", kind, f"127.0.0.1:{door.http if kind == 'http' else door.rpc}")


async def test_an_ensemble_of_several_tensors_is_refused(door: Served) -> None:
    """When it is configured, with what to do."""
    (application,) = [one for one in desired.applications(door.there.settings) if one.name == "pairs"]
    known: dict[str, Model] = {"pairs": model_record(door.there.settings.models["pairs"])}
    assert desired.checked(application, known) is application
    from dataclasses import replace

    with pytest.raises((PolicyError, UsageError), match="take a policy that asks one model"):
        desired.checked(replace(application, policy="exp4", parameters={}), known)
