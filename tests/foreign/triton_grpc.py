"""What a user of Triton's client would write, over gRPC; `python triton_grpc.py HOST:PORT`."""

import asyncio
import sys
from functools import partial
from queue import Queue

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

ADDRESS = sys.argv[1]
ROWS = np.arange(8, dtype=np.float32).reshape(4, 2)
WANTED = ([*range(1, 17)], [*range(-1, 15)])


def check(result: object) -> None:
    """Each row's answer is that of the model that was asked."""
    for row, answer, decision in zip(ROWS, result.as_numpy("answer"), result.as_numpy("decision"), strict=True):
        assert answer == (row.sum() + (decision == b"wrong")) % 2, (row, answer, decision)
    assert result.as_numpy("probability").min() > 0


def pair(datatype: str, numbers: np.ndarray, module: object = triton) -> tuple[list[object], list[object]]:
    """Return the inputs and outputs of Triton's model `simple`."""
    inputs = [module.InferInput(f"INPUT{at}", [1, 16], datatype) for at in (0, 1)]
    inputs[0].set_data_from_numpy(numbers)
    inputs[1].set_data_from_numpy(np.full_like(numbers, b"1" if datatype == "BYTES" else 1))
    return inputs, [module.InferRequestedOutput(f"OUTPUT{at}") for at in (0, 1)]


def sums(result: object) -> tuple[list[int], list[int]]:
    """Return both outputs as whole numbers."""
    return tuple([int(one) for one in result.as_numpy(f"OUTPUT{at}")[0]] for at in (0, 1))


def refused(name: str, **more: object) -> triton.InferenceServerException:
    """Return the error of a request."""
    try:
        client.infer(name, [tensor], **more)
    except triton.InferenceServerException as error:
        return error
    raise AssertionError(f"{name} answers")


async def asynchronously() -> None:
    """Its client for asyncio, too."""
    async with triton_aio.InferenceServerClient(ADDRESS) as there:
        assert await there.is_server_ready()
        inputs, outputs = pair("INT32", np.arange(16, dtype=np.int32).reshape(1, 16), triton_aio)
        assert sums(await there.infer("simple", inputs, outputs=outputs)) == WANTED


client = triton.InferenceServerClient(ADDRESS)
assert client.is_server_live()
assert client.is_server_ready()
assert client.is_model_ready("parity")
assert not client.is_model_ready("none")
assert client.get_server_metadata().name == "skysail"
about = client.get_model_metadata("parity", as_json=True)
assert about["inputs"] == [{"name": "input", "datatype": "FP32", "shape": ["-1", "2"]}], about
assert client.get_model_config("parity").config.name == "parity"
tensor = triton.InferInput("input", [4, 2], "FP32")
tensor.set_data_from_numpy(ROWS)
first = client.infer("parity", [tensor], request_id="rpc", parameters={"context": "ann"}, priority=3)
check(first)
assert first.get_response().id == "rpc"
again = client.infer("parity", [tensor], request_id="rpc", parameters={"context": "ann"}, priority=3)
assert (again.as_numpy("query_id") == first.as_numpy("query_id")).all()
answered: Queue[tuple[object, object]] = Queue()
client.async_infer("parity", [tensor], partial(lambda into, result, error: into.put((result, error)), answered))
result, error = answered.get(timeout=60)
assert error is None, error
check(result)
(statistics,) = client.get_inference_statistics("parity").model_stats
assert statistics.inference_count >= 8, statistics
assert refused("none").message().startswith("Request for unknown model"), refused("none")
assert refused("none").status() == "StatusCode.NOT_FOUND"
assert refused("parity", request_id="rpc").status() == "StatusCode.ALREADY_EXISTS"  # with another context
assert "UNIMPLEMENTED" in refused("parity", compression_algorithm="gzip").status()
numbers = np.arange(16, dtype=np.int32).reshape(1, 16)
inputs, outputs = pair("INT32", numbers)
assert sums(client.infer("simple", inputs, outputs=outputs)) == WANTED
assert sums(client.infer("simple", inputs)) == WANTED
inputs, outputs = pair("BYTES", np.array([[str(one).encode() for one in numbers[0]]], dtype=np.object_))
assert sums(client.infer("simple_string", inputs, outputs=outputs)) == WANTED
asyncio.run(asynchronously())
