"""What a user of Triton's client would write, over HTTP; `python triton_http.py HOST:PORT`."""

import asyncio
import sys

import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio

ADDRESS = sys.argv[1]
ROWS = np.arange(8, dtype=np.float32).reshape(4, 2)


def check(result: object) -> None:
    """Each row's answer is that of the model that was asked."""
    answers, decisions = result.as_numpy("answer"), result.as_numpy("decision")
    for row, answer, decision in zip(ROWS, answers, decisions, strict=True):
        name = decision.decode() if isinstance(decision, bytes) else decision
        assert answer == (row.sum() + (name == "wrong")) % 2, (row, answer, name)
    assert result.as_numpy("probability").min() > 0


def refused(name: str, tensors: list[object]) -> str:
    """Return what is said of an unknown model."""
    try:
        client.infer(name, tensors)
    except triton.InferenceServerException as error:
        return error.message()
    raise AssertionError("an unknown model answers")


def pair(datatype: str, numbers: np.ndarray, module: object = triton) -> tuple[list[object], list[object]]:
    """Return the inputs and outputs of Triton's model `simple`: one of each as JSON, the other as bytes."""
    inputs = [module.InferInput(f"INPUT{at}", [1, 16], datatype) for at in (0, 1)]
    inputs[0].set_data_from_numpy(numbers, binary_data=False)
    inputs[1].set_data_from_numpy(np.full_like(numbers, b"1" if datatype == "BYTES" else 1), binary_data=True)
    return inputs, [module.InferRequestedOutput(f"OUTPUT{at}", binary_data=at == 0) for at in (0, 1)]


def sums(result: object) -> tuple[list[int], list[int]]:
    """Return both outputs as whole numbers."""
    return tuple([int(one) for one in result.as_numpy(f"OUTPUT{at}")[0]] for at in (0, 1))


def examples() -> None:
    """Do what its example scripts do: infer, asynchronous, texts; two tensors in, two out."""
    numbers = np.arange(16, dtype=np.int32).reshape(1, 16)
    wanted = ([*range(1, 17)], [*range(-1, 15)])
    inputs, outputs = pair("INT32", numbers)
    query = {"test_1": 1, "test_2": 2}
    assert sums(client.infer("simple", inputs, outputs=outputs, query_params=query)) == wanted
    assert sums(client.infer("simple", inputs)) == wanted
    waiting = [client.async_infer("simple", inputs, outputs=outputs) for _ in range(4)]
    assert [sums(one.get_result()) for one in waiting] == [wanted] * 4
    texts = np.array([[str(one).encode() for one in numbers[0]]], dtype=np.object_)
    inputs, outputs = pair("BYTES", texts)
    assert sums(client.infer("simple_string", inputs, outputs=outputs)) == wanted
    blob = np.array([[b"he\x00llo"] * 16], dtype=np.object_)
    same = triton.InferInput("INPUT0", blob.shape, "BYTES")
    same.set_data_from_numpy(blob)
    assert (client.infer("simple_identity", [same]).as_numpy("OUTPUT0") == blob).all()


async def asynchronously() -> None:
    """Its client for asyncio, too."""
    async with triton_aio.InferenceServerClient(ADDRESS) as there:
        assert await there.is_server_ready()
        inputs, outputs = pair("INT32", np.arange(16, dtype=np.int32).reshape(1, 16), triton_aio)
        found = await there.infer("simple", inputs, outputs=outputs)
        assert sums(found) == ([*range(1, 17)], [*range(-1, 15)])


client = triton.InferenceServerClient(ADDRESS, network_timeout=60, connection_timeout=60)
assert client.is_server_live()
assert client.is_server_ready()
assert client.is_model_ready("parity")
assert not client.is_model_ready("none")
assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
about = client.get_model_metadata("parity", query_params={"test_1": 1})
assert about["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 2]}], about
for binary in (True, False):
    tensor = triton.InferInput("input", [4, 2], "FP32")
    tensor.set_data_from_numpy(ROWS, binary_data=binary)
    every = [triton.InferRequestedOutput(one["name"], binary_data=binary) for one in about["outputs"]]
    for packed in (None, "gzip", "deflate"):
        name = f"{binary}-{packed}"
        more = {"request_id": name, "request_compression_algorithm": packed, "parameters": {"context": "ann"}}
        first = client.infer("parity", [tensor], outputs=every, **more)
        check(first)
        assert first.get_response()["id"] == name
        again = client.infer("parity", [tensor], outputs=every, **more)
        assert (again.as_numpy("query_id") == first.as_numpy("query_id")).all()
    check(client.infer("parity", [tensor]))
    check(client.async_infer("parity", [tensor]).get_result())
statistics = client.get_inference_statistics("parity")["model_stats"]
assert len(statistics) == 1, statistics
assert statistics[0]["inference_count"] >= 40, statistics
assert refused("none", [tensor]).startswith("Request for unknown model: there is no application 'none'")
examples()
asyncio.run(asynchronously())
